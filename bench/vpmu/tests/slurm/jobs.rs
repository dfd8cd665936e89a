//! The crate `slurm` against the real thing: shell scripts run in place of vpmu.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use fleet::slurm::query::States;
use fleet::slurm::query::{State, Task};
use fleet::slurm::request::Request;
use fleet::slurm::submit::Submitted;
use results::error::Exit;

use crate::rig::{Rig, wait};

/// The name of a campaign's folder: whatever a path may have.
const FOLDER: &str = "50% of it's \"$HOME\" é";

/// A request that runs a script.
fn request(rig: &Rig, script: &str, elements: u64) -> Result<Request> {
    let folder = rig.path(FOLDER);
    fs::create_dir_all(folder.join("bin"))?;
    let runner = folder.join("bin/runner of it's");
    fs::write(&runner, format!("#!/bin/sh\n{script}\n"))?;
    fs::set_permissions(&runner, fs::Permissions::from_mode(0o755))?;
    let arguments = vec![folder.to_str().context("a path")?.to_owned()];
    Ok(Request { arguments, ..Request::new("rig", &folder, &runner, (0..elements).map(|n| 100 + n).collect()) })
}

fn submit(rig: &Rig, request: &Request) -> Result<Vec<Submitted>> {
    let slurm = rig.slurm();
    let config = slurm.config()?;
    let mut jobs = Vec::new();
    slurm.submit(request, config.max_array_size, &mut |job| {
        jobs.push(job.clone());
        Ok(())
    })?;
    Ok(jobs)
}

/// Waits until the states are so.
fn until(rig: &Rig, jobs: &[Submitted], what: &str, so: impl Fn(&BTreeMap<u64, Task>) -> bool) -> Result<States> {
    let slurm = rig.slurm();
    let mut states = States::default();
    wait(what, || {
        states = slurm.states(jobs, false);
        ensure!(states.unanswered.is_none(), "{:?}", states.unanswered);
        Ok(so(&states.elements))
    })
    .with_context(|| format!("{states:?}"))?;
    Ok(states)
}

/// Lines of a file that the elements write.
fn lines(path: &Path) -> Vec<String> {
    let mut lines: Vec<String> = fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn log(rig: &Rig, name: &str) -> PathBuf {
    rig.path(FOLDER).join(name)
}

/// Lists the files that were copied to a node and not removed.
fn copies(rig: &Rig) -> Vec<String> {
    let entries = fs::read_dir(rig.path("tmp")).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("vpmu-"))
        .collect()
}

/// One element completes, one fails, one is killed, one requeued, one cancelled while it runs, one in the queue.
pub(crate) fn elements_run_once_with_their_states(rig: &mut Rig) -> Result<()> {
    let script = r#"
echo "$2 ${SLURM_RESTART_COUNT:-0} $SLURMD_NODENAME $(basename "$VPMU_FLEET_COPIES" | cut -c 1-5)" >> "$1/ran"
case $2 in
101) exit 5 ;;
102) kill -9 $$ ;;
103 | 104) [ "${SLURM_RESTART_COUNT:-0}" = 1 ] || exec sleep 300 ;;
esac"#;
    let wish = Request { constraint: Some("clx".into()), at_once: Some(2), ..request(rig, script, 7)? };
    let jobs = submit(rig, &wish)?;
    ensure!(jobs.len() == 1 && jobs[0].cluster.is_none(), "{jobs:?}");
    let job = jobs[0].job;

    until(rig, &jobs, "two elements to run", |all| [103, 104].iter().all(|n| all[n].state == State::Running))?;
    // They run for Slurm a little before their scripts do.
    wait("their first lines", || {
        let ran = lines(&log(rig, "ran"));
        Ok(["103 0", "104 0"].iter().all(|begin| ran.iter().any(|line| line.starts_with(begin))))
    })?;
    rig.ask(&["scancel", &format!("{job}_6")])?;
    rig.ask(&["scontrol", "requeue", &format!("{job}_3")])?;
    until(rig, &jobs, "the requeue", |all| all[&103].restarts == 1)?;
    rig.ask(&["scancel", &format!("{job}_4")])?;
    let ends = until(rig, &jobs, "the end", |all| all.values().all(|task| !task.state.is_active()))?.elements;

    let words: Vec<&str> = ends.values().map(|task| task.state.word()).collect();
    let expected = ["completed", "failed", "failed", "completed", "cancelled", "completed", "unknown"];
    ensure!(words == expected, "{ends:?}");
    ensure!(ends[&101].exit_code == Some(5) && ends[&102].exit_code == Some(137), "{ends:?}");
    ensure!(ends[&106].state.reason().is_some_and(|why| why.contains("cancelled before it began")), "{ends:?}");
    ensure!(ends[&100].node.as_deref().is_some_and(|node| node.starts_with("clx")), "{ends:?}");
    let ran = lines(&log(rig, "ran"));
    let of: Vec<&str> = ran.iter().map(|line| &line[..5]).collect();
    ensure!(of == ["100 0", "101 0", "102 0", "103 0", "103 1", "104 0", "105 0"], "{ran:?}");
    ensure!(ran.iter().all(|line| line.contains(" clx") && line.ends_with(" vpmu-")), "{ran:?}");
    wait("the copies to be removed", || Ok(copies(rig).is_empty()))?;
    ensure!(log(rig, "slurm").join(format!("{job}_0.out")).is_file(), "no output file of the batch script");
    // All of it has ended.
    rig.slurm().cancel(&jobs)?;
    Ok(())
}

/// A plan asks for things that the cluster lacks.
pub(crate) fn refusals_are_sbatchs_own_words(rig: &mut Rig) -> Result<()> {
    let plain = request(rig, "exit 0", 1)?;
    let some = |text: &str| Some(text.to_owned());
    for (wish, words) in [
        (Request { partition: some("nosuch"), ..plain.clone() }, "invalid partition specified: nosuch"),
        (Request { constraint: some("zen"), ..plain.clone() }, "Invalid feature specification"),
        (Request { node: some("other1"), ..plain.clone() }, "Invalid node name specified"),
        (Request { reservation: some("night"), ..plain.clone() }, "Requested reservation is invalid"),
        (Request { begin: some("soon"), ..plain.clone() }, "Invalid --begin specification"),
        (Request { options: vec!["--nosuch=1".into()], ..plain.clone() }, "unrecognized option '--nosuch"),
    ] {
        let error = rig.slurm().submit(&wish, 1001, &mut |_| Ok(())).err().context(words)?;
        ensure!(error.exit == Exit::Usage && error.to_string().contains(words), "{error}, without {words}");
    }
    let nodes = rig.slurm().nodes()?;
    ensure!(nodes.iter().all(|node| node.is_usable() && node.partitions == ["fleet", "urgent"]), "{nodes:?}");
    ensure!(nodes[0].features == ["clx"] && nodes[2].features == ["icx"], "{nodes:?}");
    let config = rig.slurm().config()?;
    ensure!(config.max_array_size == 1001 && !config.accounting && config.cluster == "vpmu", "{config:?}");
    Ok(())
}

/// SIGTERM arrives before the limit, and the end of the element is the end of the job.
pub(crate) fn a_time_limit_is_announced_by_sigterm(rig: &mut Rig) -> Result<()> {
    let script = r#"trap 'echo "$2 whole" >> "$1/ran"; exit 3' TERM
while :; do sleep 0.1; done"#;
    // Slurm's times have a granularity of a minute: the warning comes up to a minute early, and at once here.
    let wish =
        Request { time_limit: Duration::from_secs(10), warning: Duration::from_secs(50), ..request(rig, script, 1)? };
    let jobs = submit(rig, &wish)?;
    let ends = until(rig, &jobs, "the time limit", |all| !all[&100].state.is_active())?.elements;
    ensure!(lines(&log(rig, "ran")) == ["100 whole"], "{:?}", lines(&log(rig, "ran")));
    ensure!(ends[&100].exit_code == Some(3), "{ends:?}");
    wait("the copies to be removed", || Ok(copies(rig).is_empty()))
}
