//! The diagnosis, from the host's facts and from probes.

use std::time::Duration;

use results::host::{HostFacts, HostFs, noise};

use super::checks;
use super::diagnosis::{Diagnosis, Limits};
use crate::setting::abilities::{AutoBackend, EventProbe, KvmProbe, choose_backend};

/// Runs all checks; CPU use by others is observed for `watch`.
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
    findings.extend(checks::events(fs, &host, limits, &auto));
    findings.extend(checks::limits(limits));
    findings.extend(noise::findings(&host, &[]));
    let AutoBackend { backend, why, .. } = auto;
    Diagnosis {
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
    use results::error::Exit;
    use results::host::finding::{Finding, Status};

    use super::super::show::text;
    use super::*;
    use crate::setting::abilities::fake::{KvmWithout, Opens};
    use results::host::fixture::{CASCADE_LAKE, PVM, tree};

    const PLENTY: Limits =
        Limits { open_files: Some(20_000), pending_signals: Some(90_000), queued_signals: 0, perfmon: true };

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
    fn a_tracefs_that_this_user_cannot_read_is_not_fine() {
        let unreadable: Vec<_> = CASCADE_LAKE.iter().copied().filter(|(path, _)| !path.contains("tracing/")).collect();
        let (_dir, fs) = tree(&unreadable);
        let diagnosis = diagnose(&fs, PLENTY, &KvmWithout(&[]), &Opens(&["hardware"]), Duration::ZERO);
        let found = status(&diagnosis, "tracefs");
        assert!(found.status == Status::Warn && found.remedy.contains("remount"), "{found:?}");
    }

    /// Each permission by itself, with its own remedy.
    #[test]
    fn a_user_without_root_learns_which_permission_is_missing() {
        let (_dir, fs) = tree(PVM);
        let user = |perfmon| Limits { perfmon, ..PLENTY };
        let without = diagnose(&fs, user(false), &KvmWithout(&[]), &Opens(&[]), Duration::ZERO);
        for check in ["event backend", "perf_event_paranoid"] {
            let found = status(&without, check);
            assert!(found.remedy.contains("setcap cap_perfmon") && found.remedy.contains("paranoid=1"), "{found:?}");
        }
        assert!(status(&without, "perf_event_paranoid").found.ends_with("2, without CAP_PERFMON"));
        let with = diagnose(&fs, user(true), &KvmWithout(&[]), &Opens(&["cpu-clock"]), Duration::ZERO);
        assert_eq!(status(&with, "perf_event_paranoid").status, Status::Ok);
    }

    #[test]
    fn what_is_missing_has_a_reason_and_a_remedy() {
        let (_dir, fs) = tree(PVM);
        let limits = Limits { open_files: Some(64), pending_signals: Some(10), ..Limits::default() };
        let diagnosis = diagnose(
            &fs,
            limits,
            &KvmWithout(&["KVM_CAP_X86_MSR_FILTER", "KVM_CAP_PMU_CAPABILITY"]),
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
        assert!(text(&diagnosis).contains("a simulation, so that nothing is measured"), "{}", text(&diagnosis));
        assert!(status(&diagnosis, "KVM capabilities").found.contains("KVM_CAP_X86_MSR_FILTER"));
    }

    #[test]
    fn a_user_whose_other_runs_have_its_signals_is_warned() {
        let (_dir, fs) = tree(CASCADE_LAKE);
        let limits = Limits { queued_signals: 89_990, ..PLENTY };
        let diagnosis = diagnose(&fs, limits, &KvmWithout(&[]), &Opens(&["hardware"]), Duration::ZERO);
        let found = status(&diagnosis, "pending signals");
        assert!(found.status == Status::Warn && found.found.starts_with("10 left of 90000"), "{found:?}");
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
