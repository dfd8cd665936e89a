//! A guest that sends for ever, under what brings its files.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::Duration;

use linux_guest::agent::{Agent, AgentError};

use results::write::check_file;

use super::bring::Places;
use super::command::{Failure, Session};
use super::spec::LinuxSpec;
use super::{bring, guest};

/// More than any file of a kernel's may have.
const ENDLESS: u64 = 512 << 20;

/// Makes an agent with one file, which has no end. The thread's value is how much of it was taken.
fn endless() -> (Agent<'static>, JoinHandle<u64>) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let guest = std::thread::spawn(move || {
        // ENTRY of a file that is the one asked for, then DATA.
        let mut sent = 0;
        let mut more = theirs.write_all(&[32, 7, 0, 0, 0, 0, 0xa4, 1, 0, 0, 0, 0]).is_ok();
        let data = [&[33][..], &60_000_u32.to_le_bytes(), &vec![b'x'; 60_000]].concat();
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
    let folder = tempfile::tempdir().unwrap();
    let target = check_file(&folder.path().join("kallsyms")).unwrap();
    let fetched = bring::fetch(&mut agent, "/proc/kallsyms", &target);
    assert!(matches!(fetched, Err(AgentError::Flood { .. })), "{fetched:?}");
    drop(agent);
    assert!(guest.join().unwrap() < ENDLESS / 2);
    drop(target);
    assert!(folder.path().read_dir().unwrap().next().is_none(), "whole, or not at all");
}

/// Reads a frame of the client: its kind, and nothing if the client is gone.
fn heard(stream: &mut UnixStream) -> Option<u8> {
    let mut header = [0; 5];
    stream.read_exact(&mut header).ok()?;
    let length = u32::from_le_bytes([header[1], header[2], header[3], header[4]]);
    std::io::copy(&mut stream.take(length.into()), &mut std::io::sink()).ok()?;
    Some(header[0])
}

#[test]
fn the_time_limit_is_that_of_the_files_too() {
    const RUN: u8 = 1;
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let guest = std::thread::spawn(move || {
        // HELLO of version 2.
        theirs.write_all(&[&[64, 13, 0, 0, 0, 2, 0, 0, 0][..], &[0; 9]].concat()).unwrap();
        assert_eq!(heard(&mut theirs), Some(RUN));
        // ENDED, and to the next request ENTRY, then a byte now and then.
        theirs.write_all(&[&[68, 12, 0, 0, 0][..], &[0; 12]].concat()).unwrap();
        assert!(heard(&mut theirs).is_some());
        let mut more = theirs.write_all(&[32, 7, 0, 0, 0, 0, 0xa4, 1, 0, 0, 0, 0]).is_ok();
        while more {
            std::thread::sleep(Duration::from_millis(2));
            more = theirs.write_all(&[33, 1, 0, 0, 0, b'x']).is_ok();
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let mut spec = crate::setting::parse::options::<LinuxSpec>(&["vmlinuz"]).unwrap();
    spec.get = vec!["/x".to_owned()];
    spec.output = folder.path().to_owned();
    let places = Places::open(&spec).unwrap();
    let cut = AtomicBool::new(false);
    let mut agent = Agent::new(ours).unwrap();
    let ended =
        Session::new(&spec, &places, &cut, Duration::from_millis(100)).run(&mut agent, "true", Duration::from_secs(1));
    assert!(matches!(ended, Err(Failure(_, AgentError::Late { .. }))), "{ended:?}");
    drop(agent);
    guest.join().unwrap();
    assert!(folder.path().read_dir().unwrap().next().is_none(), "whole, or not at all");
}
