//! Campaigns whose controller, jobs, locks or disk stop in the middle.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::Signal;
use serde_json::Value;

use super::campaigns::{Campaign, QUICK, has, over, paced, paced_plan, read, text};
use super::rig::{Rig, wait};
use crate::binary::VPMU;

/// A run that is long enough for any machine: each is interrupted.
const LONG: &str = "[[experiment]]\nrun = 'sim'\noptions = { strategy = 'reuse', rounds = 100000, samples = 200 }\n";

/// The controller goes after the submission: what ended is collected, and nothing is submitted twice.
pub(crate) fn a_controller_that_vanishes_loses_no_outcome(rig: &mut Rig) -> Result<()> {
    let binary = paced(rig, 1, "", "")?;
    let plan = paced_plan("hosts = [{ constraint = 'clx', count = 6 }]", &binary);
    let campaign = Campaign::new(rig, &plan)?;
    campaign.submit(&[])?;
    campaign.until("two outcomes", |elements| elements.iter().filter(|element| over(element)).count() >= 2)?;
    let before = campaign.outcomes()?;
    rig.end("slurmctld", Signal::TERM)?;
    let campaign = Campaign::again(rig);
    for subcommand in ["status", "report"] {
        let output = campaign.fleet(subcommand, &[])?;
        let said = text(&output);
        ensure!(output.status.code() == Some(3), "{subcommand}: {said}");
        ensure!(said.contains("Unable to contact slurm controller"), "{said}");
        ensure!(said.lines().filter(|line| line.starts_with("vpmu: warning")).count() == 1, "{said}");
    }
    let output = campaign.fleet("submit", &["--on", "slurm"])?;
    let said = text(&output);
    ensure!(output.status.code() == Some(4) && said.trim_end().lines().count() == 1, "{said}");
    ensure!(
        before.iter().all(|(number, (done, _))| campaign.outcomes().is_ok_and(|now| now[number].0 == *done)),
        "an outcome changed"
    );
    rig.controller()?;
    let campaign = Campaign::again(rig);
    wait("the controller", || Ok(rig.ask(&["scontrol", "ping"]).is_ok_and(|said| said.contains("is UP"))))?;
    campaign.until("the outcomes", |elements| elements.iter().all(|element| has(element, "ok")))?;
    let again = campaign.submit(&[])?;
    ensure!(again.contains("0 of 6 elements to run"), "{again}");
    Ok(())
}

/// Preempted: a whole document of the interrupted attempt, no outcome, and the element runs again by itself. Cancelled:
/// it runs again with the next submission.
pub(crate) fn preempted_and_cancelled_elements_run_again(rig: &mut Rig) -> Result<()> {
    let campaign = Campaign::new(rig, &format!("name = 'stopped'\nhosts = [{{ names = 'icx1' }}]\n{LONG}"))?;
    campaign.submit(&[])?;
    let begun = |attempt: usize| {
        let out = campaign.folder.join(format!("elements/000000/attempt-{attempt}/stderr.txt"));
        wait(&format!("attempt {attempt}"), || Ok(out.exists()))?;
        // The command has caught signals before it simulates the first round.
        std::thread::sleep(std::time::Duration::from_secs(3));
        anyhow::Ok(())
    };
    begun(1)?;
    rig.ask(&["sbatch", "-p", "urgent", "-w", "icx1", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 1"])?;
    begun(2)?;
    interrupted(&campaign.folder.join("elements/000000/attempt-1"))?;
    ensure!(campaign.outcomes()?.is_empty(), "an interrupted attempt is no outcome");

    campaign.cancel()?;
    let elements = campaign.until("the end of the job", |elements| !has(&elements[0], "running"))?;
    ensure!(has(&elements[0], "stopped"), "{}", elements[0]);
    interrupted(&campaign.folder.join("elements/000000/attempt-2"))?;

    let again = campaign.submit(&[])?;
    ensure!(again.contains("1 of 1 element to run"), "{again}");
    begun(3)?;
    campaign.cancel()?;
    campaign.until("the end of the job", |elements| !has(&elements[0], "running")).map(|_| ())
}

/// A whole document of an interrupted run.
fn interrupted(attempt: &Path) -> Result<()> {
    let files: Vec<_> = fs::read_dir(attempt)?.flatten().map(|entry| entry.path()).collect();
    let is_document =
        |path: &&PathBuf| path.extension().is_some_and(|kind| kind == "json") && !path.ends_with("attempt.json");
    let [document] = &files.iter().filter(is_document).collect::<Vec<_>>()[..] else { bail!("of {files:?} not one") };
    let document: Value =
        serde_json::from_slice(&read(document)?).with_context(|| format!("{}", document.display()))?;
    ensure!(document["status"] == "interrupted", "{}", document["status"]);
    Ok(())
}

/// Slurm's own time limit is announced by SIGTERM, a minute before: whole document, stopped, due again.
pub(crate) fn a_time_limit_is_announced_by_sigterm(rig: &mut Rig) -> Result<()> {
    let campaign = Campaign::new(rig, &format!("name = 'limit'\n{LONG}"))?;
    campaign.submit(&[])?;
    let out = campaign.folder.join("elements/000000/attempt-1/stderr.txt");
    wait("the attempt", || Ok(out.exists()))?;
    rig.ask(&["scontrol", "update", "jobid=1_0", "timelimit=1"])?;
    let elements = campaign.until("the end of the job", |elements| !has(&elements[0], "running"))?;
    ensure!(has(&elements[0], "stopped") && elements[0]["attempts"] == 1, "{}", elements[0]);
    interrupted(&campaign.folder.join("elements/000000/attempt-1"))
}

/// A time limit of the plan: whole document, stopped, due again.
pub(crate) fn a_time_limit_leaves_a_whole_document(rig: &mut Rig) -> Result<()> {
    let campaign = Campaign::new(rig, &format!("name = 'limit'\n{LONG}time = '3s'\n"))?;
    campaign.submit(&[])?;
    let elements = campaign
        .until("the end of the job", |elements| !has(&elements[0], "running") && !has(&elements[0], "pending"))?;
    ensure!(has(&elements[0], "stopped") && elements[0]["attempts"] == 1, "{}", elements[0]);
    interrupted(&campaign.folder.join("elements/000000/attempt-1"))?;
    let report = campaign.fleet("report", &[])?;
    ensure!(report.status.code() == Some(3) && text(&report).contains("time limit"), "{}", text(&report));
    let again = campaign.submit(&[])?;
    ensure!(again.contains("1 of 1 element to run"), "{again}");
    campaign.cancel()
}

/// A time limit above the partition's: Slurm takes the job and never starts it, which only its reason says.
pub(crate) fn status_says_what_pending_elements_wait_for(rig: &mut Rig) -> Result<()> {
    let plan = format!("name = 'long'\nrepeat = {{ times = 3 }}\n[[experiment]]\ntime = '30h'\n{QUICK}");
    let campaign = Campaign::new(rig, &plan)?;
    campaign.submit(&[])?;
    campaign
        .until("the reason", |elements| elements.iter().all(|element| element["reason"] == "PartitionTimeLimit"))?;
    let status = text(&campaign.fleet("status", &[])?);
    ensure!(status.contains("3 for PartitionTimeLimit"), "{status}");
    // Waiting for it ends at once, with the sentence.
    let waited = campaign.fleet("status", &["--wait"])?;
    let said = text(&waited);
    ensure!(
        waited.status.code() == Some(4) && said.contains("for PartitionTimeLimit, which never starts: its time limit"),
        "{said}"
    );
    campaign.cancel()?;
    // An element that was cancelled before it began is due again.
    campaign.until("the end", |elements| elements.iter().all(|element| has(element, "stopped"))).map(|_| ())
}

/// Reports and submissions at the same time: one works, the other says so in a line, and every element has one job.
pub(crate) fn two_at_once_do_nothing_twice(rig: &mut Rig) -> Result<()> {
    let binary = paced(rig, 1, "", "1_0")?;
    let plan = paced_plan("hosts = [{ constraint = 'clx', count = 4 }]", &binary);
    let campaign = Campaign::new(rig, &plan)?;
    let twice = |subcommand: &str, options: &[&str]| -> Result<Vec<Output>> {
        std::thread::scope(|scope| {
            let first = scope.spawn(|| campaign.fleet(subcommand, options));
            let second = campaign.fleet(subcommand, options)?;
            Ok(vec![first.join().map_err(|_| anyhow::anyhow!("a panic"))??, second])
        })
    };
    let refused = |output: &Output| {
        let said = text(output);
        output.status.code() == Some(2) && said.contains("is at work") && said.trim_end().lines().count() == 1
    };
    for output in twice("submit", &["--on", "slurm"])? {
        ensure!(output.status.code() == Some(0) || refused(&output), "{}", text(&output));
    }
    ensure!(campaign.jobs()? == [1], "{:?}", campaign.jobs()?);
    campaign.until("a failure", |elements| has(&elements[0], "failed"))?;
    // Failed ones run again, once Slurm has let them go; those in the queue have their job.
    wait("a second submission", || {
        campaign.retry()?;
        let lines = fs::read_to_string(campaign.folder.join("submissions.jsonl"))?;
        Ok(lines.lines().count() > 1)
    })?;
    campaign.until("the outcomes", |elements| elements.iter().all(|element| has(element, "ok")))?;
    let lines = fs::read_to_string(campaign.folder.join("submissions.jsonl"))?;
    let elements: Vec<Value> = lines
        .lines()
        .map(|line| Ok(serde_json::from_str::<Value>(line)?["elements"].clone()))
        .collect::<Result<_>>()?;
    ensure!(elements == [serde_json::json!([0, 1, 2, 3]), serde_json::json!([0])], "{elements:?}");
    for output in twice("report", &[])? {
        ensure!(output.status.code() == Some(0) || refused(&output), "{}", text(&output));
    }
    // Held by another, for certain.
    let file = fs::OpenOptions::new().write(true).open(campaign.folder.join("lock"))?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
    let output = campaign.fleet("report", &[])?;
    ensure!(refused(&output), "{}", text(&output));
    drop(file);
    let output = campaign.fleet("report", &[])?;
    ensure!(output.status.code() == Some(0), "{}", text(&output));

    // Without Slurm in PATH.
    let none = rig.path("none");
    let mut command = rig.command(VPMU);
    command.env("PATH", rig.path("tmp")).args(["fleet", "submit", "--on", "slurm", "-o"]).arg(&none);
    let output = command.arg(&campaign.plan).output()?;
    let said = text(&output);
    ensure!(output.status.code() == Some(4) && said.trim_end().lines().count() == 1, "{said}");
    ensure!(said.contains("in PATH") && said.contains("--on local") && !none.exists(), "{said}");
    Ok(())
}

/// The shared file system is full in the middle: what ended is there, every file is whole, and the rest runs again.
pub(crate) fn a_full_disk_loses_no_outcome(rig: &mut Rig) -> Result<()> {
    let shared = rig.path("shared folder");
    fs::create_dir(&shared)?;
    let size = format!("size={}", fs::metadata(VPMU)?.len() + (8 << 20));
    rig.ask(&["mount", "-t", "tmpfs", "-o", &size, "tmpfs", shared.to_str().context("a path")?])?;
    let binary = paced(rig, 2, "", "")?;
    let plan = paced_plan("hosts = [{ names = 'clx1' }]\nrepeat = { times = 5 }", &binary);
    let campaign = Campaign::new(rig, &plan)?;
    campaign.submit(&[])?;
    campaign.until("an outcome", |elements| elements.iter().any(over))?;
    let filler = shared.join("filler");
    let end = std::io::copy(&mut std::io::repeat(1), &mut fs::File::create(&filler)?);
    ensure!(end.is_err(), "the disk is not full");
    let before = campaign.outcomes()?;
    let elements = campaign.until("the end of all jobs", |elements| {
        elements.iter().all(|element| !has(element, "running") && !has(element, "pending"))
    })?;
    ensure!(elements.iter().any(|element| !over(element)), "the disk was full too late");
    let during = campaign.outcomes()?;
    ensure!(before.iter().all(|(number, (done, _))| during[number].0 == *done), "an outcome changed");
    let collected = campaign.fleet("status", &[])?;
    ensure!([1, 2, 3].map(Some).contains(&collected.status.code()), "{}", text(&collected));

    fs::remove_file(filler)?;
    campaign.retry()?;
    campaign.until("the rest", |elements| elements.iter().all(|element| has(element, "ok")))?;
    let after = campaign.outcomes()?;
    ensure!(after.len() == 5 && before.iter().all(|(number, (done, _))| after[number].0 == *done), "{after:?}");
    Ok(())
}
