//! Answers: each arm of a run beside the floor or the first arm, as its table gives them and its document keeps them; and the keys that
//! every command's JSON has.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::choice::livelocks;
use crate::document::warnings::{NO_OVERFLOWS, UNSURE};
use crate::document::{Answer, Arm, ArmKind, Document, Experiment, Parameters, Status};
use crate::error::{Error, Exit};
use crate::metric::{HOST_WORK, Metric, NMI_HANDLER, ROTATION, SET_UP};
use crate::paired::{self, Ratio};

/// The metric that a run of guests is about.
pub fn metric(parameters: &Parameters) -> &'static Metric {
    if parameters.set_up.is_some() {
        &SET_UP
    } else if parameters.is_replayed() {
        &HOST_WORK
    } else if parameters.samples_events() {
        &NMI_HANDLER
    } else {
        &ROTATION
    }
}

/// The answers of a document by its metric, in the order of its arms; an arm without rounds that count has none.
pub fn of<E: Experiment>(document: &Document<E>, metric: &str) -> Vec<Answer> {
    over(document, metric, document.base())
}

/// The answers of a document beside another arm than the floor or the first.
pub fn over<E: Experiment>(document: &Document<E>, metric: &str, base: Option<&Arm>) -> Vec<Answer> {
    let answer = |arm: &Arm| {
        let level = paired::level(arm, metric)?;
        let own = Answer {
            arm: arm.name.clone(),
            metric: metric.to_owned(),
            rounds: level.rounds as u64,
            whole: arm.doubt().is_none(),
            level: level.ns,
            level_interval: level.interval,
            ..Answer::default()
        };
        let base = base.filter(|base| base.name != arm.name);
        let ratio = base.and_then(|base| Some((base, paired::over_runs(document, arm, base, metric)?)));
        let Some((base, ratio)) = ratio else { return Some(own) };
        Some(own.beside(base, ratio))
    };
    document.arms.iter().filter_map(answer).collect()
}

impl Answer {
    /// Gives it a ratio to another arm.
    pub(crate) fn beside(self, base: &Arm, ratio: Ratio) -> Self {
        Self { base: Some(base.name.clone()), ratio: Some(ratio.ratio), ratio_interval: ratio.interval, ..self }
    }
}

/// Judges whether a document answers its question.
pub fn exit<E: Experiment>(document: &Document<E>) -> Exit {
    let doubtful = document.arms.iter().any(|arm| arm.own.doubts().next().is_some());
    let unsure = document.warnings.iter().any(|warning| [UNSURE, NO_OVERFLOWS].contains(&&*warning.code));
    let strategies = || document.arms.iter().filter(|arm| arm.kind == ArmKind::Strategy);
    let stuck = strategies().filter(|arm| livelocks(document, &arm.name)).count();
    let left = strategies().filter(|arm| arm.not_available.is_none()).count().saturating_sub(stuck);
    // That a guest livelocks is an answer if there are two others to choose from.
    let measured = strategies().next().is_none() || left > usize::from(stuck > 0);
    let is_whole = document.status == Status::Complete && measured && !doubtful && !unsure;
    if is_whole { Exit::Done } else { Exit::Inconclusive }
}

impl<E: Experiment> Document<E> {
    /// Adds what a document ends with: its answers by this metric, and its exit.
    pub fn conclude(&mut self, metric: &str) {
        self.answer = of(self, metric).iter().map(|answer| json!(answer)).collect();
        self.exit = Some(exit(self).code());
    }

    /// Gives a document the exit of an error that ends its command.
    pub fn ended_by(&mut self, error: Option<&Error>) {
        self.exit = error.map(|error| error.exit.code()).or(self.exit);
    }
}

/// A list that a command prints.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct List<T> {
    /// Its items.
    pub items: Vec<T>,
}

/// Returns what a command prints as JSON: the value's keys, with `schema` unless it has its own, and `exit`. What judges pairs has
/// them with their intervals as `answer`.
pub fn output(schema: &str, value: Value, exit: Exit) -> Value {
    let mut all = Map::from_iter([("schema".to_owned(), schema.into())]);
    if let Value::Object(own) = value {
        all.extend(own);
    }
    all.insert("exit".to_owned(), exit.code().into());
    Value::Object(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Warning, warnings::LIVELOCK};
    use crate::fixture;

    #[test]
    fn answers_are_those_of_the_table_and_end_a_document() {
        let mut document = fixture::document(10);
        let found = of(&document, NMI_HANDLER.key);
        let names: Vec<&str> = found.iter().map(|answer| answer.arm.as_str()).collect();
        assert_eq!(names, ["recreate", "reuse", "reuse-lazy", "floor"]);
        let recreate = &found[0];
        assert_eq!((recreate.metric.as_str(), recreate.rounds, recreate.level), ("nmi_handler_ns", 10, 2000.0));
        assert_eq!((recreate.level_interval, recreate.ratio), (Some([2000.0, 2000.0].into()), Some(2.0)));
        assert!(recreate.ratio_interval.is_some_and(|interval| !interval.excludes(2.0)));
        assert_eq!((recreate.base.as_deref(), &found[3].base, found[3].ratio), (Some("floor"), &None, None));
        let few = of(&fixture::document(3), NMI_HANDLER.key);
        let table = crate::table::report(std::slice::from_ref(&document), true).text(100);
        let of = |name: &str| table.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(of("recreate").contains("2.00 µs") && of("recreate").contains("2.000 ["), "{table}");
        assert_eq!((few[0].level_interval, few[0].ratio_interval), (None, None));
        document.conclude(NMI_HANDLER.key);
        assert_eq!((document.answer.len(), document.exit), (4, Some(0)));
        for change in [
            |document: &mut Document| document.arms[0].own.lost = Some(1),
            |document: &mut Document| document.arms[0].own.counts.periods_missed = 1_000_000,
            |document: &mut Document| document.status = Status::Interrupted,
            |document: &mut Document| document.arms.iter_mut().for_each(|arm| arm.not_available = Some(String::new())),
        ] {
            let mut doubtful = document.clone();
            change(&mut doubtful);
            assert_eq!(exit(&doubtful), Exit::Inconclusive);
        }
        // That one guest livelocks is an answer beside two others.
        for (arm, wanted) in [("recreate", Exit::Done), ("reuse", Exit::Inconclusive)] {
            document.warnings.push(Warning { arm: Some(arm.to_owned()), ..Warning::of_all(LIVELOCK, "") });
            assert_eq!(exit(&document), wanted);
        }
    }

    #[test]
    fn every_output_has_a_schema_and_an_exit() {
        let of = |value: Value| output("vpmu-x/1", value, Exit::Regression);
        assert_eq!(of(json!({"a": 1, "exit": 7})), json!({"schema": "vpmu-x/1", "a": 1, "exit": 1}));
        assert_eq!(of(json!({"schema": "vpmu-y/2"})), json!({"schema": "vpmu-y/2", "exit": 1}));
    }
}
