//! A forged agent under the client: frames that no agent of ours sends.

use std::fs;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;

use super::{Agent, AgentError, Ended};
use crate::protocol::{DATA, DONE, ENDED, ENTRY, ERR, ERROR, FILE, FOLDER, HELLO, LINK, MAX_PAYLOAD, OTHER, OUT};

/// More than any request may take of what a guest sends for ever.
const ENDLESS: usize = 256 << 20;
/// Time that a test has for what the client ends by itself.
const SOON: Duration = Duration::from_secs(20);

pub(crate) fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    [&[kind][..], &(payload.len() as u32).to_le_bytes(), payload].concat()
}

pub(crate) fn entry(kind: u8, path: &str, target: &str) -> Vec<u8> {
    frame(ENTRY, &[&[kind][..], &0o644_u32.to_le_bytes(), path.as_bytes(), &[0], target.as_bytes(), &[0]].concat())
}

pub(crate) fn done() -> Vec<u8> {
    frame(DONE, &[])
}

/// Makes an agent that sends `frames` whatever it is asked, and then nothing.
pub(crate) fn sends(frames: &[u8]) -> Agent<'static> {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let frames = frames.to_owned();
    std::thread::spawn(move || {
        if theirs.write_all(&frames).is_ok() {
            let _ = theirs.shutdown(std::net::Shutdown::Write);
            // Requests are read until the client goes.
            let _ = std::io::copy(&mut theirs, &mut std::io::sink());
        }
    });
    Agent::new(ours).unwrap()
}

/// Copies a tree of the guest to a path of the host.
fn get_tree(agent: &mut Agent<'_>, path: &str, to: &Path) -> Result<(), AgentError> {
    let folder = fs::File::open(to.parent().unwrap()).unwrap();
    agent.get_tree(path, 100_000, folder.as_fd(), to)
}

fn run(agent: &mut Agent<'_>, limit: Option<Duration>) -> Result<Ended, AgentError> {
    agent.run(&["x".to_owned()], limit, &mut Vec::new(), &mut Vec::new())
}

#[test]
fn a_guest_that_breaks_the_protocol_is_an_error() {
    assert!(sends(&frame(HELLO, &[])).hello(SOON).is_ok());
    // The last is a byte longer than any.
    for first in [&[DONE, 0, 0, 0, 0][..], &[HELLO, 0, 0, 0, 99], &[HELLO, 0xfc, 0xff, 0, 0]] {
        assert!(matches!(sends(first).hello(SOON), Err(AgentError::Protocol(_))));
    }
    assert!(matches!(sends(&[HELLO, 2, 0]).hello(SOON), Err(AgentError::Gone(_))));
    // A reply of a file while a program runs, and a short one.
    for frame in [frame(DATA, &[]), frame(ENDED, &[1, 1, 1])] {
        assert!(matches!(run(&mut sends(&frame), None), Err(AgentError::Protocol(_))));
    }
    // A message with control characters, and one longer than a path.
    let error = sends(b"\x46\x0a\0\0\0\x02\0\0\0op\0\x1b[\0").get("x", 1 << 20).unwrap_err().to_string();
    assert!(error.contains("\u{fffd}[") && !error.contains('\u{1b}'), "{error:?}");
    let long = [&2_u32.to_le_bytes()[..], &vec![b'o'; 30_000], &[0], &vec![b'p'; 30_000], &[0]].concat();
    let error = sends(&frame(ERROR, &long)).get("/x", 1 << 20).unwrap_err();
    assert!(matches!(&error, AgentError::Refused(why) if why.len() < 10_000));
}

#[test]
fn a_silent_guest_is_given_up_and_a_limit_without_end_is_none() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let mut agent = Agent::new(ours).unwrap();
    assert!(matches!(agent.hello(Duration::from_millis(200)), Err(AgentError::Silent { .. })));
    assert_eq!(run(&mut sends(&frame(ENDED, &[0; 12])), Some(Duration::MAX)).unwrap().wall_ns, 0);
    assert!(sends(&frame(HELLO, &[])).hello(Duration::MAX).is_ok());
}

#[test]
fn what_comes_is_what_was_asked_for() {
    let (it, data, folder) = (entry(FILE, "", ""), frame(DATA, b"x"), entry(FOLDER, "", ""));
    assert_eq!(sends(&[&it[..], &data, &data, &done()].concat()).get("/x", 1 << 20).unwrap(), b"xx");
    for broken in [
        [&data[..], &it].concat(),
        [&it[..], &it].concat(),
        [&it[..], &data, &entry(FILE, "y", ""), &data].concat(),
        [&entry(FILE, "y", "")[..], &data].concat(),
        [&folder[..], &data].concat(),
        [&entry(LINK, "", "/etc/passwd")[..], &data].concat(),
        [&entry(77, "", "")[..], &data].concat(),
    ] {
        let error = sends(&[&broken[..], &done()].concat()).get("/x", 1 << 20).unwrap_err();
        assert!(matches!(error, AgentError::Protocol(_)), "{error}");
    }
    let outer = tempfile::tempdir().unwrap();
    let to = outer.path().join("copy");
    let error = get_tree(&mut sends(&[entry(LINK, "", "/etc"), done()].concat()), "/share", &to).unwrap_err();
    assert!(matches!(error, AgentError::Protocol(_)) && to.symlink_metadata().is_err(), "{error}");
}

#[test]
fn a_file_without_an_end_is_given_up_after_some_bytes() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let guest = std::thread::spawn(move || {
        let (again, mut sent) = (frame(DATA, &vec![7; 60_000]), 0);
        theirs.write_all(&entry(FILE, "", "")).unwrap();
        while sent < ENDLESS && theirs.write_all(&again).is_ok() {
            sent += again.len();
        }
        sent
    });
    let mut agent = Agent::new(ours).unwrap();
    assert!(matches!(agent.get("/dev/kmsg", 1 << 20), Err(AgentError::Flood { .. })));
    assert!(agent.gave_up() && matches!(agent.power_off(), Err(AgentError::Gone(_))));
    drop(agent);
    assert!(guest.join().unwrap() < ENDLESS / 4);
}

/// Draws a path of any kind: out of the folder, absolute, through links that were sent before.
fn path() -> impl Strategy<Value = String> {
    let parts = prop::sample::select(vec!["", ".", "..", "a", "b", "l", "outside", "/", "\u{202e}", "\x1b[2J"]);
    prop::collection::vec(parts, 0..4).prop_map(|parts| parts.join("/"))
}

/// Draws a frame of any kind, maybe with a length that is a lie.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let kinds = vec![HELLO, OUT, ERR, ENDED, DONE, ERROR, ENTRY, DATA, 0, 255];
    let links = prop::sample::select(vec!["", "..", "../outside", "/", "/etc/passwd"]);
    prop_oneof![
        6 => (prop::sample::select(vec![FILE, FOLDER, LINK, OTHER, 9]), path(), links)
            .prop_map(|(kind, path, target)| entry(kind, &path, target)),
        3 => prop::collection::vec(any::<u8>(), 0..200).prop_map(|bytes| frame(DATA, &bytes)),
        3 => (prop::sample::select(kinds), prop::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(kind, bytes)| frame(kind, &bytes)),
        1 => (any::<u8>(), any::<u32>()).prop_map(|(kind, length)| [&[kind][..], &length.to_le_bytes()].concat()),
        1 => Just(frame(OUT, &vec![b'x'; MAX_PAYLOAD])),
        1 => prop::collection::vec(any::<u8>(), 0..400),
    ]
}

proptest! {
    /// Whatever an agent sends, each request ends, in memory that it bounds, and nothing is written but below its target.
    #[test]
    fn any_frames_end_every_request(frames in prop::collection::vec(any_frame(), 0..12), ends in any::<bool>()) {
        let outer = tempfile::tempdir().unwrap();
        let outside = outer.path().join("outside");
        fs::create_dir(&outside).unwrap();
        let begin = entry(FOLDER, "", "");
        let all = [if ends { begin } else { Vec::new() }, frames.concat(), if ends { done() } else { Vec::new() }].concat();
        let agent = || sends(&all);
        let to = outer.path().join("inner/to");
        fs::create_dir(outer.path().join("inner")).unwrap();
        let _ = get_tree(&mut agent(), "/x", &to);
        let _ = agent().hello(SOON);
        prop_assert!(!agent().get("/x", 1000).is_ok_and(|copy| copy.len() > 1000));
        if let Ok(files) = agent().get_files("/x", 2000) {
            prop_assert!(files.len() <= 3 && files.iter().map(|(name, bytes)| name.len() + bytes.len()).sum::<usize>() <= 2000);
        }
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let _ = agent().run(&["x".to_owned()], None, &mut out, &mut err);
        prop_assert!(out.len() + err.len() <= all.len());
        let _ = agent().write("/x", b"1");
        let _ = agent().power_off();
        prop_assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        let mut names: Vec<_> = fs::read_dir(outer.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        prop_assert_eq!(names, ["inner", "outside"]);
        prop_assert!(fs::read_dir(outer.path().join("inner")).unwrap().all(|entry| entry.unwrap().file_name() == "to"));
    }
}
