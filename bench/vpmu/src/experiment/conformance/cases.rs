//! The cases, by the number the payload gives them.

use std::sync::LazyLock;

use guest::abi::{AMD_CASES_FROM, CONFORMANCE_CASES};

/// A case of the conformance payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Its stable name.
    pub key: &'static str,
    /// Statement that holds if the case passes.
    pub claim: &'static str,
    /// Source of the rule.
    pub source: &'static str,
    /// Numbers in `docs/pitfalls.md` of the bugs it would show.
    pub pitfalls: Vec<&'static str>,
}

static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| {
    let lines = include_str!("cases.txt").lines().filter(|line| !line.starts_with('#'));
    let field = |line: &'static str, at| line.split(" | ").nth(at).unwrap_or_default();
    lines
        .map(|line| Case {
            key: field(line, 0),
            claim: field(line, 1),
            source: field(line, 2),
            pitfalls: field(line, 3).split_whitespace().collect(),
        })
        .collect()
});

/// Returns the cases of an Intel's PMU or an AMD's, and the payload's number of the first.
pub fn cases(amd: bool) -> (&'static [Case], usize) {
    let (first, end) = if amd { (AMD_CASES_FROM, CONFORMANCE_CASES) } else { (0, AMD_CASES_FROM) };
    (&CASES[first..end], first)
}

/// Returns the reason why the payload skipped a case.
pub fn skip_reason(code: u64) -> &'static str {
    match code {
        guest::abi::SKIP_STAND_IN => "needs backend step or hardware: a stand-in counts something else",
        guest::abi::SKIP_NEEDS_STEP => "needs backend step: only it is exact to the instruction",
        guest::abi::SKIP_STEP_CYCLES => "backend step knows no cycles",
        guest::abi::SKIP_NEEDS_V4 => "needs a version 4 PMU",
        guest::abi::SKIP_NEEDS_V2 => "needs a PMU below version 4",
        guest::abi::SKIP_NEEDS_PERFMON_V2 => "needs PerfMonV2",
        guest::abi::SKIP_NEEDS_CORE => "needs a PMU without PerfMonV2",
        _ => "the guest gave no reason this tool knows",
    }
}

#[cfg(test)]
mod tests {
    use guest::abi::CONFORMANCE_CASES;

    use super::*;

    /// The payload numbers its cases by their order in these files' tables.
    const TABLES: [&str; 6] = [
        include_str!("../../../../../guest/payload/c/conformance_registers.c"),
        include_str!("../../../../../guest/payload/c/conformance_counting.c"),
        include_str!("../../../../../guest/payload/c/conformance_overflow.c"),
        include_str!("../../../../../guest/payload/c/conformance_delivery.c"),
        include_str!("../../../../../guest/payload/c/conformance_amd.c"),
        include_str!("../../../../../guest/payload/c/conformance_amd_overflow.c"),
    ];

    /// The landmarks stand where the payload has them.
    #[test]
    fn the_table_follows_the_payload() {
        let tables =
            TABLES.iter().map(|text| text.split("cases[])(void) = {").nth(1).unwrap().split('}').next().unwrap());
        let bodies: Vec<_> = tables.flat_map(|table| table.split([',', '\n'])).map(str::trim).collect();
        let bodies: Vec<_> = bodies.into_iter().filter(|body| !body.is_empty()).collect();
        assert_eq!(bodies.len(), CASES.len());
        let first = |body: &str| bodies.iter().position(|found| *found == body).unwrap();
        let last = |body: &str| bodies.iter().rposition(|found| *found == body).unwrap();
        for (number, key) in [
            (first("reset"), "reset"),
            (first("rdpmc_of_no_counter"), "rdpmc"),
            (first("growth"), "growth"),
            (first("aliases"), "aliases"),
            (first("count_fixed_rings"), "fixed-rings"),
            (first("sampling"), "sampling"),
            (first("pmi_is_exact"), "pmi-exact"),
            (first("hlt_is_woken"), "pmi-wakes-hlt"),
            (first("masked_does_not_freeze"), "no-pmi-no-freeze"),
            (last("reset"), "amd-reset"),
            (last("not_frozen"), "amd-not-frozen"),
        ] {
            assert_eq!(CASES[number].key, key);
        }
    }

    #[test]
    fn every_case_is_there_once_and_its_line_needs_no_escaping() {
        assert_eq!(CASES.len(), CONFORMANCE_CASES);
        for (number, case) in CASES.iter().enumerate() {
            assert!(CASES[..number].iter().all(|other| other.key != case.key), "{}", case.key);
            for text in [case.key, case.claim, case.source] {
                assert!(!text.is_empty() && !text.contains(['#', '\\', '\n']), "{text}");
            }
            assert!(case.pitfalls.iter().all(|n| (1..=30).contains(&n.parse().unwrap_or(0))), "{}", case.key);
        }
    }

    #[test]
    fn every_reason_the_payload_gives_is_known() {
        let codes = guest::abi::conformance::CONSTANTS.iter().filter(|(name, _)| name.starts_with("SKIP_"));
        for (name, code) in codes {
            assert!(!skip_reason(*code).contains("no reason"), "{name}");
        }
    }
}
