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

    /// Registers of each CPU twice, QEMU's threads twice, and then an NMI: the kernel panics (`unknown_nmi_panic`) and prints its
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
                    let _ = writeln!(text, "-- QEMU's threads, {look} look\n{}", threads(qemu.id()));
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
            Err(error) => {
                let _ = writeln!(text, "-- QEMU's monitor: {error:#}\n-- QEMU's threads\n{}", threads(qemu.id()));
                std::thread::sleep(BETWEEN);
                let _ = writeln!(text, "-- QEMU's threads, second look\n{}", threads(qemu.id()));
            }
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

/// Name, state and CPU time (in ticks) of each thread of a process.
fn threads(pid: u32) -> String {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return "none".to_owned() };
    let mut lines: Vec<_> = tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok())
        .filter_map(|stat| thread(&stat))
        .collect();
    lines.sort();
    lines.join("\n")
}

/// From proc_pid_stat(5): the name in parentheses, then fields from the third on.
fn thread(stat: &str) -> Option<String> {
    let (before, after) = stat.rsplit_once(')')?;
    let name = before.split_once('(')?.1;
    let fields: Vec<_> = after.split_whitespace().collect();
    Some(format!("{name}: {} user {} system {}", fields.first()?, fields.get(11)?, fields.get(12)?))
}

/// The forms of QMP's and /proc's lines.
pub(crate) fn check() -> Result<()> {
    let said = "{\"QMP\": {\"version\": {}}}\r\n{\"return\": {}}\r\n{\"timestamp\": {}, \"event\": \"STOP\"}\r\n\
                {\"return\": \"CPU#0\\r\\nRAX=1\\r\\nFCW=2\\r\\nRIP=3\\r\\n\"}\r\n{\"error\": {}}\r\n{\"ret";
    let found = answers(said);
    ensure!(found.len() == 3, "{found:?}");
    ensure!(shown(&found[1]["return"]) == "CPU#0\nRAX=1\nRIP=3", "{}", shown(&found[1]["return"]));
    let stat = "12 (CPU 0/TCG (x)) R 1 2 3 4 5 6 7 8 9 10 77 88 0 0";
    ensure!(thread(stat).as_deref() == Some("CPU 0/TCG (x): R user 77 system 88"), "{:?}", thread(stat));
    ensure!(!threads(std::process::id()).is_empty());
    Ok(())
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

/// Signs of life do not crowd out the rest.
pub(crate) fn check_watch() -> Result<()> {
    let log = format!("one\n{BEAT} 5 s\r\n\ntwo\n{BEAT} 10 s\n{BEAT} 15 s\r\nthree\n");
    ensure!(tail(&log, 10) == format!("one\ntwo\n{BEAT} 15 s\nthree"), "{}", tail(&log, 10));
    ensure!(tail(&log, 1) == "three" && tail("", 3).is_empty());
    Ok(())
}
