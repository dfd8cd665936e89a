//! `vpmu doctor`: what this host can do, what spoils a measurement here, what will be used.

mod checks;
mod show;

use std::time::Duration;

use serde::Serialize;

use crate::error::Exit;
use crate::host::finding::{Finding, Status};
use crate::host::{HostFacts, HostFs, noise};
use crate::probe::{AutoBackend, EventProbe, KvmProbe, choose_backend};
use crate::process;

pub use show::text;

/// Everything `doctor` says.
#[derive(Clone, Debug, Serialize)]
pub struct Diagnosis {
    /// `"vpmu-doctor/1"`.
    pub schema: &'static str,
    /// See [`crate::host::host_class`].
    pub host_class: String,
    /// The backend `auto` stands for; `None` if none works.
    pub auto_backend: Option<String>,
    /// Whether that one is a stand-in for hardware events.
    pub stand_in: bool,
    /// Why that one.
    pub auto_why: String,
    /// The checks.
    pub findings: Vec<Finding>,
    /// All facts.
    pub host: HostFacts,
}

impl Diagnosis {
    /// Done, or that this host cannot measure.
    #[must_use]
    pub fn exit(&self) -> Exit {
        if self.findings.iter().any(|f| f.vital && f.status == Status::Missing) { Exit::Host } else { Exit::Done }
    }
}

/// What the process may use.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// RLIMIT_NOFILE; `None` = unlimited.
    pub open_files: Option<u64>,
    /// RLIMIT_SIGPENDING; `None` = unlimited.
    pub pending_signals: Option<u64>,
    /// Whether this is root.
    pub root: bool,
}

impl Limits {
    /// Of this process.
    #[must_use]
    pub fn of_this_process() -> Self {
        Self {
            open_files: process::soft_limit(process::Limit::OpenFiles),
            pending_signals: process::soft_limit(process::Limit::PendingSignals),
            root: process::is_root(),
        }
    }
}

/// Looks at everything, for `watch` at who uses the CPUs.
pub fn diagnose(
    fs: &HostFs,
    limits: Limits,
    kvm: &dyn KvmProbe,
    events: &dyn EventProbe,
    watch: Duration,
) -> Diagnosis {
    let mut host = HostFacts::read(fs);
    std::thread::sleep(watch);
    host.finish(fs);
    let auto = choose_backend(events);
    let mut findings = checks::kvm(fs, &host, kvm);
    findings.extend(checks::events(&host, limits, &auto));
    findings.extend(checks::limits(limits));
    findings.extend(noise::findings(&host, &[]));
    let AutoBackend { backend, why } = auto;
    Diagnosis {
        schema: "vpmu-doctor/1",
        host_class: host.class.clone(),
        stand_in: backend.as_ref().is_some_and(host_pmu::backend::BackendKey::is_stand_in),
        auto_backend: backend.map(|key| key.to_string()),
        auto_why: why,
        findings,
        host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fixture::{CASCADE_LAKE, PVM, tree};
    use crate::probe::KvmCap;
    use crate::probe::fake::{KvmWithout, Opens};

    const PLENTY: Limits = Limits { open_files: Some(20_000), pending_signals: Some(90_000), root: true };

    fn status<'a>(diagnosis: &'a Diagnosis, check: &str) -> &'a Finding {
        diagnosis.findings.iter().find(|f| f.check == check).unwrap()
    }

    #[test]
    fn a_good_host_is_fine() {
        let (_dir, fs) = tree(CASCADE_LAKE);
        let diagnosis = diagnose(&fs, PLENTY, &KvmWithout(&[]), &Opens(&["hardware", "cpu-clock"]), Duration::ZERO);
        assert_eq!(diagnosis.exit(), Exit::Done);
        assert_eq!(diagnosis.auto_backend.as_deref(), Some("hardware"));
        for check in ["/dev/kvm", "KVM capabilities", "hardware PMU", "tracefs", "open files", "load"] {
            assert_eq!(status(&diagnosis, check).status, Status::Ok, "{check}");
        }
    }

    #[test]
    fn what_is_missing_has_a_reason_and_a_remedy() {
        let (_dir, fs) = tree(PVM);
        let limits = Limits { open_files: Some(64), pending_signals: Some(10), root: false };
        let diagnosis = diagnose(
            &fs,
            limits,
            &KvmWithout(&[KvmCap::MsrFilter, KvmCap::PmuCapability]),
            &Opens(&[]),
            Duration::ZERO,
        );
        assert_eq!(diagnosis.exit(), Exit::Host);
        for check in ["/dev/kvm", "KVM capabilities", "event backend"] {
            assert_eq!(status(&diagnosis, check).status, Status::Missing, "{check}");
        }
        for finding in diagnosis.findings.iter().filter(|f| f.status != Status::Ok) {
            assert!(!finding.why.is_empty() && !finding.remedy.is_empty(), "{finding:?}");
        }
        for check in ["tracefs", "hardware PMU", "open files", "pending signals", "load", "virtualized"] {
            assert_ne!(status(&diagnosis, check).status, Status::Ok, "{check}");
        }
        assert!(status(&diagnosis, "KVM capabilities").found.contains("KVM_CAP_X86_MSR_FILTER"));
    }

    #[test]
    fn text_shows_every_check_and_the_choice() {
        let (_dir, fs) = tree(PVM);
        let diagnosis = diagnose(&fs, PLENTY, &KvmWithout(&[]), &Opens(&["cpu-clock"]), Duration::ZERO);
        let text = text(&diagnosis);
        for finding in &diagnosis.findings {
            assert!(text.contains(finding.check));
        }
        assert!(text.contains("cpu-clock") && text.contains("stand-in"));
        assert!(text.contains("development host"));
        let json = serde_json::to_value(&diagnosis).unwrap();
        assert_eq!(json["findings"][0]["check"], "/dev/kvm");
    }
}
