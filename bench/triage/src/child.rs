//! A workload in a process of its own: it says when it is ready, on the first word makes its threads and processes, on
//! the second works, and reports in one line.
//!
//! Events can so be attached before it has anything that inherits them, and count from the time that all of it is
//! there. It ends with this process, however that ends.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use results::child::{Gathered, Keep, Supervised};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

/// Most threads of a workload.
pub const MOST_THREADS: usize = 256;

/// A workload's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Threads.
    pub threads: usize,
    /// Time that they work.
    pub duration: Duration,
    /// The variant without the bottleneck.
    pub apart: bool,
    /// This tool, for workloads of several processes.
    pub program: PathBuf,
}

/// Answer of a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// Its name.
    pub workload: String,
    /// It was the variant without the bottleneck.
    pub apart: bool,
    /// Threads.
    pub threads: usize,
    /// Operations of all threads.
    pub operations: u64,
    /// From the common start of the threads to the end of the last.
    pub seconds: f64,
    /// Times that a thread gave up its CPU by itself: it slept, or waited.
    pub voluntary_switches: u64,
}

/// Word of a child once events can be attached.
const READY: &str = "ready";
/// Word of a child once all its threads and processes are there.
const SET: &str = "set";
/// Time that a child may take beyond its duration.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time to wait for the last output of a child that has ended.
const WORDS: Duration = Duration::from_millis(500);
/// Most bytes of what a child says, and of its stderr.
const MOST: usize = 64 << 10;
/// Interval of `meanwhile`.
const POLL: Duration = Duration::from_millis(4);

/// A child that is ready, or works.
#[derive(Debug)]
pub struct Child {
    process: Supervised,
    stdin: Option<ChildStdin>,
    said: Gathered,
    errors: Option<Gathered>,
}

impl Child {
    /// Starts a workload and waits until it is ready. The calling thread must live as long as the child.
    ///
    /// # Errors
    /// Returns the errors of starting it, or what it said on stderr.
    pub fn start(workload: &str, job: &Job) -> io::Result<Self> {
        let mut command = Command::new(&job.program);
        command.args(["workload", workload, &job.threads.to_string()]);
        command.args([&format!("{}ns", job.duration.as_nanos()), "--gated"]).args(job.apart.then_some("--apart"));
        Self::of(command)
    }

    fn of(mut command: Command) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Supervised::start(&mut command)?;
        let pipes = &mut process.process;
        let (stdin, stdout, stderr) = (pipes.stdin.take(), pipes.stdout.take(), pipes.stderr.take());
        let Some(stdout) = stdout else { return Err(io::Error::other("the child has no stdout")) };
        let errors = stderr.map(|pipe| Gathered::start(pipe, Keep::First(MOST)));
        let mut child = Self { process, stdin, said: Gathered::start(stdout, Keep::First(MOST)), errors };
        child.wait_for(READY)?;
        Ok(child)
    }

    fn wait_for(&mut self, word: &str) -> io::Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let (said, goes_on) = self.said.text(POLL);
            if said.lines().any(|line| line == word) {
                return Ok(());
            } else if !goes_on || Instant::now() > until {
                return Err(self.complaint("it did not get ready"));
            }
        }
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.process.process.id().cast_signed()
    }

    /// Lets it make what works, and waits until that is there.
    ///
    /// # Errors
    /// It has ended; what it said on stderr.
    pub fn prepare(&mut self) -> io::Result<()> {
        self.say()?;
        self.wait_for(SET)
    }

    /// Lets it begin to work.
    ///
    /// # Errors
    /// It has ended.
    pub fn go(&mut self) -> io::Result<()> {
        self.say()
    }

    fn say(&mut self) -> io::Result<()> {
        self.stdin.as_mut().map_or(Ok(()), |stdin| stdin.write_all(b"go\n"))
    }

    /// Waits for its end and calls `meanwhile` again and again; where that says no, the child is ended.
    ///
    /// # Errors
    /// `Interrupted` if it was ended; its own failure.
    pub fn finish(mut self, duration: Duration, mut meanwhile: impl FnMut() -> bool) -> io::Result<Done> {
        let until = Instant::now() + duration + PATIENCE;
        let Some(status) = self.process.wait(POLL, || !meanwhile() || Instant::now() > until)? else {
            return Err(if Instant::now() > until {
                io::Error::new(io::ErrorKind::TimedOut, "the workload did not end")
            } else {
                io::ErrorKind::Interrupted.into()
            });
        };
        if !status.success() {
            return Err(self.complaint(&status.to_string()));
        }
        let said = self.said.text(PATIENCE).0;
        let report: String = said.lines().filter(|line| ![READY, SET].contains(line)).collect();
        serde_json::from_str(&report).map_err(io::Error::other)
    }

    /// Returns the child's first line on stderr as an error.
    fn complaint(&mut self, or: &str) -> io::Error {
        self.process.kill();
        let said = self.errors.as_ref().map(|errors| errors.text(WORDS).0).unwrap_or_default();
        let line = said.lines().next().unwrap_or_default().trim_start_matches("vpmu: error: ");
        io::Error::other(if line.is_empty() { or.to_owned() } else { line.to_owned() })
    }
}

/// The child's side: ends with its parent, says that it is ready, and waits for the first word.
///
/// # Errors
/// The parent is gone.
pub fn gate() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    wait_at(READY)
}

/// The child's side: says that everything is there, and waits for the second word.
///
/// # Errors
/// The parent is gone.
pub fn set() -> io::Result<()> {
    wait_at(SET)
}

fn wait_at(word: &str) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{word}")?;
    out.flush()?;
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    if line.is_empty() {
        Err(io::Error::new(io::ErrorKind::BrokenPipe, "the process that started it is gone"))
    } else {
        Ok(())
    }
}

/// This program's file.
///
/// # Errors
/// Returns the errors of `/proc/self/exe`.
pub fn this_program() -> io::Result<std::path::PathBuf> {
    let file = std::env::current_exe()?;
    // A tool that was replaced meanwhile: the link still leads to the one that runs.
    Ok(if file.exists() { file } else { Path::new("/proc/self/exe").to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> io::Result<Child> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Child::of(command)
    }

    #[test]
    fn a_child_that_fails_says_why_and_one_that_is_not_wanted_is_ended() {
        let error = shell("echo 'vpmu: error: no memory' >&2; exit 4").unwrap_err();
        assert_eq!(error.to_string(), "no memory");
        let mut child = shell("echo ready; read word; echo 'vpmu: error: no threads' >&2; exit 4").unwrap();
        assert_eq!(child.prepare().unwrap_err().to_string(), "no threads");
        let mut child = shell("echo ready; read word; echo set; read word; exit 3").unwrap();
        child.prepare().unwrap();
        child.go().unwrap();
        assert!(child.finish(Duration::ZERO, || true).unwrap_err().to_string().contains('3'));
        let child = shell("echo ready; exec sleep 600").unwrap();
        let pid = child.pid();
        assert_eq!(child.finish(Duration::from_secs(600), || false).unwrap_err().kind(), io::ErrorKind::Interrupted);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}
