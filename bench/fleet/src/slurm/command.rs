//! Slurm's commands, run with a time limit: a controller that vanished makes them wait for minutes.

use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Seek as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use results::child::{Gathered, Keep, POLL, Supervised};
use results::error::{Error, one_line};
use rustix::fs::MemfdFlags;

/// Most bytes of standard output: 200 000 tasks of `squeue -r`.
const MOST_OUTPUT: usize = 256 << 20;
/// Bytes of standard error that are kept.
const MOST_ERRORS: usize = 64 << 10;

/// Variables of Slurm that say where the controller is and who the user is.
const ADDRESS: [&str; 3] = ["SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"];

/// Lists the variables of this process that are options of Slurm's commands, or a job's that this process runs in. The
/// plan alone decides how its elements run: SBATCH_WAIT would make sbatch wait for them, SLURM_CPU_BIND pin them, and
/// SQUEUE_STATES hide them.
fn options_of_the_caller() -> impl Iterator<Item = OsString> {
    const PREFIXES: [&[u8]; 7] = [b"SBATCH_", b"SLURM_", b"SLURMD_", b"SQUEUE_", b"SACCT_", b"SINFO_", b"SCANCEL_"];
    std::env::vars_os().map(|(name, _)| name).filter(|name| {
        PREFIXES.iter().any(|prefix| name.as_encoded_bytes().starts_with(prefix))
            && !ADDRESS.iter().any(|kept| name == kept)
    })
}

/// Slurm's commands on this machine.
#[derive(Clone, Debug)]
pub struct Slurm {
    /// Folder of the commands, in place of PATH.
    folder: Option<PathBuf>,
    /// Time that a command may take.
    limit: Duration,
}

impl Default for Slurm {
    fn default() -> Self {
        Self { folder: None, limit: Duration::from_secs(60) }
    }
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
    /// Runs a command to its end, and returns what it printed; `input` is what it reads.
    ///
    /// # Errors
    /// [`Failure`], with what the command said.
    pub fn ask(&self, program: &str, arguments: &[&str], input: &str) -> Result<String, Failure> {
        let failed = |error: std::io::Error| match error.kind() {
            ErrorKind::NotFound => Failure::Command(format!("no {program} in PATH")),
            _ => Failure::Command(format!("{program}: {error}")),
        };
        let mut command = Command::new(self.folder.as_ref().map_or_else(|| program.into(), |at| at.join(program)));
        for name in options_of_the_caller() {
            command.env_remove(name);
        }
        command.args(arguments).env("LC_ALL", "C").stdout(Stdio::piped()).stderr(Stdio::piped());
        command.stdin(in_memory(input).map_err(failed)?);
        let mut child = Supervised::start(&mut command).map_err(failed)?;
        let stdout = child.process.stdout.take().map(|pipe| Gathered::start(pipe, Keep::First(MOST_OUTPUT)));
        let stderr = child.process.stderr.take().map(|pipe| Gathered::start(pipe, Keep::First(MOST_ERRORS)));
        let until = Instant::now() + self.limit;
        let status = child.wait(POLL, || Instant::now() >= until).map_err(failed)?;
        child.kill();
        let text = |pipe: Option<Gathered>| pipe.map(|pipe| pipe.text(self.limit)).unwrap_or_default();
        let ((stdout, is_cut), (stderr, _)) = (text(stdout), text(stderr));
        let said = complaint(&stderr);
        match status {
            None if said.is_empty() => {
                Err(Failure::Controller(format!("{program} gave no answer in {:?}", self.limit)))
            }
            None => Err(Failure::Controller(format!("{program} gave no answer in {:?} ({said})", self.limit))),
            // Tasks beyond the end would count as gone.
            Some(_) if is_cut => Err(Failure::Controller(format!("{program} printed more than {MOST_OUTPUT} bytes"))),
            Some(status) if status.success() => Ok(stdout),
            Some(status) if said.is_empty() => Err(Failure::Refused(format!("{program} ended with {status}"))),
            Some(_) if NO_ANSWER.iter().any(|part| said.contains(part)) => Err(Failure::Controller(said)),
            Some(_) => Err(Failure::Refused(said)),
        }
    }
}

/// Returns a file with this text, from its begin: a pipe would hold a command that does not read.
fn in_memory(text: &str) -> std::io::Result<File> {
    let mut file = File::from(rustix::fs::memfd_create("input", MemfdFlags::CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file)
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

/// Returns a command's message on standard error, in one line without its own name.
fn complaint(stderr: &str) -> String {
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

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use results::error::Exit;

    use super::*;

    /// Makes a folder with shell scripts in place of Slurm's commands.
    pub(crate) fn fakes(scripts: &[(&str, &str)]) -> (tempfile::TempDir, Slurm) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in scripts {
            // The script is renamed, because a file that another thread's child holds open for writing cannot be executed.
            let (part, path) = (folder.path().join(format!("{name}.part")), folder.path().join(name));
            std::fs::write(&part, format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(&part, std::fs::Permissions::from_mode(0o755)).unwrap();
            std::fs::rename(part, path).unwrap();
        }
        let slurm = Slurm { folder: Some(folder.path().into()), limit: Duration::from_secs(20) };
        (folder, slurm)
    }

    #[test]
    fn input_and_output_go_through() {
        let (_folder, slurm) = fakes(&[("sbatch", "cat; echo \"$1\"")]);
        let long = "x".repeat(300_000);
        assert_eq!(slurm.ask("sbatch", &["two words"], &long).unwrap(), long + "two words\n");
    }

    #[test]
    fn a_command_that_hangs_is_killed() {
        let (_folder, slurm) = fakes(&[("squeue", "echo 'squeue: error: retrying' >&2; exec sleep 600")]);
        let slurm = Slurm { limit: Duration::from_millis(300), ..slurm };
        let failure = slurm.ask("squeue", &[], "").unwrap_err();
        let Failure::Controller(why) = failure else { panic!("{failure:?}") };
        // A busy host may not even have started the script by then.
        assert!(why == "squeue gave no answer in 300ms (retrying)" || why == "squeue gave no answer in 300ms", "{why}");
    }

    #[test]
    fn a_refusal_differs_from_a_controller_without_an_answer() {
        let of = |stderr: &str| {
            let (_folder, slurm) = fakes(&[("sbatch", &format!("printf '{stderr}' >&2; exit 1"))]);
            slurm.ask("sbatch", &[], "").unwrap_err()
        };
        let conf = "squeue: error: fetch_config: DNS SRV lookup failed\\nsqueue: fatal: Could not establish a configuration source\\n";
        assert_eq!(
            of(conf),
            Failure::Controller(
                "fetch_config: DNS SRV lookup failed; Could not establish a configuration source".into()
            )
        );
        let partition =
            "sbatch: error: invalid partition specified: nosuch\\nsbatch: error: Batch job submission failed\\n";
        let refused = of(partition);
        assert_eq!(refused.why(), "invalid partition specified: nosuch; Batch job submission failed");
        assert_eq!(refused.error("cannot submit", "see sinfo").exit, Exit::Usage);
        assert_eq!(of("").why(), "sbatch ended with exit status: 1");
    }

    #[test]
    fn a_complaint_is_one_bounded_line() {
        let option = "sbatch: unrecognized option '--nosuchoption'\nTry \"sbatch --help\" for more information\n";
        assert_eq!(complaint(option), "unrecognized option '--nosuchoption'");
        assert!(complaint(&"é".repeat(10_000)).chars().count() <= 501);
    }
}
