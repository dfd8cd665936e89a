//! Commands run in the machine, and their results come back over its second serial port: for each command a line `STATUS BYTES-OF-STDOUT
//! BYTES-OF-STDERR` and these bytes, so that its output may hold anything; then a line `end`.

use std::borrow::Cow;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Results of one command.
#[derive(Clone, Debug)]
pub(crate) struct Finished {
    /// Exit status as the shell gives it: 128 + the signal's number for a killed command.
    pub(crate) status: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

impl Finished {
    /// Standard output as text.
    pub(crate) fn text(&self) -> Result<&str> {
        std::str::from_utf8(&self.stdout).context("the command's output is not UTF-8")
    }

    /// Standard error as text.
    pub(crate) fn said(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.stderr)
    }

    /// Standard output of a command that succeeded.
    pub(crate) fn succeeded(&self) -> Result<&str> {
        let start = || String::from_utf8_lossy(&self.stdout[..self.stdout.len().min(2000)]);
        ensure!(self.status == 0, "exit {}: {}\n{}", self.status, self.said(), start());
        self.text()
    }

    /// Standard output as JSON, whatever the exit code.
    pub(crate) fn json(&self) -> Result<Value> {
        serde_json::from_str(self.text()?).with_context(|| format!("exit {}: {}", self.status, self.said()))
    }
}

/// Takes apart what a machine sent that possibly died on the way: the commands that finished, and whether it sent its end.
pub(crate) fn parse(mut bytes: &[u8]) -> (Vec<Finished>, bool) {
    let mut commands = Vec::new();
    while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
        let line = String::from_utf8_lossy(&bytes[..end]);
        let rest = &bytes[end + 1..];
        let numbers: Vec<usize> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [status, out, err] = numbers[..] else { return (commands, line == "end" && rest.is_empty()) };
        let Some((both, rest)) = rest.split_at_checked(out + err) else { break };
        let (stdout, stderr) = (both[..out].to_vec(), both[out..].to_vec());
        commands.push(Finished { status: i32::try_from(status).unwrap_or(-1), stdout, stderr });
        bytes = rest;
    }
    (commands, false)
}

/// First words of a sign of life on the console; the time since boot follows.
pub(crate) const BEAT: &str = "# host B is up";

/// The first program in the machine.
pub(crate) const INIT: &str = include_str!("init.sh");

/// Its `/commands`: which boot this is, from 0, the modules in the order of insertion, and what is run, by its words.
pub(crate) fn commands(modules: &[&str], commands: &[Vec<String>], boot: u32) -> Result<String> {
    let run = |words: &Vec<String>| Ok(format!("run {}\n", shlex::try_join(words.iter().map(String::as_str))?));
    let runs = commands.iter().map(run).collect::<Result<String>>()?;
    Ok(format!("boot {boot}\nload {}\n{runs}", modules.join(" ")))
}
