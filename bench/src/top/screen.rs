//! The terminal while the view is on it. Whatever ends the view, a panic included, dropping it gives the terminal back.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};

/// Most bytes of what was said on stderr meanwhile.
const MOST: u64 = 64 << 10;

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
        let mut said = Vec::new();
        let read = self.held.rewind().and_then(|()| (&self.held).take(MOST).read_to_end(&mut said));
        if read.is_ok() {
            let _ = io::stderr().write_all(&said);
        }
    }
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
    /// What draws.
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
