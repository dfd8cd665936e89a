//! The rounds that two arms have in common.

use super::counting::counting;
use super::statistic::Statistic;
use crate::document::{Arm, Experiment, Round};

/// A round of two arms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// Number of the round.
    pub round: u64,
    /// Number of the guests.
    pub guest: u64,
    /// Logarithm of the ratio of the two.
    pub log: f64,
    /// Logarithm of the ratio of the throughput probes beside them, if both have one.
    pub probe: Option<f64>,
}

#[cfg(any(test, feature = "testing"))]
impl Pair {
    /// Creates a round of two synthetic turns.
    #[must_use]
    pub fn of_turns(round: u64, arm: &crate::synthetic::Turn, base: &crate::synthetic::Turn) -> Self {
        let probe = arm.probe.zip(base.probe).map(|(a, b)| a - b);
        Self { round, guest: arm.guest, log: arm.log - base.log, probe }
    }
}

/// Returns the rounds that count in both arms and have the metric, in order.
#[must_use]
pub fn pairs<E: Experiment>(arm: &Arm<E>, base: &Arm<E>, metric: &str, statistic: Statistic) -> Vec<Pair> {
    of_counting(counting(arm, metric, statistic), counting(base, metric, statistic))
}

/// Pairs rounds that are known to count.
pub(crate) fn of_counting(
    arm: impl Iterator<Item = (Round, f64)>,
    base: impl Iterator<Item = (Round, f64)>,
) -> Vec<Pair> {
    let mut others = base.peekable();
    let mut found = Vec::new();
    for (own, a) in arm {
        while others.next_if(|(other, _)| other.index < own.index).is_some() {}
        let Some((other, b)) = others.peek().filter(|(other, _)| other.index == own.index) else { continue };
        if !(a > 0.0 && *b > 0.0) {
            continue;
        }
        let probe = own.probe_ns.zip(other.probe_ns).map(|(a, b)| (a / b).ln());
        found.push(Pair { round: own.index, guest: own.guest, log: (a / b).ln(), probe });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{changed, value};
    use serde_json::json;

    #[test]
    fn rounds_that_one_arm_lacks_are_left_out_of_both() {
        let mut value = value(5, 5, |arm, round| if arm == "reuse" { 2000 + round } else { 1000 });
        crate::fixture::in_guests(&mut value, 2);
        // recreate, reuse, reuse-lazy, floor.
        value["arms"][1]["rounds"]["complete"][1] = json!(false);
        value["arms"][1]["rounds"]["probe_ns"][3] = json!(40_001.0);
        crate::fixture::without_round(&mut value["arms"][3]["rounds"], 0);
        for metric in ["nmi_handler_ns", "pmi_delivery_ns"] {
            let count = value["arms"][3]["metrics"][metric]["count"].as_u64().unwrap();
            value["arms"][3]["metrics"][metric]["count"] = json!(count - 40);
        }
        let count = value["arms"][3]["metrics"]["exit_path_ns"]["count"].as_u64().unwrap();
        value["arms"][3]["metrics"]["exit_path_ns"]["count"] = json!(count - 1);
        // A turn of reuse that was cut short.
        value["arms"][1]["rounds"]["metrics"]["nmi_handler_ns"]["count"][4] = json!(3);
        value["arms"][1]["metrics"]["nmi_handler_ns"]["count"] = json!(5 * 40 - 37);
        let record = changed(value);
        let (reuse, floor) = (record.arm("reuse").unwrap(), record.arm("floor").unwrap());
        let found = pairs(reuse, floor, "nmi_handler_ns", Statistic::P50);
        let rounds: Vec<(u64, u64)> = found.iter().map(|pair| (pair.round, pair.guest)).collect();
        assert_eq!(rounds, [(2, 1), (3, 1)]);
        assert!((found[0].log - 2.002_f64.ln()).abs() < 1e-12);
        assert!((found[1].probe.unwrap() - 2.0_f64.ln()).abs() < 1e-9 && found[0].probe == Some(0.0));
        assert!(pairs(reuse, floor, "rotation_ns", Statistic::P50).is_empty());
    }
}
