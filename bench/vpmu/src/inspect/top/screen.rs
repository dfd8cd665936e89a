//! The terminal while the view is on it. Whatever ends the view, a panic included, dropping it gives the terminal back.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};

use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::cursor::{Hide, Show};
use ratatui_crossterm::crossterm::execute;
use ratatui_crossterm::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

/// Most bytes of the begin, and of the end, of what was said on stderr meanwhile: the reason of an end is the last.
const MOST: u64 = 32 << 10;

/// Stderr goes to memory while this lives, and then where it went before.
#[derive(Debug)]
struct HeldStderr {
    real: OwnedFd,
    held: File,
}

impl HeldStderr {
    fn hold() -> io::Result<Self> {
        let real = io::stderr().as_fd().try_clone_to_owned()?;
        let held = File::from(rustix::fs::memfd_create("stderr", rustix::fs::MemfdFlags::CLOEXEC)?);
        rustix::stdio::dup2_stderr(&held)?;
        Ok(Self { real, held })
    }
}

impl Drop for HeldStderr {
    fn drop(&mut self) {
        // Nothing is left to do if stderr is gone.
        let _ = rustix::stdio::dup2_stderr(&self.real);
        if let Ok(said) = head_and_tail(&self.held, MOST) {
            let _ = io::stderr().write_all(&said);
        }
    }
}

/// Reads the first and last `most` bytes of a file, with a line between them that says how much is left out.
fn head_and_tail(mut file: &File, most: u64) -> io::Result<Vec<u8>> {
    let mut said = Vec::new();
    let length = file.seek(SeekFrom::End(0))?;
    file.rewind()?;
    if length <= 2 * most {
        file.read_to_end(&mut said)?;
        return Ok(said);
    }
    file.take(most).read_to_end(&mut said)?;
    writeln!(said, "\n[{} bytes left out]", length - 2 * most)?;
    file.seek(SeekFrom::Start(length - most))?;
    file.take(most).read_to_end(&mut said)?;
    Ok(said)
}

/// Raw mode and the alternate screen.
#[derive(Debug)]
struct Modes;

impl Modes {
    fn set() -> io::Result<Self> {
        enable_raw_mode()?;
        let set = Self;
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(set)
    }
}

impl Drop for Modes {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// The view's terminal. Fields are dropped in their order: stderr is let go when the screen is the user's again.
#[derive(Debug)]
pub struct Screen {
    /// Terminal that is drawn on.
    pub terminal: Terminal<CrosstermBackend<io::Stdout>>,
    _modes: Modes,
    _stderr: HeldStderr,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// The terminal's.
    pub fn open() -> io::Result<Self> {
        let stderr = HeldStderr::hold()?;
        let modes = Modes::set()?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok(Self { terminal, _modes: modes, _stderr: stderr })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_what_was_said_is_kept() {
        let of = |text: &str, most| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            String::from_utf8(head_and_tail(&file, most).unwrap()).unwrap()
        };
        assert_eq!(of("begin", 5), "begin");
        assert_eq!(of("beginagain", 5), "beginagain");
        assert_eq!(of("begin, much more, error", 5), "begin\n[13 bytes left out]\nerror");
        assert_eq!(of("", 5), "");
    }
}
