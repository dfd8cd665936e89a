//! Child processes: each in a process group of its own, bounded in output and time, and ended with all that it started.

use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
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
    pub fn wait(&mut self, interval: Duration, over: impl FnMut() -> bool) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() && readable(&self.end, interval, over)? {
            self.end_group()?;
        }
        Ok(self.status)
    }

    /// Sends a signal to the process, not to its group, unless it has ended.
    pub fn signal(&self, signal: Signal) {
        if self.status.is_none() {
            // The process is not reaped, so its number is not another's.
            let _ = kill_process(self.pid, signal);
        }
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

/// Waits until `fd` can be read or has ended; returns `false` as soon as `over` holds.
fn readable(fd: impl AsFd, interval: Duration, mut over: impl FnMut() -> bool) -> io::Result<bool> {
    let interval = Timespec::try_from(interval).map_err(io::Error::other)?;
    loop {
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&interval)) {
            Ok(0) | Err(rustix::io::Errno::INTR) if over() => return Ok(false),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Result of waiting for a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A line, without its end.
    Text(String),
    /// End of the stream.
    End,
    /// The caller's condition held first.
    Over,
}

/// Lines of a child's output.
#[derive(Debug)]
pub struct Lines<R> {
    stream: R,
    bytes: Vec<u8>,
    /// Most bytes of a line.
    most: usize,
}

impl<R: Read + AsFd> Lines<R> {
    /// Reads lines of at most `most` bytes from `stream`.
    pub const fn new(stream: R, most: usize) -> Self {
        Self { stream, bytes: Vec::new(), most }
    }

    /// Waits for the next line, at most until `over` holds, which is looked at once per [`POLL`].
    ///
    /// # Errors
    /// Errors of the stream; `InvalidData` for a line that is too long, cut off, or not UTF-8.
    pub fn next(&mut self, mut over: impl FnMut() -> bool) -> io::Result<Line> {
        let wrong = |why: String| Err(io::Error::new(ErrorKind::InvalidData, why));
        let mut searched = 0;
        loop {
            if let Some(end) = self.bytes[searched..].iter().position(|&byte| byte == b'\n') {
                let end = searched + end;
                let line = self.bytes.drain(..=end).take(end).collect();
                return String::from_utf8(line)
                    .map(Line::Text)
                    .or_else(|_| wrong("a line that is no UTF-8".to_owned()));
            }
            searched = self.bytes.len();
            if searched > self.most {
                return wrong(format!("a line of more than {}", crate::open::size(self.most as u64)));
            }
            if !readable(&self.stream, POLL, &mut over)? {
                return Ok(Line::Over);
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk)? {
                0 if self.bytes.is_empty() => return Ok(Line::End),
                0 => return wrong("a line that is cut off".to_owned()),
                read => {
                    self.bytes.extend_from_slice(&chunk[..read]);
                    // A peer that sends a line in drips is never silent.
                    if !chunk[..read].contains(&b'\n') && over() {
                        return Ok(Line::Over);
                    }
                }
            }
        }
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
                    Ok(0) => return,
                    Ok(read) => read,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(_) => {
                        shared.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
                        return;
                    }
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
            let mut lines = Lines::new(child.process.stdout.take().unwrap(), 100);
            let Line::Text(other) = lines.next(|| false).unwrap() else { panic!("it says nothing") };
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
    fn lines_are_whole_and_bounded_and_waiting_ends() {
        let lines = |script: &str| Lines::new(shell_output(script), 5000);
        let mut two = lines("printf 'one\\n\\n'");
        let next: Vec<_> = (0..3).map(|_| two.next(|| false).unwrap()).collect();
        assert_eq!(next, [Line::Text("one".to_owned()), Line::Text(String::new()), Line::End]);
        for (script, why) in
            [("printf half", "cut off"), ("yes | tr -d '\\n'", "more than 5000 bytes"), ("printf '\\377\\n'", "UTF-8")]
        {
            assert!(lines(script).next(|| false).unwrap_err().to_string().contains(why), "{script}");
        }
        let mut silent = shell("exec sleep 600");
        let mut lines = Lines::new(silent.process.stdout.take().unwrap(), 9);
        assert_eq!(lines.next(|| true).unwrap(), Line::Over);
        let mut dripping = shell("while sleep 0.01; do printf x; done");
        let mut lines = Lines::new(dripping.process.stdout.take().unwrap(), 20);
        let until = Instant::now() + 2 * POLL;
        assert_eq!(lines.next(|| Instant::now() > until).unwrap(), Line::Over);
    }

    /// Returns the output of a script that ends by itself or by SIGPIPE.
    fn shell_output(script: &str) -> std::process::ChildStdout {
        Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap().stdout.unwrap()
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
    }
}
