//! A forged agent for tests.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use linux_guest::agent::Agent;

/// Kinds of frames, as in the protocol of `linux_guest`.
pub(crate) const RUN: u8 = 1;
pub(crate) const GET: u8 = 5;
pub(crate) const WRITE: u8 = 6;
pub(crate) const OUT: u8 = 65;
pub(crate) const ERR: u8 = 66;
pub(crate) const ENDED: u8 = 68;
/// Types of an entry.
pub(crate) const FILE: u8 = 0;
pub(crate) const FOLDER: u8 = 1;

pub(crate) fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    [&[kind][..], &(payload.len() as u32).to_le_bytes(), payload].concat()
}

/// The frames of a file or folder, by its path below the one asked for.
pub(crate) fn file(kind: u8, path: &str, mode: u32, bytes: &[u8]) -> Vec<u8> {
    let entry = frame(32, &[&[kind][..], &mode.to_le_bytes(), path.as_bytes(), &[0, 0]].concat());
    if bytes.is_empty() { entry } else { [entry, frame(33, bytes)].concat() }
}

/// The refusal of a request.
pub(crate) fn refused() -> Vec<u8> {
    frame(70, &[&2_u32.to_le_bytes()[..], b"open\0x\0"].concat())
}

/// Starts an agent that answers each request, the first being number 1, with these frames, and then DONE where these are not
/// the end of an answer.
pub(crate) fn start(
    mut answer: impl FnMut(u64, u8, &[u8]) -> Vec<u8> + Send + 'static,
) -> (Agent<'static>, JoinHandle<()>) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let thread = std::thread::spawn(move || {
        let mut header = [0; 5];
        for number in 1.. {
            if theirs.read_exact(&mut header).is_err() {
                return;
            }
            let [kind, length @ ..] = header;
            let mut payload = vec![0; u32::from_le_bytes(length) as usize];
            theirs.read_exact(&mut payload).unwrap();
            let mut frames = answer(number, kind, &payload);
            if kind != RUN && frames.first() != Some(&70) {
                frames.extend(frame(69, &[]));
            }
            theirs.write_all(&frames).unwrap();
        }
    });
    (Agent::new(ours).unwrap(), thread)
}
