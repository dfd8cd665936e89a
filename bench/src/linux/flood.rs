//! A guest that sends for ever, under what brings its files.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use linux_guest::agent::{Agent, AgentError};

use super::{bring, guest};

/// More than any file of a kernel's may have.
const ENDLESS: u64 = 512 << 20;

/// An agent with one file, which has no end. The thread's value is how much of it was taken.
fn endless() -> (Agent<'static>, JoinHandle<u64>) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let guest = std::thread::spawn(move || {
        // ENTRY of a file that is the one asked for, then DATA.
        let mut sent = 0;
        let mut more = theirs.write_all(&[32, 7, 0, 0, 0, 0, 0xa4, 1, 0, 0, 0, 0]).is_ok();
        let data = [&[33][..], &60_000_u32.to_le_bytes(), &[b'x'; 60_000]].concat();
        while more && sent < ENDLESS {
            more = theirs.write_all(&data).is_ok();
            sent += data.len() as u64;
        }
        sent
    });
    (Agent::new(ours).unwrap(), guest)
}

#[test]
fn a_kernel_log_without_an_end_is_given_up() {
    let (mut agent, guest) = endless();
    assert!(guest::kernel_log(&mut agent).is_none() && agent.gave_up());
    drop(agent);
    assert!(guest.join().unwrap() < ENDLESS / 4);
}

#[test]
fn a_list_of_symbols_without_an_end_fills_no_disk() {
    let (mut agent, guest) = endless();
    let target = tempfile::NamedTempFile::new().unwrap();
    let fetched = bring::fetch(&mut agent, "/proc/kallsyms", target.path());
    assert!(matches!(fetched, Err(AgentError::Flood { .. })), "{fetched:?}");
    drop(agent);
    assert!(target.path().metadata().unwrap().len() <= ENDLESS / 8 && guest.join().unwrap() < ENDLESS / 2);
}
