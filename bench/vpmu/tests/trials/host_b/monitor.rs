//! QEMU's monitor (QMP), over its standard input and output: where the machine is when it is stopped.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::frames::BEAT;

/// QEMU's options for it. No socket: paths of sockets are short, those of build folders are not.
pub(crate) const OPTIONS: [&str; 2] = ["-qmp", "stdio"];

/// Time that QEMU may take to answer, also on a loaded machine.
const ANSWER: Duration = Duration::from_secs(20);
/// Between two looks at the registers: a CPU that moves has moved.
const BETWEEN: Duration = Duration::from_secs(2);
/// Time that the kernel may take to print its stack after an NMI.
const PANIC: Duration = Duration::from_secs(20);
/// Registers that say where a CPU is, by the first letters of their line.
const SHOWN: [&str; 12] = ["CPU#", "RAX", "RSI", "R8 ", "R12", "RIP", "CS ", "IDT", "CR0", "DR6", "EFER", "EIP"];

/// The monitor of one QEMU.
#[derive(Debug)]
pub(crate) struct Monitor {
    input: ChildStdin,
    output: PathBuf,
    answers: usize,
}

impl Monitor {
    /// Connects to a QEMU with piped standard input, and standard output in the file `output`.
    pub(crate) fn new(qemu: &mut Child, output: &Path) -> Result<Self> {
        let input = qemu.stdin.take().context("QEMU's standard input")?;
        Ok(Self { input, output: output.to_owned(), answers: 0 })
    }

    /// Registers of each CPU twice, and then an NMI: the kernel panics (`unknown_nmi_panic`) and prints its
    /// stack on the console. What does not work is said in its place.
    pub(crate) fn dump(mut self, qemu: &mut Child) -> String {
        let mut text = String::new();
        match self.ask("qmp_capabilities", &json!({})) {
            Ok(_) => {
                for look in ["first", "second"] {
                    if look == "second" {
                        std::thread::sleep(BETWEEN);
                    }
                    let registers = self.ask("human-monitor-command", &json!({ "command-line": "info registers -a" }));
                    let registers = registers.map_or_else(|error| format!("{error:#}"), |answer| shown(&answer));
                    let _ = writeln!(text, "-- registers, {look} look\n{registers}");
                }
                match self.ask("inject-nmi", &json!({})) {
                    Ok(_) => {
                        let until = Instant::now() + PANIC;
                        // -no-reboot: QEMU ends when the panic has been printed.
                        while Instant::now() < until && matches!(qemu.try_wait(), Ok(None)) {
                            std::thread::sleep(Duration::from_millis(50));
                        }
                    }
                    Err(error) => {
                        let _ = writeln!(text, "-- no NMI: {error:#}");
                    }
                }
            }
            Err(error) => drop(writeln!(text, "-- QEMU's monitor: {error:#}")),
        }
        text
    }

    fn ask(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        writeln!(self.input, "{}", json!({ "execute": command, "arguments": arguments }))?;
        self.input.flush()?;
        let until = Instant::now() + ANSWER;
        loop {
            let said = std::fs::read_to_string(&self.output)?;
            if let Some(answer) = answers(&said).into_iter().nth(self.answers) {
                self.answers += 1;
                ensure!(answer.get("error").is_none(), "{command}: {answer}");
                return Ok(answer["return"].clone());
            }
            ensure!(Instant::now() < until, "{command}: no answer in {} s", ANSWER.as_secs());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The answers among the lines of QMP: neither the greeting nor events.
fn answers(said: &str) -> Vec<Value> {
    let lines = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line.get("return").is_some() || line.get("error").is_some()).collect()
}

fn shown(registers: &Value) -> String {
    let text = registers.as_str().unwrap_or_default();
    let lines = text.lines().map(str::trim).filter(|line| SHOWN.iter().any(|start| line.starts_with(start)));
    lines.collect::<Vec<_>>().join("\n")
}

// Waiting for a machine's end, and whether it lives: a byte on any of its serial ports is a sign of life, and the init script sends
// one every few seconds.

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
