//! Commands run in the machine, and their results come back over its second serial port: for each command a line `STATUS BYTES-OF-STDOUT
//! BYTES-OF-STDERR` and these bytes, so that its output may hold anything; then a line `end`.

use std::borrow::Cow;
use std::fmt::Write as _;

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

/// Turns of the shell's loop by which each further boot is later: some milliseconds.
const LATER: u32 = 997;

/// The first program in the machine: a busybox shell script that loads KVM, runs the commands and sends what they left. `modules` are
/// names in the order of insertion; a command is its words.
///
/// Under the instruction clock two equal boots hang in the same place, so boot number `boot`, from 0, comes to everything at another
/// time.
pub(crate) fn init(modules: &[&str], commands: &[Vec<String>], boot: u32) -> String {
    let mut script = format!(
        r#"#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox --install -s /bin
export PATH=/bin HOME=/ TERM=dumb NO_COLOR=1
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tracefs tracefs /sys/kernel/tracing
exec 3<>/dev/ttyS1
stty 115200 raw -echo <&3
# A sign of life on the console every five seconds.
beat() {{ while sleep 5; do echo "{BEAT} $(cut -d' ' -f1 /proc/uptime) s"; done; }}
beat >/dev/ttyS0 &
give_up() {{
    echo "host B cannot be set up: $1" >/dev/ttyS0
    poweroff -f
    exit 1
}}
run() {{
    : >/run/stdout
    : >/run/stderr
    # A machine that is stopped leaves the output of its last command there.
    tail -f -n +1 /run/stdout /run/stderr >/dev/ttyS0 2>/dev/null &
    shown=$!
    "$@" </dev/null >/run/stdout 2>/run/stderr
    status=$?
    kill $shown
    wait $shown 2>/dev/null
    echo "$status $(wc -c </run/stdout) $(wc -c </run/stderr)" >&3
    cat /run/stdout /run/stderr >&3
    # Waits until the port has sent it all: the next command may be the machine's end.
    stty -echo <&3
}}
turn=0; while [ $turn -lt {} ]; do turn=$((turn + 1)); done
"#,
        boot * LATER
    );
    for module in modules {
        let _ = writeln!(script, "insmod /modules/{module}.ko 2>/run/why || give_up \"$(cat /run/why)\"");
    }
    script.push_str("[ -c /dev/kvm ] || give_up 'the modules are in, but there is no /dev/kvm'\ncd /run\n");
    for command in commands {
        // Each word in quotes stands for itself.
        let words = command.iter().map(|word| format!(" '{}'", word.replace('\'', r"'\''")));
        let _ = writeln!(script, "run{}", words.collect::<String>());
    }
    script + "echo end >&3\nstty -echo <&3\npoweroff -f\n"
}
