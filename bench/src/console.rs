//! The two streams a command writes to, and the way a bug of this program ends it.

use std::any::Any;
use std::io::{self, Write as _};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};

use results::error::{Error, Exit, one_line};
use serde::Serialize;

/// What a user should do about a bug.
const REPORT: &str = "please report it with the command line";

/// Writes to stdout. A reader that went away (`vpmu | head`) is no error.
pub(crate) fn print(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::usage("cannot write to stdout", error.to_string(), "look where it is redirected to"))
        }
        _ => Ok(()),
    }
}

/// Writes a value to stdout as JSON.
pub(crate) fn print_json<T: Serialize + ?Sized>(value: &T) -> Result<(), Error> {
    let json = serde_json::to_string_pretty(value).map_err(|error| internal("a value has no JSON", error))?;
    print(&(json + "\n"))
}

/// One line on stderr, with the program's name. Nothing is left to do if stderr is closed.
pub fn complain(line: &str) {
    let _ = writeln!(io::stderr(), "vpmu: {line}");
}

/// The error of a condition that only a bug of this program can cause: exit 70.
pub(crate) fn internal(what: &str, why: impl std::fmt::Display) -> Error {
    Error::new(Exit::Internal, format!("this is a bug of vpmu: {what}"), why.to_string(), REPORT)
}

/// Runs a command to its exit code. An error is one line on stderr; so is a panic, which is a bug of this program and exit 70.
pub fn guarded(command: impl FnOnce() -> Result<Exit, Error>) -> Exit {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        complain(&format!("error: {}", of_panic(info)));
        // Whoever asks for a backtrace gets the usual text, too.
        if std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0") {
            default(info);
        }
    }));
    let ended = catch_unwind(AssertUnwindSafe(command));
    // The hook is this process's; tests of this function have their own.
    drop(std::panic::take_hook());
    match ended {
        Ok(Ok(exit)) => exit,
        Ok(Err(error)) => {
            complain(&format!("error: {error}"));
            error.exit
        }
        Err(_) => Exit::Internal,
    }
}

fn of_panic(info: &PanicHookInfo<'_>) -> Error {
    let place = info.location().map_or_else(String::new, |at| format!(" at {}:{}", at.file(), at.line()));
    internal(&format!("panic{place}"), one_line(message(info.payload())))
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_keep_their_exit_code_and_bugs_have_their_own() {
        assert_eq!(guarded(|| Ok(Exit::Regression)), Exit::Regression);
        assert_eq!(guarded(|| Err(Error::usage("a", "b", "c"))), Exit::Usage);
        assert_eq!(guarded(|| Err(internal("cannot show the result", "key must be a string"))).code(), 70);
        assert_eq!(guarded(|| panic!("index out of bounds\nhere")).code(), 70);
    }

    #[test]
    fn a_bug_asks_for_a_report_in_one_line() {
        let line = internal("cannot show the result", "a\nb").to_string();
        assert_eq!(line, format!("this is a bug of vpmu: cannot show the result: a b; {REPORT}"));
        assert_eq!(message(&"text"), "text");
        assert_eq!(message(&String::from("text")), "text");
        assert_eq!(message(&7_u8), "no message");
    }
}
