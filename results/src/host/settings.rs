//! Settings of the host that spoil a measurement and that one write mends: which they are, and the commands that set them and that put
//! back today's values.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;

use rustix::fs::{StatVfsMountFlags, statvfs};

use super::fs::HostFs;

/// Leaving an idle state that takes longer than this shows among handler latencies of tens of µs.
pub(super) const DEEP_IDLE_US: u64 = 10;
/// Check of the host's own NMI watchdog.
pub(super) const WATCHDOG: &str = "NMI watchdog";

/// Writes that mend what a check finds: the check, the file below the root, in which `*` is the number of a CPU or of an idle state, and
/// the value that a measurement wants.
type Setting = (&'static str, &'static str, &'static str);

static TABLE: [Setting; 11] = [
    ("governor", "sys/devices/system/cpu/cpu*/cpufreq/scaling_governor", "performance"),
    ("turbo", "sys/devices/system/cpu/intel_pstate/no_turbo", "1"),
    ("turbo", "sys/devices/system/cpu/cpufreq/boost", "0"),
    ("C-states", "sys/devices/system/cpu/cpu*/cpuidle/state*/disable", "1"),
    ("SMT", "sys/devices/system/cpu/smt/control", "off"),
    (WATCHDOG, "proc/sys/kernel/nmi_watchdog", "0"),
    ("huge pages", "sys/kernel/mm/transparent_hugepage/enabled", "madvise"),
    ("KSM", "sys/kernel/mm/ksm/run", "0"),
    ("NUMA balancing", "proc/sys/kernel/numa_balancing", "0"),
    ("halt_poll_ns", "sys/module/kvm/parameters/halt_poll_ns", "0"),
    ("perf sample rate", "proc/sys/kernel/perf_event_max_sample_rate", "100000"),
];

/// Returns the command that sets by hand what a check finds.
pub(super) fn remedy(check: &str) -> String {
    let commands = TABLE.iter().filter(|(of, ..)| *of == check).map(|(_, file, value)| {
        // A glob would disable the shallow states, too.
        if file.ends_with("/disable") {
            format!("sudo cpupower idle-set -D {DEEP_IDLE_US}")
        } else {
            command(&format!("/{file}"), value)
        }
    });
    commands.collect::<Vec<_>>().join(", or ")
}

/// Returns the command that writes a value to files, which are words of a shell.
fn command(files: &str, value: &str) -> String {
    match files.strip_prefix("/proc/sys/") {
        Some(name) => format!("sudo sysctl {}={value}", name.replace('/', ".")),
        None => format!("echo {value} | sudo tee {files}"),
    }
}

/// Lists the files of this host that a pattern names, `*` being a number.
fn expanded(fs: &HostFs, pattern: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    for part in pattern.split('/') {
        let names = |folder: &String| match part.strip_suffix('*') {
            None => vec![part.to_owned()],
            Some(before) => {
                let number =
                    |name: &String| name.strip_prefix(before).is_some_and(|number| number.parse::<u32>().is_ok());
                fs.names(folder).into_iter().filter(number).collect()
            }
        };
        let below =
            |folder: &String| names(folder).into_iter().map(|name| format!("{folder}/{name}")).collect::<Vec<_>>();
        found = found.iter().flat_map(below).collect();
    }
    found.retain(|file| fs.exists(file));
    found
}

/// Returns a file's name with `*` for the number of its CPU.
fn of_any_cpu(file: &str) -> String {
    let is_cpu = |part: &&str| part.strip_prefix("cpu").is_some_and(|number| number.parse::<u32>().is_ok());
    file.split('/').map(|part| if is_cpu(&part) { "cpu*" } else { part }).collect::<Vec<_>>().join("/")
}

/// Reads the present value of a file: its text, or the word in brackets of a list of choices.
fn present(fs: &HostFs, file: &str) -> Option<String> {
    let text = fs.text(file)?;
    Some(super::tuning::selected(&text).unwrap_or(text))
}

/// Returns why no write can change a file here, and how else it gets a value.
fn refusal(fs: &HostFs, file: &str, (check, _, value): &Setting) -> Option<String> {
    let path = fs.path(file);
    if statvfs(&path).is_ok_and(|mount| mount.f_flag.contains(StatVfsMountFlags::RDONLY)) {
        return Some(format!("mounted read-only here, as in a container; outside of it: {}", remedy(check)));
    }
    let fixed = path.metadata().is_ok_and(|found| found.mode() & 0o222 == 0);
    let parameter = file.strip_prefix("/sys/module/").and_then(|file| file.split_once("/parameters/"));
    fixed.then(|| match parameter {
        Some((module, name)) => format!(
            "read-only here: {module}.{name}={value} on the kernel's command line, or options {module} {name}={value} in /etc/modprobe.d"
        ),
        None => "read-only here: only the kernel's command line, the firmware or a hypervisor below sets it".to_owned(),
    })
}

/// What mends a check: commands, or why there are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mend {
    /// Check that finds it.
    pub check: &'static str,
    /// The command that sets it, and the one that puts back today's value; else why nothing can set it here.
    pub commands: Result<[String; 2], String>,
}

/// Returns what mends the findings of these checks; files of many CPUs are in one command.
pub fn mends(fs: &HostFs, checks: &[&str]) -> Vec<Mend> {
    // A shallow idle state is left alone.
    let is_deep = |us: i64| us > DEEP_IDLE_US.cast_signed();
    let is_shallow = |state: &str| !fs.number(&format!("{state}/latency")).is_some_and(is_deep);
    let mut found = Vec::new();
    for setting @ (check, pattern, wanted) in TABLE.iter().filter(|(check, ..)| checks.contains(check)) {
        // Files that differ in the CPU alone, and have the same value.
        let mut alike: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
        for file in expanded(fs, pattern) {
            if file.strip_suffix("/disable").is_some_and(is_shallow) {
                continue;
            }
            if let Some(value) = present(fs, &file).filter(|value| value != wanted) {
                alike.entry((of_any_cpu(&file), value)).or_default().push(file);
            }
        }
        for ((pattern, today), files) in alike {
            let all = expanded(fs, &pattern).len() == files.len();
            let files_or_pattern = if all { std::slice::from_ref(&pattern) } else { &files };
            let words = files_or_pattern.join(" ");
            let commands = match refusal(fs, &files[0], setting) {
                Some(why) => Err(why),
                None => Ok([*wanted, &today].map(|value| command(&words, value))),
            };
            found.push(Mend { check, commands });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::tree;

    const CPU: &str = "sys/devices/system/cpu";

    #[test]
    fn the_commands_set_what_is_found_and_put_back_todays_values() {
        let governor = |cpu: u32| format!("{CPU}/cpu{cpu}/cpufreq/scaling_governor");
        let idle = |cpu: u32, state: &str, file: &str| format!("{CPU}/cpu{cpu}/cpuidle/{state}/{file}");
        let mut files = vec![
            (governor(0), "powersave\n"),
            (governor(1), "powersave\n"),
            (governor(2), "schedutil\n"),
            (format!("{CPU}/cpufreq/policy0"), ""),
            (format!("{CPU}/cpufreq/boost"), "1\n"),
            ("proc/sys/kernel/nmi_watchdog".to_owned(), "1\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled".to_owned(), "[always] madvise never\n"),
            ("sys/kernel/mm/ksm/run".to_owned(), "0\n"),
        ];
        for cpu in 0..2 {
            for (state, latency) in [("state1", "2\n"), ("state2", "133\n")] {
                files.extend([(idle(cpu, state, "disable"), "0\n"), (idle(cpu, state, "latency"), latency)]);
            }
        }
        let files: Vec<_> = files.iter().map(|(path, text)| (&**path, *text)).collect();
        let (_dir, fs) = tree(&files);
        let found = mends(&fs, &["governor", "turbo", "C-states", WATCHDOG, "huge pages", "KSM"]);
        let commands: Vec<_> = found.into_iter().map(|mend| mend.commands.unwrap()).collect();
        let tee = |value: &str, files: &str| format!("echo {value} | sudo tee {files}");
        let of = |files: &str, was: &str, set: &str| [tee(set, files), tee(was, files)];
        assert_eq!(
            commands,
            [
                of(&format!("/{} /{}", governor(0), governor(1)), "powersave", "performance"),
                of(&format!("/{}", governor(2)), "schedutil", "performance"),
                of("/sys/devices/system/cpu/cpufreq/boost", "1", "0"),
                of("/sys/devices/system/cpu/cpu*/cpuidle/state2/disable", "0", "1"),
                ["0", "1"].map(|value| format!("sudo sysctl kernel.nmi_watchdog={value}")),
                of("/sys/kernel/mm/transparent_hugepage/enabled", "always", "madvise"),
            ]
        );
    }
}
