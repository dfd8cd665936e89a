//! The two streams a command writes to, and the way a bug of this program ends it.

use std::io::{self, ErrorKind, IsTerminal, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use results::answers::output;
use results::error::{Error, Exit, one_line};
use results::table::Report;
use results::table::layout::columns;
use results::{shown, template};
use rustix::event::{PollFd, PollFlags, Timespec, poll as poll_fds};
use rustix::io::Errno;
use serde::Serialize;
use serde_json::Value;

use crate::sys;

/// Time that a blocked stdout is waited for after Ctrl-C, or at the end of a run.
const PATIENCE: Duration = Duration::from_secs(1);
/// Interval at which a blocked stdout is tried again.
const POLL: Duration = Duration::from_millis(100);
/// Most bytes of one write: a pipe that is ready takes them without blocking (PIPE_BUF).
const CHUNK: usize = 4096;

/// Writes text to stdout, in which nothing of others [steers](shown::steers) a terminal. A reader that went away
/// (`vpmu | head`) is no error. A reader that does not read is waited for, after Ctrl-C for [`PATIENCE`] only.
pub(crate) fn print(text: &str) -> Result<(), Error> {
    offer(io::stdout().as_fd(), text).map(drop)
}

/// Prints to `out`, which is stdout or was it, for a caller that goes on as long as there is a reader; returns whether there is.
pub(crate) fn offer(out: BorrowedFd<'_>, text: &str) -> Result<bool, Error> {
    match send(out, shown::text(text).as_bytes(), &sys::stopped) {
        Err(error) if error.kind() == ErrorKind::TimedOut => {
            Err(Error::new(Exit::Inconclusive, "interrupted", "nothing reads stdout", ""))
        }
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error::output("cannot write to stdout", &error, "look where it is redirected to"))
        }
        sent => Ok(sent.is_ok()),
    }
}

/// Lets an interrupt set a flag, at which what runs ends in order.
pub(crate) fn catch_interrupts() -> Result<(), Error> {
    sys::catch_interrupts().map_err(|error| Error::internal("cannot catch signals", error))
}

/// Stdout or stderr as a stream of a guest's bytes. A reader that does not read holds the guest up until the run is over.
pub(crate) struct Stream {
    name: &'static str,
    fd: io::Result<OwnedFd>,
    /// For a terminal; a file or a pipe has the bytes as they are.
    filter: Option<Filter>,
    /// True once a blocked reader is given up.
    over: Box<dyn Fn() -> bool + Send>,
}

impl Stream {
    /// Stdout; the run is over at an interrupt, and once this says so.
    pub(crate) fn stdout(over: impl Fn() -> bool + Send + 'static) -> Self {
        Self::to("stdout", io::stdout().as_fd().try_clone_to_owned(), over)
    }

    /// Stderr.
    pub(crate) fn stderr(over: impl Fn() -> bool + Send + 'static) -> Self {
        Self::to("stderr", io::stderr().as_fd().try_clone_to_owned(), over)
    }

    fn to(name: &'static str, fd: io::Result<OwnedFd>, over: impl Fn() -> bool + Send + 'static) -> Self {
        let terminal = fd.as_ref().is_ok_and(IsTerminal::is_terminal);
        Self { name, fd, filter: terminal.then(Filter::default), over: Box::new(move || over() || sys::stopped()) }
    }

    /// Ends the stream: its first error. A reader that went away is none.
    pub(crate) fn result(mut self) -> Result<(), Error> {
        self.pass_on(&[], true);
        match self.fd {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(Error::output(format!("cannot write to {}", self.name), &error, "look where it is redirected to"))
            }
            _ => Ok(()),
        }
    }

    fn pass_on(&mut self, bytes: &[u8], last: bool) {
        let filtered = self.filter.as_mut().map(|filter| filter.shown(bytes, last));
        if let Ok(fd) = &self.fd
            && let Err(error) = send(fd.as_fd(), filtered.as_deref().unwrap_or(bytes), &self.over)
        {
            self.fd = Err(error);
        }
    }
}

impl io::Write for Stream {
    /// Takes everything, so that no writer fails.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pass_on(bytes, false);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Past the standard library's stream: that begins a write anew after each signal.
fn send(out: BorrowedFd<'_>, mut bytes: &[u8], over: &dyn Fn() -> bool) -> io::Result<()> {
    let mut since = Instant::now();
    while !bytes.is_empty() {
        let mut ready = [PollFd::from_borrowed_fd(out, PollFlags::OUT)];
        let poll = Timespec::try_from(POLL).unwrap_or_default();
        let writable = matches!(poll_fds(&mut ready, Some(&poll)), Ok(n) if n > 0);
        match if writable { rustix::io::write(out, &bytes[..bytes.len().min(CHUNK)]) } else { Ok(0) } {
            Ok(0) | Err(Errno::INTR | Errno::AGAIN) => {
                if !over() {
                    since = Instant::now();
                } else if since.elapsed() > PATIENCE {
                    return Err(io::Error::new(ErrorKind::TimedOut, "nothing reads it"));
                }
            }
            Ok(written) => {
                bytes = &bytes[written..];
                since = Instant::now();
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Returns a value as indented JSON, for short ones that people read.
pub(crate) fn indented<T: Serialize + ?Sized>(value: &T) -> Result<String, Error> {
    Ok(serde_json::to_string_pretty(value).map_err(|error| Error::internal("a value has no JSON", error))? + "\n")
}

/// The JSON of a command, which waits until its exit is known.
static JSON: Mutex<Option<Value>> = Mutex::new(None);

/// Hands over what the command prints as JSON: [`print_output`] adds its exit.
pub(crate) fn print_json<T: Serialize + ?Sized>(value: &T) -> Result<(), Error> {
    let value = serde_json::to_value(value).map_err(|error| Error::internal("a value has no JSON", error))?;
    match JSON.lock().unwrap_or_else(PoisonError::into_inner).replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::internal("a command prints JSON twice", "one would hide the other")),
    }
}

/// Prints the JSON that a command handed over, with its exit and a schema.
pub(crate) fn print_output(schema: &str, exit: Exit) -> Result<(), Error> {
    let value = JSON.lock().unwrap_or_else(PoisonError::into_inner).take();
    value.map_or(Ok(()), |value| print(&indented(&output(schema, value, exit))?))
}

/// The form in which a command prints its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Tables for a terminal.
    Text,
    /// `--markdown`.
    Markdown,
    /// `--json`.
    Json,
}

/// JSON or text.
impl From<bool> for Form {
    fn from(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

/// Prints a report for people, or the document behind it for programs.
pub(crate) fn show<T: Serialize + ?Sized>(form: impl Into<Form>, report: &Report, document: &T) -> Result<(), Error> {
    match form.into() {
        Form::Text => print(&report.text(columns())),
        Form::Markdown => print(&report.markdown()),
        Form::Json => print_json(document),
    }
}

/// Fills in a template of lines, and leaves out those that are empty then.
pub(crate) fn filled(source: &str, values: minijinja::Value) -> Result<Vec<String>, Error> {
    let text = template::text(source, values)?;
    Ok(text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

/// One line on stderr, with the program's name. Nothing is left to do if stderr is closed.
pub fn complain(line: &str) {
    let _ = io::stderr().write_all(said(line).as_bytes());
}

fn said(line: &str) -> String {
    format!("vpmu: {}\n", shown::line(line))
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
        // A release build has no unwinding: nothing is dropped, and it would end by SIGABRT.
        if cfg!(panic = "abort") {
            std::process::exit(Exit::Internal.code().into());
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
    let (text, owned) = (info.payload().downcast_ref::<&str>(), info.payload().downcast_ref::<String>());
    let message = text.copied().or(owned.map(String::as_str));
    Error::internal(&format!("panic{place}"), one_line(message.unwrap_or("no message")))
}

/// A guest's bytes as a terminal may have them: text in which nothing [steers](shown::steers) it.
#[derive(Debug, Default)]
struct Filter {
    /// The beginning of a character, or a carriage return whose successor is not known.
    rest: Vec<u8>,
}

impl Filter {
    /// The next bytes; `last`: no more follow.
    fn shown(&mut self, bytes: &[u8], last: bool) -> Vec<u8> {
        self.rest.extend_from_slice(bytes);
        let open = match self.rest.utf8_chunks().last().map(|chunk| chunk.invalid()) {
            Some([]) if self.rest.ends_with(b"\r") => 1,
            Some(begin) if std::str::from_utf8(begin).is_err_and(|error| error.error_len().is_none()) => begin.len(),
            _ => 0,
        };
        let whole = self.rest.len() - if last { 0 } else { open };
        let text: Vec<u8> = self.rest.drain(..whole).collect();
        shown::text(&String::from_utf8_lossy(&text)).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn errors_keep_their_exit_code_and_bugs_have_their_own() {
        assert_eq!(guarded(|| Ok(Exit::Regression)), Exit::Regression);
        assert_eq!(guarded(|| Err(Error::usage("a", "b", "c"))), Exit::Usage);
        assert_eq!(guarded(|| Err(Error::internal("cannot show the result", "key must be a string"))).code(), 70);
        assert_eq!(guarded(|| panic!("index out of bounds\nhere")).code(), 70);
    }

    #[test]
    fn a_stream_keeps_its_first_error_and_takes_everything() {
        for (error, reported) in [(ErrorKind::StorageFull, true), (ErrorKind::BrokenPipe, false)] {
            let mut stream = Stream::to("stdout", Err(error.into()), || false);
            stream.write_all(b"x").unwrap();
            assert_eq!(stream.result().is_err(), reported);
        }
        let (reader, writer) = io::pipe().unwrap();
        let mut stream = Stream::to("stdout", Ok(writer.into()), || true);
        stream.write_all(&vec![b'x'; 1 << 20]).unwrap();
        let error = stream.result().unwrap_err().to_string();
        assert!(error.contains("nothing reads it"), "a reader that stops reading blocks no end: {error}");
        drop(reader);
    }

    #[test]
    fn a_pipe_has_a_guests_bytes_and_a_terminal_sees_them_and_does_not_obey() {
        let terminal = std::fs::File::open("/dev/ptmx").unwrap();
        assert!(Stream::to("stdout", Ok(terminal.into()), || false).filter.is_some());
        let sent = [&b"a\x1b[2Jb\tc\r"[..], b"\n\xe2", b"\x80\xaed\xc2"];
        let seen = "a\\u001b[2Jb\tc\r\n\\u202ed\u{fffd}".as_bytes();
        for (filter, expected) in [(None, &sent.concat()[..]), (Some(Filter::default()), seen)] {
            let (mut reader, writer) = io::pipe().unwrap();
            let mut stream = Stream { filter, ..Stream::to("stdout", Ok(writer.into()), || false) };
            for bytes in sent {
                stream.write_all(bytes).unwrap();
            }
            stream.result().unwrap();
            let mut read = Vec::new();
            io::Read::read_to_end(&mut reader, &mut read).unwrap();
            assert_eq!(read, expected);
        }
    }

    #[test]
    fn a_second_json_is_a_bug_and_hides_nothing() {
        assert_eq!(print_json(&1), Ok(()));
        assert_eq!(print_json(&2).unwrap_err().exit, Exit::Internal);
    }

    #[test]
    fn a_message_is_one_line_whatever_is_in_it() {
        assert_eq!(said("a\nvpmu: error: b\x1b]0;t\x07\u{202e}"), "vpmu: a vpmu: error: b\\u001b]0;t\\u0007\\u202e\n");
    }

    #[test]
    fn a_blocked_reader_is_given_up_after_an_interruption_only() {
        let (reader, writer) = io::pipe().unwrap();
        let blocked = vec![b'x'; 1 << 20];
        let late = std::thread::spawn(move || io::copy(&mut { reader }, &mut io::sink()).unwrap());
        send(writer.as_fd(), &blocked, &|| true).unwrap();
        drop(writer);
        assert_eq!(late.join().unwrap(), blocked.len() as u64);
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        assert_eq!(send(writer.as_fd(), b"x", &|| false).unwrap_err().kind(), ErrorKind::BrokenPipe);
    }

    proptest! {
        /// However the bytes are cut, the terminal gets the same.
        #[test]
        fn cuts_change_nothing(
            bytes in prop_oneof![prop::collection::vec(any::<u8>(), 0..40), "\\PC{0,6}\\p{C}{0,6}".prop_map(String::into_bytes)],
            cut in 0_usize..40,
        ) {
            let (first, second) = bytes.split_at(cut.min(bytes.len()));
            let mut filter = Filter::default();
            let parts = [filter.shown(first, false), filter.shown(second, true)].concat();
            prop_assert_eq!(parts, Filter::default().shown(&bytes, true));
        }
    }
}
