//! Lists the pairs of arms of a run that are compared: one list for the tables, the report and `--until-ci`.

use crate::document::{Arm, ArmKind, Experiment};

/// Up to so many strategies each is compared with every one before it; of more, with the one before it.
const ALL_PAIRS: usize = 3;

/// Returns the arms that have the metric, each with one that it is compared with, in the order of the plan: strategies with one another,
/// KVM's own vPMU with each of them, and each with the floor.
///
/// The list depends on nothing that was measured: pairs chosen by their figures would have intervals that are too narrow.
#[must_use]
pub fn in_plan_order<'a, E: Experiment>(arms: &'a [Arm<E>], metric: &str) -> Vec<(&'a Arm<E>, &'a Arm<E>)> {
    let measured = || arms.iter().filter(|arm| !arm.rounds.is_empty() && arm.metrics.contains_key(metric));
    let of_kind = |kind: ArmKind| measured().filter(move |arm| arm.kind == kind);
    let strategies: Vec<&Arm<E>> = of_kind(ArmKind::Strategy).collect();
    let reach = if strategies.len() <= ALL_PAIRS { ALL_PAIRS } else { 1 };
    let mut found = Vec::new();
    for (place, arm) in strategies.iter().enumerate() {
        found.extend(strategies[place.saturating_sub(reach)..place].iter().map(|base| (*arm, *base)));
    }
    found.extend(of_kind(ArmKind::Kvm).flat_map(|kvm| strategies.iter().map(move |base| (kvm, *base))));
    if let Some(floor) = of_kind(ArmKind::Floor).next() {
        found.extend(strategies.iter().copied().chain(of_kind(ArmKind::Kvm)).map(|arm| (arm, floor)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::of_strategies;

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
    }
}
