//! `conformance`: a guest checks its PMU from inside, once per PMU version and strategy. Its result is TAP 14 or JSON, no document.
//!
//! No line holds a time, a count or an address that could differ from host to host: for one backend the lines of two
//! hosts are equal.

use std::sync::LazyLock;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use arch_pmu::caps::PmuCaps;
use arch_pmu::spec::Vendor;
use guest::abi::{
    BootPage, CONFORMANCE_FAIL, CONFORMANCE_PASS, CONFORMANCE_SKIP, ConformanceReport, FLAG_COUNTS_EVENTS,
    FLAG_COUNTS_EXACT, FLAG_PERFMON_V2, FLAG_PMU_AMD, FLAG_PMU_V4,
};
use guest::cases::{self, Case};
use host_pmu::backend::BackendKey;
use host_pmu::strategy::Strategy;
use minijinja::value::Serde;
use minijinja::{Value, context};
use results::document::{KVM_ARMS, kvm_arm};
use results::error::{Error, one_line};
use results::host::HostFs;
use results::table::layout::plural;
use schemars::JsonSchema;
use serde::Serialize;
use vmm::kvm::Host;
use vmm::machine::payload::{self, PayloadPlan};
use vmm::machine::{CounterSource, Cpu, Plan};
use vmm::outcome::End;

use crate::arms::arm::real::refused;
use crate::experiment::calibrate::beside::counts_outside_guests;
use crate::setting::backend::{open_kvm, shown_by};
use crate::terminal::console::filled;

static CASES: LazyLock<Vec<Case>> = LazyLock::new(cases::cases);

/// Result of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub enum Verdict {
    /// It holds.
    Pass,
    /// It cannot be checked here.
    Skip {
        /// Reason why it was skipped.
        reason: &'static str,
    },
    /// It does not hold.
    Fail {
        /// Value that the architecture asks for.
        expected: u64,
        /// Value that the guest found.
        got: u64,
        /// Line of the step in `guest/payload/cases.txt`.
        line: usize,
        /// The step.
        step: &'static str,
    },
    /// The guest ended before or in it.
    NotRun {
        /// Reason for which the run ended.
        why: String,
    },
}

impl Verdict {
    /// Returns whether it counts as ok.
    pub const fn is_ok(&self) -> bool {
        matches!(self, Self::Pass | Self::Skip { .. })
    }
}

/// A guest whose PMU is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Its processor.
    pub cpu: Cpu,
    /// Architectural version of an Intel's PMU.
    pub version: u8,
}

impl Checked {
    /// Returns its cases, in the payload's order.
    pub fn cases(self) -> &'static [Case] {
        let (intel, amd) = CASES.split_at(CASES.partition_point(|case| !case.is_amd()));
        if self.cpu.vendor() == Vendor::Amd { amd } else { intel }
    }

    /// Returns the boot page's flags that say which PMU it has.
    fn flags(self) -> u64 {
        let pmu = self.pmu();
        match (pmu.vendor(), pmu.version()) {
            (Vendor::Intel, 0..4) => 0,
            (Vendor::Intel, _) => FLAG_PMU_V4,
            (Vendor::Amd, 1) => FLAG_PMU_AMD,
            (Vendor::Amd, _) => FLAG_PMU_AMD | FLAG_PERFMON_V2,
        }
    }

    fn pmu(self) -> PmuCaps {
        self.cpu.pmu_of_version(self.version)
    }

    fn name(self) -> String {
        match self.cpu {
            Cpu::CascadeLake => format!("version {}", self.version),
            Cpu::Generic => format!("generic, version {}", self.version),
            Cpu::Milan | Cpu::Genoa => self.cpu.name().to_owned(),
        }
    }
}

/// A case with its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CaseResult {
    #[serde(skip)]
    case: &'static Case,
    #[serde(rename = "case")]
    key: &'static str,
    #[serde(flatten)]
    verdict: Verdict,
}

/// One run of the payload.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Run {
    /// Name of the guest in TAP.
    #[serde(skip)]
    guest: String,
    cpu: &'static str,
    pmu_version: u8,
    /// The strategy's name, or KVM's.
    arm: String,
    /// Every case is ok.
    pub ok: bool,
    cases: Vec<CaseResult>,
}

/// Returns the last line: how many cases of all runs passed, failed, and were skipped.
pub fn summary(runs: &[Run]) -> String {
    let all = || runs.iter().flat_map(|run| &run.cases);
    let skipped = all().filter(|one| matches!(one.verdict, Verdict::Skip { .. })).count();
    let failed = all().filter(|one| !one.verdict.is_ok()).count();
    let passed = all().count() - skipped - failed;
    format!("# {passed} passed, {failed} failed, {skipped} skipped, in {}\n", plural(runs.len(), "run"))
}

impl Run {
    /// Judges the report of a run, which comes from the guest and may hold anything.
    pub fn new(guest: Checked, arm: &str, end: &End, report: Option<&ConformanceReport>) -> Self {
        let ended = one_line(&end.to_string());
        let whole = end.is_complete() && report.is_some_and(|report| report.complete == 1);
        let verdict = |number: usize| {
            let Some(report) = report else { return Verdict::NotRun { why: ended.clone() } };
            let result = report.results[number];
            if !whole && report.running == number as u64 + 1 && result.outcome != CONFORMANCE_FAIL {
                return Verdict::NotRun { why: format!("the run ended in this case: {ended}") };
            }
            match result.outcome {
                CONFORMANCE_PASS => Verdict::Pass,
                CONFORMANCE_SKIP => Verdict::Skip { reason: cases::why_skipped(result.got) },
                CONFORMANCE_FAIL => {
                    let (line, step) = cases::step_at(result.step);
                    Verdict::Fail { expected: result.expected, got: result.got, line, step }
                }
                0 => Verdict::NotRun { why: ended.clone() },
                other => Verdict::NotRun { why: format!("the guest gave an unknown outcome {other:#x}") },
            }
        };
        let result =
            |(number, case): (usize, &'static Case)| CaseResult { case, key: case.key, verdict: verdict(number) };
        let cases: Vec<CaseResult> = guest.cases().iter().enumerate().map(result).collect();
        let ok = cases.iter().all(|one| one.verdict.is_ok());
        let (cpu, pmu_version, arm) = (guest.cpu.name(), guest.pmu().version(), arm.to_owned());
        Self { guest: guest.name(), cpu, pmu_version, arm, ok, cases }
    }

    /// Formats the run as a subtest of a TAP 14 stream, number `number` in it.
    ///
    /// # Errors
    /// Exit 70: its template is wrong.
    pub fn tap(&self, number: usize) -> Result<String, Error> {
        let case = |one: &CaseResult| {
            let hex = match &one.verdict {
                Verdict::Fail { expected, got, .. } => [expected, got].map(|value| format!("{value:#x}")),
                _ => Default::default(),
            };
            let Case { key, claim, source, pitfalls } = one.case;
            let of = context! { key => *key, claim => *claim, source => *source, pitfalls };
            let verdict = Value::from(Serde(&one.verdict));
            context! { ok => one.verdict.is_ok(), hex => hex.to_vec(), of, verdict }
        };
        let Self { guest, arm, ok, cases, .. } = self;
        let cases: Vec<_> = cases.iter().map(case).collect();
        let lines = filled(include_str!("conformance/tap.txt"), context! { number, guest, arm, ok, cases })?;
        Ok(lines.join("\n") + "\n")
    }
}

/// All runs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Runs {
    /// The version of the tool.
    pub version: &'static str,
    /// Key of the backend, or KVM's name.
    pub backend: String,
    /// The runs.
    pub runs: Vec<Run>,
}

/// Time after which a run is ended: seconds suffice where an exit costs microseconds.
const LIMIT: Duration = Duration::from_secs(120);
/// Time limit with KVM's own vPMU, in which fewer accesses are exits: unless that is mediated, and each exit switches the PMU.
const KVM_LIMIT: Duration = Duration::from_secs(30);
/// Time limit with backend `step`, where every instruction is an exit.
const STEP_LIMIT: Duration = Duration::from_secs(600);
/// A case waits for an overflow for this part of its run's limit, so that several that wait for one in vain still reach
/// their verdict.
const PATIENCE: u32 = 16;
/// Longest time: stepping on an emulated host is slow.
const MOST_PATIENCE: Duration = Duration::from_secs(30);

/// The implementation behind a guest's counters.
#[derive(Clone, Debug)]
pub struct Target {
    /// The name of its runs: that of the strategy, or KVM's.
    pub name: String,
    behind: CounterSource,
    /// The flags that say what the counters count (`FLAG_COUNTS_*`).
    counts: u64,
    time_limit: Duration,
}

impl Target {
    /// The userspace vPMU by this strategy; `counts_time` is asked of hardware alone.
    pub fn vpmu(strategy: Strategy, backend: &BackendKey, counts_time: fn() -> bool) -> Self {
        let name = strategy.name.clone();
        let events = CounterSource::Events { backend: backend.clone(), strategy };
        let (behind, counts, time_limit) = match backend {
            BackendKey::None => (CounterSource::Floor, 0, LIMIT),
            BackendKey::Step => (events, FLAG_COUNTS_EXACT, STEP_LIMIT),
            BackendKey::Hardware if !counts_time() => (events, FLAG_COUNTS_EVENTS, LIMIT),
            _ => (events, 0, LIMIT),
        };
        Self { name, behind, counts, time_limit }
    }

    /// KVM's own vPMU.
    pub fn kvm() -> Self {
        let counts = if counts_time() { 0 } else { FLAG_COUNTS_EVENTS };
        let name = kvm_arm(&HostFs::default()).to_owned();
        let time_limit = if name == KVM_ARMS[1] { LIMIT } else { KVM_LIMIT };
        Self { name, behind: CounterSource::Kvm { module: None }, counts, time_limit }
    }
}

/// Returns whether this host's hardware events count time in place of the selected event, as in a guest of `vpmu linux`: its PMU knows
/// no guest mode, in which they alone are to count.
pub fn counts_time() -> bool {
    counts_outside_guests().is_ok_and(|rate| rate > 0.0)
}

/// Returns the guest of KVM's own vPMU: of the host's vendor, and with an Intel's PMU of version 2.
///
/// # Errors
/// Exit 4: this host's KVM has none, or one that the cases do not fit.
pub fn of_kvm() -> Result<Checked, Error> {
    let cannot = |why: String, remedy| Error::host("KVM's own vPMU cannot be checked", why, remedy);
    let host = open_kvm()?;
    host.kvm_pmu().map_err(|why| cannot(why, "use a host with a PMU, or one made by `vpmu linux --nested`"))?;
    let cpu = shown_by(host.vendor(), host.shows_perfmon_v2()).unwrap_or_default();
    // The cases for an Intel know one number of counters; KVM shows those of its host.
    if let (Some((gp, fixed)), PmuCaps::Intel(caps)) = (host.shown_counters(), cpu.pmu())
        && (gp, fixed) != (caps.gp.into(), caps.fixed.into())
    {
        let cases = format!("the cases are for {} and {}", caps.gp, caps.fixed);
        let why = format!("it shows a guest {gp} general-purpose and {fixed} fixed counters, and {cases}");
        return Err(cannot(why, "use a host whose KVM shows as many, such as a Cascade Lake with hyper-threading"));
    }
    Ok(Checked { cpu, version: 2 })
}

/// Runs the payload in a guest.
///
/// # Errors
/// Exit 4 where no guest can run.
pub fn run(host: &Host, guest: Checked, target: &Target, interrupted: &AtomicBool) -> Result<Run, Error> {
    let outcome = payload::run_conformance(host, &plan(guest, target), interrupted).map_err(refused)?;
    Ok(Run::new(guest, &target.name, &outcome.end, outcome.report.as_deref()))
}

fn plan(guest: Checked, target: &Target) -> PayloadPlan {
    let Target { behind, counts, time_limit, .. } = target.clone();
    let machine = Plan {
        behind,
        cpu: guest.cpu,
        pmu: guest.pmu(),
        vcpus: 1,
        pin: Vec::new(),
        time_limit,
        sampling: None,
        trace: None,
    };
    let patience = (time_limit / PATIENCE).min(MOST_PATIENCE);
    let limit_us = u64::try_from(patience.as_micros()).unwrap_or(u64::MAX);
    let flags = counts | guest.flags();
    let boot = BootPage { flags, limit_us, ..BootPage::default() };
    PayloadPlan { machine, log_entries: 1, boot, steps: cases::steps(flags).into() }
}

#[cfg(test)]
mod tests {
    use guest::abi::{CONFORMANCE_CASES, CONFORMANCE_MAGIC, ConformanceResult, PLAY_TEXT_SHIFT};

    use super::*;

    const V2: Checked = Checked { cpu: Cpu::CascadeLake, version: 2 };

    fn report() -> ConformanceReport {
        let mut report = ConformanceReport { magic: CONFORMANCE_MAGIC, complete: 1, ..ConformanceReport::default() };
        report.results.fill(ConformanceResult { outcome: CONFORMANCE_PASS, ..ConformanceResult::default() });
        report
    }

    #[test]
    fn a_whole_run_is_ok_and_its_lines_are_numbered() {
        let mut report = report();
        report.results[3] = ConformanceResult { outcome: CONFORMANCE_SKIP, got: 3, ..report.results[3] };
        let run = Run::new(V2, "reuse", &End::Done, Some(&report));
        assert!(run.ok);
        let tap = run.tap(1).unwrap();
        let cases = V2.cases().len();
        let begin = format!("# Subtest: version 2, reuse\n    1..{cases}\n    ok 1 - reset: ");
        assert!(tap.starts_with(&begin), "{tap}");
        assert!(tap.contains(" # SKIP needs a version 4 PMU\n"));
        assert!(tap.ends_with("\nok 1 - version 2, reuse\n"));
        assert_eq!(tap.lines().count(), 3 + cases);
    }

    #[test]
    fn a_failure_says_what_was_expected() {
        let mut report = report();
        let step = cases::steps(0)[1].what >> PLAY_TEXT_SHIFT;
        report.results[0] = ConformanceResult { outcome: CONFORMANCE_FAIL, step, expected: 0xf, got: 0 };
        let run = Run::new(Checked { version: 4, ..V2 }, "pool", &End::Done, Some(&report));
        let tap = run.tap(2).unwrap();
        assert!(!run.ok && tap.contains("    not ok 1 - reset"), "{tap}");
        let (line, _) = cases::step_at(step);
        let found =
            format!("expected: 0xf\n      got: 0x0\n      line: {line}\n      step: 'GLOBAL_CTRL == GP'\n      ...\n");
        assert!(tap.contains(&format!("      ---\n      {found}")), "{tap}");
        assert!(tap.ends_with("not ok 2 - version 4, pool\n"));
        let count = |wanted: fn(&Verdict) -> bool| run.cases.iter().filter(|one| wanted(&one.verdict)).count();
        let (passed, skipped) = (count(|v| *v == Verdict::Pass), count(|v| matches!(v, Verdict::Skip { .. })));
        assert_eq!(passed + 1 + skipped, V2.cases().len());
        let line = format!("# {passed} passed, 1 failed, {skipped} skipped, in 1 run\n");
        assert_eq!(summary(std::slice::from_ref(&run)), line);
    }

    #[test]
    fn what_did_not_run_is_not_ok() {
        let mut cut = report();
        (cut.complete, cut.running) = (0, 5);
        cut.results[5..].fill(ConformanceResult::default());
        let run = Run::new(V2, "reuse", &End::TimedOut, Some(&cut));
        assert_eq!(run.cases[3].verdict, Verdict::Pass);
        assert_eq!(
            run.cases[4].verdict,
            Verdict::NotRun { why: "the run ended in this case: the time limit passed".into() }
        );
        assert!(matches!(run.cases[5].verdict, Verdict::NotRun { .. }) && !run.ok);
        let none = Run::new(V2, "reuse", &End::TripleFault, None);
        assert!(none.cases.iter().all(|one| !one.verdict.is_ok()));
        let mut hostile = report();
        hostile.results[9].outcome = u64::MAX;
        assert!(!Run::new(V2, "reuse", &End::Done, Some(&hostile)).ok);
    }

    #[test]
    fn an_amd_has_cases_of_its_own() {
        let mut report = report();
        let milan = Checked { cpu: Cpu::Milan, ..V2 };
        report.results[milan.cases().len()..].fill(ConformanceResult::default());
        let run = Run::new(milan, "reuse", &End::Done, Some(&report));
        assert!(run.ok, "the others' cases do not run");
        let tap = run.tap(1).unwrap();
        let begin = format!("# Subtest: milan, reuse\n    1..{}\n    ok 1 - amd-reset: ", milan.cases().len());
        assert!(tap.starts_with(&begin) && tap.contains("(APM 13.2.1"), "{tap}");
        assert_eq!((run.cpu, run.pmu_version, run.cases[5].key), ("milan", 1, "amd-aliases"));
    }

    #[test]
    fn every_case_is_there_once_and_its_line_needs_no_escaping() {
        assert_eq!((CASES.len(), V2.cases().len()), (CONFORMANCE_CASES, 84));
        for (number, case) in CASES.iter().enumerate() {
            assert!(CASES[..number].iter().all(|other| other.key != case.key), "{}", case.key);
            for text in [case.key, case.claim, case.source] {
                assert!(!text.is_empty() && !text.contains(['#', '\\', '\n']), "{text}");
            }
            assert!(case.pitfalls.iter().all(|n| (1..=30).contains(&n.parse().unwrap_or(0))), "{}", case.key);
        }
    }

    /// The payload must not expect real counts of a stand-in, nor the registers of another version.
    #[test]
    fn the_guest_knows_what_counts_and_which_version_it_has() {
        let of_host = |backend: &BackendKey, counts_time, version| {
            let target = Target::vpmu(Strategy::preset("pool").unwrap(), backend, counts_time);
            plan(Checked { cpu: Cpu::default(), version }, &target)
        };
        let of = |backend: &BackendKey, version| of_host(backend, || false, version);
        for (backend, flags) in [
            (BackendKey::Step, FLAG_COUNTS_EXACT),
            (BackendKey::Hardware, FLAG_COUNTS_EVENTS),
            (BackendKey::CpuClock, 0),
            (BackendKey::None, 0),
        ] {
            let [v2, v4] = [2, 4].map(|version| of(&backend, version));
            assert_eq!((v2.boot.flags, v4.boot.flags), (flags, flags | FLAG_PMU_V4));
            assert_eq!([v2.machine.pmu, v4.machine.pmu], [2, 4].map(|version| Cpu::default().pmu_of_version(version)));
            assert_eq!(v2.machine.behind == CounterSource::Floor, backend == BackendKey::None);
        }
        assert_eq!(of_host(&BackendKey::Hardware, || true, 2).boot.flags, 0, "a PMU that counts time");
    }
}
