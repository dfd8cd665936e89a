//! The first program in the machine: a busybox shell script that loads KVM, runs the commands and sends what they
//! left over the second serial port.

use std::fmt::Write as _;

use super::frames::MARK;

/// Folder of the modules in the archive; inserted in the order of their names' place in the list.
pub(crate) const MODULES: &str = "/modules";

/// First words of a sign of life on the console; the time since boot follows.
pub(crate) const BEAT: &str = "# host B is up";

/// Turns of the shell's loop by which each further boot is later: some milliseconds.
const LATER: u32 = 997;

/// The script of boot number `boot`, from 0. `modules` are file names under [`MODULES`] in the order of insertion; a command is its words.
///
/// Under the instruction clock two equal boots hang in the same place, so a further one comes to everything at another time.
pub(crate) fn init(modules: &[String], commands: &[Vec<String>], boot: u32) -> String {
    let mut script = format!(
        r##"#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox --install -s /bin
export PATH=/bin HOME=/ TERM=dumb NO_COLOR=1
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tracefs tracefs /sys/kernel/tracing
exec 3<>/dev/ttyS1
stty 115200 raw -echo <&3
done=0
# A sign of life on the console every five seconds; every minute also what each thread waits for.
beat() {{
    beats=0
    while sleep 5; do
        read -r up idle </proc/uptime
        echo "{BEAT} $up s"
        beats=$((beats + 1))
        if [ $((beats % 12)) = 0 ]; then threads; fi
    done
}}
# State, user and system time, wait channel and system call of each thread outside of the kernel.
threads() {{
    for task in /proc/[0-9]*/task/*; do
        if [ -n "$(tr -d '\0' <$task/cmdline 2>/dev/null)" ]; then
            stat=$(cat $task/stat)
            set -- ${{stat##*)}}
            echo "# $(cat $task/comm): $1 user ${{12}} system ${{13}}, $(cat $task/wchan), call $(cat $task/syscall)"
        fi
    done 2>/dev/null
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
"##
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

/// The quoting, by asking a shell.
pub(crate) fn check() -> anyhow::Result<()> {
    for word in ["", "plain", "two words", "it's", "$HOME `id` \"x\" \\", "é\n*", "-n"] {
        let output =
            std::process::Command::new("sh").args(["-c", &format!("printf '%s.' {}", quoted(word))]).output()?;
        anyhow::ensure!(
            output.stdout == format!("{word}.").as_bytes(),
            "{word:?} became {:?}",
            String::from_utf8_lossy(&output.stdout)
        );
    }
    Ok(())
}
