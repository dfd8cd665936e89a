//! Agreement of the counts of a guest's set-ups: the purpose of a set-up, besides its cost.

use super::arm::{Arm, ArmKind};
use super::envelope::Document;
use super::guest::EventCount;

/// Spread of scaled counts (count × enabled / running, per time enabled): (largest − smallest) / largest.
///
/// Host work takes time from the guest, which hardware does not count and a clock of the host does. So where a clock stands in, the
/// counts themselves are compared between arms, and elsewhere an event's share of all that its arm counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Agreement {
    /// One event's, between arms whose host events count the same; the event where it is most.
    pub between_arms: Option<f64>,
    /// Between the events of one arm, where all of them count the same clock; the arm where it is most.
    pub between_events: Option<f64>,
    /// Events of an arm that never had a counter, at most.
    pub never_counted: usize,
}

/// From here on a difference is worth a warning: what is scaled is an estimate, and a stand-in's clock stops while others have the
/// CPU, the guest's does not.
pub const DOUBTFUL: f64 = 0.2;

/// Computes (largest − smallest) / largest.
fn spread(rates: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (least, most) =
        rates.into_iter().fold((f64::INFINITY, 0.0_f64), |(least, most), rate| (least.min(rate), most.max(rate)));
    (most > 0.0).then(|| (most - least) / most)
}

fn largest(shares: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    shares.flatten().fold(None, |most, share| Some(most.map_or(share, |most: f64| most.max(share))))
}

impl Agreement {
    /// Computes the agreement of a document's arms; empty where there are no set-ups.
    pub fn of(document: &Document) -> Self {
        let arms: Vec<&Arm> = document.arms.iter().filter(|arm| !arm.own.event_counts.is_empty()).collect();
        let never = |arm: &&Arm| arm.own.event_counts.iter().filter(|event| event.running_ns == 0).count();
        let never_counted = arms.iter().map(never).max().unwrap_or(0);
        if document.parameters.backend.starts_with("tracepoint:") {
            // Its occurrences come in bursts, many of them in the set-ups themselves: no rate is that of a part of the time.
            return Self { never_counted, ..Self::default() };
        }
        // The floor counts the TSC, and so do stand-ins after scaling.
        let stand_in = arms.iter().any(|arm| arm.stand_in);
        let same_events = |arm: &&&Arm| arm.kind == ArmKind::Strategy || stand_in && arm.kind == ArmKind::Floor;
        let compared: Vec<_> = arms.iter().filter(same_events).collect();
        let events = compared.iter().map(|arm| arm.own.event_counts.len()).max().unwrap_or(0);
        let whole = |arm: &Arm| {
            if stand_in { 1.0 } else { arm.own.event_counts.iter().filter_map(EventCount::rate).sum::<f64>() }
        };
        let rates_of = |event: usize| {
            let compared = &compared;
            compared.iter().filter_map(move |arm| Some(arm.own.event_counts.get(event)?.rate()? / whole(arm)))
        };
        let one_clock = arms.iter().filter(|arm| arm.stand_in || arm.kind == ArmKind::Floor);
        Self {
            between_arms: largest((0..events).map(|event| spread(rates_of(event)))),
            between_events: largest(
                one_clock.map(|arm| spread(arm.own.event_counts.iter().filter_map(EventCount::rate))),
            ),
            never_counted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    /// Builds a document whose arms' events count so much in 100 ns.
    fn document(counts: [&[u64]; 3]) -> Document {
        let mut document = fixture::of_strategies(10, &["recreate", "reuse"]);
        let event = |&count: &u64| EventCount { count, enabled_ns: 200, running_ns: 100, scaled: None };
        for (arm, counts) in document.arms.iter_mut().zip(counts) {
            arm.own.event_counts = counts.iter().map(event).collect();
        }
        document
    }

    #[test]
    fn stand_ins_are_compared_with_each_other_and_with_the_floor() {
        let found = Agreement::of(&document([&[200, 190], &[200, 200], &[100, 200]]));
        assert_eq!((found.between_arms, found.between_events, found.never_counted), (Some(0.5), Some(0.5), 0));
    }

    #[test]
    fn hardware_events_are_compared_by_their_shares() {
        // Host work took half of the guest's time in the second arm.
        let mut document = document([&[200, 50], &[100, 25], &[3, 3]]);
        for arm in &mut document.arms {
            arm.stand_in = false;
        }
        let found = Agreement::of(&document);
        assert_eq!(found.between_arms, Some(0.0));
        assert_eq!(found.between_events, Some(0.0), "of the floor alone");
        document.arms[1].own.event_counts[1].count = 50;
        assert!(Agreement::of(&document).between_arms.is_some_and(|share| share > 0.3));
    }

    #[test]
    fn an_event_without_a_counter_has_no_rate() {
        let mut document = document([&[200, 200], &[200, 200], &[200, 200]]);
        document.arms[1].own.event_counts[1] = EventCount { count: 0, enabled_ns: 200, running_ns: 0, scaled: None };
        assert_eq!(
            Agreement::of(&document),
            Agreement { between_arms: Some(0.0), between_events: Some(0.0), never_counted: 1 }
        );
        document.parameters.backend = "tracepoint:kvm/kvm_exit".to_owned();
        assert_eq!(Agreement::of(&document), Agreement { never_counted: 1, ..Agreement::default() });
        assert_eq!(Agreement::of(&fixture::document(10)), Agreement::default());
    }
}
