//! `vpmu doctor`: abilities of this host, noise sources on it, the backend of `auto`.

use std::fmt::Write;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use results::error::{Exit, one_line};
use results::host::noise::{Finding, Status};
use results::host::settings::{self, Mend};
use results::host::{HostFacts, HostFs, noise};
use results::table::layout;
use serde::Serialize;
use textwrap::{Options, WordSplitter};
use vmm::kvm::{API_VERSION, CAPABILITIES};

use crate::setting::backend::{Chosen, EventProbe, KvmProbe, KvmReport, Refused, auto};
use crate::setting::process;

/// The report of `doctor`.
#[derive(Clone, Debug, Serialize)]
pub struct Diagnosis {
    /// See [`results::host::host_class`].
    pub host_class: String,
    /// The backend of `auto`; `None` if none works.
    pub auto_backend: Option<String>,
    /// It is a stand-in for hardware events.
    pub stand_in: bool,
    /// The reason for that one.
    pub auto_why: String,
    /// The checks.
    pub findings: Vec<Finding>,
    /// Commands that mend findings by one write each.
    pub set: Vec<String>,
    /// Commands that put back today's values.
    pub put_back: Vec<String>,
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

/// /dev/kvm, its capabilities, its own vPMU. What does not answer as KVM has none of them, whatever opens in its place.
fn kvm_findings(fs: &HostFs, host: &HostFacts, probe: &dyn KvmProbe) -> Vec<Finding> {
    let opened = OpenOptions::new().read(true).write(true).open(fs.path("dev/kvm"));
    let report = match &opened {
        Ok(_) => probe.probe().map_err(|error| format!("it opens, and does not answer as KVM: {error}")),
        Err(error) => Err(error.to_string()),
    };
    let why = "the guest runs on it; nothing can be measured without";
    let (status, found, remedy) = match (&report, opened.err().map(|error| error.kind())) {
        (Ok(_), _) => (Status::Ok, "opens for reading and writing".to_owned(), ""),
        (Err(why), Some(ErrorKind::NotFound)) => {
            (Status::Missing, why.clone(), "enable virtualization in the firmware and load kvm_intel or kvm_amd")
        }
        (Err(why), Some(ErrorKind::PermissionDenied)) => (
            Status::Missing,
            why.clone(),
            "sudo usermod -aG kvm $USER, then log in anew; if it is not group kvm's: sudo chgrp kvm /dev/kvm && sudo chmod 660 /dev/kvm",
        ),
        (Err(why), _) => (Status::Missing, why.clone(), "look at `ls -l /dev/kvm` and the kernel log"),
    };
    let mut findings = vec![Finding { vital: true, ..Finding::new("/dev/kvm", status, found, why, remedy) }];

    let why = "the vPMU is in userspace: MSR accesses and PMIs pass through these";
    let absent = |report: &KvmReport| -> Vec<String> {
        let absent = CAPABILITIES.into_iter().filter(|cap| cap.needed && report.value(*cap) <= 0);
        absent.map(|cap| format!("{} ({})", cap.name, cap.purpose)).collect()
    };
    let (status, found, upgrade) = match &report {
        Err(_) => (Status::Missing, "cannot be asked".to_owned(), "see /dev/kvm"),
        Ok(report) if report.api_version != API_VERSION => {
            let found = format!("API version {}, not {API_VERSION}", report.api_version);
            (Status::Missing, found, "use a kernel of 5.10 or later whose KVM has them")
        }
        Ok(report) if absent(report).is_empty() => {
            (Status::Ok, format!("all present; up to {} vCPUs", report.max_vcpus), "")
        }
        Ok(report) => {
            let found = format!("absent: {}", absent(report).join(", "));
            (Status::Missing, found, "use a kernel of 5.10 or later whose KVM has them")
        }
    };
    findings.push(Finding { vital: true, ..Finding::new("KVM capabilities", status, found, why, upgrade) });

    let answers = report.is_ok();
    let own = report.map_or_else(|_| Err("KVM cannot be asked".to_owned()), |report| report.own_pmu);
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
    let linux = if answers { vmm::kvm::linux_refusal() } else { Err("KVM cannot be asked".to_owned()) };
    findings.push(Finding::new(
        "Linux guests",
        Status::warn_unless(linux.is_ok()),
        linux.err().unwrap_or_else(|| "can run: ring 0 of a guest runs on the processor".to_owned()),
        "`vpmu linux`, and `--guest linux` of experiments; the project's own payloads run on any KVM",
        "use a host whose KVM has VMX or SVM, or such a host in QEMU: docs/linux.md",
    ));
    findings
}

/// Reports the event sources that can stand behind the counters.
fn event_findings(fs: &HostFs, host: &HostFacts, rights: Rights, auto: &Result<Chosen, Refused>) -> Vec<Finding> {
    let remedy = perf_remedy(std::env::current_exe().ok().as_deref());
    let mut findings = vec![
        Finding {
            vital: true,
            ..Finding::new(
                "event backend",
                match auto {
                    Ok(chosen) => Status::warn_unless(!chosen.backend.is_stand_in()),
                    Err(_) => Status::Missing,
                },
                match auto {
                    Ok(chosen) => format!("auto is {}: {}", chosen.backend, chosen.why),
                    Err(none) => none.why.clone(),
                },
                "host events count for the guest",
                if auto.is_ok() {
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
        Status::warn_unless(rights.perfmon || paranoid.is_some_and(|n| n <= 1)),
        format!(
            "{}, {} CAP_PERFMON",
            paranoid.map_or_else(|| "unknown".to_owned(), |n| n.to_string()),
            if rights.perfmon { "with" } else { "without" }
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

/// Runs all checks; CPU use by others is observed for `watch`.
pub fn diagnose(
    fs: &HostFs,
    rights: Rights,
    kvm: &dyn KvmProbe,
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
    let checks: Vec<_> = findings.iter().filter(|found| found.status != Status::Ok).map(|found| found.check).collect();
    let (mut set, mut put_back) = (Vec::new(), Vec::new());
    for Mend { check, commands } in settings::mends(fs, &checks) {
        match commands {
            Ok([new, today]) => {
                set.push(new);
                put_back.push(today);
            }
            Err(why) => {
                findings
                    .iter_mut()
                    .filter(|found| found.check == check)
                    .for_each(|found| found.remedy.clone_from(&why));
            }
        }
    }
    if rights.root {
        let remedies = findings.iter_mut().map(|found| &mut found.remedy);
        for text in remedies.chain(&mut set).chain(&mut put_back) {
            *text = text.replace("sudo ", "");
        }
    }
    let (backend, why) = auto.map_or_else(|none| (None, none.why), |chosen| (Some(chosen.backend), chosen.why));
    Diagnosis {
        host_class: host.class.clone(),
        stand_in: backend.as_ref().is_some_and(host_pmu::backend::BackendKey::is_stand_in),
        auto_backend: backend.map(|key| key.to_string()),
        auto_why: why,
        findings,
        set,
        put_back,
        host,
    }
}

/// Columns before the text of a finding: status and check.
const INDENT: usize = 30;

/// Fills `text` to `width` behind the indent; words are never cut.
fn wrap(out: &mut String, text: &str, width: usize) {
    let indent = " ".repeat(INDENT);
    // A path to copy is not split at its hyphens.
    let options = Options::new(width).word_splitter(WordSplitter::NoHyphenation);
    let options = options.initial_indent(&indent).subsequent_indent(&indent).break_words(false);
    out.push_str(textwrap::fill(text, options).trim_start());
    out.push('\n');
}

fn show(out: &mut String, finding: &Finding, width: usize) {
    // An unknown setting is neither fine nor a fault.
    let unknown = finding.status == Status::Ok && finding.found.starts_with("unknown");
    let status = match finding.status {
        Status::Ok if unknown => "?",
        Status::Ok => "ok",
        Status::Warn => "warn",
        Status::Missing => "MISSING",
    };
    let _ = write!(out, "{status:<8}{:<22}", finding.check);
    wrap(out, &one_line(&finding.found), width);
    let further = match finding.status {
        Status::Ok if unknown => vec![format!("why: this host does not tell; {}", finding.why)],
        Status::Ok => Vec::new(),
        _ => vec![format!("why: {}", finding.why), format!("do:  {}", finding.remedy)],
    };
    for line in further {
        let _ = write!(out, "{:INDENT$}", "");
        wrap(out, &line, width);
    }
}

/// The findings for a terminal or a pipe; a check without a finding takes one line.
pub fn text(diagnosis: &Diagnosis) -> String {
    let width = layout::columns().max(INDENT + 20);
    let mut out = format!("host class: {}\n\n", diagnosis.host_class);
    for finding in &diagnosis.findings {
        show(&mut out, finding, width);
    }
    let simulation = "a simulation, so that nothing is measured";
    let auto = diagnosis.auto_backend.as_deref().filter(|_| diagnosis.exit() == Exit::Done).unwrap_or(simulation);
    let _ = write!(out, "\n{:<INDENT$}", "--backend auto uses");
    wrap(&mut out, &format!("{auto}: {}", one_line(&diagnosis.auto_why)), width);
    for (what, commands) in
        [("set what one write mends", &diagnosis.set), ("put back today's values", &diagnosis.put_back)]
    {
        if !commands.is_empty() {
            let _ = write!(out, "\n# {what}\n{}\n", commands.join("\n"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use results::error::Exit;
    use results::host::noise::{Finding, Status};
    use trials::hosts::{CASCADE_LAKE, PVM, tree};

    use super::*;
    use crate::setting::backend::fake::{KvmWithout, Opens};

    const PLENTY: Rights = Rights { perfmon: true, root: false };

    fn status<'a>(diagnosis: &'a Diagnosis, check: &str) -> &'a Finding {
        diagnosis.findings.iter().find(|f| f.check == check).unwrap()
    }

    /// Diagnoses a host of these files whose KVM lacks nothing.
    fn look(files: &[(&str, &str)], rights: Rights, opens: &'static [&'static str]) -> Diagnosis {
        let (_dir, fs) = tree(files);
        diagnose(&fs, rights, &KvmWithout(&[]), &Opens(opens), Duration::ZERO)
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

    /// What stands in place of KVM and is none, such as /dev/null over /dev/kvm.
    struct NoKvm;

    impl KvmProbe for NoKvm {
        fn probe(&self) -> Result<KvmReport, String> {
            Err("Inappropriate ioctl for device".to_owned())
        }
    }

    #[test]
    fn what_is_missing_has_a_reason_and_a_remedy() {
        let rights = Rights::default();
        let lacks: &dyn KvmProbe = &KvmWithout(&["KVM_CAP_X86_MSR_FILTER", "KVM_CAP_PMU_CAPABILITY"]);
        for (files, kvm, missing, found) in [
            (PVM, lacks, &["/dev/kvm", "KVM capabilities", "event backend"][..], "cannot be asked"),
            (CASCADE_LAKE, lacks, &["KVM capabilities", "event backend"], "KVM_CAP_X86_MSR_FILTER"),
            (CASCADE_LAKE, &NoKvm, &["/dev/kvm", "KVM capabilities", "event backend"], "cannot be asked"),
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
            assert!(text(&diagnosis).contains("a simulation, so that nothing is measured"), "{}", text(&diagnosis));
            assert!(status(&diagnosis, "KVM capabilities").found.contains(found));
        }
    }

    #[test]
    fn a_setting_that_nothing_can_write_has_another_remedy_and_no_command() {
        use std::os::unix::fs::PermissionsExt as _;
        let poll = "sys/module/kvm/parameters/halt_poll_ns";
        let (_dir, fs) = tree(&[CASCADE_LAKE, &[(poll, "200000\n")]].concat());
        let look_as = |rights| diagnose(&fs, rights, &KvmWithout(&[]), &Opens(&[]), Duration::ZERO);
        assert_eq!(look_as(Rights { root: true, ..PLENTY }).set[0], "sysctl kernel.nmi_watchdog=0");
        let look = || look_as(PLENTY);
        let has_command = |found: &Diagnosis| found.set.iter().any(|command| command.contains("halt_poll_ns"));
        let found = look();
        assert!(has_command(&found) && status(&found, "halt_poll_ns").remedy.contains("| sudo tee"));
        let put_back = format!("\n# put back today's values\n{}\n", found.put_back.join("\n"));
        assert!(text(&found).ends_with(&put_back) && text(&found).contains(&found.set.join("\n")));
        std::fs::set_permissions(fs.path(poll), std::fs::Permissions::from_mode(0o444)).unwrap();
        let found = look();
        let remedy = &status(&found, "halt_poll_ns").remedy;
        assert!(!has_command(&found) && remedy.contains("options kvm halt_poll_ns=0"), "{remedy}");
    }

    #[test]
    fn what_the_host_does_not_tell_is_not_ok() {
        let shown = |found: &str| {
            let mut out = String::new();
            show(&mut out, &Finding::new("governor", Status::Ok, found, "it matters", ""), 80);
            out
        };
        assert!(shown("unknown").starts_with("?  ") && shown("unknown").contains("does not tell; it matters"));
        assert!(shown("performance").starts_with("ok  ") && !shown("performance").contains("why"));
    }
}
