//! Slurm's commands, run with a time limit: a controller that vanished makes them wait for minutes.

use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use results::child::{Gathered, Keep, POLL, Supervised};
use results::error::{Error, one_line};

/// Most bytes of standard output: 200 000 tasks of `scontrol show job -o`.
const MOST_OUTPUT: usize = 256 << 20;
/// Bytes of standard error that are kept.
const MOST_ERRORS: usize = 64 << 10;

/// Variables of Slurm that say where the controller is and who the user is.
const ADDRESS: [&str; 3] = ["SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"];

/// Lists the variables of this process that are options of Slurm's commands, or a job's that this process runs in. The
/// plan alone decides how its elements run: SBATCH_WAIT would make sbatch wait for them, SLURM_CPU_BIND pin them, and
/// SQUEUE_STATES hide them.
pub(crate) fn options_of_the_caller() -> impl Iterator<Item = OsString> {
    const PREFIXES: [&[u8]; 7] = [b"SBATCH_", b"SLURM_", b"SLURMD_", b"SQUEUE_", b"SACCT_", b"SINFO_", b"SCANCEL_"];
    std::env::vars_os().map(|(name, _)| name).filter(|name| {
        PREFIXES.iter().any(|prefix| name.as_encoded_bytes().starts_with(prefix))
            && !ADDRESS.iter().any(|kept| name == kept)
    })
}

/// Slurm's commands on this machine.
#[derive(Clone, Debug)]
pub struct Slurm {
    folder: Option<PathBuf>,
    limit: Duration,
}

impl Default for Slurm {
    fn default() -> Self {
        Self { folder: None, limit: Duration::from_secs(60) }
    }
}

/// Output of a command, and its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Exit code; `None` if a signal ended the command.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// It printed more than the limit.
    pub cut: bool,
}

/// Why a command gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The command is not installed, or could not be started or read.
    Command(String),
    /// No answer from the controller: not reachable, or past the time limit.
    Controller(String),
    /// Slurm answered with an error.
    Refused(String),
}

impl Failure {
    /// Builds the error of `what`. `remedy` is for a refusal.
    pub fn error(self, what: &str, remedy: &str) -> Error {
        match self {
            Self::Command(why) => {
                Error::host(what, why, "install Slurm's client commands (Debian: slurm-client), or use --on local")
            }
            Self::Controller(why) => Error::host(
                what,
                why,
                "check with `scontrol ping` and SLURM_CONF, then repeat; elements that ended keep their results",
            ),
            Self::Refused(why) => Error::usage(what, why, remedy),
        }
    }

    /// Returns the reason in words.
    pub fn why(&self) -> &str {
        let (Self::Command(why) | Self::Controller(why) | Self::Refused(why)) = self;
        why
    }
}

impl Slurm {
    /// Commands of `folder` in place of those in PATH.
    pub fn in_folder(self, folder: impl Into<PathBuf>) -> Self {
        Self { folder: Some(folder.into()), ..self }
    }

    /// Limits each command to `limit`.
    pub fn with_limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Runs a command whose exit code 0 means success.
    ///
    /// # Errors
    /// [`Failure`], with what the command said.
    pub fn ask(&self, program: &str, arguments: &[OsString], input: &str) -> Result<String, Failure> {
        let output = self.run(program, arguments, input)?;
        if output.cut {
            // Tasks beyond the end would count as gone.
            return Err(Failure::Controller(format!("{program} printed more than {MOST_OUTPUT} bytes")));
        }
        if output.code == Some(0) { Ok(output.stdout) } else { Err(refusal(program, &output)) }
    }

    /// Runs a command to its end.
    ///
    /// # Errors
    /// [`Failure::Command`] and, past the time limit, [`Failure::Controller`].
    pub fn run(&self, program: &str, arguments: &[OsString], input: &str) -> Result<Output, Failure> {
        let path = self.folder.as_ref().map_or_else(|| PathBuf::from(program), |folder| folder.join(program));
        let mut command = Command::new(path);
        for name in options_of_the_caller() {
            command.env_remove(name);
        }
        command
            .args(arguments)
            // Without these, lists of array indexes are cut after 64 bytes, and times have the user's format.
            .env("SLURM_BITSTR_LEN", "0")
            .env("SLURM_TIME_FORMAT", "standard")
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let (output, late) = converse(&mut command, input, self.limit).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Failure::Command(format!("no {program} in PATH")),
            _ => Failure::Command(format!("{program}: {error}")),
        })?;
        if late {
            let said = complaint(&output.stderr);
            let said = if said.is_empty() { String::new() } else { format!(" ({said})") };
            return Err(Failure::Controller(format!("{program} gave no answer in {:?}{said}", self.limit)));
        }
        Ok(output)
    }
}

/// Writes the input and reads the output of `command`, which is killed after `limit`; returns also whether it was.
fn converse(command: &mut Command, input: &str, limit: Duration) -> std::io::Result<(Output, bool)> {
    let mut child = Supervised::start(command)?;
    let process = &mut child.process;
    let (stdin, stdout, stderr) = (process.stdin.take(), process.stdout.take(), process.stderr.take());
    let stdout = stdout.map(|pipe| Gathered::start(pipe, Keep::First(MOST_OUTPUT)));
    let stderr = stderr.map(|pipe| Gathered::start(pipe, Keep::First(MOST_ERRORS)));
    let until = Instant::now() + limit;
    let status = std::thread::scope(|scope| {
        scope.spawn(move || {
            // A command that ends before it reads says so by its exit code.
            let _ = stdin.map(|mut pipe| pipe.write_all(input.as_bytes()));
        });
        let status = child.wait(POLL, || Instant::now() >= until);
        // Ends the write, if it still waits for a reader.
        child.kill();
        status
    })?;
    let text = |gathered: Option<Gathered>| gathered.map(|gathered| gathered.text(limit)).unwrap_or_default();
    let ((stdout, cut), (stderr, _)) = (text(stdout), text(stderr));
    Ok((Output { code: status.and_then(|status| status.code()), stdout, stderr, cut }, status.is_none()))
}

/// Parts of messages that mean: there was no answer from the controller.
const NO_ANSWER: [&str; 7] = [
    "Unable to contact slurm controller",
    "Unable to process configuration file",
    "Could not establish a configuration source",
    "Zero Bytes were transmitted",
    "Socket timed out",
    "authentication error",
    "Unable to establish control machine address",
];

fn refusal(program: &str, output: &Output) -> Failure {
    let said = complaint(&output.stderr);
    let said = if said.is_empty() {
        output
            .code
            .map_or_else(|| format!("{program} was killed"), |code| format!("{program} ended with exit code {code}"))
    } else {
        said
    };
    if NO_ANSWER.iter().any(|part| said.contains(part)) { Failure::Controller(said) } else { Failure::Refused(said) }
}

/// Returns a command's message on standard error, in one line without its own name.
pub fn complaint(stderr: &str) -> String {
    let lines = stderr.lines().filter(|line| !line.starts_with("Try \"")).map(|line| {
        let line = line.split_once(": ").map_or(line, |(first, rest)| if first.contains(' ') { line } else { rest });
        line.strip_prefix("error: ").or_else(|| line.strip_prefix("fatal: ")).unwrap_or(line)
    });
    let mut said: Vec<String> = lines.map(one_line).filter(|line| !line.is_empty()).collect();
    said.dedup();
    let mut said = said.join("; ");
    if let Some((end, _)) = said.char_indices().nth(500) {
        said.truncate(end);
        said += "…";
    }
    said
}

/// Arguments of a command.
pub(crate) fn arguments<S: AsRef<OsStr>>(words: impl IntoIterator<Item = S>) -> Vec<OsString> {
    words.into_iter().map(|word| word.as_ref().to_owned()).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use results::error::Exit;

    use super::*;

    /// Makes a folder with shell scripts in place of Slurm's commands.
    pub(crate) fn fakes(scripts: &[(&str, &str)]) -> (tempfile::TempDir, Slurm) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in scripts {
            // Renamed: a file that another thread's child holds open for writing cannot be executed.
            let (part, path) = (folder.path().join(format!("{name}.part")), folder.path().join(name));
            std::fs::write(&part, format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(&part, std::fs::Permissions::from_mode(0o755)).unwrap();
            std::fs::rename(part, path).unwrap();
        }
        let slurm = Slurm::default().in_folder(folder.path()).with_limit(Duration::from_secs(20));
        (folder, slurm)
    }

    #[test]
    fn input_output_and_errors_go_through() {
        let (_folder, slurm) = fakes(&[("sbatch", "cat; echo \"$1\" \"$SLURM_BITSTR_LEN\" >&2; exit 3")]);
        let long = "x".repeat(300_000);
        let output = slurm.run("sbatch", &arguments(["two words"]), &long).unwrap();
        assert_eq!((output.code, output.stdout == long, output.stderr.as_str()), (Some(3), true, "two words 0\n"));
    }

    #[test]
    fn a_command_that_hangs_is_killed() {
        let (_folder, slurm) = fakes(&[("squeue", "echo 'squeue: error: retrying' >&2; exec sleep 600")]);
        let slurm = slurm.with_limit(Duration::from_millis(300));
        let failure = slurm.run("squeue", &[], "").unwrap_err();
        let Failure::Controller(why) = failure else { panic!("{failure:?}") };
        // A busy host may not even have started the script by then.
        assert!(why == "squeue gave no answer in 300ms (retrying)" || why == "squeue gave no answer in 300ms", "{why}");
    }

    #[test]
    fn a_refusal_differs_from_a_controller_without_an_answer() {
        let of = |stderr: &str| {
            refusal("sbatch", &Output { code: Some(1), stdout: String::new(), stderr: stderr.into(), cut: false })
        };
        let down = "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n";
        assert!(matches!(of(down), Failure::Controller(_)));
        let conf = "squeue: error: fetch_config: DNS SRV lookup failed\nsqueue: fatal: Could not establish a configuration source\n";
        assert_eq!(
            of(conf),
            Failure::Controller(
                "fetch_config: DNS SRV lookup failed; Could not establish a configuration source".into()
            )
        );
        let partition = "sbatch: error: invalid partition specified: nosuch\nsbatch: error: Batch job submission failed: Invalid partition name specified\n";
        let refused = of(partition);
        assert_eq!(
            refused.why(),
            "invalid partition specified: nosuch; Batch job submission failed: Invalid partition name specified"
        );
        assert_eq!(refused.error("cannot submit", "see sinfo").exit, Exit::Usage);
        assert_eq!(of("").why(), "sbatch ended with exit code 1");
    }

    #[test]
    fn a_complaint_is_one_bounded_line() {
        let option = "sbatch: unrecognized option '--nosuchoption'\nTry \"sbatch --help\" for more information\n";
        assert_eq!(complaint(option), "unrecognized option '--nosuchoption'");
        let begin = "Invalid time specification (pos=0): xx\nsbatch: error: Invalid --begin specification\n";
        assert_eq!(complaint(begin), "Invalid time specification (pos=0): xx; Invalid --begin specification");
        assert!(complaint(&"é".repeat(10_000)).chars().count() <= 501);
    }
}
