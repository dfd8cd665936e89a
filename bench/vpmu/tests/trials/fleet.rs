//! Campaigns and folders of strangers: nothing of theirs runs, nothing in them makes a command wait for ever.

use fleet::hash::sha256;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use trials::Case;

use crate::binary::VPMU;
use crate::prerequisites::is_root;

type Run = fn() -> Result<()>;

pub(crate) fn cases() -> Vec<Case> {
    let missing = (!is_root()).then(|| "only root can give a folder to another user".to_owned());
    let cases: [(&str, Option<String>, Run); 4] = [
        ("a_folder_of_another_user_is_not_acted_on", missing, folder_of_another_user),
        ("a_folder_that_is_open_to_others_and_another_vpmu_are_not_acted_on", None, open_folder_and_another_vpmu),
        ("a_folder_is_closed_whatever_the_mask", None, open_mask),
        ("a_fifo_in_a_folder_holds_no_command", None, fifo_in_a_folder),
    ];
    cases.into_iter().map(|(name, missing, run)| Case::fallible(name, missing, run).expected(false)).collect()
}

const PLAN: &str = "name = 'x'\n[[experiment]]\nrun = 'sim'\n\
    options = { strategy = 'reuse', workload = 'counting1', rounds = 2, samples = 20 }\n";

/// A folder with a plan, and a campaign of it that ran.
struct Rig(tempfile::TempDir);

impl Rig {
    fn new() -> Result<Self> {
        let rig = Self(tempfile::tempdir()?);
        set_mode(&rig.path(""), 0o755)?;
        std::fs::write(rig.path("plan.toml"), PLAN)?;
        let output = rig.submit()?;
        ensure!(output.status.code() == Some(0), "{}", said(&output));
        let done: Value = serde_json::from_slice(&std::fs::read(rig.path("run/elements/000000/done.json"))?)?;
        ensure!(done["name"].is_string() && done["job"].is_null(), "the job of a caller: {done}");
        Ok(rig)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A command that is ended, with exit code 124, if it does not end by itself.
    fn run(&self, words: &[&str]) -> Result<Output> {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", "60", VPMU]).args(words).current_dir(self.0.path());
        // The caller is a task of somebody's array.
        command.env("SLURM_JOB_ID", "42").env("SLURM_ARRAY_JOB_ID", "40").env("SLURM_ARRAY_TASK_ID", "3");
        Ok(command.output()?)
    }

    fn submit(&self) -> Result<Output> {
        self.run(&["fleet", "submit", "plan.toml", "-o", "run", "--quiet"])
    }

    /// Puts a program in the place of the campaign's, and takes the outcome away.
    fn forge(&self) -> Result<()> {
        let program = format!("#!/bin/sh\ntouch '{}'\n", self.path("ran").display());
        let hash = sha256(program.as_bytes());
        let path = self.path("run/bin").join(format!("vpmu-{}", &hash[..12]));
        std::fs::write(&path, program)?;
        set_mode(&path, 0o755)?;
        let path = self.path("run/campaign.json");
        let mut campaign: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
        campaign["runner"] = json!(hash);
        campaign["binaries"]["default"] = json!(hash);
        std::fs::write(&path, campaign.to_string())?;
        std::fs::remove_dir_all(self.path("run/elements"))?;
        Ok(())
    }

    fn ran(&self) -> bool {
        self.path("ran").exists()
    }

    /// The only document of the campaign.
    fn document(&self) -> Result<PathBuf> {
        let mut files = std::fs::read_dir(self.path("run/elements/000000/attempt-1"))?.flatten();
        let found = files.find(|file| {
            file.path().extension().is_some_and(|kind| kind == "json") && file.file_name() != "attempt.json"
        });
        Ok(found.context("a document")?.path())
    }
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    Ok(std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

fn refused(output: &Output, why: &str) -> Result<()> {
    let said = said(output);
    ensure!(output.status.code() == Some(2) && said.contains(why), "{:?}: {said}", output.status);
    Ok(())
}

const ACTING: [&[&str]; 2] = [&["fleet", "report", "run"], &["fleet", "element", "run", "0"]];

/// Gives everything below to user 65534.
fn give_away(path: &Path) -> Result<()> {
    if path.is_dir() {
        for entry in std::fs::read_dir(path)? {
            give_away(&entry?.path())?;
        }
    }
    Ok(chown(path, Some(65534), Some(65534))?)
}

fn folder_of_another_user() -> Result<()> {
    let rig = Rig::new()?;
    set_mode(&rig.path(""), 0o1777)?;
    let documents = rig.run(&["compare", "--by-host", "run", "run"])?;
    give_away(&rig.path("run"))?;
    std::fs::remove_file(rig.path("run/vpmu-index.jsonl"))?;
    // It may be read, and is left as it is.
    ensure!(rig.run(&["fleet", "status", "run"])?.status.code() == Some(0));
    let again = rig.run(&["compare", "--by-host", "run", "run"])?;
    ensure!((again.status, &again.stdout) == (documents.status, &documents.stdout), "{}", said(&again));
    ensure!(!rig.path("run/vpmu-index.jsonl").exists(), "a file in another user's folder");
    rig.forge()?;
    give_away(&rig.path("run"))?;
    refused(&rig.submit()?, "belongs to user 65534")?;
    for words in ACTING {
        refused(&rig.run(words)?, "belongs to user 65534")?;
    }
    // A folder that is no campaign yet could become another one.
    std::fs::remove_dir_all(rig.path("run"))?;
    std::fs::create_dir(rig.path("run"))?;
    give_away(&rig.path("run"))?;
    refused(&rig.submit()?, "belongs to user 65534")?;
    refused(&rig.run(&["fleet", "submit", "plan.toml", "-o", "run/below"])?, "belongs to user 65534")?;
    ensure!(!rig.ran() && std::fs::read_dir(rig.path("run"))?.next().is_none(), "something was left");
    Ok(())
}

fn open_folder_and_another_vpmu() -> Result<()> {
    let rig = Rig::new()?;
    rig.forge()?;
    for (mode, why) in [(0o777, "others can write to it"), (0o750, "it is open to others")] {
        set_mode(&rig.path("run"), mode)?;
        refused(&rig.submit()?, why)?;
        for words in ACTING {
            refused(&rig.run(words)?, why)?;
        }
    }
    set_mode(&rig.path("run"), 0o700)?;
    refused(&rig.submit()?, "has another vpmu")?;
    ensure!(!rig.ran(), "it ran");
    Ok(())
}

fn open_mask() -> Result<()> {
    let rig = Rig::new()?;
    let script = format!("umask 0; exec {VPMU} fleet submit plan.toml -o open --quiet");
    let output = Command::new("sh").args(["-c", &script]).current_dir(rig.0.path()).output()?;
    ensure!(output.status.code() == Some(0), "{}", said(&output));
    let mode = std::fs::metadata(rig.path("open"))?.mode();
    ensure!(mode & 0o777 == 0o700, "{mode:o}");
    Ok(())
}

fn fifo_in_a_folder() -> Result<()> {
    let rig = Rig::new()?;
    let document = rig.document()?;
    // A pipe that the user names is read as ever.
    let script = format!("exec '{VPMU}' compare <(cat '{0}') <(cat '{0}')", document.display());
    let piped = Command::new("bash").args(["-c", &script]).output()?;
    let named = rig.run(&["compare", &document.to_string_lossy(), &document.to_string_lossy()])?;
    ensure!(piped.status == named.status && said(&piped).contains("rotation_ns"), "{}", said(&piped));

    std::fs::create_dir(rig.path("results"))?;
    let fifo = |path: &Path| -> Result<()> {
        ensure!(Command::new("mkfifo").arg(path).status()?.success(), "mkfifo {}", path.display());
        Ok(())
    };
    std::fs::copy(&document, rig.path("results/a.json"))?;
    fifo(&rig.path("results/b.json"))?;
    // What is left out is named, and the rest is read: of one run no history.
    for (words, exit) in [(&["report", "results", "-o", "page.html"][..], 0), (&["history", "results"], 3)] {
        let output = rig.run(words)?;
        let named = said(&output).contains("it is a FIFO, not a regular file");
        ensure!(output.status.code() == Some(exit) && named, "{}", said(&output));
    }
    std::fs::remove_file(rig.path("results/b.json"))?;

    std::fs::remove_file(&document)?;
    fifo(&document)?;
    let report = rig.run(&["fleet", "report", "run"])?;
    ensure!(report.status.code() == Some(3), "{}", said(&report));
    ensure!(said(&report).contains("it is a FIFO, not a regular file"), "{}", said(&report));
    // So with what stands in the place of a campaign's own files.
    for name in ["elements/000000/done.json", "submissions.jsonl"] {
        let path = rig.path("run").join(name);
        let _ = std::fs::remove_file(&path);
        fifo(&path)?;
        refused(&rig.run(&["fleet", "status", "run"])?, "it is a FIFO, not a regular file")?;
        std::fs::remove_file(&path)?;
    }
    std::fs::remove_file(rig.path("run/lock"))?;
    fifo(&rig.path("run/lock"))?;
    let report = rig.run(&["fleet", "report", "run"])?;
    ensure!(report.status.code() != Some(124), "{}", said(&report));
    Ok(())
}
