//! `vpmu fleet --on slurm`: campaigns that things happen to.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use slurm::submit::Submitted;

use crate::rig::{Rig, wait};

/// A simulated run that takes a moment.
const QUICK: &str = "run = 'sim'\noptions = { strategy = 'reuse', workload = 'counting1', rounds = 5, samples = 20 }\n";

/// A campaign's plan and folder.
pub(crate) struct Campaign<'a> {
    rig: &'a Rig,
    plan: PathBuf,
    /// The campaign's folder.
    pub(crate) folder: PathBuf,
}

impl<'a> Campaign<'a> {
    pub(crate) fn new(rig: &'a Rig, plan: &str) -> Result<Self> {
        let folder = rig.path("shared folder/it's a 100% campaign");
        fs::create_dir_all(folder.parent().context("a parent")?)?;
        let path = rig.path("plan.toml");
        fs::write(&path, plan)?;
        Ok(Self { rig, plan: path, folder })
    }

    /// `vpmu fleet SUBCOMMAND` with the campaign's folder.
    pub(crate) fn fleet(&self, subcommand: &str, options: &[&str]) -> Result<Output> {
        let mut command = self.rig.command(env!("CARGO_BIN_EXE_vpmu"));
        command.args(["fleet", subcommand]);
        if subcommand == "submit" {
            command.arg(&self.plan).arg("-o").arg(&self.folder)
        } else {
            command.arg(&self.folder)
        };
        Ok(command.args(options).output()?)
    }

    pub(crate) fn submit(&self, options: &[&str]) -> Result<String> {
        let output = self.fleet("submit", &[&["--on", "slurm"], options].concat())?;
        ensure!(output.status.code() == Some(0), "{}", text(&output));
        Ok(text(&output))
    }

    /// Elements by number, as `status --json` has them.
    pub(crate) fn status(&self) -> Result<Vec<Value>> {
        let output = self.fleet("status", &["--json"])?;
        let status: Value = serde_json::from_slice(&output.stdout).with_context(|| text(&output))?;
        status["elements"].as_array().cloned().context("no elements")
    }

    /// Waits until the elements are so.
    pub(crate) fn until(&self, what: &str, so: impl Fn(&[Value]) -> bool) -> Result<Vec<Value>> {
        let mut last = Vec::new();
        wait(what, || {
            last = self.status()?;
            Ok(so(&last))
        })
        .with_context(|| format!("{}", Value::from(last.clone())))?;
        Ok(last)
    }

    /// Job ids of the submissions, in order.
    fn jobs(&self) -> Result<Vec<u64>> {
        let lines = fs::read_to_string(self.folder.join("submissions.jsonl"))?;
        lines.lines().map(|line| serde_json::from_str::<Value>(line)?["job"].as_u64().context("a job id")).collect()
    }

    /// Elements with an outcome, and the folders of their attempts.
    fn outcomes(&self) -> Result<BTreeMap<u64, (Value, Vec<PathBuf>)>> {
        let mut outcomes = BTreeMap::new();
        for entry in fs::read_dir(self.folder.join("elements"))? {
            let folder = entry?.path();
            let Ok(done) = fs::read(folder.join("done.json")) else { continue };
            let number = folder.file_name().and_then(|name| name.to_str()?.parse().ok()).context("a number")?;
            let attempts = fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
            let attempts = attempts.into_iter().filter(|path| path.is_dir()).collect();
            outcomes.insert(number, (serde_json::from_slice(&done)?, attempts));
        }
        Ok(outcomes)
    }
}

pub(crate) fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

pub(crate) fn has(element: &Value, state: &str) -> bool {
    element["state"] == state
}

fn over(element: &Value) -> bool {
    ["ok", "failed", "inconclusive"].iter().any(|state| has(element, state))
}

/// A variant's binary that takes some seconds more than vpmu, more on one node in the first run there, and fails on one task.
fn paced(rig: &Rig, seconds: u32, slow: &str, fails: &str) -> Result<PathBuf> {
    let path = rig.path("paced");
    let vpmu = env!("CARGO_BIN_EXE_vpmu");
    let script = format!(
        "#!/bin/sh\n\
         if [ \"$SLURMD_NODENAME/${{SLURM_RESTART_COUNT:-0}}\" = '{slow}/0' ]; then sleep 25; else sleep {seconds}; fi\n\
         if [ \"$SLURM_ARRAY_JOB_ID\"_$SLURM_ARRAY_TASK_ID = '{fails}' ]; then echo 'planted failure' >&2; exit 70; fi\n\
         exec '{vpmu}' \"$@\"\n"
    );
    fs::write(&path, script)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// 24 elements on four nodes of two classes. One fails, one is requeued, a node is drained and the slurmd of another killed.
pub(crate) fn every_result_once_whatever_happens(rig: &mut Rig) -> Result<()> {
    let binary = paced(rig, 2, "clx2", "1_5")?;
    let plan = format!(
        "name = 'must-show'\nhosts = [{{ constraint = 'clx', count = 12 }}, {{ constraint = 'icx', count = 12 }}]\n\
         [[experiment]]\n{QUICK}[[variant]]\nname = 'paced'\nbinary = '{}'\n",
        binary.display()
    );
    let campaign = Campaign::new(rig, &plan)?;
    campaign.submit(&[])?;
    ensure!(campaign.jobs()? == [1, 2], "{:?}", campaign.jobs()?);

    let running = |node: &'static str| {
        move |elements: &[Value]| elements.iter().any(|element| has(element, "running") && element["host"] == node)
    };
    let on = |elements: &[Value], node: &str| -> Result<String> {
        let element = elements.iter().find(|element| has(element, "running") && element["host"] == node);
        Ok(element.and_then(|element| element["job"].as_str()).context("its job")?.to_owned())
    };
    let elements = campaign.until("an element on clx1", running("clx1"))?;
    let requeued = on(&elements, "clx1")?;
    rig.ask(&["scontrol", "requeue", &requeued])?;
    rig.ask(&["scontrol", "update", "nodename=icx2", "state=drain", "reason=a fan"])?;
    let elements = campaign.until("an element on clx2", running("clx2"))?;
    let orphaned = on(&elements, "clx2")?;
    let folder = campaign.folder.clone();
    rig.kill("clx2")?;
    let campaign = Campaign { rig, plan: rig.path("plan.toml"), folder };

    let elements = campaign.until("the outcomes", |elements| elements.iter().all(over))?;
    ensure!(elements.len() == 24, "{}", elements.len());
    let failed: Vec<&str> =
        elements.iter().filter(|element| !has(element, "ok")).filter_map(|element| element["name"].as_str()).collect();
    ensure!(failed == [elements[5]["name"].as_str().unwrap_or_default()], "{failed:?}");

    // Every result once, on a node of its class, with its job.
    let outcomes = campaign.outcomes()?;
    ensure!(outcomes.len() == 24, "{}", outcomes.len());
    for (number, (done, attempts)) in &outcomes {
        let class = if *number < 12 { "clx" } else { "icx" };
        let host = done["host"].as_str().context("a host")?;
        ensure!(host.starts_with(class), "element {number} of {class} on {host}");
        let task = format!("{}_{}", 1 + number / 12, number % 12);
        ensure!(done["job"]["task"] == *task, "{done}");
        let documents = done["documents"].as_array().context("documents")?;
        ensure!(documents.len() == usize::from(*number != 5), "{done}");
        ensure!(!attempts.is_empty() && attempts.len() <= 3, "{attempts:?}");
    }
    // Slurm has started two elements twice. The one on clx2 ran on without its slurmd: of two runs at a time the first to end counts.
    let jobs: Vec<Submitted> = fs::read_to_string(campaign.folder.join("submissions.jsonl"))?
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let mut tasks = BTreeMap::new();
    wait("the end of all tasks", || {
        tasks = rig.slurm().states(&jobs, false).elements;
        Ok(tasks.values().all(|task| !task.state.is_active()))
    })?;
    for id in [&requeued, &orphaned] {
        let task = tasks.values().find(|task| task.id() == *id).context("a task")?;
        ensure!(task.restarts == 1 && task.node.as_deref() == Some("clx1"), "{task:?}");
    }
    ensure!(tasks.values().filter(|task| task.state == slurm::state::State::Completed).count() == 23, "{tasks:?}");
    ensure!(tasks[&5].exit_code == Some(70), "{:?}", tasks[&5]);
    ensure!(campaign.outcomes()? == outcomes, "an outcome changed");

    let report = campaign.fleet("report", &[])?;
    ensure!(report.status.code() == Some(1), "{}", text(&report));
    let said = text(&report);
    ensure!(said.contains(failed[0]) && said.contains("1_5"), "{said}");

    // Nothing is left to run.
    let again = campaign.submit(&[])?;
    ensure!(again.contains("0 of 24 elements to run"), "{again}");
    ensure!(campaign.jobs()?.len() == 2 && campaign.outcomes()? == outcomes, "the second submission ran something");
    Ok(())
}

/// 10 000 points in 16 parts over the nodes: the bytes of one machine.
pub(crate) fn a_sweep_in_parts_is_the_same_to_the_byte(rig: &mut Rig) -> Result<()> {
    const OPTIONS: [(&str, &str); 5] =
        [("strategy", "reuse,gate"), ("seed", "1-5000"), ("workload", "counting1"), ("samples", "5"), ("tail", "0")];
    let options: Vec<String> = OPTIONS.iter().map(|(name, value)| format!("{name} = '{value}'")).collect();
    let plan =
        format!("name = 'sweep'\n[[experiment]]\nrun = 'sweep'\nparts = 16\noptions = {{ {} }}\n", options.join(", "));
    let campaign = Campaign::new(rig, &plan)?;
    campaign.submit(&[])?;
    // The same on one machine, meanwhile.
    let alone = rig.path("alone");
    let mut command = rig.command(env!("CARGO_BIN_EXE_vpmu"));
    command.args(["sweep", "--quiet", "-o"]).arg(&alone);
    for (name, value) in OPTIONS {
        command.args([format!("--{name}"), value.to_owned()]);
    }
    let output = command.output()?;
    ensure!(output.status.success(), "{}", text(&output));
    campaign.until("the parts", |elements| elements.iter().all(over))?;
    let collected = campaign.fleet("collect", &[])?;
    ensure!(collected.status.code() == Some(0), "{}", text(&collected));
    let merged = campaign.folder.join("sweeps/sweep-default");
    for file in ["sweep.jsonl", "pareto.json", "pareto.md"] {
        let (one, parts) = (read(&alone.join(file))?, read(&merged.join(file))?);
        ensure!(one == parts, "{file} differs: {} and {} bytes", one.len(), parts.len());
    }
    ensure!(fs::read_to_string(alone.join("sweep.jsonl"))?.lines().count() == 10_000, "not all points");
    let hosts: std::collections::BTreeSet<String> =
        campaign.outcomes()?.values().filter_map(|(done, _)| Some(done["host"].as_str()?.to_owned())).collect();
    ensure!(hosts.len() == 4, "only on {hosts:?}");
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The controller goes after the submission: what ended is collected, and nothing is submitted twice.
pub(crate) fn a_controller_that_vanishes_loses_no_outcome(rig: &mut Rig) -> Result<()> {
    let binary = paced(rig, 1, "", "")?;
    let plan = format!(
        "name = 'gone'\nhosts = [{{ constraint = 'clx', count = 6 }}]\n[[experiment]]\n{QUICK}\
         [[variant]]\nname = 'paced'\nbinary = '{}'\n",
        binary.display()
    );
    let campaign = Campaign::new(rig, &plan)?;
    campaign.submit(&[])?;
    campaign.until("two outcomes", |elements| elements.iter().filter(|element| over(element)).count() >= 2)?;
    let (folder, before) = (campaign.folder.clone(), campaign.outcomes()?);
    rig.stop("slurmctld")?;
    let campaign = Campaign { rig, plan: rig.path("plan.toml"), folder: folder.clone() };
    for subcommand in ["collect", "report"] {
        let output = campaign.fleet(subcommand, &[])?;
        let said = text(&output);
        ensure!(output.status.code() == Some(3), "{subcommand}: {said}");
        ensure!(said.contains("Unable to contact slurm controller"), "{said}");
        ensure!(said.lines().filter(|line| line.starts_with("vpmu: warning")).count() == 1, "{said}");
    }
    for (subcommand, options) in [("submit", &["--on", "slurm"][..]), ("cancel", &[])] {
        let output = campaign.fleet(subcommand, options)?;
        let said = text(&output);
        ensure!(output.status.code() == Some(4) && said.trim_end().lines().count() == 1, "{subcommand}: {said}");
    }
    ensure!(
        before.iter().all(|(number, (done, _))| campaign.outcomes().is_ok_and(|now| now[number].0 == *done)),
        "an outcome changed"
    );
    rig.controller()?;
    let campaign = Campaign { rig, plan: rig.path("plan.toml"), folder };
    wait("the controller", || Ok(rig.slurm().config().is_ok()))?;
    campaign.until("the outcomes", |elements| elements.iter().all(|element| has(element, "ok")))?;
    let again = campaign.submit(&[])?;
    ensure!(again.contains("0 of 6 elements to run"), "{again}");
    Ok(())
}

/// Preempted: a whole document of the interrupted attempt, no outcome, and the element runs again by itself. Cancelled: it runs again
/// with the next submission.
pub(crate) fn a_stopped_element_leaves_a_whole_document_and_runs_again(rig: &mut Rig) -> Result<()> {
    // Long enough for any machine; interrupted in each case but the last.
    let plan = "name = 'stopped'\nhosts = [{ names = 'icx1' }]\n[[experiment]]\nrun = 'sim'\n\
                options = { strategy = 'reuse', rounds = 100000, samples = 200 }\n";
    let campaign = Campaign::new(rig, plan)?;
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

    let cancelled = campaign.fleet("cancel", &[])?;
    ensure!(cancelled.status.code() == Some(0), "{}", text(&cancelled));
    let elements = campaign.until("the end of the job", |elements| !has(&elements[0], "running"))?;
    ensure!(has(&elements[0], "stopped"), "{}", elements[0]);
    interrupted(&campaign.folder.join("elements/000000/attempt-2"))?;

    let again = campaign.submit(&[])?;
    ensure!(again.contains("1 of 1 element to run"), "{again}");
    begun(3)?;
    let cancelled = campaign.fleet("cancel", &[])?;
    ensure!(cancelled.status.code() == Some(0), "{}", text(&cancelled));
    campaign.until("the end of the job", |elements| !has(&elements[0], "running")).map(|_| ())
}

/// A whole document of an interrupted run.
fn interrupted(attempt: &Path) -> Result<()> {
    let mut found = Vec::new();
    let mut folders = vec![attempt.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "json") && !path.ends_with("attempt.json") {
                found.push(
                    serde_json::from_slice::<Value>(&read(&path)?).with_context(|| format!("{}", path.display()))?,
                );
            }
        }
    }
    let [document] = &found[..] else { bail!("{} documents in {}", found.len(), attempt.display()) };
    ensure!(document["status"] == "interrupted", "{}", document["status"]);
    Ok(())
}
