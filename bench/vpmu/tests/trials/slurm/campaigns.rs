//! A campaign that everything happens to, and a sweep in parts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;

use super::rig::{Rig, wait};
use crate::binary::VPMU;

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
        fs::create_dir_all(rig.path("shared folder"))?;
        let campaign = Self::again(rig);
        fs::write(&campaign.plan, plan)?;
        Ok(campaign)
    }

    /// The campaign of this rig, after something happened to that.
    pub(crate) fn again(rig: &'a Rig) -> Self {
        Self { rig, plan: rig.path("plan.toml"), folder: rig.path("shared folder/it's a 100% campaign") }
    }

    /// `vpmu fleet SUBCOMMAND` with the campaign's folder.
    pub(crate) fn fleet(&self, subcommand: &str, options: &[&str]) -> Result<Output> {
        let mut command = self.rig.command(VPMU);
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

    /// Cancels all jobs.
    pub(crate) fn cancel(&self) -> Result<()> {
        self.rig.ask(&["scancel", "--user=root"]).map(|_| ())
    }

    /// Takes the outcomes of failed elements away, and submits again.
    pub(crate) fn retry(&self) -> Result<String> {
        for (number, (done, _)) in self.outcomes()? {
            if done["exit"] != 0 {
                fs::remove_file(self.folder.join(format!("elements/{number:06}/done.json")))?;
            }
        }
        self.submit(&[])
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
    let script = format!(
        "#!/bin/sh\n\
         if [ \"$SLURMD_NODENAME/${{SLURM_RESTART_COUNT:-0}}\" = '{slow}/0' ]; then sleep 25; else sleep {seconds}; fi\n\
         if [ \"$SLURM_ARRAY_JOB_ID\"_$SLURM_ARRAY_TASK_ID = '{fails}' ]; then echo 'planted failure' >&2; exit 70; fi\n\
         exec '{VPMU}' \"$@\"\n"
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

    // Waits for a task on a node.
    let on = |node: &str| -> Result<String> {
        let is_there = |element: &&Value| has(element, "running") && element["host"] == node;
        let elements = campaign.until(node, |elements| elements.iter().any(|element| is_there(&element)))?;
        Ok(elements.iter().find(is_there).and_then(|element| element["job"].as_str()).context("its job")?.to_owned())
    };
    let requeued = on("clx1")?;
    rig.ask(&["scontrol", "requeue", &requeued])?;
    rig.ask(&["scontrol", "update", "nodename=icx2", "state=drain", "reason=a fan"])?;
    let orphaned = on("clx2")?;
    rig.end("clx2", Signal::KILL)?;
    let campaign = Campaign::again(rig);

    let elements = campaign.until("the outcomes", |elements| elements.iter().all(over))?;
    ensure!(elements.len() == 24, "{}", elements.len());
    let failed: Vec<_> = (0..24).filter(|&number| !has(&elements[number], "ok")).collect();
    ensure!(failed == [5], "{failed:?}");

    // Every result once, on a node of its class, with its job.
    let outcomes = campaign.outcomes()?;
    ensure!(outcomes.len() == 24, "{}", outcomes.len());
    for (number, (done, attempts)) in &outcomes {
        let class = if *number < 12 { "clx" } else { "icx" };
        let host = done["host"].as_str().context("a host")?;
        ensure!(host.starts_with(class), "element {number} of {class} on {host}");
        let task = format!("{}_{}", 1 + number / 12, number % 12);
        ensure!(done["job"] == *task, "{done}");
        let documents = done["documents"].as_array().context("documents")?;
        ensure!(documents.len() == usize::from(*number != 5), "{done}");
        ensure!(!attempts.is_empty() && attempts.len() <= 3, "{attempts:?}");
    }
    // Slurm has started two elements twice. The one on clx2 ran on without its slurmd: of two runs at a time the first
    // to end counts.
    let tasks = |states: &str| rig.ask(&["squeue", "-h", "-r", "-t", states, "-o", "%F_%K"]);
    wait("the end of all tasks", || Ok(tasks("pending,running,completing")?.is_empty()))?;
    for id in [&requeued, &orphaned] {
        let task = rig.ask(&["scontrol", "show", "job", "-o", id])?;
        ensure!(task.contains(" Restarts=1 ") && task.contains(" BatchHost=clx1"), "{task}");
    }
    ensure!(tasks("completed")?.lines().count() == 23 && tasks("failed")? == "1_5\n", "{}", tasks("all")?);
    ensure!(outcomes[&5].0["exit"] == 70, "{}", outcomes[&5].0);
    // Their copies of the binary are gone.
    let is_copy = |entry: fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(b"vpmu-");
    wait("the copies to be removed", || Ok(!fs::read_dir(rig.path("tmp"))?.flatten().any(is_copy)))?;
    ensure!(campaign.outcomes()? == outcomes, "an outcome changed");

    let report = campaign.fleet("report", &[])?;
    let (said, name) = (text(&report), elements[5]["name"].as_str().context("a name")?);
    ensure!(report.status.code() == Some(1) && said.contains(name) && said.contains("1_5"), "{said}");

    // Nothing is left to run.
    let again = campaign.submit(&[])?;
    ensure!(again.contains("0 of 24 elements to run"), "{again}");
    ensure!(campaign.jobs()?.len() == 2 && campaign.outcomes()? == outcomes, "the second submission ran something");
    Ok(())
}

/// 1600 points in 16 parts over the nodes: the lines of one machine.
pub(crate) fn a_sweep_in_parts_is_the_same_to_the_byte(rig: &mut Rig) -> Result<()> {
    const KEYS: [&str; 5] = ["strategy=reuse,gate", "seed=1-1600", "workload=counting1", "samples=5", "tail=0ms"];
    let plan = format!("name = 'sweep'\n[[experiment]]\nrun = 'sweep'\nparts = 16\noptions = {{ args = {KEYS:?} }}\n");
    let campaign = Campaign::new(rig, &plan)?;
    campaign.submit(&[])?;
    // One machine runs the same meanwhile.
    let alone = rig.path("alone");
    let output = rig.command(VPMU).args(["sweep", "--quiet", "-o"]).arg(&alone).args(KEYS).output()?;
    ensure!(output.status.success(), "{}", text(&output));
    campaign.until("the parts", |elements| elements.iter().all(over))?;
    let status = campaign.fleet("status", &["--wait"])?;
    ensure!(status.status.code() == Some(0), "{}", text(&status));
    // A sweep takes the points that are there.
    let (merged, mut all) = (rig.path("merged"), Vec::new());
    for (done, _) in campaign.outcomes()?.values() {
        let part = done["documents"][0].as_str().context("no part")?;
        all.extend(read(&campaign.folder.join(part))?);
    }
    fs::create_dir(&merged)?;
    fs::write(merged.join("sweep.jsonl"), all)?;
    let mut command = rig.command(env!("CARGO_BIN_EXE_vpmu"));
    let output = command.args(["sweep", "--quiet", "-o"]).arg(&merged).args(KEYS).output()?;
    ensure!(output.status.success(), "{}", text(&output));
    let (one, parts) =
        (fs::read_to_string(alone.join("sweep.jsonl"))?, fs::read_to_string(merged.join("sweep.jsonl"))?);
    // Each part has its own order, and is found in the joined file as it was.
    let [one, parts] = [&one, &parts].map(|text| text.lines().collect::<BTreeSet<_>>());
    ensure!(one == parts && one.len() == 1600, "the lines differ, or are {} and {}", one.len(), parts.len());
    let outcomes = campaign.outcomes()?;
    let hosts: BTreeSet<_> = outcomes.values().map(|(done, _)| done["host"].as_str()).collect();
    ensure!(hosts.len() == 4, "only on {hosts:?}");
    Ok(())
}

/// A plan asks for things that the cluster lacks.
pub(crate) fn refusals_name_what_the_cluster_lacks(rig: &mut Rig) -> Result<()> {
    for (lines, words) in [
        ("slurm = { partition = 'nosuch' }", "invalid partition specified: nosuch"),
        ("hosts = [{ constraint = 'zen' }]", "Invalid feature specification"),
        ("slurm = { options = ['--nosuch=1'] }", "unrecognized option '--nosuch"),
        ("hosts = [{ names = 'clx[1-3]' }]", "Invalid node name specified"),
        ("hosts = [{ names = 'clx[3-1]' }]", "no list of hosts"),
    ] {
        let campaign = Campaign::new(rig, &format!("name = 'x'\n{lines}\n[[experiment]]\n{QUICK}"))?;
        let output = campaign.fleet("submit", &["--on", "slurm"])?;
        ensure!(output.status.code() == Some(2) && text(&output).contains(words), "{}, without {words}", text(&output));
        let _ = fs::remove_dir_all(&campaign.folder);
    }
    Ok(())
}
