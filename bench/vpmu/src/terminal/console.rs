//! The two streams a command writes to, and the way a bug of this program ends it.

use std::any::Any;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, IsTerminal, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use results::error::{Error, Exit, one_line};
use results::shown;
use results::table::Report;
use results::table::layout::columns;
use rustix::event::{PollFd, PollFlags, Timespec, poll as poll_fds};
use rustix::io::Errno;
use serde::Serialize;

use crate::sys;

/// Time that a blocked stdout is waited for after Ctrl-C.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// Interval at which a blocked stdout is tried again.
pub(crate) const POLL: Duration = Duration::from_millis(100);
/// Most bytes of one write: a pipe that is ready takes them without blocking (PIPE_BUF).
pub(crate) const CHUNK: usize = 4096;

/// Writes text to stdout, in which nothing of others [steers](shown::steers) a terminal. A reader that went away
/// (`vpmu | head`) is no error. A reader that does not read is waited for, after Ctrl-C for [`PATIENCE`] only.
pub(crate) fn print(text: &str) -> Result<(), Error> {
    offer(io::stdout().as_fd(), text).map(drop)
}

/// Prints to `out`, which is stdout or was it, for a caller that goes on as long as there is a reader; returns whether there is.
pub(crate) fn offer(out: BorrowedFd<'_>, text: &str) -> Result<bool, Error> {
    match send(out, shown::text(text).as_bytes(), sys::interrupted()) {
        Err(error) if error.kind() == ErrorKind::TimedOut => {
            Err(Error::new(Exit::Inconclusive, "interrupted", "nothing reads stdout", ""))
        }
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error::output("cannot write to stdout", &error, "look where it is redirected to"))
        }
        sent => Ok(sent.is_ok()),
    }
}

/// Stdout or stderr as a stream of a guest's bytes that fails no writer: its first error is kept. A reader that went
/// away is no error.
#[derive(Debug)]
pub(crate) struct Stream {
    name: &'static str,
    fd: io::Result<OwnedFd>,
    /// For a terminal; a file or a pipe has the bytes as they are.
    filter: Option<Filter>,
    /// Once this is set, a reader that does not read is waited for no more.
    over: Arc<AtomicBool>,
}

impl Stream {
    /// Stdout; `over` ends the patience with its reader.
    pub(crate) fn stdout(over: &Arc<AtomicBool>) -> Self {
        Self::to("stdout", io::stdout().as_fd().try_clone_to_owned(), over)
    }

    /// Stderr.
    pub(crate) fn stderr(over: &Arc<AtomicBool>) -> Self {
        Self::to("stderr", io::stderr().as_fd().try_clone_to_owned(), over)
    }

    fn to(name: &'static str, fd: io::Result<OwnedFd>, over: &Arc<AtomicBool>) -> Self {
        let terminal = fd.as_ref().is_ok_and(IsTerminal::is_terminal);
        Self { name, fd, filter: terminal.then(Filter::default), over: Arc::clone(over) }
    }

    /// Ends the stream: its first error.
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
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pass_on(bytes, false);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Past the standard library's stream: that begins a write anew after each signal.
fn send(out: BorrowedFd<'_>, mut bytes: &[u8], interrupted: &AtomicBool) -> io::Result<()> {
    let mut since = Instant::now();
    while !bytes.is_empty() {
        let mut ready = [PollFd::from_borrowed_fd(out, PollFlags::OUT)];
        let poll = Timespec::try_from(POLL).unwrap_or_default();
        let writable = matches!(poll_fds(&mut ready, Some(&poll)), Ok(n) if n > 0);
        match if writable { rustix::io::write(out, &bytes[..bytes.len().min(CHUNK)]) } else { Ok(0) } {
            Ok(0) | Err(Errno::INTR | Errno::AGAIN) => {
                if !interrupted.load(Ordering::Relaxed) {
                    since = Instant::now();
                } else if since.elapsed() > PATIENCE {
                    return Err(ErrorKind::TimedOut.into());
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

/// Returns a document as the JSON that files hold: on one line, as rounds are long.
pub(crate) fn compact<T: Serialize + ?Sized>(value: &T) -> Result<String, Error> {
    serde_json::to_string(value).map(|text| text + "\n").map_err(|error| internal("a value has no JSON", error))
}

/// Returns a value as indented JSON, for short ones that people read.
pub(crate) fn indented<T: Serialize + ?Sized>(value: &T) -> Result<String, Error> {
    serde_json::to_string_pretty(value).map(|text| text + "\n").map_err(|error| internal("a value has no JSON", error))
}

/// Writes a value to stdout as JSON.
pub(crate) fn print_json<T: Serialize + ?Sized>(value: &T) -> Result<(), Error> {
    print(&indented(value)?)
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

impl Form {
    /// Returns the form that a command line asks for; the options exclude each other.
    pub(crate) const fn of(json: bool, markdown: bool) -> Self {
        match (json, markdown) {
            (true, _) => Self::Json,
            (false, true) => Self::Markdown,
            (false, false) => Self::Text,
        }
    }
}

/// Prints a report for people, or the document behind it for programs.
pub(crate) fn show<T: Serialize + ?Sized>(form: Form, report: &Report, document: &T) -> Result<(), Error> {
    match form {
        Form::Text => print(&report.text(columns())),
        Form::Markdown => print(&report.markdown()),
        Form::Json => print_json(document),
    }
}

/// One line on stderr, with the program's name. Nothing is left to do if stderr is closed.
pub fn complain(line: &str) {
    let _ = io::stderr().write_all(said(line).as_bytes());
}

fn said(line: &str) -> String {
    format!("vpmu: {}\n", shown::line(line))
}

/// The error of a condition that only a bug of this program can cause: exit 70.
pub(crate) fn internal(what: &str, why: impl std::fmt::Display) -> Error {
    Error::internal(what, why)
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

/// Bytes as a terminal may have them: text, line feeds, tabs, and the carriage return of a line's end as they are; any other
/// control character in the notation of `cat -v`, bytes that are no UTF-8 in hexadecimal, and what turns or hides text as `\u202e`.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    /// The beginning of a character, or a carriage return whose successor is not known.
    rest: Vec<u8>,
}

impl Filter {
    /// The next bytes; `last`: no more follow.
    pub(crate) fn shown(&mut self, bytes: &[u8], last: bool) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        let mut out = String::with_capacity(all.len());
        let mut chunks = all.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            let end = chunks.peek().is_none();
            let mut text = chunk.valid();
            if end && !last && chunk.invalid().is_empty() && text.ends_with('\r') {
                text = &text[..text.len() - 1];
                self.rest.push(b'\r');
            }
            escape(text, &mut out);
            // An incomplete character at the end may go on in the next bytes.
            let whole = std::str::from_utf8(chunk.invalid());
            let incomplete = end && !last && whole.is_err_and(|error| error.error_len().is_none());
            if incomplete {
                self.rest.extend_from_slice(chunk.invalid());
            } else {
                chunk.invalid().iter().for_each(|&byte| hexadecimal(u32::from(byte), &mut out));
            }
        }
        out.into_bytes()
    }
}

fn hexadecimal(code: u32, out: &mut String) {
    // Writing to a String cannot fail.
    let _ = write!(out, "\\x{code:02x}");
}

fn escape(text: &str, out: &mut String) {
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\n' | '\t' => out.push(character),
            '\r' if characters.peek() == Some(&'\n') => out.push(character),
            // ^A is 0x01, ^[ is ESC, ^? is DEL.
            control if control.is_ascii_control() => {
                out.push('^');
                out.push(char::from(control as u8 ^ 0x40));
            }
            control if control.is_control() => hexadecimal(u32::from(control), out),
            turning if shown::steers(turning) => shown::escape(turning, out),
            text => out.push(text),
        }
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
        assert_eq!(guarded(|| Err(internal("cannot show the result", "key must be a string"))).code(), 70);
        assert_eq!(guarded(|| panic!("index out of bounds\nhere")).code(), 70);
    }

    #[test]
    fn a_stream_keeps_its_first_error_and_takes_everything() {
        for (error, reported) in [(ErrorKind::StorageFull, true), (ErrorKind::BrokenPipe, false)] {
            let mut stream = Stream::to("stdout", Err(error.into()), &Arc::default());
            stream.write_all(b"x").unwrap();
            assert_eq!(stream.result().is_err(), reported);
        }
    }

    #[test]
    fn a_pipe_has_a_guests_bytes_and_a_terminal_sees_them_and_does_not_obey() {
        let terminal = std::fs::File::open("/dev/ptmx").unwrap();
        assert!(Stream::to("stdout", Ok(terminal.into()), &Arc::default()).filter.is_some());
        let sent = [&b"a\x1b[2Jb\tc\n\xe2"[..], b"\x80\xaed\xc2"];
        for (filter, expected) in [(None, &sent.concat()[..]), (Some(Filter::default()), b"a^[[2Jb\tc\n\\u202ed\\xc2")]
        {
            let (mut reader, writer) = io::pipe().unwrap();
            let mut stream = Stream { filter, ..Stream::to("stdout", Ok(writer.into()), &Arc::default()) };
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
    fn a_message_is_one_line_whatever_is_in_it() {
        assert_eq!(said("a\nvpmu: error: b\x1b]0;t\x07\u{202e}"), "vpmu: a vpmu: error: b\\u001b]0;t\\u0007\\u202e\n");
    }

    #[test]
    fn a_blocked_reader_is_given_up_after_an_interruption_only() {
        let (reader, writer) = io::pipe().unwrap();
        let blocked = vec![b'x'; 1 << 20];
        let error = send(writer.as_fd(), &blocked, &AtomicBool::new(true)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let late = std::thread::spawn(move || io::copy(&mut { reader }, &mut io::sink()).unwrap());
        send(writer.as_fd(), &blocked, &AtomicBool::new(true)).unwrap();
        drop(writer);
        assert!(late.join().unwrap() > blocked.len() as u64);
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        assert_eq!(send(writer.as_fd(), b"x", &AtomicBool::new(false)).unwrap_err().kind(), ErrorKind::BrokenPipe);
    }

    fn shown(bytes: &[u8]) -> String {
        String::from_utf8(Filter::default().shown(bytes, true)).unwrap()
    }

    #[test]
    fn a_terminal_gets_text_and_sees_control_bytes() {
        for (bytes, text) in [
            (&b"plain\ttext\r\n"[..], "plain\ttext\r\n"),
            (b"\x1b]0;title\x07", "^[]0;title^G"),
            (b"\x1b[31mred\x7f", "^[[31mred^?"),
            (b"over\rwritten", "over^Mwritten"),
            (b"\x9b2J", "\\x9b2J"),
            ("\u{9b}2J µs".as_bytes(), "\\x9b2J µs"),
            ("a\u{202e}b\u{2066}c\u{200b}".as_bytes(), "a\\u202eb\\u2066c\\u200b"),
            (b"cut \xc2", "cut \\xc2"),
        ] {
            assert_eq!(shown(bytes), text);
        }
    }

    proptest! {
        /// However the bytes are cut, the terminal gets the same, and never a control byte.
        #[test]
        fn cuts_change_nothing(
            bytes in prop_oneof![prop::collection::vec(any::<u8>(), 0..40), "\\PC{0,6}\\p{C}{0,6}".prop_map(String::into_bytes)],
            cut in 0_usize..40,
        ) {
            let cut = cut.min(bytes.len());
            let mut filter = Filter::default();
            let mut parts = filter.shown(&bytes[..cut], false);
            parts.extend(filter.shown(&bytes[cut..], true));
            let parts = String::from_utf8(parts).unwrap();
            prop_assert_eq!(&parts, &shown(&bytes));
            let text = parts.replace("\r\n", "\n");
            prop_assert!(!text.chars().any(|c| shown::steers(c) && c != '\n' && c != '\t'));
        }
    }
}
