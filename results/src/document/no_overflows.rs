//! Sampling without a single overflow: the likely cause, and what helps.

use super::arm::{Arm, ArmKind};
use super::envelope::{Document, Warning};
use crate::metric::{NMI_HANDLER, ROTATION};

/// Code of the warning of arms that no counter overflowed in.
pub const NO_OVERFLOWS: &str = "no-overflows";
/// Code of the warning of an arm whose guest gets no period whole.
pub const LIVELOCK: &str = "livelock";

/// Warns of each arm that livelocks, else of all arms if none had an overflow, else of each that had none.
pub(super) fn of(document: &Document) -> Vec<Warning> {
    if document.parameters.events.iter().all(|event| event.period == 0) {
        return Vec::new();
    }
    let sampled = |arm: &&Arm| arm.kind == ArmKind::Strategy && arm.rounds.complete.contains(&true);
    let arms: Vec<&Arm> = document.arms.iter().filter(sampled).collect();
    let silent: Vec<&Arm> = arms.iter().copied().filter(|arm| arm.own.counts.overflows == 0).collect();
    let tick = document.parameters.mux_interval_ns;
    // A handler that finds the driver off is no figure either.
    let stuck = arms.iter().filter(|arm| arm.own.counts.overflows == 0 || arm.metric(&NMI_HANDLER).is_none());
    let mut found: Vec<Warning> = stuck.filter_map(|arm| livelock(arm, tick)).collect();
    if !silent.is_empty() && silent.len() == arms.len() && found.is_empty() {
        found.push(Warning::of_all(NO_OVERFLOWS, nothing(document)));
    } else {
        let others = silent.iter().filter(|arm| livelock(arm, tick).is_none());
        found.extend(others.map(|arm| {
            let message = "no overflow, where other arms had some: its events count too slowly, or not at all; \
                           raise --time-limit, or lower --period";
            Warning { arm: Some(arm.name.clone()), ..Warning::of_all(NO_OVERFLOWS, message) }
        }));
    }
    found
}

/// Warns of an arm whose every tick restarts the periods: where a restart takes longer than a tick no period is ever whole.
fn livelock(arm: &Arm, tick: u64) -> Option<Warning> {
    let restart = arm.metric(&ROTATION).map(|rotation| rotation.p50).filter(|&p50| p50 >= tick)?;
    let message = format!(
        "livelock: to stop and restart its events takes {}, a tick is {}, so no period is ever whole, and it has no figure; \
         raise --mux-interval",
        ms(restart),
        ms(tick)
    );
    Some(Warning { arm: Some(arm.name.clone()), ..Warning::of_all(LIVELOCK, message) })
}

fn ms(ns: u64) -> String {
    format!("{:.1} ms", ns as f64 / 1e6)
}

fn nothing(document: &Document) -> String {
    let parameters = &document.parameters;
    let limit = ms(parameters.time_limit_ns);
    let period = parameters.period;
    if parameters.backend.starts_with("tracepoint:") {
        let workload = &parameters.workload;
        let backend = &parameters.backend;
        format!(
            "no overflow in any arm: {backend} occurs fewer than {period} times in {limit} of {workload}; lower --period, \
             or take work that causes it (--workload io for VM exits)"
        )
    } else {
        format!(
            "no overflow in any arm: --period {period} is longer than --time-limit {limit}; lower it or raise the limit"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Summary, latency_histogram};
    use crate::fixture;

    fn without(silent: &[&str]) -> Document {
        let mut document = fixture::document(2);
        for arm in &mut document.arms {
            arm.own.counts.overflows = u64::from(!silent.contains(&arm.name.as_str()));
        }
        document
    }

    fn lines(document: &Document) -> Vec<String> {
        of(document).into_iter().map(|found| format!("{}: {}", found.code, found.message)).collect()
    }

    #[test]
    fn arms_with_overflows_are_fine_and_counting_needs_none() {
        assert!(lines(&without(&[])).is_empty());
        let mut document = without(&["recreate"]);
        for event in &mut document.parameters.events {
            event.period = 0;
        }
        assert!(lines(&document).is_empty());
    }

    #[test]
    fn no_overflow_at_all_is_one_line_with_a_cause() {
        let mut document = without(&["recreate", "reuse", "reuse-lazy"]);
        let [line] = &lines(&document)[..] else { panic!() };
        assert!(line.starts_with("no-overflows: ") && line.contains("--time-limit"), "{line}");
        document.parameters.backend = "tracepoint:kvm/kvm_exit".to_owned();
        assert!(lines(&document)[0].contains("--workload io"));
    }

    #[test]
    fn one_arm_without_overflows_is_named_and_a_livelock_said() {
        let mut document = without(&["recreate"]);
        assert_eq!(of(&document)[0].arm.as_deref(), Some("recreate"));
        assert!(lines(&document)[0].contains("other arms had some"));
        let mut times = latency_histogram();
        times.record(20_000_000).unwrap();
        document.arms[0].metrics.insert(ROTATION.key.to_owned(), Summary::of(&times).unwrap());
        let lines_of = lines(&document);
        let [line] = &lines_of[..] else { panic!() };
        assert!(line.contains("livelock: ") && line.contains("20.0 ms") && line.contains("--mux-interval"), "{line}");
        // A few overflows that met the driver switched off are no figure.
        document.arms[0].own.counts.overflows = 14;
        assert!(lines(&document).is_empty());
        document.arms[0].metrics.remove(NMI_HANDLER.key);
        assert_eq!(&lines(&document)[0], line);
    }
}
