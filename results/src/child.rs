//! Child processes: each in a process group of its own, bounded in output and time, and ended with all that it started.

use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, pidfd_open, waitid,
};

/// Interval at which a caller's condition is looked at while a child is waited for.
pub const POLL: Duration = Duration::from_millis(20);

/// Time in which a child that was interrupted saves its document.
const PATIENCE: Duration = Duration::from_secs(20);

/// A child process; when dropped, it is killed with its group.
#[derive(Debug)]
pub struct Supervised {
    /// The process, with the pipes that nobody has taken.
    pub process: Child,
    pid: Pid,
    /// Readable once the process has ended.
    end: OwnedFd,
    status: Option<ExitStatus>,
}

impl Supervised {
    /// Starts `command` in a group of its own, which an interrupt from the terminal does not reach.
    ///
    /// # Errors
    /// Errors of starting it.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let mut process = command.process_group(0).spawn()?;
        let pid = Pid::from_child(&process);
        let end = pidfd_open(pid, PidfdFlags::empty()).inspect_err(|_| {
            // A child without a supervisor would outlive this process.
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = process.wait();
        })?;
        Ok(Self { process, pid, end, status: None })
    }

    /// Waits for its end; returns `None` as soon as `over` holds, which is looked at once per `interval`.
    ///
    /// # Errors
    /// Errors of waiting.
    pub fn wait(&mut self, interval: Duration, mut over: impl FnMut() -> bool) -> io::Result<Option<ExitStatus>> {
        let interval = Timespec::try_from(interval).map_err(io::Error::other)?;
        while self.status.is_none() {
            match poll(&mut [PollFd::new(&self.end, PollFlags::IN)], Some(&interval)) {
                Ok(0) | Err(rustix::io::Errno::INTR) if over() => break,
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => self.end_group()?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.status)
    }

    /// Waits for its end. Once `over` holds it is interrupted, after `later`, and killed if it does not end within 20 s more.
    ///
    /// # Errors
    /// Errors of waiting.
    pub fn end(&mut self, over: impl FnMut() -> bool, later: Duration) -> io::Result<ExitStatus> {
        let within = |time: Duration| {
            let until = Instant::now() + time;
            move || Instant::now() >= until
        };
        let mut status = self.wait(POLL, over)?;
        if status.is_none() {
            status = self.wait(POLL, within(later))?;
        }
        if status.is_none() {
            // Not its group. The process is not reaped, so its number is not another's.
            let _ = kill_process(self.pid, Signal::INT);
            status = self.wait(POLL, within(PATIENCE))?;
        }
        status.or_else(|| self.kill()).ok_or_else(|| io::Error::other("its status is lost"))
    }

    /// Kills it and its group, unless it has ended; returns its status.
    pub fn kill(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            let _ = self.end_group();
        }
        self.status
    }

    /// Kills what is left of the group, then reaps the process: until then the number of the group is its own.
    fn end_group(&mut self) -> io::Result<()> {
        let _ = kill_process_group(self.pid, Signal::KILL);
        // Its status is the one that it had when the signal came, if it had ended.
        waitid(WaitId::Pid(self.pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
        self.status = Some(self.process.wait()?);
        Ok(())
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The part of an output that is kept.
#[derive(Clone, Copy, Debug)]
pub enum Keep {
    /// Bytes kept of its begin.
    First(usize),
    /// Bytes kept of its end.
    Last(usize),
}

/// Output that a thread reads to its end, so that the child never waits for its reader.
#[derive(Debug)]
pub struct Gathered {
    kept: Arc<Mutex<(Vec<u8>, bool)>>,
    thread: JoinHandle<()>,
}

impl Gathered {
    /// Begins to read `stream`.
    pub fn start(mut stream: impl Read + Send + 'static, keep: Keep) -> Self {
        let kept = Arc::new(Mutex::new((Vec::new(), false)));
        let shared = Arc::clone(&kept);
        let thread = std::thread::spawn(move || {
            let mut chunk = [0; 16 << 10];
            loop {
                let read = match stream.read(&mut chunk) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    // A pipe has no other errors.
                    Ok(0) | Err(_) => return,
                    Ok(read) => read,
                };
                let mut kept = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let (bytes, cut) = &mut *kept;
                bytes.extend_from_slice(&chunk[..read]);
                let (Keep::First(most) | Keep::Last(most)) = keep;
                *cut |= bytes.len() > most;
                match keep {
                    Keep::First(most) => bytes.truncate(most),
                    Keep::Last(most) => drop(bytes.drain(..bytes.len().saturating_sub(most))),
                }
            }
        });
        Self { kept, thread }
    }

    /// Returns the text that was kept, and whether there was or may be more. Waits for the end of the stream, but no longer than `within`:
    /// a process that left the group may keep it open.
    pub fn text(&self, within: Duration) -> (String, bool) {
        let until = Instant::now() + within;
        while !self.thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let finished = self.thread.is_finished();
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        (String::from_utf8_lossy(&kept.0).into_owned(), kept.1 || !finished)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    fn shell(script: &str) -> Supervised {
        Supervised::start(Command::new("sh").args(["-c", script]).stdout(Stdio::piped())).unwrap()
    }

    #[test]
    fn what_a_child_started_ends_with_it_however_it_ends() {
        for how in ["exit 3", "exec sleep 600"] {
            let mut child = shell(&format!("sleep 600 >/dev/null & echo $!; {how}"));
            let output = Gathered::start(child.process.stdout.take().unwrap(), Keep::First(100));
            let said = || output.text(POLL).0;
            while !said().ends_with('\n') {}
            let other = said().trim().to_owned();
            assert!(std::path::Path::new("/proc").join(&other).exists());
            let status = child.wait(POLL, || how != "exit 3").unwrap();
            assert_eq!(status.map(|status| status.code()), (how == "exit 3").then_some(Some(3)));
            drop(child);
            // Whoever inherits it may not reap it.
            let stat = || std::fs::read_to_string(format!("/proc/{other}/stat")).unwrap_or_default();
            while !stat().is_empty() && !stat().contains(") Z ") {
                std::thread::sleep(POLL);
            }
        }
    }

    #[test]
    fn output_is_read_to_its_end_and_kept_up_to_a_bound() {
        let text = |keep| Gathered::start(&b"abcdef"[..], keep).text(Duration::from_secs(60));
        assert_eq!(text(Keep::First(4)), ("abcd".to_owned(), true));
        assert_eq!(text(Keep::Last(4)), ("cdef".to_owned(), true));
        assert_eq!(text(Keep::First(6)), ("abcdef".to_owned(), false));
    }

    #[test]
    fn output_that_was_not_read_to_its_end_is_cut() {
        let mut open = shell("printf x; exec sleep 600");
        let gathered = Gathered::start(open.process.stdout.take().unwrap(), Keep::First(9));
        assert!(gathered.text(POLL).1);
        assert_eq!(open.wait(POLL, || true).unwrap(), None, "waiting ends");
    }
}
