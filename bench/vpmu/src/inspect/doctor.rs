//! `vpmu doctor`: abilities of this host, noise sources on it, the backend of `auto`.

use std::fs::OpenOptions;

use host_pmu::kernel;
use results::error::{Error, Exit, one_line};
use results::host::noise::{Finding, Status};
use results::host::{HostFacts, HostFs, noise};
use results::table::Report;
use serde::Serialize;
use vmm::kvm::{CAPABILITIES, Capability, Host};

use crate::setting::backend::{Chosen, Probe, auto, this_host};
use crate::terminal::console;

/// The report of `doctor`.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct Diagnosis {
    /// The checks.
    pub findings: Vec<Finding>,
    /// All facts.
    pub host: HostFacts,
}

impl Diagnosis {
    /// [`Exit::Done`], or [`Exit::Host`] if this host cannot measure.
    pub fn exit(&self) -> Exit {
        let lacks = |finding: &Finding| finding.status == Status::Missing;
        if self.findings.iter().any(lacks) { Exit::Host } else { Exit::Done }
    }
}

/// KVM's answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvmReport {
    /// KVM_CAP_MAX_VCPUS.
    pub max_vcpus: u64,
    /// Needed capabilities that KVM_CHECK_EXTENSION denies.
    pub absent: Vec<Capability>,
    /// Why KVM's own vPMU cannot serve a guest, if it cannot.
    pub own_pmu: Result<(), String>,
}

/// Opens /dev/kvm and queries every capability.
///
/// # Errors
/// The reason if KVM cannot be queried.
fn kvm_report() -> Result<KvmReport, String> {
    let kvm = Host::open_any().map_err(|error| error.to_string())?;
    let is_absent = |cap: &Capability| cap.needed && kvm.capability(cap.number) <= 0;
    Ok(KvmReport {
        max_vcpus: kvm.max_vcpus() as u64,
        absent: CAPABILITIES.into_iter().filter(is_absent).collect(),
        own_pmu: Host::open().map_err(|error| error.to_string()).and_then(|host| host.kvm_pmu()),
    })
}

/// Returns whether CAP_PERFMON or CAP_SYS_ADMIN is effective in a proc_pid_status(5): perf events open at any
/// kernel.perf_event_paranoid.
fn has_perfmon(status: &str) -> bool {
    const SYS_ADMIN: u32 = 21;
    const PERFMON: u32 = 38;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    effective & (1 << SYS_ADMIN | 1 << PERFMON) != 0
}

/// Tells a user how to open host events. The program is named by its path: it need not be in PATH.
fn perf_remedy() -> String {
    let file = std::env::current_exe().map_or_else(|_| "FILE".to_owned(), |file| file.display().to_string());
    let file = file.replace('\'', r"'\''");
    format!(
        "sudo setcap cap_perfmon=ep '{file}' for this file alone, or sudo sysctl kernel.perf_event_paranoid=1 for every user"
    )
}

/// /dev/kvm, its capabilities, its own vPMU. What does not answer as KVM has none of them, whatever opens in its place.
fn kvm_findings(fs: &HostFs, host: &HostFacts, kvm: Result<KvmReport, String>) -> [Finding; 4] {
    let missing_unless = |fine: bool| if fine { Status::Ok } else { Status::Missing };
    let report = match OpenOptions::new().read(true).write(true).open(fs.path("dev/kvm")) {
        Ok(_) => kvm.map_err(|error| format!("it opens, and does not answer as KVM: {error}")),
        Err(error) => Err(error.to_string()),
    };
    let found = report.as_ref().err().map_or("opens for reading and writing", String::as_str);
    let device = Finding::of("/dev/kvm", missing_unless(report.is_ok()), found);
    let (fine, found) = match &report {
        Ok(report) => {
            let absent = report.absent.iter().map(|cap| format!("{} ({})", cap.name, cap.purpose));
            match &absent.collect::<Vec<_>>()[..] {
                [] => (true, format!("all present; up to {} vCPUs", report.max_vcpus)),
                absent => (false, format!("absent: {}", absent.join(", "))),
            }
        }
        Err(_) => (false, "cannot be asked".to_owned()),
    };
    let capabilities = Finding::of("KVM capabilities", missing_unless(fine), found);
    let silent = |_| "KVM cannot be asked".to_owned();
    let linux = report.as_ref().map_err(silent).and_then(|_| vmm::kvm::linux_refusal());
    let own = report.as_ref().map_err(silent).and_then(|report| report.own_pmu.clone());
    let found = format!(
        "{}, kvm.enable_pmu={}{}{}",
        host.kvm.as_deref().unwrap_or("no KVM vendor module seen"),
        host.kvm_enable_pmu.as_deref().unwrap_or("unknown"),
        if host.kvm_mediated_pmu == Some(true) { ", mediated" } else { "" },
        own.as_ref().err().map(|why| format!(": {why}")).unwrap_or_default()
    );
    let own = Finding::of("KVM's own vPMU", Status::warn_unless(own.is_ok()), found);
    let status = Status::warn_unless(linux.is_ok());
    let found = linux.err().unwrap_or_else(|| "can run: ring 0 of a guest runs on the processor".to_owned());
    [device, capabilities, own, Finding::of("Linux guests", status, found)]
}

/// The kernel module, which arms `kvm:STRATEGY` alone need: where it is not loaded, but can be, all is well.
fn module_finding(fs: &HostFs, host: &HostFacts) -> Finding {
    let headers = format!("lib/modules/{}/build/Makefile", host.kernel.as_deref().unwrap_or_default());
    let (status, found, remedy) = match host.kvm.as_deref() {
        None => (Status::Warn, "no kvm_intel or kvm_amd is loaded", "sudo modprobe kvm_intel, or kvm_amd"),
        Some("kvm_intel" | "kvm_amd") if fs.exists(&headers) => (Status::Ok, "docs/kernel-module.md says how", ""),
        Some("kvm_intel" | "kvm_amd") => {
            (Status::Warn, "no headers of this kernel", "install linux-headers-$(uname -r)")
        }
        Some(_) => (Status::Warn, "KVM here has no vPMU of its own", "use another host, with kvm_intel or kvm_amd"),
    };
    // Another version alone is mended by loading it again.
    let of = |status, found: &str| Finding::of("kernel module", status, found);
    match fs.text(kernel::LOADED).map(|loaded| (kernel::check_version(&loaded), loaded)) {
        None => of(status, &format!("not loaded; {found}")).mended_by(remedy),
        Some((Ok(()), loaded)) => of(Status::Ok, &format!("vpmu_kvm is loaded, version {loaded}")),
        Some((Err(why), _)) => of(Status::Warn, &why),
    }
}

/// Reports the event sources that can stand behind the counters.
fn event_findings(fs: &HostFs, host: &HostFacts, perfmon: bool, auto: Result<Chosen, Error>) -> [Finding; 4] {
    let remedy = perf_remedy();
    let backend = match auto {
        Ok(chosen) => {
            let status = Status::warn_unless(!chosen.backend.is_stand_in());
            Finding::of("event backend", status, format!("auto is {}: {}", chosen.backend, chosen.why))
        }
        Err(none) => Finding::of("event backend", Status::Missing, none.why).mended_by(&remedy),
    };
    let sources = match host.perf_pmus.join(", ") {
        none if none.is_empty() => "no perf event source at all".to_owned(),
        sources => format!("perf sources: {sources}"),
    };
    let pmu = Finding::of("hardware PMU", Status::warn_unless(host.hardware_pmu), sources);
    let level = host.perf_event_paranoid;
    let status = Status::warn_unless(perfmon || level.is_some_and(|n| n <= 1));
    let level = level.map_or_else(|| "unknown".to_owned(), |n| n.to_string());
    let with = if perfmon { "with" } else { "without" };
    let paranoid = Finding::of("perf_event_paranoid", status, format!("{level}, {with} CAP_PERFMON")).mended_by(remedy);
    let number = |root: &String| fs.number(&format!("{root}/events/sched/sched_switch/id"));
    let tracefs = match &host.tracefs {
        Some(root) if number(root).is_some() => Finding::of("tracefs", Status::Ok, root.as_str()),
        Some(root) => Finding::of("tracefs", Status::Warn, format!("{root}, whose events this user cannot read")),
        None => Finding::of("tracefs", Status::Warn, "not mounted"),
    };
    [backend, pmu, paranoid, tracefs]
}

/// Runs all checks. `perfmon`: this process may open any perf event.
pub fn diagnose(fs: &HostFs, perfmon: bool, kvm: Result<KvmReport, String>, events: Probe<'_>) -> Diagnosis {
    let host = HostFacts::read(fs);
    let mut findings = kvm_findings(fs, &host, kvm).to_vec();
    findings.push(module_finding(fs, &host));
    findings.extend(event_findings(fs, &host, perfmon, auto(events)));
    findings.extend(noise::findings(&host, &[]));
    Diagnosis { findings, host }
}

/// Formats a finding: a line where all is well, else the reason and the remedy below it.
fn show(finding: &Finding) -> Vec<String> {
    // An unknown setting is neither fine nor a fault.
    let unknown = finding.status == Status::Ok && finding.found.starts_with("unknown");
    let (status, further) = match finding.status {
        Status::Ok if unknown => ("?", vec![format!("why: this host does not tell; {}", finding.why)]),
        Status::Ok => ("ok", Vec::new()),
        Status::Warn => ("warn", vec![format!("why: {}", finding.why), format!("do: {}", finding.remedy)]),
        Status::Missing => ("MISSING", vec![format!("why: {}", finding.why), format!("do: {}", finding.remedy)]),
    };
    let first = format!("{status:<8}{:<22}{}", finding.check, one_line(&finding.found));
    std::iter::once(first).chain(further.into_iter().map(|line| format!("  {line}"))).collect()
}

/// Reports a diagnosis.
fn report(diagnosis: &Diagnosis) -> Report {
    let mut report = Report::default();
    report.note(format!("host class: {}", diagnosis.host.class));
    report.notes(diagnosis.findings.iter().flat_map(show));
    report
}

/// Runs `vpmu doctor`.
///
/// # Errors
/// Those of stdout.
pub fn run(json: bool) -> Result<Exit, Error> {
    let fs = HostFs::default();
    let perfmon = has_perfmon(&fs.text("proc/self/status").unwrap_or_default());
    let diagnosis = diagnose(&fs, perfmon, kvm_report(), &this_host);
    console::show(json, &report(&diagnosis), &diagnosis)?;
    Ok(diagnosis.exit())
}

#[cfg(test)]
mod tests {
    use results::error::Exit;
    use results::host::noise::{Finding, Status};
    use trials::hosts::{CASCADE_LAKE, PVM, tree};
    use vmm::kvm::PMU_CAPABILITY;

    use super::*;
    use crate::setting::backend::fake::opens;

    fn status<'a>(diagnosis: &'a Diagnosis, check: &str) -> &'a Finding {
        diagnosis.findings.iter().find(|f| f.check == check).unwrap()
    }

    /// Diagnoses a host of these files whose KVM lacks nothing.
    fn look(files: &[(&str, &str)], perfmon: bool, keys: &[&str]) -> Diagnosis {
        let (_dir, fs) = tree(files);
        diagnose(&fs, perfmon, Ok(kvm_without(&[])), &opens(keys))
    }

    /// A KVM where every capability but these is present.
    fn kvm_without(absent: &[&str]) -> KvmReport {
        KvmReport {
            max_vcpus: 4,
            absent: CAPABILITIES.into_iter().filter(|cap| cap.needed && absent.contains(&cap.name)).collect(),
            own_pmu: if absent.contains(&PMU_CAPABILITY.name) { Err("it has no vPMU".to_owned()) } else { Ok(()) },
        }
    }

    #[test]
    fn perf_events_are_allowed_by_either_capability() {
        for (mask, allowed) in [
            ("000001ffffffffff", true),
            ("0000004000000000", true),
            ("0000000000200000", true),
            ("400000", false),
            ("x", false),
        ] {
            assert_eq!(has_perfmon(&format!("Name:\tvpmu\nCapPrm:\tffffffffff\nCapEff:\t{mask}\n")), allowed, "{mask}");
        }
    }

    #[test]
    fn a_good_host_is_fine_and_each_lack_by_itself_is_a_warning_with_its_remedy() {
        let diagnosis = look(&CASCADE_LAKE, true, &["hardware", "cpu-clock"]);
        assert!(status(&diagnosis, "event backend").found.starts_with("auto is hardware"));
        assert_eq!(diagnosis.exit(), Exit::Done);
        for check in ["/dev/kvm", "KVM capabilities", "hardware PMU", "tracefs", "load"] {
            assert_eq!(status(&diagnosis, check).status, Status::Ok, "{check}");
        }
        let of_another: Vec<_> = CASCADE_LAKE.iter().copied().chain([("sys/module/vpmu_kvm/version", "0\n")]).collect();
        let unreadable: Vec<_> = CASCADE_LAKE.iter().copied().filter(|(path, _)| !path.contains("tracing/")).collect();
        for (files, perfmon, check, found, remedy) in [
            (&unreadable[..], true, "tracefs", "cannot read", "remount"),
            (&of_another[..], true, "kernel module", "of version 0,", "make load"),
            (&CASCADE_LAKE[..], true, "kernel module", "no headers of this kernel", "linux-headers-"),
            (&PVM[..], true, "kernel module", "KVM here has no vPMU", "another host"),
            (&[][..], true, "kernel module", "no kvm_intel or kvm_amd", "modprobe"),
            (&PVM[..], false, "perf_event_paranoid", "2, without CAP_PERFMON", "paranoid=1"),
            (&PVM[..], false, "perf_event_paranoid", "2, without CAP_PERFMON", "setcap cap_perfmon"),
        ] {
            let diagnosis = look(files, perfmon, &["cpu-clock"]);
            let finding = status(&diagnosis, check);
            assert!(finding.status == Status::Warn && finding.found.contains(found), "{finding:?}");
            assert!(finding.remedy.contains(remedy), "{finding:?}");
        }
        assert!(status(&look(&PVM, false, &[]), "event backend").remedy.contains("setcap cap_perfmon"));
        assert_eq!(status(&look(&PVM, true, &["cpu-clock"]), "perf_event_paranoid").status, Status::Ok);
    }

    #[test]
    fn what_is_missing_has_a_reason_and_a_remedy() {
        let lacks = || Ok(kvm_without(&["KVM_CAP_X86_MSR_FILTER", "KVM_CAP_PMU_CAPABILITY"]));
        // As of /dev/null over /dev/kvm.
        let none = Err("Inappropriate ioctl for device".to_owned());
        for (files, kvm, missing, found) in [
            (&PVM[..], lacks(), &["/dev/kvm", "KVM capabilities", "event backend"][..], "cannot be asked"),
            (&CASCADE_LAKE[..], lacks(), &["KVM capabilities", "event backend"], "KVM_CAP_X86_MSR_FILTER"),
            (&CASCADE_LAKE[..], none, &["/dev/kvm", "KVM capabilities", "event backend"], "cannot be asked"),
        ] {
            let (_dir, fs) = tree(files);
            let diagnosis = diagnose(&fs, false, kvm, &opens(&[]));
            assert_eq!(diagnosis.exit(), Exit::Host);
            let of = |status| diagnosis.findings.iter().filter(move |f| f.status == status).map(|f| f.check);
            assert_eq!(of(Status::Missing).collect::<Vec<_>>(), missing);
            assert_eq!(
                of(Status::Ok).any(|check| check == "Linux guests"),
                missing.len() == 2 && vmm::kvm::linux_refusal().is_ok()
            );
            for finding in diagnosis.findings.iter().filter(|f| f.status != Status::Ok) {
                assert!(!finding.why.is_empty() && !finding.remedy.is_empty(), "{finding:?}");
            }
            assert!(status(&diagnosis, "KVM capabilities").found.contains(found));
        }
    }

    #[test]
    fn what_the_host_does_not_tell_is_not_ok() {
        let shown = |found: &str| show(&Finding::of("governor", Status::Ok, found)).join("; ");
        assert!(shown("unknown").starts_with("?  ") && shown("unknown").contains("does not tell; a CPU that changes"));
        assert!(shown("performance").starts_with("ok  ") && !shown("performance").contains("why"));
    }
}
