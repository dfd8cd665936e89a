//! Events that a guest may select, and what each backend has behind them.

use std::collections::BTreeMap;

use arch_pmu::amd::PerfCtl;
use arch_pmu::intel::PerfEvtSel;
use arch_pmu::spec::{Source, Spec};
use host_pmu::backend::BackendKey;
use host_pmu::backend::encoding::{CountedAs, counted_as};
use serde::Serialize;

/// USR, OS, INT and EN of a selector.
const SAMPLED: u64 = 0x53_0000;

/// An event by its names: perf's, and those of the vendors' manuals (SDM vol. 3, 21.2.1.2; PPR, "Core Performance
/// Monitor Counters").
struct Row {
    name: &'static str,
    about: &'static str,
    /// umask << 8 | event.
    intel: Option<u64>,
    amd: Option<u64>,
    fixed: Option<u8>,
}

const fn row(name: &'static str, about: &'static str, intel: Option<u64>, amd: Option<u64>, fixed: Option<u8>) -> Row {
    Row { name, about, intel, amd, fixed }
}

const TABLE: [Row; 9] = [
    row("cycles", "core cycles while not halted", Some(0x003c), Some(0x0076), Some(1)),
    row("instructions", "retired instructions", Some(0x00c0), Some(0x00c0), Some(0)),
    row("ref-cycles", "reference cycles while not halted", Some(0x013c), None, Some(2)),
    row("slots", "issue slots of the pipeline (TOPDOWN.SLOTS)", Some(0x01a4), None, Some(3)),
    row("cache-references", "references to the last level of cache", Some(0x4f2e), Some(0xff60), None),
    row("cache-misses", "misses of the last level of cache", Some(0x412e), Some(0x0964), None),
    row("branches", "retired branches", Some(0x00c4), Some(0x00c2), None),
    row("branch-misses", "retired branches that were mispredicted", Some(0x00c5), Some(0x00c3), None),
    row("branches-taken", "retired branches that were taken", Some(0x20c4), Some(0x00c4), None),
];

/// An event that a guest may select.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GuestEvent {
    /// perf's name, where it has one.
    pub name: &'static str,
    /// Description of the event.
    pub about: &'static str,
    /// Unit mask and event of IA32_PERFEVTSELx, hexadecimal.
    pub intel: Option<String>,
    /// Selector in PERF_CTLx.
    pub amd: Option<String>,
    /// Its fixed counter on Intel's processors.
    pub fixed_counter: Option<u8>,
    /// For each backend that counts events themselves, `itself` or the reason why it cannot.
    pub behind: BTreeMap<&'static str, String>,
}

/// Backends that count the event that the guest selects; all others stand in for it.
pub const EXACT: [&str; 2] = ["hardware", "step"];

/// Lists events with such names, for this host.
pub fn events(named: impl Fn(&str) -> bool) -> Vec<GuestEvent> {
    TABLE.iter().filter(|row| named(row.name)).map(event).collect()
}

/// Returns their names.
pub fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|row| row.name)
}

fn event(row: &Row) -> GuestEvent {
    let specs = [
        row.intel.map(|code| PerfEvtSel::from_bits(SAMPLED | code).spec()),
        row.amd.map(|code| PerfCtl::from_bits(SAMPLED | code).spec()),
        row.fixed.map(|index| Spec(Source::Fixed { index, control: 0xb })),
    ];
    let behind = [BackendKey::Hardware, BackendKey::Step].into_iter().zip(EXACT).map(|(key, name)| {
        let answers: Vec<_> = specs.iter().flatten().map(|&spec| counted_as(&key, spec)).collect();
        (name, said(&answers))
    });
    let code = |code: u64| format!("{code:#06x}");
    GuestEvent {
        name: row.name,
        about: row.about,
        intel: row.intel.map(code),
        amd: row.amd.map(code),
        fixed_counter: row.fixed,
        behind: behind.collect(),
    }
}

/// Returns the answer of several encodings; one that counts suffices, because the guest's processor decides which it uses.
fn said(answers: &[CountedAs]) -> String {
    if answers.contains(&CountedAs::Itself) {
        return "itself".to_owned();
    }
    let why = answers.iter().find_map(|answer| match answer {
        CountedAs::Nothing(why) => Some(why.clone()),
        CountedAs::Itself | CountedAs::StandIn => None,
    });
    why.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_count_instructions_and_branches_and_say_so_of_others() {
        let events = events(|_| true);
        let step = |name: &str| events.iter().find(|event| event.name == name).unwrap().behind["step"].clone();
        for name in ["instructions", "branches", "branches-taken"] {
            assert_eq!(step(name), "itself", "{name}");
        }
        for name in ["cycles", "ref-cycles", "cache-misses", "branch-misses", "slots"] {
            assert!(step(name).contains("stays at 0"), "{name}");
        }
    }

    #[test]
    fn every_event_has_an_encoding_and_a_line() {
        let events = events(|_| true);
        assert!(names().eq(events.iter().map(|event| event.name)));
        for event in &events {
            assert!(event.intel.is_some() && !event.about.is_empty() && event.behind.len() == EXACT.len(), "{event:?}");
        }
        assert_eq!((events[0].intel.as_deref(), events[0].amd.as_deref()), (Some("0x003c"), Some("0x0076")));
    }
}
