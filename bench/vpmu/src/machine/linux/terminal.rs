//! The user's terminal as the guest's serial console.

use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

use crate::terminal::console::Change;

/// Ctrl-], as of telnet: the escape from the guest.
const ESCAPE: u8 = 0x1d;
/// Interval at which the end of the run is looked for.
const POLL: Duration = Duration::from_millis(100);

/// Puts stdin's terminal into raw mode; without a terminal nothing changes.
pub(super) fn raw_stdin() -> Option<Change> {
    let stdin = io::stdin();
    let before = tcgetattr(&stdin).ok().filter(|_| stdin.is_terminal())?;
    let mut raw = before.clone();
    raw.make_raw();
    tcsetattr(&stdin, OptionalActions::Now, &raw).ok()?;
    // A terminal that is gone needs no mode.
    Some(Change::undone_by(move || _ = tcsetattr(io::stdin(), OptionalActions::Now, &before)))
}

/// Copies stdin to `to`, which must not block, until its end, the escape, or `over`. Returns whether the user escaped.
pub(super) fn copy_input(to: &OwnedFd, over: &dyn Fn() -> bool) -> bool {
    let stdin = io::stdin();
    copy(stdin.as_fd(), stdin.is_terminal(), to, over)
}

fn copy(from: BorrowedFd<'_>, terminal: bool, to: &OwnedFd, over: &dyn Fn() -> bool) -> bool {
    let (mut buffer, mut held) = ([0; 4096], 0..0);
    let timeout = Timespec::try_from(POLL).unwrap_or_default();
    while !over() {
        // The user's terminal waits while the guest takes nothing.
        let mut poll_fd = if held.is_empty() {
            PollFd::from_borrowed_fd(from, PollFlags::IN)
        } else {
            PollFd::from_borrowed_fd(to.as_fd(), PollFlags::OUT)
        };
        if !matches!(poll(std::slice::from_mut(&mut poll_fd), Some(&timeout)), Ok(n) if n > 0) {
            continue;
        }
        let done = if held.is_empty() {
            rustix::io::read(from, &mut buffer).map(|length| held = 0..length)
        } else {
            rustix::io::write(to, &buffer[held.clone()]).map(|written| held.start += written)
        };
        match done {
            Ok(()) if held.end == 0 => return false,
            Ok(()) if terminal && buffer[held.clone()].contains(&ESCAPE) => return true,
            Ok(()) | Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Makes a pipe whose writer does not block, as that of the console's input.
    fn pipe() -> (io::PipeReader, OwnedFd) {
        let (reader, writer) = io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        (reader, writer.into())
    }

    #[test]
    fn a_large_paste_arrives_whole_and_the_escape_ends_the_copy_on_a_terminal_alone() {
        let text: Vec<u8> = (0..400_000_u32).map(|at| b'a' + (at % 23) as u8).collect();
        for (terminal, last, escapes) in [(true, &b"y"[..], false), (true, &[ESCAPE], true), (false, &[ESCAPE], false)]
        {
            let (typed, mut user) = io::pipe().unwrap();
            let (mut guest, to) = pipe();
            std::thread::scope(|scope| {
                let copied = scope.spawn(move || copy(typed.as_fd(), terminal, &to, &|| false));
                let read = scope.spawn(move || {
                    let mut read = Vec::new();
                    guest.read_to_end(&mut read).map(|_| read)
                });
                user.write_all(&text).unwrap();
                std::thread::sleep(2 * POLL);
                user.write_all(last).unwrap();
                drop(user);
                let read = read.join().unwrap().unwrap();
                let rest = if escapes { &b""[..] } else { last };
                assert!(read == [&text[..], rest].concat() && copied.join().unwrap() == escapes);
            });
        }
    }

    #[test]
    fn the_guests_end_ends_the_copy_of_what_it_does_not_take() {
        let (typed, mut user) = io::pipe().unwrap();
        let ((_guest, to), over) = (pipe(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let copied = scope.spawn(|| copy(typed.as_fd(), true, &to, &|| over.load(Ordering::Relaxed)));
            user.write_all(&vec![b'x'; 100_000]).unwrap();
            over.store(true, Ordering::Relaxed);
            assert!(!copied.join().unwrap());
        });
    }
}
