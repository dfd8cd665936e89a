//! Hosts for tests, as trees of the files that tell about them.
#![allow(clippy::unwrap_used, reason = "a test helper fails the test")]

use results::host::HostFs;

/// Writes a tree of `(path, text)` and gives the file system on it.
///
/// # Panics
/// If it cannot be written.
pub fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, HostFs) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let fs = HostFs::at(dir.path());
    (dir, fs)
}

/// A bare-metal Cascade Lake server.
pub const CASCADE_LAKE: &[(&str, &str)] = &[
    (
        "proc/cpuinfo",
        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz\nstepping\t: 7\nmicrocode\t: 0x5003604\nflags\t\t: fpu vmx constant_tsc nonstop_tsc\n\nprocessor\t: 1\nmodel\t\t: 99\n",
    ),
    ("proc/sys/kernel/osrelease", "5.4.0-rc4\n"),
    ("proc/sys/kernel/nmi_watchdog", "1\n"),
    ("proc/sys/kernel/perf_event_paranoid", "-1\n"),
    ("proc/stat", "cpu  10 0 10 80 0 0 0 0 5 0\ncpu0 1 2 3 4\n"),
    ("proc/loadavg", "0.05 0.01 0.00 1/800 12345\n"),
    ("proc/self/mounts", "sysfs /sys sysfs rw 0 0\ntracefs /sys/kernel/tracing tracefs rw 0 0\n"),
    ("sys/kernel/tracing/events/sched/sched_switch/id", "316\n"),
    ("sys/bus/event_source/devices/cpu/type", "4\n"),
    ("sys/bus/event_source/devices/software/type", "1\n"),
    ("sys/module/kvm_intel/parameters/ept", "Y\n"),
    ("sys/module/kvm/parameters/enable_pmu", "Y\n"),
    ("sys/devices/system/cpu/online", "0-79\n"),
    ("sys/devices/system/cpu/smt/control", "on\n"),
    ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n"),
    ("sys/devices/system/cpu/intel_pstate/no_turbo", "1\n"),
    ("sys/devices/system/cpu/vulnerabilities/meltdown", "Not affected\n"),
    ("sys/devices/system/cpu/vulnerabilities/spectre_v2", "Mitigation: Enhanced IBRS\n"),
    ("dev/kvm", ""),
];

/// A small virtual machine whose KVM does without hardware virtualization.
pub const PVM: &[(&str, &str)] = &[
    (
        "proc/cpuinfo",
        "processor : 0\nvendor_id : GenuineIntel\ncpu family : 6\nmodel : 143\nmodel name : Intel(R) Xeon(R) Processor\nstepping : 8\nflags : fpu hypervisor constant_tsc nonstop_tsc\n",
    ),
    ("proc/stat", "cpu  24154 1170 4123 215964 931 0 101 431 386 0\n"),
    ("proc/loadavg", "3.50 1 1 1/8 9\n"),
    ("proc/sys/kernel/perf_event_paranoid", "2\n"),
    ("sys/bus/event_source/devices/software/type", "1\n"),
    ("sys/bus/event_source/devices/tracepoint/type", "2\n"),
    ("sys/module/kvm_pvm/parameters/stats", "N\n"),
    ("sys/module/kvm/parameters/enable_pmu", "N\n"),
    ("sys/devices/system/cpu/online", "0-1\n"),
];
