//! Errors as a user meets them: one line that says what failed, why, and what to do; and an exit code.

use std::fmt;
use std::io::{self, ErrorKind};
use std::process::ExitCode;

use rustix::io::Errno;

use crate::shown::steers;

/// End of a command, as the shell sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum Exit {
    /// Done.
    Done,
    /// A comparison found a regression.
    Regression,
    /// Bad usage or bad input.
    Usage,
    /// The measurement does not answer the question: interrupted, incomplete, or events lost.
    Inconclusive,
    /// This host cannot do it.
    Host,
    /// Neither a regression nor a pass, for `git bisect run`, which skips the commit.
    CannotTell,
    /// The error is the same for every commit: `git bisect run` stops at it.
    StopsBisection,
    /// A bug of this program; EX_SOFTWARE of sysexits(3).
    Internal,
    /// A program in a guest ended with this status, which becomes this program's.
    Guest(u8),
}

impl Exit {
    /// Returns the process exit code.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Regression => 1,
            Self::Usage => 2,
            Self::Inconclusive => 3,
            Self::Host => 4,
            Self::Internal => 70,
            Self::CannotTell => 125,
            Self::StopsBisection => 128,
            Self::Guest(status) => status,
        }
    }

    /// Returns the end that a process of this program reports by its exit code; inconclusive for a code that is none of these.
    pub fn from_code(code: u8) -> Self {
        let known = [Self::Done, Self::Regression, Self::Usage, Self::Host, Self::Internal];
        known.into_iter().find(|exit| exit.code() == code).unwrap_or(Self::Inconclusive)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// The remedy of a bug of this program.
const REPORT: &str = "please report it with the command line";

/// An error with its exit code. `Display` is one line without the `vpmu: error:` prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Error {
    /// Exit code of the process.
    pub exit: Exit,
    /// Action that failed.
    pub what: String,
    /// Why; empty where `what` says it all.
    pub why: String,
    /// Remedy that the user has.
    pub remedy: String,
}

impl Error {
    /// Reports bad usage or bad input.
    pub fn usage(what: impl Into<String>, why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Exit::Usage, what, why, remedy)
    }

    /// Reports that the host cannot do it.
    pub fn host(what: impl Into<String>, why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Exit::Host, what, why, remedy)
    }

    /// Reports an output that cannot be written: the user's mistake, unless the host has no room or its disk fails, or a reader left.
    pub fn output(what: impl Into<String>, error: &io::Error, remedy: impl Into<String>) -> Self {
        let full = matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge);
        let exit = match error.kind() {
            ErrorKind::BrokenPipe => Exit::Inconclusive,
            _ if full || error.raw_os_error() == Some(Errno::IO.raw_os_error()) => Exit::Host,
            _ => Exit::Usage,
        };
        Self::new(exit, what, error.to_string(), remedy)
    }

    /// Reports a condition that only a bug of this program can cause.
    pub fn internal(what: &str, why: impl fmt::Display) -> Self {
        let what = format!("this is a bug of vpmu: {what}");
        Self::new(Exit::Internal, what, why.to_string(), REPORT)
    }

    /// Reports an error with any exit code.
    pub fn new(exit: Exit, what: impl Into<String>, why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { exit, what: what.into(), why: why.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&one_line(&self.what))?;
        if !self.why.is_empty() {
            write!(f, ": {}", one_line(&self.why))?;
        }
        if !self.remedy.is_empty() {
            write!(f, "; {}", one_line(&self.remedy))?;
        }
        Ok(())
    }
}

/// Folds white space and drops what steers (`shown::steers`): user input and kernel text must not break the line
/// or steer the terminal.
pub fn one_line(text: &str) -> String {
    let words: Vec<String> =
        text.split_whitespace().map(|word| word.chars().filter(|&c| !steers(c)).collect()).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line() {
        let error = Error::host("cannot open\n/dev/kvm", "permission\r denied\x1b[31m", "join group kvm");
        assert_eq!(error.to_string(), "cannot open /dev/kvm: permission denied[31m; join group kvm");
        assert_eq!(error.exit.code(), 4);
    }
}
