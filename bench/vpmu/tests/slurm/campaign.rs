//! A campaign of `vpmu fleet --on slurm`, as the tests use it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::rig::{Rig, wait};

/// A simulated run that takes a moment.
pub(crate) const QUICK: &str =
    "run = 'sim'\noptions = { strategy = 'reuse', workload = 'counting1', rounds = 5, samples = 20 }\n";

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

pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}
