//! The user's terminal as the guest's serial console.

use std::collections::VecDeque;
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

/// Input that waits at most before the user's terminal has to.
const HELD: usize = 1 << 20;

/// Copies stdin to `to`, which must not block, until its end, the escape, or `over`. Returns whether the user escaped.
pub(super) fn copy_input(to: &OwnedFd, over: &dyn Fn() -> bool) -> bool {
    let stdin = io::stdin();
    copy(stdin.as_fd(), stdin.is_terminal(), to, over)
}

/// Reads on while `to` takes nothing: behind a large paste there may be an escape.
fn copy(from: BorrowedFd<'_>, terminal: bool, to: &OwnedFd, over: &dyn Fn() -> bool) -> bool {
    let mut held = VecDeque::new();
    let mut buffer = [0; 4096];
    let mut ended = false;
    let timeout = Timespec::try_from(POLL).unwrap_or_default();
    while !over() && (!ended || !held.is_empty()) {
        let reads = if ended || held.len() >= HELD { PollFlags::empty() } else { PollFlags::IN };
        let writes = if held.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        // An end that is not waited for would report that it is closed again and again.
        let mut polls: Vec<_> = [(from, reads), (to.as_fd(), writes)]
            .into_iter()
            .filter(|(_, flags)| !flags.is_empty())
            .map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags))
            .collect();
        if !matches!(poll(&mut polls, Some(&timeout)), Ok(n) if n > 0) {
            continue;
        }
        let readable = polls.iter().any(|poll| poll.revents().intersects(PollFlags::IN | PollFlags::HUP));
        if !reads.is_empty() && readable {
            match rustix::io::read(from, &mut buffer) {
                Ok(0) => ended = true,
                Ok(length) => {
                    let bytes = &buffer[..length];
                    if terminal && bytes.contains(&ESCAPE) {
                        return true;
                    }
                    held.extend(bytes);
                }
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => ended = true,
            }
        }
        if !writes.is_empty() {
            match rustix::io::write(to, held.as_slices().0) {
                Ok(written) => drop(held.drain(..written)),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => return false,
            }
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
    fn a_large_paste_arrives_whole_and_blocks_nobody() {
        // Where there is no terminal there is no escape.
        for (terminal, last) in [(true, b'y'), (false, ESCAPE)] {
            let (typed, mut user) = io::pipe().unwrap();
            let (mut guest, to) = pipe();
            let text: Vec<u8> = (0..400_000_u32).map(|at| b'a' + (at % 23) as u8).chain([last]).collect();
            std::thread::scope(|scope| {
                let copied = scope.spawn(move || copy(typed.as_fd(), terminal, &to, &|| false));
                user.write_all(&text).unwrap();
                drop(user);
                let mut read = Vec::new();
                guest.read_to_end(&mut read).unwrap();
                assert!(read == text && !copied.join().unwrap());
            });
        }
    }

    /// Copies from a user who types more than the guest takes, and then these bytes.
    fn copied(terminal: bool, last: &[u8], ends: bool) -> bool {
        let (typed, mut user) = io::pipe().unwrap();
        let ((_guest, to), over) = (pipe(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let copied = scope.spawn(|| copy(typed.as_fd(), terminal, &to, &|| over.load(Ordering::Relaxed)));
            user.write_all(&vec![b'x'; 200_000]).unwrap();
            user.write_all(last).unwrap();
            over.store(ends, Ordering::Relaxed);
            copied.join().unwrap()
        })
    }

    #[test]
    fn behind_what_the_guest_does_not_take_the_escape_is_seen_and_its_end_ends_the_copy() {
        assert!(copied(true, &[b'y', ESCAPE], false));
        assert!(!copied(false, &[ESCAPE], true), "no escape where there is no terminal");
    }
}
