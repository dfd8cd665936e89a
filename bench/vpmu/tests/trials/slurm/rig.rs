//! A real Slurm on loopback: munged, slurmctld and a slurmd for each of four nodes of two classes, all in one temporary folder.
//!
//! Debian's slurmd can run several times on one machine (`-N`). All processes are in a namespace of the test's, which ends with it.

use std::ffi::OsStr;
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::prerequisites::namespaces;

const NODES: [&str; 4] = ["clx1", "clx2", "icx1", "icx2"];
const PROGRAMS: [&str; 8] = ["munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue", "scancel", "sinfo"];
pub(crate) const REMEDY: &str = "apt-get install --no-install-recommends slurm-wlm munge, and run as root";
/// Bound of each wait: far above what a busy machine takes.
const LONG: Duration = Duration::from_secs(120);

/// Returns the missing part of a rig, if any.
pub(crate) fn missing() -> Option<String> {
    let lacks = || PROGRAMS.iter().find(|name| find(name).is_none()).map(|name| format!("no {name} here"));
    namespaces().err().or_else(lacks)
}

fn find(name: &str) -> Option<PathBuf> {
    ["/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        .iter()
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.is_file())
}

/// A running cluster.
pub(crate) struct Rig {
    folder: PathBuf,
    daemons: Vec<(String, Child)>,
}

impl Rig {
    /// Starts the daemons and waits until all nodes are idle.
    pub(crate) fn start(folder: PathBuf) -> Result<Self> {
        let mut rig = Self { folder, daemons: Vec::new() };
        for name in ["state", "spool", "munge", "log", "tmp"] {
            fs::create_dir(rig.path(name))?;
        }
        let key: Vec<u8> = (0..16).flat_map(|word| RandomState::new().hash_one(word).to_le_bytes()).collect();
        fs::write(rig.path("munge/key-file"), key)?;
        fs::set_permissions(rig.path("munge/key-file"), std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        fs::write(rig.path("slurm.conf"), rig.configuration()?)?;
        let munge = |name: &str| rig.path("munge").join(name).display().to_string();
        let words =
            ["key-file", "socket", "pid-file", "log-file", "seed-file"].map(|file| format!("--{file}={}", munge(file)));
        rig.daemon("munged", "munged", &[&["--foreground".to_owned(), "--force".to_owned()], &words[..]].concat())?;
        let socket = rig.path("munge/socket");
        wait("munged's socket", || Ok(socket.exists()))?;
        rig.controller()?;
        for node in NODES {
            rig.node(node)?;
        }
        wait("all nodes to be idle", || {
            let found = rig.ask(&["sinfo", "-h", "-N", "-p", "fleet", "-o", "%N %T"]).unwrap_or_default();
            Ok(NODES.iter().all(|node| found.lines().any(|line| line == format!("{node} idle"))))
        })?;
        Ok(rig)
    }

    /// A path in the rig's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Starts slurmctld.
    pub(crate) fn controller(&mut self) -> Result<()> {
        self.daemon("slurmctld", "slurmctld", &["-D".to_owned()])
    }

    /// Starts the slurmd of a node.
    pub(crate) fn node(&mut self, node: &str) -> Result<()> {
        self.daemon(node, "slurmd", &["-D".to_owned(), "-N".to_owned(), node.to_owned()])
    }

    fn daemon(&mut self, name: &str, program: &str, arguments: &[String]) -> Result<()> {
        let log = fs::File::create(self.path("log").join(format!("{name}.out")))?;
        let path = find(program).with_context(|| format!("no {program} here"))?;
        let mut command = Command::new(path);
        command.args(arguments).env("SLURM_CONF", self.path("slurm.conf")).stdin(Stdio::null());
        // A temporary folder of its own: what a task leaves there is seen.
        command.env("TMPDIR", self.path("tmp")).stdout(log.try_clone()?).stderr(log);
        self.daemons.push((name.to_owned(), command.spawn().with_context(|| format!("cannot start {program}"))?));
        Ok(())
    }

    /// Ends a daemon. By SIGTERM it saves its state: a slurmctld that is killed may have forgotten what it launched. Job steps of a
    /// slurmd that is killed go on.
    pub(crate) fn end(&mut self, name: &str, signal: Signal) -> Result<()> {
        let found = self.daemons.iter().position(|(daemon, _)| daemon == name).with_context(|| format!("no {name}"))?;
        let (_, mut daemon) = self.daemons.remove(found);
        kill_process(Pid::from_child(&daemon), signal)?;
        wait(&format!("the end of {name}"), || Ok(daemon.try_wait()?.is_some()))
    }

    /// A command that talks to this cluster.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", self.path("slurm.conf")).stdin(Stdio::null());
        command
    }

    /// Returns the output of `scontrol` or another command.
    pub(crate) fn ask(&self, words: &[&str]) -> Result<String> {
        let Output { status, stdout, stderr } = self.command(words[0]).args(&words[1..]).output()?;
        ensure!(status.success(), "{words:?}: {}", String::from_utf8_lossy(&stderr));
        Ok(String::from_utf8_lossy(&stdout).into_owned())
    }

    fn configuration(&self) -> Result<String> {
        let host = fs::read_to_string("/proc/sys/kernel/hostname")?;
        let host = host.trim().split('.').next().unwrap_or("localhost");
        let text = include_str!("slurm.conf").replace("@HOST@", host);
        let text = text.replace("@FOLDER@", &self.folder.display().to_string());
        Ok(ports(1 + NODES.len())?.iter().fold(text, |text, port| text.replacen("@PORT@", &port.to_string(), 1)))
    }
}

/// Ports that are free now.
fn ports(count: usize) -> std::io::Result<Vec<u16>> {
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

/// Waits until `done`.
pub(crate) fn wait(what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let until = Instant::now() + LONG;
    while !done()? {
        if Instant::now() > until {
            bail!("waited {LONG:?} for {what}");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
