//! `vpmu doctor`: abilities of this host, noise sources on it, the backend of `auto`.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use results::error::{Error, Exit, one_line};
use results::host::noise::{Finding, Status};
use results::host::{HostFacts, HostFs, noise};
use results::table::Report;
use serde::Serialize;
use vmm::kvm::{API_VERSION, CAPABILITIES};

use crate::setting::backend::{Chosen, EventProbe, KvmReport, Refused, ThisHost, auto, kvm_report};
use crate::setting::process;
use crate::terminal::console::{self, Form};

/// The report of `doctor`.
#[derive(Clone, Debug, Serialize)]
pub struct Diagnosis {
    /// The backend of `auto`; `None` if none works.
    pub auto_backend: Option<String>,
    /// The reason for that one.
    pub auto_why: String,
    /// The checks.
    pub findings: Vec<Finding>,
    /// All facts.
    pub host: HostFacts,
}

impl Diagnosis {
    /// [`Exit::Done`], or [`Exit::Host`] if this host cannot measure.
    pub fn exit(&self) -> Exit {
        let lacks = |finding: &Finding| finding.vital && finding.status == Status::Missing;
        if self.findings.iter().any(lacks) { Exit::Host } else { Exit::Done }
    }
}

/// Rights of the process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rights {
    /// It may open any perf event, by root's capabilities or CAP_PERFMON.
    pub perfmon: bool,
    /// It is root, who needs no sudo.
    pub root: bool,
}

impl Rights {
    /// Reads the rights of this process.
    pub fn of_this_process() -> Self {
        Self { perfmon: process::has_perfmon(), root: rustix::process::geteuid().is_root() }
    }
}

// The checks, made from facts and probes.

/// Tells a user how to open host events. The program is named by its path: it need not be in PATH.
fn perf_remedy(program: Option<&Path>) -> String {
    let file = program.map(Path::to_string_lossy);
    let file = file.as_deref().and_then(|path| shlex::try_quote(path).ok());
    let file = file.as_deref().unwrap_or("FILE");
    format!(
        "sudo setcap cap_perfmon=ep {file} for this file alone, or sudo sysctl kernel.perf_event_paranoid=1 for every user"
    )
}

/// Makes a finding without which nothing can be measured.
fn vital(finding: Finding) -> Finding {
    Finding { vital: true, ..finding }
}

/// /dev/kvm, its capabilities, its own vPMU. What does not answer as KVM has none of them, whatever opens in its place.
fn kvm_findings(fs: &HostFs, host: &HostFacts, kvm: Result<KvmReport, String>) -> Vec<Finding> {
    let opened = OpenOptions::new().read(true).write(true).open(fs.path("dev/kvm"));
    let remedy = match opened.as_ref().map_err(std::io::Error::kind) {
        Err(ErrorKind::NotFound) => "enable virtualization in the firmware and load kvm_intel or kvm_amd",
        Err(ErrorKind::PermissionDenied) => {
            "sudo usermod -aG kvm $USER, then log in anew; if it is not group kvm's: sudo chgrp kvm /dev/kvm && sudo chmod 660 /dev/kvm"
        }
        _ => "look at `ls -l /dev/kvm` and the kernel log",
    };
    let report = match opened {
        Ok(_) => kvm.map_err(|error| format!("it opens, and does not answer as KVM: {error}")),
        Err(error) => Err(error.to_string()),
    };
    let missing_unless = |fine: bool| if fine { Status::Ok } else { Status::Missing };
    let found = report.as_ref().err().map_or("opens for reading and writing", String::as_str);
    let why = "the guest runs on it; nothing can be measured without";
    let device = Finding::new("/dev/kvm", missing_unless(report.is_ok()), found, why, remedy);

    let silent = || "KVM cannot be asked".to_owned();
    let upgrade = "use a kernel of 5.10 or later whose KVM has them";
    let lacks = report.as_ref().map(|report| {
        let absent = CAPABILITIES.into_iter().filter(|cap| cap.needed && report.value(*cap) <= 0);
        absent.map(|cap| format!("{} ({})", cap.name, cap.purpose)).collect::<Vec<_>>().join(", ")
    });
    let (fine, found, remedy) = match (&report, lacks) {
        (Ok(report), Ok(lacks)) if report.api_version == API_VERSION => match lacks.as_str() {
            "" => (true, format!("all present; up to {} vCPUs", report.max_vcpus), ""),
            lacks => (false, format!("absent: {lacks}"), upgrade),
        },
        (Ok(report), _) => (false, format!("API version {}, not {API_VERSION}", report.api_version), upgrade),
        (Err(_), _) => (false, "cannot be asked".to_owned(), "see /dev/kvm"),
    };
    let why = "the vPMU is in userspace: MSR accesses and PMIs pass through these";
    let capabilities = Finding::new("KVM capabilities", missing_unless(fine), found, why, remedy);

    let linux = report.as_ref().map_err(|_| silent()).and_then(|_| vmm::kvm::linux_refusal());
    let own = report.map_or_else(|_| Err(silent()), |report| report.own_pmu);
    let own = Finding::new(
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
    );
    let linux = Finding::new(
        "Linux guests",
        Status::warn_unless(linux.is_ok()),
        linux.err().unwrap_or_else(|| "can run: ring 0 of a guest runs on the processor".to_owned()),
        "`vpmu linux`, and `--guest linux` of experiments; the project's own payloads run on any KVM",
        "use a host whose KVM has VMX or SVM, or such a host in QEMU: docs/linux.md",
    );
    vec![vital(device), vital(capabilities), own, linux]
}

/// Reports the event sources that can stand behind the counters.
fn event_findings(fs: &HostFs, host: &HostFacts, rights: Rights, auto: &Result<Chosen, Refused>) -> Vec<Finding> {
    let remedy = perf_remedy(std::env::current_exe().ok().as_deref());
    let (status, found, mend) = match auto {
        Ok(chosen) => (
            Status::warn_unless(!chosen.backend.is_stand_in()),
            format!("auto is {}: {}", chosen.backend, chosen.why),
            "for hardware figures use a bare-metal host with a PMU; compare arms of one run only",
        ),
        Err(none) => (Status::Missing, none.why.clone(), remedy.as_str()),
    };
    let backend = Finding::new("event backend", status, found, "host events count for the guest", mend);
    let sources = match host.perf_pmus.join(", ") {
        none if none.is_empty() => "no perf event source at all".to_owned(),
        sources => format!("perf sources: {sources}"),
    };
    let pmu = Finding::new(
        "hardware PMU",
        Status::warn_unless(host.hardware_pmu),
        sources,
        "backend `hardware`; everything else is a stand-in",
        "use a bare-metal host, or give this machine a vPMU",
    );
    let level = host.perf_event_paranoid;
    let paranoid = Finding::new(
        "perf_event_paranoid",
        Status::warn_unless(rights.perfmon || level.is_some_and(|n| n <= 1)),
        format!(
            "{}, {} CAP_PERFMON",
            level.map_or_else(|| "unknown".to_owned(), |n| n.to_string()),
            if rights.perfmon { "with" } else { "without" }
        ),
        "above 1, only root or CAP_PERFMON may count the kernel's part, which a guest's ring 0 may be",
        remedy.as_str(),
    );
    let number = |root: &String| fs.number(&format!("{root}/events/sched/sched_switch/id"));
    let (found, remedy) = match &host.tracefs {
        Some(root) if number(root).is_some() => (root.clone(), String::new()),
        Some(root) => (
            format!("{root}, but this user cannot read the number of an event there"),
            format!("sudo mount -o remount,mode=755 {root}, or run as root"),
        ),
        None => ("not mounted".to_owned(), "sudo mount -t tracefs tracefs /sys/kernel/tracing".to_owned()),
    };
    let status = Status::warn_unless(remedy.is_empty());
    let why = "backend tracepoint:GROUP/NAME finds its event numbers there";
    vec![vital(backend), pmu, paranoid, Finding::new("tracefs", status, found, why, remedy)]
}

/// Observation time of CPU use by others: 25 ticks of the clock that accounts for it.
pub const WATCH: Duration = Duration::from_millis(250);

/// Runs all checks; CPU use by others is observed for `watch`.
pub fn diagnose(
    fs: &HostFs,
    rights: Rights,
    kvm: Result<KvmReport, String>,
    events: &dyn EventProbe,
    watch: Duration,
) -> Diagnosis {
    let mut host = HostFacts::read(fs);
    std::thread::sleep(watch);
    host.finish(fs);
    let auto = auto(events);
    let mut findings = kvm_findings(fs, &host, kvm);
    findings.extend(event_findings(fs, &host, rights, &auto));
    findings.extend(noise::findings(&host, &[]));
    if rights.root {
        for found in &mut findings {
            found.remedy = found.remedy.replace("sudo ", "");
        }
    }
    let (backend, why) = auto.map_or_else(|none| (None, none.why), |chosen| (Some(chosen.backend), chosen.why));
    Diagnosis { auto_backend: backend.map(|key| key.to_string()), auto_why: why, findings, host }
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
    report.gap();
    report.notes(diagnosis.findings.iter().flat_map(show));
    report.gap();
    let simulation = "a simulation, so that nothing is measured";
    let auto = diagnosis.auto_backend.as_deref().filter(|_| diagnosis.exit() == Exit::Done).unwrap_or(simulation);
    report.note(format!("--backend auto uses {auto}: {}", one_line(&diagnosis.auto_why)));
    report
}

/// Runs `vpmu doctor`.
///
/// # Errors
/// Those of stdout.
pub fn run(json: bool) -> Result<Exit, Error> {
    let diagnosis = diagnose(&HostFs::default(), Rights::of_this_process(), kvm_report(), &ThisHost, WATCH);
    console::show(Form::of(json, false), &report(&diagnosis), &diagnosis)?;
    Ok(diagnosis.exit())
}

#[cfg(test)]
mod tests {
    use results::error::Exit;
    use results::host::noise::{Finding, Status};
    use trials::hosts::{CASCADE_LAKE, PVM, tree};

    use super::*;
    use crate::setting::backend::fake::{Opens, kvm_without};

    const PLENTY: Rights = Rights { perfmon: true, root: false };

    fn status<'a>(diagnosis: &'a Diagnosis, check: &str) -> &'a Finding {
        diagnosis.findings.iter().find(|f| f.check == check).unwrap()
    }

    /// Diagnoses a host of these files whose KVM lacks nothing.
    fn look(files: &[(&str, &str)], rights: Rights, opens: &'static [&'static str]) -> Diagnosis {
        let (_dir, fs) = tree(files);
        diagnose(&fs, rights, Ok(kvm_without(&[])), &Opens(opens), Duration::ZERO)
    }

    #[test]
    fn a_good_host_is_fine_and_each_lack_by_itself_is_a_warning_with_its_remedy() {
        let diagnosis = look(CASCADE_LAKE, PLENTY, &["hardware", "cpu-clock"]);
        assert_eq!((diagnosis.exit(), diagnosis.auto_backend.as_deref()), (Exit::Done, Some("hardware")));
        for check in ["/dev/kvm", "KVM capabilities", "hardware PMU", "tracefs", "load"] {
            assert_eq!(status(&diagnosis, check).status, Status::Ok, "{check}");
        }
        let unreadable: Vec<_> = CASCADE_LAKE.iter().copied().filter(|(path, _)| !path.contains("tracing/")).collect();
        let user = Rights { perfmon: false, ..PLENTY };
        for (files, rights, check, found, remedy) in [
            (&unreadable[..], PLENTY, "tracefs", "cannot read", "remount"),
            (PVM, user, "perf_event_paranoid", "2, without CAP_PERFMON", "paranoid=1"),
            (PVM, user, "perf_event_paranoid", "2, without CAP_PERFMON", "setcap cap_perfmon"),
        ] {
            let diagnosis = look(files, rights, &["cpu-clock"]);
            let finding = status(&diagnosis, check);
            assert!(finding.status == Status::Warn && finding.found.contains(found), "{finding:?}");
            assert!(finding.remedy.contains(remedy), "{finding:?}");
        }
        assert!(status(&look(PVM, user, &[]), "event backend").remedy.contains("setcap cap_perfmon"));
        assert_eq!(status(&look(PVM, PLENTY, &["cpu-clock"]), "perf_event_paranoid").status, Status::Ok);
    }

    #[test]
    fn what_is_missing_has_a_reason_and_a_remedy() {
        let rights = Rights::default();
        let lacks = || Ok(kvm_without(&["KVM_CAP_X86_MSR_FILTER", "KVM_CAP_PMU_CAPABILITY"]));
        // As of /dev/null over /dev/kvm.
        let none = Err("Inappropriate ioctl for device".to_owned());
        for (files, kvm, missing, found) in [
            (PVM, lacks(), &["/dev/kvm", "KVM capabilities", "event backend"][..], "cannot be asked"),
            (CASCADE_LAKE, lacks(), &["KVM capabilities", "event backend"], "KVM_CAP_X86_MSR_FILTER"),
            (CASCADE_LAKE, none, &["/dev/kvm", "KVM capabilities", "event backend"], "cannot be asked"),
        ] {
            let (_dir, fs) = tree(files);
            let diagnosis = diagnose(&fs, rights, kvm, &Opens(&[]), Duration::ZERO);
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
            let text = report(&diagnosis).text(200);
            assert!(text.contains("a simulation, so that nothing is measured"), "{text}");
            assert!(status(&diagnosis, "KVM capabilities").found.contains(found));
        }
    }

    #[test]
    fn root_needs_no_sudo() {
        let remedy = |rights| status(&look(CASCADE_LAKE, rights, &[]), "NMI watchdog").remedy.clone();
        assert!(remedy(PLENTY).starts_with("sudo sysctl kernel.nmi_watchdog=0"));
        assert!(remedy(Rights { root: true, ..PLENTY }).starts_with("sysctl kernel.nmi_watchdog=0"));
    }

    #[test]
    fn what_the_host_does_not_tell_is_not_ok() {
        let shown = |found: &str| show(&Finding::new("governor", Status::Ok, found, "it matters", "")).join("; ");
        assert!(shown("unknown").starts_with("?  ") && shown("unknown").contains("does not tell; it matters"));
        assert!(shown("performance").starts_with("ok  ") && !shown("performance").contains("why"));
    }
}
