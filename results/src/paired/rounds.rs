//! The rounds that count, the median of each, and those that two arms have in common.

use crate::document::{Arm, ArmKind, Round};

/// A round of two arms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// Number of the round.
    pub round: u64,
    /// Number of the guests.
    pub guest: u64,
    /// Logarithm of the ratio of the two.
    pub log: f64,
}

/// Returns the rounds that count in both arms and have the metric, in order.
pub fn pairs(arm: &Arm, base: &Arm, metric: &str) -> Vec<Pair> {
    let mut others = counting(base, metric).peekable();
    let pair = |(own, a): (Round, f64)| {
        while others.next_if(|(other, _)| other.index < own.index).is_some() {}
        let (_, b) = others.peek().filter(|(other, _)| other.index == own.index)?;
        (a > 0.0 && *b > 0.0).then(|| Pair { round: own.index, guest: own.guest, log: (a / b).ln() })
    };
    counting(arm, metric).filter_map(pair).collect()
}

/// Returns the fewest samples of a round that counts, given those of all rounds: half of their median.
///
/// A turn that was cut short has a median of few samples, often of those before the first rotation. The measure is the
/// arm's own rounds and not the number asked for: an arm that is too slow for `--samples` within `--time-limit` has
/// such rounds only.
fn fewest(mut counts: Vec<u64>) -> u64 {
    counts.sort_unstable();
    counts.get(counts.len() / 2).map_or(0, |middle| middle.div_ceil(2))
}

/// Returns the rounds of an arm that count and have the metric, with its median, in order.
pub fn counting<'a>(arm: &'a Arm, metric: &str) -> impl Iterator<Item = (Round, f64)> + use<'a> {
    let column = arm.rounds.metrics.get(metric);
    let least = fewest(counts(arm, metric).collect());
    let complete = arm.rounds.iter().filter(|round| round.complete);
    complete.filter_map(move |round| {
        let column = column.filter(|column| column.count.get(round.at).is_some_and(|count| *count >= least.max(1)))?;
        Some((round, column.get(round.at)?.p50 as f64))
    })
}

/// Returns whether so few of an arm's turns are not whole that they are left out of its figures: less than 5 % of its rounds. With more
/// of them the figures are not whole.
pub const fn are_few(bad: usize, rounds: usize) -> bool {
    bad * 20 < rounds
}

/// Returns the number of rounds of an arm that do not count because they have few samples.
pub fn short(arm: &Arm, metric: &str) -> usize {
    let least = fewest(counts(arm, metric).collect());
    counts(arm, metric).filter(|count| *count < least).count()
}

/// Counts the samples of the complete rounds that have the metric.
fn counts(arm: &Arm, metric: &str) -> impl Iterator<Item = u64> {
    let counts = arm.rounds.metrics.get(metric).map_or(&[][..], |column| &column.count);
    let complete = counts.iter().zip(&arm.rounds.complete).filter(|(_, complete)| **complete);
    complete.map(|(count, _)| *count).filter(|count| *count > 0)
}

/// Up to so many strategies each is compared with every one before it; of more, with the one before it.
const ALL_PAIRS: usize = 3;

/// Returns the arms that have the metric, each with one that it is compared with, in the order of the plan: strategies
/// with one another, KVM's own vPMU with each of them, strategies of its host events with it, and each with the floor.
///
/// The list depends on nothing that was measured: pairs chosen by their figures would have intervals that are too narrow.
pub fn in_plan_order<'a>(arms: &'a [Arm], metric: &str) -> Vec<(&'a Arm, &'a Arm)> {
    let measured = || arms.iter().filter(|arm| !arm.rounds.is_empty() && arm.metrics.contains_key(metric));
    let of_kind = |kind: ArmKind| measured().filter(move |arm| arm.kind == kind);
    let (strategies, mut found): (Vec<&Arm>, _) = (of_kind(ArmKind::Strategy).collect(), Vec::new());
    let (below, kvm): (Vec<_>, Vec<_>) = of_kind(ArmKind::Kvm).partition(|arm| arm.is_strategy());
    let mut pair = |own: &[&'a Arm], others: &[&'a Arm]| {
        let reach = if own.len() <= ALL_PAIRS { ALL_PAIRS } else { 1 };
        for (place, arm) in own.iter().enumerate() {
            found.extend(others.iter().chain(&own[place.saturating_sub(reach)..place]).map(|base| (*arm, *base)));
        }
    };
    pair(&strategies, &[]);
    for one in &kvm {
        pair(&[*one], &strategies);
    }
    // Those of KVM's own host events are compared with one another, as strategies are, and with KVM as it is.
    pair(&below, &kvm);
    if let Some(floor) = of_kind(ArmKind::Floor).next() {
        found.extend(strategies.iter().copied().chain(of_kind(ArmKind::Kvm)).map(|arm| (arm, floor)));
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::{self, changed, document, of_strategies, value};

    #[test]
    fn rounds_that_one_arm_lacks_are_left_out_of_both() {
        let mut value = value(5, 5, |arm, round| if arm == "reuse" { 2000 + round } else { 1000 });
        // recreate, reuse, reuse-lazy, floor.
        value["arms"][1]["rounds"]["complete"][1] = json!(false);
        value["arms"][3] = fixture::value(4, 5, |_, _| 1000)["arms"][3].take();
        value["arms"][3]["rounds"]["round"] = json!([1, 2, 3, 4]);
        fixture::in_guests(&mut value, 2);
        // A turn of reuse that was cut short.
        value["arms"][1]["rounds"]["metrics"]["nmi_handler_ns"]["count"][4] = json!(3);
        let record = changed(value);
        let (reuse, floor) = (record.arm("reuse").unwrap(), record.arm("floor").unwrap());
        let found = pairs(reuse, floor, "nmi_handler_ns");
        let rounds: Vec<(u64, u64)> = found.iter().map(|pair| (pair.round, pair.guest)).collect();
        assert_eq!(rounds, [(2, 1), (3, 1)]);
        assert!((found[0].log - 2.002_f64.ln()).abs() < 1e-12);
        assert!(pairs(reuse, floor, "rotation_ns").is_empty());
    }

    #[test]
    fn rounds_of_few_samples_and_incomplete_ones_do_not_count() {
        let mut document = document(9);
        let arm = &mut document.arms[0];
        arm.rounds.complete[2] = false;
        for (round, count) in [(4, 19), (5, 20)] {
            arm.rounds.metrics.get_mut("nmi_handler_ns").unwrap().count[round] = count;
        }
        let found: Vec<u64> = counting(arm, "nmi_handler_ns").map(|(round, _)| round.index).collect();
        assert_eq!(found, [0, 1, 3, 5, 6, 7, 8]);
        assert_eq!((short(arm, "nmi_handler_ns"), short(arm, "pmi_delivery_ns")), (1, 0));
        // All rounds are short: they count.
        arm.rounds.metrics.get_mut("nmi_handler_ns").unwrap().count.fill(3);
        assert_eq!((counting(arm, "nmi_handler_ns").count(), short(arm, "nmi_handler_ns")), (8, 0));
        assert_eq!((fewest(Vec::new()), fewest(vec![1]), fewest(vec![7, 9, 2])), (0, 1, 4));
    }

    #[test]
    fn few_strategies_are_compared_with_all_and_many_with_the_one_before() {
        let pairs = |strategies: &[&str]| -> Vec<String> {
            let document = of_strategies(5, strategies);
            let found = in_plan_order(&document.arms, "nmi_handler_ns");
            found.iter().map(|(arm, base)| format!("{} {}", arm.name, base.name)).collect()
        };
        assert_eq!(pairs(&["a", "b", "c"]), ["b a", "c a", "c b", "a floor", "b floor", "c floor"]);
        assert_eq!(pairs(&["a", "b", "c", "d"])[..4], ["b a", "c b", "d c", "a floor"]);
        assert!(in_plan_order(&of_strategies(5, &["a"]).arms, "rotation_ns").is_empty());
        let mut document = of_strategies(5, &["a", "b", "c", "kvm"]);
        document.arms[3].kind = ArmKind::Kvm;
        let found = in_plan_order(&document.arms, "nmi_handler_ns");
        assert_eq!((found.len(), &*found[3].0.name, &*found[5].1.name, &*found[9].1.name), (10, "kvm", "c", "floor"));
        for (place, name) in ["a", "kvm:stock", "kvm:recreate", "kvm"].into_iter().enumerate() {
            name.clone_into(&mut document.arms[place].name);
            document.arms[place].kind = if place == 0 { ArmKind::Strategy } else { ArmKind::Kvm };
        }
        let found = in_plan_order(&document.arms, "nmi_handler_ns");
        let pairs: Vec<_> = found.iter().map(|(arm, base)| format!("{} {}", arm.name, base.name)).collect();
        let [of_kvm, with_floor] = [&pairs[..4], &pairs[4..]];
        assert_eq!(of_kvm, ["kvm a", "kvm:stock kvm", "kvm:recreate kvm", "kvm:recreate kvm:stock"]);
        assert!(with_floor.len() == 4 && with_floor.iter().all(|pair| pair.ends_with(" floor")), "{pairs:?}");
    }
}
