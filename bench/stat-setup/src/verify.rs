//! Check that strategies count alike: each one sets the list up around a known amount of work.

use perf_event_open_sys::bindings as perf;

use crate::affinity::Guard;
use crate::list::EventList;
use crate::sys;
use crate::unit::Outcome;

/// Page faults caused on each CPU.
pub const FAULTS: u64 = 64;

/// Causes [`FAULTS`] page faults on each CPU.
///
/// # Errors
/// Errors of mmap.
pub fn plant(cpus: &[u32]) -> std::io::Result<()> {
    let mut guard = Guard::new();
    for &cpu in cpus {
        guard.move_to(cpu);
        sys::fault_pages(FAULTS as usize)?;
    }
    Ok(())
}

/// Result of the check of one strategy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// Events counted on every CPU.
    pub whole: u64,
    /// Events with a known expected count: the planted faults, 0, or their running time.
    pub checked: u64,
    /// Counts that contradict the expectation, at most 20.
    pub problems: Vec<String>,
}

/// Checks the counts of one strategy. `longest_ns`: of the calls that start and read the events.
pub fn check(list: &EventList, outcomes: &[Outcome], cpus: usize, longest_ns: u64) -> Check {
    let mut found = Check::default();
    let planted = FAULTS * cpus as u64;
    for (event, outcome) in list.events.iter().zip(outcomes) {
        let (&Outcome::Counted { value, enabled_ns, running_ns }, Ok(open)) = (outcome, &event.open) else {
            continue;
        };
        found.whole += 1;
        let mut doubts = Vec::new();
        if open.class.never_competes() && running_ns != enabled_ns {
            doubts.push(format!("ran for {running_ns} of {enabled_ns} ns"));
        }
        let software = (open.attr.type_ == perf::PERF_TYPE_SOFTWARE).then_some(open.attr.config);
        let of = |config: u32| software == Some(config.into());
        // The clock and its running time are read some microseconds apart, or as long as a busy host interrupts the call that
        // starts or reads a whole group.
        let slack = running_ns / 20 + (200_000 + 2 * longest_ns) * cpus as u64;
        let faults = of(perf::PERF_COUNT_SW_PAGE_FAULTS) || of(perf::PERF_COUNT_SW_PAGE_FAULTS_MIN);
        let wrong = if faults && open.attr.exclude_user() == 0 {
            Some((value < planted).then(|| format!("{value} faults where {planted} were planted")))
        } else if of(perf::PERF_COUNT_SW_DUMMY) {
            Some((value != 0).then(|| format!("counted {value}, and counts nothing")))
        } else if of(perf::PERF_COUNT_SW_CPU_CLOCK) {
            Some((value.abs_diff(running_ns) > slack).then(|| format!("{value} ns in {running_ns} ns")))
        } else {
            None
        };
        found.checked += u64::from(wrong.is_some());
        doubts.extend(wrong.flatten());
        found.problems.extend(doubts.iter().map(|doubt| format!("{}: {doubt}", event.name)));
    }
    found.problems.truncate(20);
    found
}

/// Returns the events with different outcomes under two strategies, a line for all that differ alike, at most 20.
pub fn differences(list: &EventList, a: &[Outcome], b: &[Outcome]) -> Vec<String> {
    let both = list.events.iter().zip(a.iter().zip(b));
    let differ = both.filter(|(_, (a, b))| std::mem::discriminant(*a) != std::mem::discriminant(*b));
    let mut lines = alike(differ.map(|(event, (a, b))| (event.name.as_str(), format!("{a} against {b}"))));
    lines.truncate(20);
    lines
}

/// Returns a line for all events of which the same is to be said.
pub fn alike<'a>(said: impl Iterator<Item = (&'a str, String)>) -> Vec<String> {
    let mut lines: Vec<(&str, u64, String)> = Vec::new();
    for (name, what) in said {
        match lines.iter_mut().find(|(.., known)| *known == what) {
            Some((_, copies, _)) => *copies += 1,
            None => lines.push((name, 1, what)),
        }
    }
    let line = |(name, copies, what): (&str, u64, String)| match copies {
        1 => format!("{name}: {what}"),
        _ => format!("{name} and {} more: {what}", copies - 1),
    };
    lines.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::{parse::parse, resolve::resolve, sysfs::Sysfs};

    fn counted(value: u64) -> Outcome {
        Outcome::Counted { value, enabled_ns: 1_000_000, running_ns: 1_000_000 }
    }

    #[test]
    fn impossible_counts_are_found() {
        let list =
            resolve(&parse("page-faults,dummy,cpu-clock,minor-faults:k,cs").unwrap(), &mut Sysfs::at("/nonexistent"));
        let good = [counted(130), counted(0), counted(1_000_100), counted(1), counted(5)];
        let check_of = |outcomes: &[Outcome]| check(&list, outcomes, 2, 0);
        let found = check_of(&good);
        assert!(found.problems.is_empty(), "{found:?}");
        assert_eq!((found.whole, found.checked), (5, 3));
        for (at, bad, what) in [
            (0, counted(127), "127 faults"),
            (1, counted(1), "counts nothing"),
            (2, counted(9_000_000), "9000000 ns"),
            (4, Outcome::Counted { value: 5, enabled_ns: 9, running_ns: 8 }, "ran for 8 of 9"),
        ] {
            let mut outcomes = good.to_vec();
            outcomes[at] = bad;
            let found = check_of(&outcomes);
            assert!(found.problems.len() == 1 && found.problems[0].contains(what), "{found:?}");
        }
        // A host that interrupts a call makes no clock wrong.
        let mut late = good.to_vec();
        late[2] = counted(9_000_000);
        assert!(check(&list, &late, 2, 4_000_000).problems.is_empty());
        let mut other = good.to_vec();
        other[4] = Outcome::NotCounted { why: "x".into() };
        assert_eq!(differences(&list, &good, &other), ["cs: counted against <not counted>: x"]);
        other[3] = other[4].clone();
        assert_eq!(differences(&list, &good, &other), ["minor-faults:k and 1 more: counted against <not counted>: x"]);
        assert!(differences(&list, &good, &good).is_empty());
    }
}
