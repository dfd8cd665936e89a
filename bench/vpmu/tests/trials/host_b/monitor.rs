//! Waiting for a machine's end, and whether it lives: a byte on any of its serial ports is a sign of life, and the init script sends
//! one every few seconds.

use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::frames::BEAT;

/// Time without a byte after which a machine counts as hung. From power-on to the init script pass 5 s, and 22 s under the
/// instruction clock on a machine with three times more work than cores; later it is 5 s.
pub(crate) const SILENCE: Duration = Duration::from_secs(150);

/// Output of the machine, by serial port.
#[derive(Debug)]
pub(crate) struct Files {
    /// The kernel's messages, signs of life, and the running command's output as it comes.
    pub(crate) console: PathBuf,
    /// Frames.
    pub(crate) results: PathBuf,
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ended {
    /// QEMU's own end.
    Exit(ExitStatus),
    /// The limit passed. The machine runs.
    Limit,
    /// No sign of life. The machine runs.
    Silent,
}

/// Waits for the end, and measures the longest silence on the way.
pub(crate) fn wait(qemu: &mut Child, files: &Files, deadline: Instant, silence: Duration) -> Result<(Ended, Duration)> {
    let size = || [&files.console, &files.results].map(|file| std::fs::metadata(file).map_or(0, |file| file.len()));
    let (mut seen, mut since, mut longest) = (size(), Instant::now(), Duration::ZERO);
    loop {
        let ended = qemu.try_wait()?;
        let (now, time) = (size(), Instant::now());
        longest = longest.max(time - since);
        if now != seen {
            (seen, since) = (now, time);
        }
        if let Some(status) = ended {
            return Ok((Ended::Exit(status), longest));
        }
        if time >= deadline {
            return Ok((Ended::Limit, longest));
        }
        if time - since >= silence {
            return Ok((Ended::Silent, longest));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The last lines of the console, with no sign of life but the last.
pub(crate) fn tail(log: &str, count: usize) -> String {
    let lines: Vec<_> = log.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let last = lines.iter().rposition(|line| line.starts_with(BEAT));
    let kept = lines.iter().enumerate().filter(|(at, line)| !line.starts_with(BEAT) || Some(*at) == last);
    let kept: Vec<_> = kept.map(|(_, line)| *line).collect();
    kept[kept.len().saturating_sub(count)..].join("\n")
}
