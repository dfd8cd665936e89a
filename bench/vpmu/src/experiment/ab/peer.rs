//! The process of one side, as its parent sees it: it may die, hang, or say anything.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use results::child::{Gathered, Keep, Line, Lines, POLL, Supervised};
use results::error::{Error, Exit, one_line};
use results::open::found_bytes;

use super::protocol::{self, Answer, Ask, COMMAND, Hello, MAX_ARMS, MAX_LINE, PROTOCOL};
use super::spec::Side;

/// Time to the greeting.
const START: Duration = Duration::from_secs(30);
/// Time for an answer, beside the time that a guest may take.
const ANSWER: Duration = Duration::from_secs(15);
/// Longest time that a side may claim for a turn.
const MOST: Duration = Duration::from_secs(3600);
/// Time to end by itself.
const END: Duration = Duration::from_secs(3);
/// Time to wait for the last output of a side that has ended.
const WORDS: Duration = Duration::from_millis(500);
/// Part of a side's stderr that is kept, in bytes.
const LAST: usize = 64 << 10;

/// A side's process.
#[derive(Debug)]
pub struct Peer {
    name: &'static str,
    binary: String,
    child: Supervised,
    input: Option<ChildStdin>,
    lines: Lines<ChildStdout>,
    errors: Gathered,
    /// Time for the answer to a turn.
    turn: Duration,
    /// Asks without an answer so far.
    owed: usize,
}

impl Peer {
    /// Starts a side and reads its greeting. Returns `None` if `stop` was set meanwhile.
    ///
    /// # Errors
    /// It does not start, does not speak the protocol, or refuses its options.
    pub fn start(
        name: &'static str,
        side: &Side,
        common: &[String],
        stop: &AtomicBool,
    ) -> Result<Option<(Self, Hello)>, Error> {
        Self::start_within(name, side, common, stop, START)
    }

    fn start_within(
        name: &'static str,
        side: &Side,
        common: &[String],
        stop: &AtomicBool,
        within: Duration,
    ) -> Result<Option<(Self, Hello)>, Error> {
        let binary = side.binary.display().to_string();
        let failed = |why: String| {
            Error::usage(format!("cannot start {name}, {binary}"), why, "give the path of a vpmu that can be executed")
        };
        // Both sides run under one name, and Ctrl-C is the parent's alone.
        let mut command = Command::new(&side.binary);
        command
            .arg0("vpmu")
            .arg(COMMAND)
            .args(common)
            .args(&side.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = Supervised::start(&mut command).map_err(|error| failed(error.to_string()))?;
        let process = &mut child.process;
        let streams = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        let (input, Some(output), Some(stderr)) = streams else { return Err(failed("no pipes".to_owned())) };
        let (lines, errors) = (Lines::new(output, MAX_LINE), Gathered::start(stderr, Keep::Last(LAST)));
        let mut peer = Self { name, binary, child, input, lines, errors, turn: ANSWER, owed: 0 };
        let Some(answer) = peer.wait(within, stop).map_err(|broken| peer.no_greeting(broken))? else {
            return Ok(None);
        };
        let hello = match answer {
            Answer::Hello(hello) => check(*hello).map_err(|why| peer.no_greeting(Broken::Garbled(why)))?,
            Answer::Failed { exit, error } => return Err(Error::new(failure(exit), one_line(&error), "", "")),
            _ => return Err(peer.no_greeting(Broken::Garbled("its first line is no greeting".to_owned()))),
        };
        peer.turn = Duration::from_millis(hello.turn_limit_ms).min(MOST) + ANSWER;
        Ok(Some((peer, hello)))
    }

    /// Asks, and waits for the answer; `None` if `stop` was set meanwhile.
    ///
    /// # Errors
    /// The side died, said nothing in time, said something else than an answer, or failed.
    pub fn ask(&mut self, ask: &Ask, stop: &AtomicBool) -> Result<Option<Answer>, Error> {
        let within = if matches!(ask, Ask::Turn { .. } | Ask::Open) { self.turn } else { ANSWER };
        let sent = self.input.as_mut().map(|input| protocol::send(input, ask));
        // The reason of a broken pipe is in its last output.
        let within = if matches!(sent, Some(Ok(()))) { within } else { END };
        self.owed += 1;
        while self.owed > 0 {
            let Some(answer) = self.wait(within, stop).map_err(|broken| self.error(&broken))? else { return Ok(None) };
            self.owed -= 1;
            match answer {
                Answer::Failed { exit, error } => return Err(Error::new(failure(exit), one_line(&error), "", "")),
                answer if self.owed == 0 => return Ok(Some(answer)),
                // The answer to an ask that Ctrl-C cut short.
                _ => {}
            }
        }
        Ok(None)
    }

    /// Returns the error of an answer that fits no ask.
    pub fn unexpected(&mut self) -> Error {
        self.error(&Broken::Garbled("another question".to_owned()))
    }

    fn wait(&mut self, within: Duration, stop: &AtomicBool) -> Result<Option<Answer>, Broken> {
        let until = Instant::now() + within;
        let stopped = || stop.load(Ordering::Relaxed);
        match self.lines.next(|| stopped() || Instant::now() >= until) {
            Ok(Line::Text(line)) => {
                let shown = || one_line(&line.chars().take(80).collect::<String>());
                let garbled = |why| Broken::Garbled(format!("'{}' ({why})", shown()));
                protocol::message(&line).map(Some).map_err(garbled)
            }
            Ok(Line::End) => Err(Broken::Died(self.ended())),
            Ok(Line::Over) if stopped() => Ok(None),
            Ok(Line::Over) => Err(Broken::Silent(within)),
            Err(error) => Err(Broken::Garbled(error.to_string())),
        }
    }

    /// Returns the exit status; kills the process if it has not ended.
    fn ended(&mut self) -> Option<ExitStatus> {
        let until = Instant::now() + END;
        self.input = None;
        let ended = self.child.wait(POLL, || Instant::now() >= until).ok().flatten();
        ended.or_else(|| self.child.kill())
    }

    /// Returns the lines of its stderr, once it has ended.
    fn words(&self) -> Vec<String> {
        self.errors.text(WORDS).0.lines().map(one_line).filter(|line| !line.is_empty()).collect()
    }

    /// Returns the error of a side that was under way.
    fn error(&mut self, broken: &Broken) -> Error {
        let Self { name, binary, .. } = self;
        let what = format!("{name} ({binary}) failed");
        let why = match broken {
            Broken::Died(status) => {
                let status = status.map_or_else(String::new, |status| format!(" with {status}"));
                format!("it ended{status}{}", said(self.words().last()))
            }
            Broken::Silent(within) => format!("no answer in {} s", within.as_secs()),
            Broken::Garbled(what) => format!("it answered {what}"),
        };
        Error::new(Exit::Inconclusive, what, why, "run it alone: vpmu nmi-latency")
    }

    /// Returns the error of a side that never greeted.
    fn no_greeting(&mut self, broken: Broken) -> Error {
        let status = if let Broken::Died(status) = broken { status } else { self.ended() };
        let words = self.words();
        let Self { name, binary, .. } = self;
        // An error of ours that is not about the command: options it refuses, a host that cannot.
        if let (Broken::Died(_), Some(text)) =
            (&broken, words.iter().find_map(|line| line.strip_prefix("vpmu: error: ")))
            && !text.contains(&format!("'{COMMAND}'"))
        {
            let text = text.replace(COMMAND, "nmi-latency");
            return Error::new(exit_of(status), format!("{name} ({binary})"), text, "");
        }
        let why = match broken {
            Broken::Died(_) => {
                let status = status.map_or_else(String::new, |status| format!(" with {status}"));
                format!("it ended{status} before its first line{}", said(words.first()))
            }
            Broken::Silent(within) => format!("no line in {} s", within.as_secs_f32()),
            Broken::Garbled(what) => what,
        };
        Error::usage(
            format!("{name} ({binary}) does not speak {PROTOCOL}"),
            why,
            "build it from a revision that has `vpmu ab`, or compare saved results: vpmu compare",
        )
    }

    /// Lets it end by itself.
    pub fn stop(mut self) {
        if let Some(input) = &mut self.input {
            let _ = protocol::send(input, &Ask::Stop);
        }
        self.ended();
    }
}

/// Reason why there is no answer.
#[derive(Debug)]
enum Broken {
    Died(Option<ExitStatus>),
    Silent(Duration),
    Garbled(String),
}

/// Returns the exit of a process that did not end well.
fn exit_of(status: Option<ExitStatus>) -> Exit {
    let code = status.and_then(|status| status.code()).and_then(|code| u8::try_from(code).ok());
    code.map_or(Exit::Inconclusive, failure)
}

/// Maps an exit code to the failure that it reports: 0 and 1 are no failures.
fn failure(code: u8) -> Exit {
    match Exit::from_code(code) {
        Exit::Done | Exit::Regression => Exit::Inconclusive,
        exit => exit,
    }
}

fn said(words: Option<&String>) -> String {
    words.map_or_else(String::new, |words| format!(" ('{words}')"))
}

/// Checks a greeting.
fn check(hello: Hello) -> Result<Hello, String> {
    if hello.protocol != PROTOCOL {
        return Err(format!("it speaks {}", one_line(&hello.protocol)));
    }
    if hello.arms.is_empty() || hello.arms.len() > MAX_ARMS {
        return Err(format!("it has {} arms", hello.arms.len()));
    }
    let plain = |text: &str| text.len() <= 400 && !text.chars().any(char::is_control);
    let tool = &hello.tool;
    let texts = [&hello.workload, &hello.backend, &hello.host];
    let texts = texts.into_iter().chain([&tool.name, &tool.version, &tool.git_revision, &tool.profile]);
    let names = hello.arms.iter().map(|arm| &arm.name);
    let reasons = hello.arms.iter().filter_map(|arm| arm.not_available.as_ref());
    if names.chain(texts).chain(&hello.pin).chain(reasons).any(|text| text.is_empty() || !plain(text)) {
        return Err("a text in its greeting is empty, too long, or has control characters".to_owned());
    }
    Ok(hello)
}

/// Returns whether two sides are the same build with the same options.
pub fn same(base: &Side, new: &Side) -> bool {
    base.args == new.args && same_content(&path(base), &path(new)).unwrap_or(false)
}

fn same_content(one: &Path, other: &Path) -> std::io::Result<bool> {
    let (a, b) = (one.metadata()?, other.metadata()?);
    if (a.dev(), a.ino()) == (b.dev(), b.ino()) {
        return Ok(true);
    }
    Ok(a.len() == b.len() && found_bytes(one, u64::MAX)? == found_bytes(other, u64::MAX)?)
}

/// Returns the path of the build; a bare name is looked up as the kernel does for execvp.
fn path(side: &Side) -> PathBuf {
    if side.binary.components().count() > 1 {
        return side.binary.clone();
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths::<OsStr>(&folders).map(|dir| dir.join(&side.binary)).find(|path| path.is_file());
    found.unwrap_or_else(|| side.binary.clone())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const HELLO: &str = r#"{"is":"hello","protocol":"vpmu-turns/2","tool":{"name":"vpmu","version":"0","git_revision":"r","profile":"debug"},"arms":[{"name":"floor"}],"workload":"w","backend":"b","stand_in":true,"host":"h","samples":1,"turn_limit_ms":100}"#;

    /// Returns a side that is a shell script.
    fn script(body: &str) -> (tempfile::TempDir, Side) {
        let dir = tempfile::tempdir().unwrap();
        let binary = dir.path().join("side");
        std::fs::write(&binary, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&binary, std::fs::Permissions::from_mode(0o755)).unwrap();
        (dir, Side { binary, args: Vec::new() })
    }

    fn start(body: &str) -> Result<Option<(Peer, Hello)>, Error> {
        let (_dir, side) = script(body);
        Peer::start_within("BASE", &side, &[], &AtomicBool::new(false), Duration::from_millis(500))
    }

    fn greeting(then: &str) -> String {
        format!("echo '{HELLO}'\n{then}")
    }

    /// Builds that are waited for end as their input does.
    #[test]
    fn a_build_without_the_protocol_is_one_clear_error() {
        for (body, needle) in [
            ("echo \"vpmu: error: unrecognized subcommand '__turns'\" >&2; exit 2", "before its first line"),
            ("echo no such option >&2; echo try --help >&2; exit 2", "('no such option')"),
            ("echo hello", "'hello'"),
            ("cat /dev/zero & read end; kill $!", "more than 1 MiB"),
            ("read end", "no line in 0.5 s"),
            ("echo '{\"is\":\"opened\"}'; read end", "its first line is no greeting"),
        ] {
            let error = start(body).unwrap_err();
            assert_eq!(error.exit, Exit::Usage);
            let text = error.to_string();
            assert!(text.contains("does not speak vpmu-turns/2") && text.contains(needle), "{text} lacks {needle}");
            assert!(text.contains("vpmu compare"), "{text}");
        }
        let other = greeting("read end").replace("turns/2", "turns/1");
        assert!(start(&other).unwrap_err().to_string().contains("it speaks vpmu-turns/1"));
        for (text, odd) in [
            ("floor", "fl\\u001boor"),
            ("\"samples\"", "\"pin\":\"\\u001b\",\"samples\""),
            ("\"floor\"", "\"floor\",\"not_available\":\"\\u001b\""),
        ] {
            let error = start(&greeting("read end").replace(text, odd)).unwrap_err().to_string();
            assert!(error.contains("control characters"), "{text}: {error}");
        }
    }

    #[test]
    fn what_a_build_refuses_is_passed_on_with_its_exit_code() {
        let error = start("echo 'vpmu: error: bad value for --pin; mend it' >&2; exit 2").unwrap_err();
        assert_eq!((error.exit, error.to_string().ends_with("bad value for --pin; mend it")), (Exit::Usage, true));
        assert_eq!(start("echo 'vpmu: error: no KVM' >&2; exit 4").unwrap_err().exit, Exit::Host);
        let option =
            "echo \"vpmu: error: unexpected argument '--foo' found; \\`vpmu __turns --help\\` lists its options\" >&2";
        let error = start(&format!("{option}; exit 2")).unwrap_err().to_string();
        assert!(error.contains("'--foo'") && error.ends_with("`vpmu nmi-latency --help` lists its options"), "{error}");
        let absent = Side { binary: "/no/such/vpmu".into(), args: Vec::new() };
        let error = Peer::start("NEW", &absent, &[], &AtomicBool::new(false)).unwrap_err();
        assert!(error.to_string().contains("cannot start NEW, /no/such/vpmu"), "{error}");
    }

    #[test]
    fn a_side_that_dies_hangs_or_garbles_is_inconclusive() {
        let stop = AtomicBool::new(false);
        for (then, needle) in [
            ("read ask; echo oops >&2; kill -9 $$", "signal: 9"),
            ("read ask; echo the last words >&2; exit 3", "the last words"),
            ("read ask; echo '{\"is\":'", "answered"),
            ("exit 0", "it ended"),
        ] {
            let (mut peer, hello) = start(&greeting(then)).unwrap().unwrap();
            assert_eq!(hello.arms[0].name, "floor");
            let error = peer.ask(&Ask::Open, &stop).unwrap_err();
            assert_eq!(error.exit, Exit::Inconclusive);
            assert!(error.to_string().contains(needle), "{error} lacks {needle}");
        }
        let (mut peer, _) = start(&greeting("exec sleep 100")).unwrap().unwrap();
        peer.turn = Duration::from_millis(100);
        assert!(peer.ask(&Ask::Open, &stop).unwrap_err().to_string().contains("no answer"));
    }

    #[test]
    fn a_failure_is_passed_on_whatever_was_asked() {
        let failed = r#"read ask; echo '{"is":"failed","exit":4,"error":"no such host"}'; exec sleep 100"#;
        for ask in [Ask::Open, Ask::Keep, Ask::Close] {
            let (mut peer, _) = start(&greeting(failed)).unwrap().unwrap();
            let error = peer.ask(&ask, &AtomicBool::new(false)).unwrap_err();
            assert_eq!((error.exit, error.to_string().as_str()), (Exit::Host, "no such host"));
        }
    }

    #[test]
    fn an_answer_that_ctrl_c_did_not_wait_for_is_not_taken_for_the_next_one() {
        let answers = r#"read ask; read ask; echo '{"is":"turn-over","end":"finished"}'; echo '{"is":"closed","doubts":[]}'; exec sleep 100"#;
        let (mut peer, _) = start(&greeting(answers)).unwrap().unwrap();
        let turn = Ask::Turn { arm: 0, round: 0, position: 0, warmup: false };
        assert_eq!(peer.ask(&turn, &AtomicBool::new(true)), Ok(None));
        let closed = Some(Answer::Closed { doubts: Vec::new() });
        assert_eq!(peer.ask(&Ask::Close, &AtomicBool::new(false)), Ok(closed));
    }

    #[test]
    fn ctrl_c_ends_the_wait_and_no_process_is_left() {
        let (mut peer, _) = start(&greeting("exec sleep 100")).unwrap().unwrap();
        assert_eq!(peer.ask(&Ask::Open, &AtomicBool::new(true)), Ok(None));
        let process = format!("/proc/{}", peer.child.process.id());
        assert!(std::path::Path::new(&process).exists());
        drop(peer);
        assert!(!std::path::Path::new(&process).exists());
    }

    #[test]
    fn the_same_build_is_known_by_its_content() {
        let (_one, first) = script("exit 0");
        let (_two, second) = script("exit 0");
        let (_three, other) = script("exit 1");
        assert!(same(&first, &second) && !same(&first, &other));
        assert!(!same(&first, &Side { args: vec!["--samples".to_owned()], ..second }));
    }
}
