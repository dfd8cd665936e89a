//! A guest of a test: it speaks the agent's protocol and has files that no honest guest would have.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use linux_guest::agent::Agent;

/// Kinds of frames, as the protocol numbers them.
const GET: u8 = 5;
const ENTRY: u8 = 32;
const DATA: u8 = 33;
const DONE: u8 = 69;
const ERROR: u8 = 70;

/// A file or folder of the guest, by its path below the one asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Entry<'a> {
    File(&'a str, u32, &'a [u8]),
    Folder(&'a str),
}

impl Entry<'_> {
    fn frames(&self) -> Vec<u8> {
        let entry = |kind: u8, mode: u32, path: &str| {
            frame(ENTRY, &[&[kind][..], &mode.to_le_bytes(), path.as_bytes(), &[0, 0]].concat())
        };
        match *self {
            Self::File(path, mode, bytes) => [entry(0, mode, path), frame(DATA, bytes)].concat(),
            Self::Folder(path) => entry(1, 0o755, path),
        }
    }
}

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    [&[kind][..], &(payload.len() as u32).to_le_bytes(), payload].concat()
}

/// Starts it: `files` are its paths and what is at each; `asked` is called before each reply.
pub(super) fn start(
    files: &[(&str, &[Entry<'_>])],
    mut asked: impl FnMut() + Send + 'static,
) -> (Agent<'static>, JoinHandle<()>) {
    let files: Vec<(String, Vec<u8>)> = files
        .iter()
        .map(|(path, entries)| ((*path).to_owned(), entries.iter().flat_map(Entry::frames).collect()))
        .collect();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let thread = std::thread::spawn(move || {
        let mut header = [0; 5];
        while theirs.read_exact(&mut header).is_ok() {
            let [kind, length @ ..] = header;
            assert_eq!(kind, GET);
            let mut payload = vec![0; u32::from_le_bytes(length) as usize];
            theirs.read_exact(&mut payload).unwrap();
            let path = String::from_utf8(payload[4..payload.len() - 1].to_vec()).unwrap();
            asked();
            let found = files.iter().find(|(name, _)| *name == path);
            let refused = || frame(ERROR, &[&2_u32.to_le_bytes()[..], b"open\0", path.as_bytes(), &[0]].concat());
            let reply = found.map_or_else(refused, |(_, frames)| [frames.as_slice(), &frame(DONE, &[])].concat());
            theirs.write_all(&reply).unwrap();
        }
    });
    (Agent::new(ours).unwrap(), thread)
}
