//! Programs of this host, such as perf and builds of this tool: found in PATH, and run to their end as child processes.

use std::ffi::OsStr;
use std::fs::metadata;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use host_pmu::stats::ns;
use results::child::{Gathered, Keep, Supervised};
use results::document::Record;
use results::error::{Error, Exit, one_line};
use results::read::of_text;

use crate::sys::stopped;

/// Longest output that is read, in bytes.
const MAX_OUTPUT: usize = 64 << 20;
/// Part of the child's stderr that is kept, in bytes.
const MAX_STDERR: usize = 64 << 10;
/// Time to wait for the last output of a child that has ended.
const DRAIN_TIME: Duration = Duration::from_millis(500);

/// Returns whether a path is a file that can be executed.
pub fn is_program(path: &Path) -> bool {
    metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// Finds a program in the folders of PATH.
pub fn in_path(name: &Path, path: Option<&OsStr>) -> Option<PathBuf> {
    let folders = std::env::split_paths(path?).filter(|folder| folder.is_absolute());
    folders.map(|folder| folder.join(name)).find(|file| is_program(file))
}

/// The output and the end of a child.
#[derive(Debug)]
pub struct Ran {
    /// How it ended.
    pub status: ExitStatus,
    /// Time from its start to its end, ns.
    pub wall_ns: u64,
    /// Its output, and whether there was more.
    output: (String, bool),
    /// The end of its stderr.
    stderr: String,
}

impl Ran {
    /// Returns the exit code, unless a signal ended it.
    pub fn exit(&self) -> Option<Exit> {
        self.status.code().and_then(|code| u8::try_from(code).ok()).map(Exit::from_code)
    }

    /// Returns its output, or the begin of a long one.
    pub fn text(&self) -> &str {
        &self.output.0
    }

    /// Reads the document on its stdout. A regression that it found, and an inconclusive end, leave one too.
    ///
    /// # Errors
    /// Why there is none.
    pub fn document(&self) -> Result<Record, String> {
        match &self.output {
            (_, true) => Err(format!("it wrote more than {} MiB, or did not end", MAX_OUTPUT >> 20)),
            (text, false) => of_text(Path::new("stdout"), text).map_err(|error| error.why),
        }
    }

    /// Returns the error that it named on stderr, or its end.
    pub fn why(&self) -> String {
        let lines: Vec<String> = self.stderr.lines().map(one_line).filter(|line| !line.is_empty()).collect();
        let named = lines.iter().find_map(|line| line.strip_prefix("vpmu: error: "));
        let last = || lines.last().map_or_else(String::new, |line| format!(" ('{line}')"));
        named.map_or_else(|| format!("it ended with {}{}", self.status, last()), str::to_owned)
    }
}

/// Runs a command to its end. As soon as `over` holds it is interrupted, and killed if that does not end it.
///
/// # Errors
/// Errors of starting it and of waiting for it.
pub fn run(command: &mut Command, over: impl FnMut() -> bool) -> io::Result<Ran> {
    let began = Instant::now();
    let mut child = Supervised::start(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))?;
    let pipes = &mut child.process;
    let output = pipes.stdout.take().map(|pipe| Gathered::start(pipe, Keep::First(MAX_OUTPUT)));
    let stderr = pipes.stderr.take().map(|pipe| Gathered::start(pipe, Keep::Last(MAX_STDERR)));
    let status = child.end(over, Duration::ZERO)?;
    let wall_ns = ns(began.elapsed());
    let output = output.map(|output| output.text(DRAIN_TIME)).unwrap_or_default();
    Ok(Ran { status, wall_ns, output, stderr: stderr.map(|stderr| stderr.text(DRAIN_TIME).0).unwrap_or_default() })
}

/// Returns the first line of what a perf says of itself, or why there is none.
///
/// # Errors
/// It does not run, or says nothing.
pub fn perf_version(perf: &Path) -> Result<String, String> {
    let ran = run(Command::new(perf).arg("--version"), stopped).map_err(|error| error.to_string())?;
    let line = ran.text().lines().next().map(str::trim).filter(|line| ran.status.success() && !line.is_empty());
    line.map(str::to_owned).ok_or_else(|| ran.why())
}

/// Runs a command to one of these ends within a time; `None` if the user ended it. `failed` makes the error of a reason, with the exit
/// unless it did not start.
///
/// # Errors
/// It does not start, takes longer, or ends otherwise.
pub fn ended(
    command: &mut Command,
    limit: Duration,
    ends: &[Exit],
    failed: &dyn Fn(Option<Exit>, String) -> Error,
) -> Result<Option<Ran>, Error> {
    let began = Instant::now();
    let is_late = || began.elapsed() >= limit;
    let ran = run(command, || stopped() || is_late()).map_err(|error| failed(None, error.to_string()))?;
    match ran.exit() {
        _ if stopped() => Ok(None),
        _ if is_late() => Err(failed(Some(Exit::Inconclusive), format!("it did not end in {} s", limit.as_secs()))),
        Some(exit) if ends.contains(&exit) => Ok(Some(ran)),
        exit => Err(failed(exit.or(Some(Exit::Inconclusive)), ran.why())),
    }
}
