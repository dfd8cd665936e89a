//! The user's terminal as the guest's serial console.

use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// Ctrl-], as of telnet: the escape from the guest.
pub(super) const ESCAPE: u8 = 0x1d;
/// How often the end of the run is looked at.
const POLL: Duration = Duration::from_millis(100);

/// A terminal in raw mode until this is dropped.
#[derive(Debug)]
pub(super) struct Raw(Option<Termios>);

impl Raw {
    /// Puts stdin's terminal into raw mode; without a terminal nothing changes.
    pub(super) fn stdin() -> Self {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Self(None);
        }
        let Ok(before) = tcgetattr(&stdin) else { return Self(None) };
        let mut raw = before.clone();
        raw.make_raw();
        let done = tcsetattr(&stdin, OptionalActions::Now, &raw);
        Self(done.is_ok().then_some(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // A terminal that is gone needs no mode.
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

/// Copies stdin to `to` until its end, the escape, or `over`. Returns whether the user escaped.
pub(super) fn copy_input(to: &OwnedFd, over: &AtomicBool) -> bool {
    let stdin = io::stdin();
    let terminal = stdin.is_terminal();
    let mut buffer = [0; 1024];
    let timeout = Timespec::try_from(POLL).unwrap_or_default();
    while !over.load(Ordering::Relaxed) {
        let mut ready = [PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN)];
        if !matches!(poll(&mut ready, Some(&timeout)), Ok(n) if n > 0) {
            continue;
        }
        let length = match rustix::io::read(&stdin, &mut buffer) {
            Ok(0) => return false,
            Ok(length) => length,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => continue,
            Err(_) => return false,
        };
        let mut bytes = &buffer[..length];
        let escape = bytes.iter().position(|&byte| terminal && byte == ESCAPE);
        if let Some(at) = escape {
            bytes = &bytes[..at];
        }
        while !bytes.is_empty() {
            match rustix::io::write(to, bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        if escape.is_some() {
            return true;
        }
    }
    false
}
