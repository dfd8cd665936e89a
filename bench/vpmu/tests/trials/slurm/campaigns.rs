//! A campaign that everything happens to, and a sweep in parts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use fleet::slurm::query::{State, States, Task};
use fleet::slurm::request::Request;
use fleet::slurm::request::SlurmOptions;
use fleet::slurm::submit::Submitted;
use results::error::Exit;
use serde_json::Value;

use super::rig::{Rig, wait};

// A campaign of `vpmu fleet --on slurm`, as the tests use it.

/// A simulated run that takes a moment.
pub(crate) const QUICK: &str =
    "run = 'sim'\noptions = { strategy = 'reuse', workload = 'counting1', rounds = 5, samples = 20 }\n";

/// Variables that would send a submission elsewhere, make it wait, hide its jobs or name another one.
const CALLER: [&str; 9] = [
    "SBATCH_WAIT=1",
    "SBATCH_PARTITION=nosuch",
    "SLURM_CPU_BIND=verbose,mask_cpu:0x1",
    "SLURM_CLUSTERS=nosuch",
    "SLURM_JOB_ID=777",
    "SLURM_ARRAY_JOB_ID=777",
    "SLURM_ARRAY_TASK_ID=7",
    "SQUEUE_STATES=FAILED",
    "TMPDIR=/none-of-this-node",
];

/// A campaign's plan and folder.
pub(crate) struct Campaign<'a> {
    pub(crate) rig: &'a Rig,
    /// Its plan.
    pub(crate) plan: PathBuf,
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
        // The environment of a caller in another job, on a machine with another disk.
        command.envs(CALLER.map(|word| word.split_once('=').unwrap_or_default()));
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
    pub(crate) fn jobs(&self) -> Result<Vec<u64>> {
        let lines = fs::read_to_string(self.folder.join("submissions.jsonl"))?;
        lines.lines().map(|line| serde_json::from_str::<Value>(line)?["job"].as_u64().context("a job id")).collect()
    }

    /// Elements with an outcome, and the folders of their attempts.
    pub(crate) fn outcomes(&self) -> Result<BTreeMap<u64, (Value, Vec<PathBuf>)>> {
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

pub(crate) fn over(element: &Value) -> bool {
    ["ok", "failed", "inconclusive"].iter().any(|state| has(element, state))
}

/// A variant's binary that takes some seconds more than vpmu, more on one node in the first run there, and fails on one task.
pub(crate) fn paced(rig: &Rig, seconds: u32, slow: &str, fails: &str) -> Result<PathBuf> {
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

/// A plan of [`QUICK`] runs by that binary, with these lines of hosts and repetitions.
pub(crate) fn paced_plan(lines: &str, binary: &Path) -> String {
    format!(
        "name = 'paced'\n{lines}\n[[experiment]]\n{QUICK}[[variant]]\nname = 'paced'\nbinary = '{}'\n",
        binary.display()
    )
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// 24 elements on four nodes of two classes. One fails, one is requeued, a node is drained and the slurmd of another killed.
pub(crate) fn every_result_once_whatever_happens(rig: &mut Rig) -> Result<()> {
    let binary = paced(rig, 2, "clx2", "1_5")?;
    let hosts = "hosts = [{ constraint = 'clx', count = 12 }, { constraint = 'icx', count = 12 }]";
    let plan = paced_plan(hosts, &binary);
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
    // Slurm has started two elements twice. The one on clx2 ran on without its slurmd: of two runs at a time the first
    // to end counts.
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
    ensure!(
        tasks.values().filter(|task| task.state == fleet::slurm::query::State::Completed).count() == 23,
        "{tasks:?}"
    );
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
    const KEYS: [&str; 5] = ["strategy=reuse,gate", "seed=1-10000", "workload=counting1", "samples=5", "tail=0ms"];
    let plan = format!("name = 'sweep'\n[[experiment]]\nrun = 'sweep'\nparts = 16\noptions = {{ args = {KEYS:?} }}\n");
    let campaign = Campaign::new(rig, &plan)?;
    campaign.submit(&[])?;
    // One machine runs the same meanwhile.
    let alone = rig.path("alone");
    let mut command = rig.command(env!("CARGO_BIN_EXE_vpmu"));
    command.args(["sweep", "--quiet", "-o"]).arg(&alone);
    command.args(KEYS);
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
    let hosts: BTreeSet<String> =
        campaign.outcomes()?.values().filter_map(|(done, _)| Some(done["host"].as_str()?.to_owned())).collect();
    ensure!(hosts.len() == 4, "only on {hosts:?}");
    Ok(())
}

// `fleet::slurm` against the real thing: shell scripts run in place of vpmu.

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
    let slurm = SlurmOptions { at_once: Some(2), ..SlurmOptions::default() };
    let wish = Request { constraint: Some("clx".into()), slurm, ..request(rig, script, 7)? };
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
    let (some, none) = (|text: &str| Some(text.to_owned()), SlurmOptions::default);
    let with = |slurm| Request { slurm, ..plain.clone() };
    for (wish, words) in [
        (with(SlurmOptions { partition: some("nosuch"), ..none() }), "invalid partition specified: nosuch"),
        (Request { constraint: some("zen"), ..plain.clone() }, "Invalid feature specification"),
        (with(SlurmOptions { options: vec!["--nosuch=1".into()], ..none() }), "unrecognized option '--nosuch"),
    ] {
        let error = rig.slurm().submit(&wish, 1001, &mut |_| Ok(())).err().context(words)?;
        ensure!(error.exit == Exit::Usage && error.to_string().contains(words), "{error}, without {words}");
    }
    let nodes = rig.slurm().nodes()?;
    let usable = ["idle", "mixed", "allocated", "completing"];
    ensure!(nodes.len() == 4 && nodes.iter().all(|node| usable.contains(&&*node.state)), "{nodes:?}");
    let config = rig.slurm().config()?;
    ensure!(config.max_array_size == 1001 && !config.accounting, "{config:?}");
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
