//! `reproduce`: published figures on vPMUs and on `perf stat`'s set-up beside simulated and measured ones.

pub mod measure;
pub mod published;
pub mod recipe;
mod recording;
pub mod run;
pub mod show;

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::published::{Reproduction, Row};
    use super::recipe::recipe;
    use super::run;
    use crate::arms::rounds::mock;
    use results::document::{Document, Summary};
    use results::metric::{NMI_DRIVER_OFF, NMI_HANDLER};
    use sim::model::{Number, Origin};

    /// Simulated once for all tests.
    static SIMULATED: LazyLock<Reproduction> = LazyLock::new(|| run::simulated(1).unwrap());

    /// Published numbers that constants of a model were fitted to, from the model's own text.
    fn fitted_from(model: &str) -> Vec<(String, String)> {
        let text = sim::model::Model::text(model).unwrap();
        let table: toml::Table = text.parse().unwrap();
        let text = |entry: &toml::Value, key: &str| entry[key].as_str().unwrap().to_owned();
        // A model with a base has its base's.
        let all = table.get("fitted").into_iter().flat_map(|all| all.as_array().unwrap());
        all.map(|entry| (text(entry, "constant"), text(entry, "figure"))).collect()
    }

    #[test]
    fn origins_agree_with_the_models_lists_of_what_they_were_fitted_to() {
        let rows =
            || SIMULATED.rows.iter().filter(|row| recipe(&row.figure).is_some_and(|recipe| recipe.run.is_none()));
        let name = |row: &Row| format!("{} {}", row.figure, row.number.key());
        let mut listed = 0;
        // A model that no row simulates may be fitted to the same numbers.
        let simulates = |model: &&str| rows().any(|row| row.model == *model);
        for model in sim::model::EMBEDDED.iter().map(|(model, _)| *model).filter(simulates) {
            for (constant, figure) in fitted_from(model) {
                let fitted =
                    rows().find(|row| name(row) == figure).unwrap_or_else(|| panic!("{figure} is not published"));
                let is = matches!(&fitted.origin, Origin::Fitted(all) if all.contains(&constant));
                assert!(is && fitted.model == model, "{constant} of {model}: {fitted:?}");
                listed += 1;
            }
        }
        assert_eq!(listed, 5);
        // What is the simulation of another number is no prediction.
        for row in rows().filter(|row| row.origin == Origin::Predicted) {
            let is_twin = |other: &&Row| (&other.model, other.number) == (&row.model, row.number);
            let twin =
                rows().filter(is_twin).find(|other| other.figure != row.figure && other.simulated == row.simulated);
            assert!(twin.is_none(), "{row:?} is the simulation of {twin:?}");
        }
    }

    #[test]
    fn measured_means_and_minima_are_of_all_nmis_as_published() {
        let mut document = mock::finished(&["--workload", "single"]);
        document.parameters.backend = "tracepoint:kvm/kvm_exit".to_owned();
        let number = |document: &Document, figure: &str| {
            recipe(figure).unwrap().of(document, Number::After).map(|found| found.value)
        };
        let before =
            ["vpmu-reuse.watchdog-off.mean", "vpmu-reuse.watchdog-off.min"].map(|figure| number(&document, figure));
        let arm = &mut document.arms[2];
        assert_eq!(arm.name, "reuse-lazy");
        let count = arm.metric(&NMI_HANDLER).unwrap().count;
        arm.own.counts.nmis_driver_off = count;
        assert_eq!(number(&document, "vpmu-reuse.watchdog-off.min"), None, "their latency is unknown");
        let driver_off = Summary { count, min: Some(50), mean: Some(70.0), ..Summary::default() };
        document.arms[2].metrics.insert(NMI_DRIVER_OFF.key.to_owned(), driver_off);
        assert_eq!(number(&document, "vpmu-reuse.watchdog-off.min"), Some(50.0));
        assert_eq!(number(&document, "vpmu-reuse.watchdog-off.mean"), before[0].map(|mean| mean.midpoint(70.0)));
        assert!(before[1] > Some(50.0));
    }

    #[test]
    fn creations_in_a_burst_are_less_sure_than_as_many_in_all_rounds() {
        let document = mock::finished(&["--workload", "sampling10"]);
        let width = |created: &dyn Fn(usize) -> u64| {
            let mut document = document.clone();
            for arm in document.arms.iter_mut().filter(|arm| ["recreate", "reuse-lazy"].contains(&arm.name.as_str())) {
                let of = |at| if arm.name == "recreate" { 1000 } else { created(at) };
                let rounds = arm.rounds.len();
                let counts = &mut arm.rounds.counts;
                (counts.opens, counts.nmis) = ((0..rounds).map(of).collect(), vec![1000; rounds]);
                counts.opens_fixed.clone_from(&counts.opens);
                arm.own.counts.opens_fixed = counts.opens.iter().sum();
                arm.own.counts.nmis = 1000 * rounds as u64;
            }
            let figure = "vpmu-reuse.creates.fixed";
            let found = recipe(figure).unwrap().of(&document, Number::Change).unwrap();
            found.interval.map(|interval| (found.value, interval.high - interval.low))
        };
        let rounds = document.arms.iter().find(|arm| arm.name == "recreate").unwrap().rounds.len() as u64;
        let (even, burst) = (width(&|_| 10).unwrap(), width(&|at| if at == 1 { 10 * rounds } else { 0 }).unwrap());
        assert!((even.0 - burst.0).abs() < 1e-9 && even.1 < 0.01 && burst.1 > 1.0, "{even:?} {burst:?}");
    }
}
