//! Verdicts of the cases, and how they are shown: TAP 14, or JSON.
//!
//! No line holds a time, a count or an address that could differ from host to host: for one backend the lines of two
//! hosts are equal.

use std::fmt::Write as _;

use arch_pmu::caps::PmuCaps;
use arch_pmu::spec::Vendor;
use guest::abi::{CONFORMANCE_FAIL, CONFORMANCE_PASS, CONFORMANCE_SKIP, ConformanceReport};
use serde::Serialize;
use vmm::machine::Cpu;
use vmm::outcome::End;

use super::cases::{Case, cases, skip_reason};
use results::error::one_line;
use results::table::layout::plural;

/// Result of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
        /// Line of the payload's source.
        line: u64,
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
    /// Returns its cases, and the payload's number of the first.
    pub fn cases(self) -> (&'static [Case], usize) {
        cases(self.cpu.vendor() == Vendor::Amd)
    }

    /// Returns the PMU's version: 1 and 2 of an AMD are its PMU without and with PerfMonV2.
    fn pmu_version(self) -> u8 {
        match self.cpu.pmu_of_version(self.version) {
            PmuCaps::Intel(caps) => caps.version,
            PmuCaps::Amd(caps) => caps.version(),
        }
    }

    fn name(self) -> String {
        match self.cpu {
            Cpu::CascadeLake => format!("version {}", self.version),
            Cpu::Generic => format!("generic, version {}", self.version),
            Cpu::Milan | Cpu::Genoa => self.cpu.name().to_owned(),
        }
    }
}

/// One run of the payload.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The guest's processor, and the architectural version of its PMU if it is an Intel's.
    #[serde(skip)]
    pub guest: Checked,
    /// The strategy's name.
    pub strategy: String,
    /// Verdicts, by case number.
    pub verdicts: Vec<Verdict>,
}

/// Returns the last line: how many cases of all runs passed, failed, and were skipped.
pub fn summary(runs: &[Run]) -> String {
    let all = || runs.iter().flat_map(|run| &run.verdicts);
    let skipped = all().filter(|verdict| matches!(verdict, Verdict::Skip { .. })).count();
    let failed = all().filter(|verdict| !verdict.is_ok()).count();
    let passed = all().count() - skipped - failed;
    format!("# {passed} passed, {failed} failed, {skipped} skipped, in {}\n", plural(runs.len(), "run"))
}

impl Run {
    /// Judges the report of a run, which comes from the guest and may hold anything.
    pub fn new(guest: Checked, strategy: &str, end: &End, report: Option<&ConformanceReport>) -> Self {
        let ended = one_line(&end.to_string());
        let whole = end.is_complete() && report.is_some_and(|report| report.complete == 1);
        let (cases, first) = guest.cases();
        let verdict = |number: usize| {
            let Some(report) = report else { return Verdict::NotRun { why: ended.clone() } };
            let result = report.results[number];
            if !whole && report.running == number as u64 + 1 && result.outcome != CONFORMANCE_FAIL {
                return Verdict::NotRun { why: format!("the run ended in this case: {ended}") };
            }
            match result.outcome {
                CONFORMANCE_PASS => Verdict::Pass,
                CONFORMANCE_SKIP => Verdict::Skip { reason: skip_reason(result.got) },
                CONFORMANCE_FAIL => Verdict::Fail { expected: result.expected, got: result.got, line: result.line },
                0 => Verdict::NotRun { why: ended.clone() },
                other => Verdict::NotRun { why: format!("the guest gave an unknown outcome {other:#x}") },
            }
        };
        Self { guest, strategy: strategy.to_owned(), verdicts: (first..first + cases.len()).map(verdict).collect() }
    }

    /// Returns whether every case is ok.
    pub fn is_ok(&self) -> bool {
        self.verdicts.iter().all(Verdict::is_ok)
    }

    fn name(&self) -> String {
        format!("{}, {}", self.guest.name(), self.strategy)
    }

    /// Formats the run as a subtest of a TAP 14 stream, number `number` in it.
    pub fn tap(&self, number: usize) -> String {
        let mut tap = format!("# Subtest: {}\n    1..{}\n", self.name(), self.verdicts.len());
        let (cases, first) = self.guest.cases();
        for (i, (case, verdict)) in cases.iter().zip(&self.verdicts).enumerate() {
            let ok = if verdict.is_ok() { "ok" } else { "not ok" };
            let pitfalls: String = case.pitfalls.iter().flat_map(|n| [", pitfall ", n]).collect();
            let commit = case.source.bytes().all(|byte| byte.is_ascii_hexdigit());
            let source = if commit || case.source.starts_with("Linux") || case.source.starts_with("PPR") {
                case.source.to_owned()
            } else {
                format!("{} {}", if first == 0 { "SDM" } else { "APM" }, case.source)
            };
            let _ = write!(tap, "    {ok} {} - {}: {} ({source}{pitfalls})", i + 1, case.key, case.claim);
            match verdict {
                Verdict::Pass => tap.push('\n'),
                Verdict::Skip { reason } => {
                    let _ = writeln!(tap, " # SKIP {reason}");
                }
                Verdict::Fail { expected, got, line } => {
                    let _ = writeln!(
                        tap,
                        "\n      ---\n      expected: {expected:#x}\n      got: {got:#x}\n      line: {line}\n      ..."
                    );
                }
                Verdict::NotRun { why } => {
                    let why = why.replace('\'', "''");
                    let _ = writeln!(tap, "\n      ---\n      not run: '{why}'\n      ...");
                }
            }
        }
        let ok = if self.is_ok() { "ok" } else { "not ok" };
        let _ = writeln!(tap, "{ok} {number} - {}", self.name());
        tap
    }
}

/// Formats all runs as one document, `"schema": "vpmu-conformance/1"`.
pub fn json(backend: &str, runs: &[Run]) -> Result<String, serde_json::Error> {
    #[derive(Serialize)]
    struct CaseJson<'a> {
        case: &'static str,
        #[serde(flatten)]
        verdict: &'a Verdict,
    }
    let runs: Vec<_> = runs
        .iter()
        .map(|run| {
            let all = run.guest.cases().0.iter().zip(&run.verdicts);
            let cases: Vec<_> = all.map(|(case, verdict)| CaseJson { case: case.key, verdict }).collect();
            serde_json::json!({
                "cpu": run.guest.cpu.name(), "pmu_version": run.guest.pmu_version(), "strategy": run.strategy, "ok": run.is_ok(), "cases": cases,
            })
        })
        .collect();
    serde_json::to_string_pretty(&serde_json::json!({
        "schema": "vpmu-conformance/1", "version": crate::setting::process::VERSION, "backend": backend, "runs": runs,
    }))
}

#[cfg(test)]
mod tests {
    use guest::abi::{AMD_CASES_FROM, CONFORMANCE_MAGIC, ConformanceResult, SKIP_NEEDS_V4};

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
        report.results[3] = ConformanceResult { outcome: CONFORMANCE_SKIP, got: SKIP_NEEDS_V4, ..report.results[3] };
        let run = Run::new(V2, "reuse", &End::Done, Some(&report));
        assert!(run.is_ok());
        let tap = run.tap(1);
        let begin = format!("# Subtest: version 2, reuse\n    1..{AMD_CASES_FROM}\n    ok 1 - reset: ");
        assert!(tap.starts_with(&begin), "{tap}");
        assert!(tap.contains(" # SKIP needs a version 4 PMU\n"));
        assert!(tap.ends_with("\nok 1 - version 2, reuse\n"));
        assert_eq!(tap.lines().count(), 3 + AMD_CASES_FROM);
    }

    #[test]
    fn a_failure_says_what_was_expected() {
        let mut report = report();
        report.results[0] = ConformanceResult { outcome: CONFORMANCE_FAIL, line: 7, expected: 0xf, got: 0 };
        let run = Run::new(Checked { version: 4, ..V2 }, "pool", &End::Done, Some(&report));
        let tap = run.tap(2);
        assert!(!run.is_ok() && tap.contains("    not ok 1 - reset"), "{tap}");
        assert!(tap.contains("      ---\n      expected: 0xf\n      got: 0x0\n      line: 7\n      ...\n"));
        assert!(tap.ends_with("not ok 2 - version 4, pool\n"));
        let count = |wanted: fn(&Verdict) -> bool| run.verdicts.iter().filter(|verdict| wanted(verdict)).count();
        let (passed, skipped) = (count(|v| *v == Verdict::Pass), count(|v| matches!(v, Verdict::Skip { .. })));
        assert_eq!(passed + 1 + skipped, AMD_CASES_FROM);
        let line = format!("# {passed} passed, 1 failed, {skipped} skipped, in 1 run\n");
        assert_eq!(summary(std::slice::from_ref(&run)), line);
    }

    #[test]
    fn what_did_not_run_is_not_ok() {
        let mut cut = report();
        (cut.complete, cut.running) = (0, 5);
        cut.results[5..].fill(ConformanceResult::default());
        let run = Run::new(V2, "reuse", &End::TimedOut, Some(&cut));
        assert_eq!(run.verdicts[3], Verdict::Pass);
        assert_eq!(
            run.verdicts[4],
            Verdict::NotRun { why: "the run ended in this case: the time limit passed".into() }
        );
        assert!(matches!(run.verdicts[5], Verdict::NotRun { .. }) && !run.is_ok());
        let none = Run::new(V2, "reuse", &End::TripleFault, None);
        assert!(none.verdicts.iter().all(|verdict| !verdict.is_ok()));
        let mut hostile = report();
        hostile.results[9].outcome = u64::MAX;
        assert!(!Run::new(V2, "reuse", &End::Done, Some(&hostile)).is_ok());
    }

    #[test]
    fn an_amd_has_cases_of_its_own() {
        let mut report = report();
        report.results[..AMD_CASES_FROM].fill(ConformanceResult::default());
        let run = Run::new(Checked { cpu: Cpu::Milan, ..V2 }, "reuse", &End::Done, Some(&report));
        assert!(run.is_ok(), "the others' cases do not run");
        let tap = run.tap(1);
        let begin = format!("# Subtest: milan, reuse\n    1..{}\n    ok 1 - amd-reset: ", cases(true).0.len());
        assert!(tap.starts_with(&begin) && tap.contains("(APM 13.2.1"), "{tap}");
        let value: serde_json::Value = serde_json::from_str(&json("step", &[run]).unwrap()).unwrap();
        assert_eq!((&value["runs"][0]["cpu"], &value["runs"][0]["pmu_version"]), (&"milan".into(), &1.into()));
        assert_eq!(value["runs"][0]["cases"][5]["case"], "amd-aliases");
    }
}
