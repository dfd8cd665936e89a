//! Frames that come back over the second serial port, each a line
//! `host-b <kind> <number> <length>`, that many raw bytes, and a newline.
//!
//! The length comes first so that a command's output may hold anything, also a line that looks like a frame.

use std::borrow::Cow;
use std::fmt::Write as _;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// First word of each frame's line.
pub(crate) const MARK: &str = "host-b";

/// Results of one command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

/// Frames received, possibly from a machine that died on the way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Received {
    /// The commands that finished, in order.
    pub(crate) commands: Vec<Finished>,
    /// Why the machine could not be set up, if it said so.
    pub(crate) failure: Option<String>,
    /// The machine sent its last frame.
    pub(crate) whole: bool,
}

/// Takes the frames apart. A frame cut short ends the list, as the machine may have died while it sent.
pub(crate) fn parse(mut bytes: &[u8]) -> Result<Received> {
    let mut received = Received::default();
    let mut open = Finished::default();
    while !bytes.is_empty() && !received.whole {
        let Some((kind, number, body, rest)) = frame(bytes)? else {
            return Ok(received);
        };
        bytes = rest;
        ensure!(
            number == received.commands.len(),
            "frame {kind} of command {number} where one of {} was expected",
            received.commands.len()
        );
        match kind {
            "stdout" => open.stdout = body.to_vec(),
            "stderr" => open.stderr = body.to_vec(),
            "status" => {
                open.status = std::str::from_utf8(body)?.trim().parse().context("exit status")?;
                received.commands.push(std::mem::take(&mut open));
            }
            "failure" => received.failure = Some(String::from_utf8_lossy(body).trim().to_owned()),
            "end" => received.whole = true,
            other => bail!("unknown frame {other:?}"),
        }
    }
    ensure!(bytes.is_empty(), "{} bytes after the end", bytes.len());
    Ok(received)
}

type Frame<'a> = (&'a str, usize, &'a [u8], &'a [u8]);

/// The first frame and what follows it; `None` if it is not all there.
fn frame(bytes: &[u8]) -> Result<Option<Frame<'_>>> {
    let Some(end) = bytes.iter().take(80).position(|&b| b == b'\n') else {
        ensure!(bytes.len() < 80, "no frame where one should start");
        return Ok(None);
    };
    let line = std::str::from_utf8(&bytes[..end]).context("a frame's line is not text")?;
    let words: Vec<_> = line.split(' ').collect();
    let [MARK, kind, number, length] = words[..] else {
        bail!("no frame where one should start, but {line:?}");
    };
    let length: usize = length.parse().with_context(|| format!("length in {line:?}"))?;
    let number = number.parse().with_context(|| format!("number in {line:?}"))?;
    let rest = &bytes[end + 1..];
    let Some(after) = length.checked_add(1).and_then(|n| rest.get(n..)) else {
        return Ok(None);
    };
    ensure!(rest[length] == b'\n', "frame {line:?} does not end where it said");
    Ok(Some((kind, number, &rest[..length], after)))
}

// The first program in the machine: a busybox shell script that loads KVM, runs the commands and sends what they
// left over the second serial port.

/// Folder of the modules in the archive; inserted in the order of their names' place in the list.
pub(crate) const MODULES: &str = "/modules";

/// First words of a sign of life on the console; the time since boot follows.
pub(crate) const BEAT: &str = "# host B is up";

/// Turns of the shell's loop by which each further boot is later: some milliseconds.
const LATER: u32 = 997;

/// The script of boot number `boot`, from 0. `modules` are file names under [`MODULES`] in the order of insertion; a
/// command is its words.
///
/// Under the instruction clock two equal boots hang in the same place, so a further one comes to everything at another time.
pub(crate) fn init(modules: &[String], commands: &[Vec<String>], boot: u32) -> String {
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
done=0
# A sign of life on the console every five seconds.
beat() {{
    while sleep 5; do
        read -r up idle </proc/uptime
        echo "{BEAT} $up s"
    done
}}
beat >/dev/ttyS0 &
# frame KIND FILE
frame() {{
    echo "{MARK} $1 $done $(wc -c <"$2")" >&3
    cat "$2" >&3
    echo >&3
}}
give_up() {{
    echo "$1" >/run/failure
    frame failure /run/failure
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
    echo $? >/run/status
    kill $shown
    wait $shown 2>/dev/null
    frame stdout /run/stdout
    frame stderr /run/stderr
    frame status /run/status
    # Waits until the port has sent it all: the next command may be the machine's end.
    stty -echo <&3
    done=$((done + 1))
}}
"#
    );
    if boot > 0 {
        let _ = writeln!(script, "turn=0; while [ $turn -lt {} ]; do turn=$((turn + 1)); done", boot * LATER);
    }
    for module in modules {
        let path = quoted(&format!("{MODULES}/{module}"));
        let _ = writeln!(script, "insmod {path} 2>/run/why || give_up \"$(cat /run/why)\"");
    }
    script.push_str("[ -c /dev/kvm ] || give_up 'the modules are in, but there is no /dev/kvm'\ncd /run\n");
    for command in commands {
        script.push_str("run");
        for word in command {
            let _ = write!(script, " {}", quoted(word));
        }
        script.push('\n');
    }
    script.push_str(": >/run/stdout\nframe end /run/stdout\npoweroff -f\n");
    script
}

/// One shell word that stands for exactly `word`.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
