//! The checks, made from facts and probes.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use results::host::finding::{Finding, Status};
use results::host::{HostFacts, HostFs};
use vmm::kvm::{API_VERSION, CAPABILITIES};

use super::diagnosis::Limits;
use crate::arms::arm::limits;
use crate::setting::abilities::{AutoBackend, KvmProbe};

/// Tells a user how to open host events. The program is named by its path: it need not be in PATH.
fn perf_remedy(program: Option<&Path>) -> String {
    let file = program.map(Path::to_string_lossy);
    let file = file.as_deref().and_then(|path| shlex::try_quote(path).ok());
    let file = file.as_deref().unwrap_or("FILE");
    // A capability on a program that others than root can replace is theirs for whatever they like.
    let changeable = |found: &std::fs::Metadata| found.uid() != 0 || found.mode() & 0o022 != 0;
    let (before, file) = match program.and_then(|path| path.metadata().ok()) {
        Some(found) if changeable(&found) => (format!("sudo install {file} {INSTALLED} and "), INSTALLED),
        _ => (String::new(), file),
    };
    format!(
        "{before}sudo setcap cap_perfmon=ep {file} for this file alone, or sudo sysctl kernel.perf_event_paranoid=1 for every user"
    )
}

/// A place that only root can change.
const INSTALLED: &str = "/usr/local/bin/vpmu";

/// /dev/kvm, its capabilities, its own vPMU.
pub(super) fn kvm(fs: &HostFs, host: &HostFacts, probe: &dyn KvmProbe) -> Vec<Finding> {
    let opened = OpenOptions::new().read(true).write(true).open(fs.path("dev/kvm"));
    let (status, found, remedy) = match &opened {
        Ok(_) => (Status::Ok, "opens for reading and writing".to_owned(), String::new()),
        Err(error) => (
            Status::Missing,
            error.to_string(),
            match error.kind() {
                ErrorKind::NotFound => "enable virtualization in the firmware and load kvm_intel or kvm_amd".to_owned(),
                ErrorKind::PermissionDenied => join_its_group(fs),
                _ => "look at `ls -l /dev/kvm` and the kernel log".to_owned(),
            },
        ),
    };
    let why = "the guest runs on it; nothing can be measured without";
    let mut findings = vec![Finding { vital: true, ..Finding::new("/dev/kvm", status, found, why, remedy) }];

    let why = "the vPMU is in userspace: MSR accesses and PMIs pass through these";
    let upgrade = match &opened {
        Ok(_) => "use a kernel of 5.10 or later whose KVM has them",
        Err(_) => "see /dev/kvm",
    };
    let (status, found, report) = match probe.probe() {
        Ok(report) => {
            let absent: Vec<String> = CAPABILITIES
                .into_iter()
                .filter(|cap| cap.needed && report.value(*cap) <= 0)
                .map(|cap| format!("{} ({})", cap.name, cap.purpose))
                .collect();
            if report.api_version != API_VERSION {
                (Status::Missing, format!("API version {}, not {API_VERSION}", report.api_version), Some(report))
            } else if absent.is_empty() {
                let found = format!("all present; up to {} vCPUs", report.max_vcpus);
                (Status::Ok, found, Some(report))
            } else {
                (Status::Missing, format!("absent: {}", absent.join(", ")), Some(report))
            }
        }
        Err(error) => (Status::Missing, format!("cannot be asked: {error}"), None),
    };
    findings.push(Finding { vital: true, ..Finding::new("KVM capabilities", status, found, why, upgrade) });

    let own = report.map_or_else(|| Err("KVM cannot be asked".to_owned()), |report| report.own_pmu);
    findings.push(Finding::new(
        "KVM's own vPMU",
        Status::warn_unless(own.is_ok()),
        format!(
            "{}, kvm.enable_pmu={}{}{}",
            host.kvm.as_deref().unwrap_or("no KVM vendor module seen"),
            host.kvm_enable_pmu.as_deref().unwrap_or("unknown"),
            if host.kvm_mediated_pmu == Some(true) { ", mediated" } else { "" },
            own.err().map(|why| format!(": {why}")).unwrap_or_default()
        ),
        "arm `kvm` measures it with the same payload",
        "needs a hardware PMU, kvm_intel or kvm_amd, and kvm.enable_pmu=Y; the other arms run without",
    ));
    findings.push(linux_guests(opened.is_ok(), vmm::kvm::linux_refusal()));
    findings
}

/// Reports whether `vpmu linux` can run here.
fn linux_guests(opened: bool, refusal: Result<(), String>) -> Finding {
    let (ok, found) = match refusal {
        Ok(()) if opened => (true, "can run: ring 0 of a guest runs on the processor".to_owned()),
        Ok(()) => (false, "/dev/kvm does not open".to_owned()),
        Err(why) => (false, why),
    };
    Finding::new(
        "Linux guests",
        Status::warn_unless(ok),
        found,
        "`vpmu linux`, and `--guest linux` of experiments; the project's own payloads run on any KVM",
        "use a host whose KVM has VMX or SVM, or such a host in QEMU: docs/linux.md",
    )
}

/// Tells this user how to use a /dev/kvm that refuses it.
fn join_its_group(fs: &HostFs) -> String {
    let join = |group: &str| format!("sudo usermod -aG {group} $USER, then log in anew");
    let owner = std::fs::metadata(fs.path("dev/kvm")).map_or(0, |kvm| kvm.gid());
    let groups = std::fs::read_to_string(fs.path("etc/group")).unwrap_or_default();
    let named = |line: &&str| line.split(':').nth(2).is_some_and(|number| number.parse() == Ok(owner));
    match groups.lines().find(named).and_then(|line| line.split(':').next()) {
        Some(group) if owner != 0 => format!("join the group that owns it: {}", join(group)),
        _ => format!(
            "give it to group kvm: sudo chgrp kvm /dev/kvm && sudo chmod 660 /dev/kvm; and join that: {}",
            join("kvm")
        ),
    }
}

/// Reports the event sources that can stand behind the counters.
pub(super) fn events(fs: &HostFs, host: &HostFacts, limits: Limits, auto: &AutoBackend) -> Vec<Finding> {
    let remedy = perf_remedy(std::env::current_exe().ok().as_deref());
    let mut findings = vec![
        Finding {
            vital: true,
            ..Finding::new(
                "event backend",
                match &auto.backend {
                    Some(key) => Status::warn_unless(!key.is_stand_in()),
                    None => Status::Missing,
                },
                match &auto.backend {
                    Some(key) => format!("auto is {key}: {}", auto.why),
                    None => auto.why.clone(),
                },
                "host events count for the guest",
                if auto.backend.is_some() {
                    "for hardware figures use a bare-metal host with a PMU; compare arms of one run only".to_owned()
                } else {
                    remedy.clone()
                },
            )
        },
        Finding::new(
            "hardware PMU",
            Status::warn_unless(host.hardware_pmu),
            if host.perf_pmus.is_empty() {
                "no perf event source at all".to_owned()
            } else {
                format!("perf sources: {}", host.perf_pmus.join(", "))
            },
            "backend `hardware`; everything else is a stand-in",
            "use a bare-metal host, or give this machine a vPMU",
        ),
    ];
    let paranoid = host.perf_event_paranoid;
    findings.push(Finding::new(
        "perf_event_paranoid",
        Status::warn_unless(limits.perfmon || paranoid.is_some_and(|n| n <= 1)),
        format!(
            "{}, {} CAP_PERFMON",
            paranoid.map_or_else(|| "unknown".to_owned(), |n| n.to_string()),
            if limits.perfmon { "with" } else { "without" }
        ),
        "above 1, only root or CAP_PERFMON may count the kernel's part, which a guest's ring 0 may be",
        remedy,
    ));
    let number = |root: &String| fs.number(&format!("{root}/events/sched/sched_switch/id"));
    let (found, remedy) = match &host.tracefs {
        Some(root) if number(root).is_some() => (root.clone(), String::new()),
        Some(root) => (
            format!("{root}, but this user cannot read the number of an event there"),
            format!("sudo mount -o remount,mode=755 {root}, or run as root"),
        ),
        None => ("not mounted".to_owned(), "sudo mount -t tracefs tracefs /sys/kernel/tracing".to_owned()),
    };
    findings.push(Finding::new(
        "tracefs",
        Status::warn_unless(remedy.is_empty()),
        found,
        "backend tracepoint:GROUP/NAME finds its event numbers there",
        remedy,
    ));
    findings
}

/// Reports the process's limits; vpmu raises both up to the hard limits.
pub(super) fn limits(limits: Limits) -> Vec<Finding> {
    let show = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), |n| n.to_string());
    let (files, signals) = (limits::files(1), limits::signals(1));
    let queued = limits.queued_signals;
    // The limit is the user's, over all processes.
    let left = limits.pending_signals.map(|limit| limit.saturating_sub(queued));
    vec![
        Finding::new(
            "open files",
            Status::warn_unless(limits.open_files.is_none_or(|n| n >= files)),
            show(limits.open_files),
            "each host event is an open file",
            format!("ulimit -n {files}, for one vCPU"),
        ),
        Finding::new(
            "pending signals",
            Status::warn_unless(left.is_none_or(|left| left >= signals)),
            match left {
                Some(left) => format!("{left} left of {}: this user has {queued} queued", show(limits.pending_signals)),
                None => show(None),
            },
            "each vCPU's timers have their places in the queue of this user's signals, which all of their processes share",
            format!("ulimit -i {}, for one vCPU, or end this user's other runs", queued.saturating_add(signals)),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_names_the_program_as_a_shell_reads_it() {
        let of = |path: &str| perf_remedy(Some(Path::new(path)));
        assert!(of("/opt/vpmu").starts_with("sudo setcap cap_perfmon=ep /opt/vpmu for"), "{}", of("/opt/vpmu"));
        assert!(of("/a b/vpmu").contains("'/a b/vpmu'"), "{}", of("/a b/vpmu"));
        assert!(perf_remedy(None).contains(" FILE "));
    }

    #[test]
    fn no_capability_is_advised_for_a_program_that_others_can_replace() {
        use std::os::unix::fs::PermissionsExt as _;
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o775)).unwrap();
        let remedy = perf_remedy(Some(file.path()));
        let install = format!("sudo install {} {INSTALLED} and ", file.path().display());
        assert!(remedy.starts_with(&format!("{install}sudo setcap cap_perfmon=ep {INSTALLED} for")), "{remedy}");
    }
}
