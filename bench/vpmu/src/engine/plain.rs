//! Arms that are no more than a measurement, and the experiment of such arms: from its turns to its document.

use std::collections::{BTreeMap, BTreeSet};

use host_pmu::stats::ns;
use results::document::{Any, Arm, Record, Summary, warnings};
use results::error::Error;
use results::host::{HostFacts, HostFs};
use results::metric::Metric;
use serde_json::Value;

use super::arm::{self, Turn};
use super::run::{About, Context, Measured, Rounds, measure};
use crate::sys;
use crate::terminal::progress::Progress;

/// What a turn measured: values by the key of their metric, in its unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample(BTreeMap<String, Vec<u64>>);

impl Sample {
    /// Adds values of a metric.
    #[must_use]
    pub fn with(mut self, metric: &Metric, values: impl IntoIterator<Item = u64>) -> Self {
        self.add(metric.key, values);
        self
    }

    /// Adds values of the metric with this key, whose end names its unit.
    pub fn add(&mut self, key: &str, values: impl IntoIterator<Item = u64>) {
        self.0.entry(key.to_owned()).or_default().extend(values);
    }
}

/// An arm that is a measurement.
pub struct Plain<'a> {
    arm: Arm,
    values: BTreeMap<String, Vec<u64>>,
    take: Box<dyn FnMut(Turn) -> Result<Option<Sample>, Error> + 'a>,
}

impl std::fmt::Debug for Plain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plain").field("name", &self.arm.name).finish_non_exhaustive()
    }
}

impl<'a> Plain<'a> {
    /// Makes an arm whose turns `take` takes; `None`: the user ended one.
    pub fn new(
        name: impl Into<String>,
        backend: &str,
        take: impl FnMut(Turn) -> Result<Option<Sample>, Error> + 'a,
    ) -> Self {
        let arm = Arm { name: name.into(), backend: backend.to_owned(), ..Arm::default() };
        Self { arm, values: BTreeMap::new(), take: Box::new(take) }
    }

    /// Says in a sentence what the arm is or how it fared, for readers of the document.
    pub fn note(&mut self, text: impl Into<String>) {
        self.arm.notes.push(text.into());
    }
}

impl arm::Arm for Plain<'_> {
    type Figures = Sample;

    fn name(&self) -> &str {
        &self.arm.name
    }

    fn turn(&mut self, turn: Turn) -> Result<Option<Sample>, Error> {
        (self.take)(turn)
    }

    fn result(&self) -> Arm {
        let metrics = self.values.iter().map(|(key, values)| (key.clone(), Summary::of_all(values)));
        Arm { metrics: metrics.collect(), ..self.arm.clone() }
    }

    fn incomplete(&mut self, why: &str) {
        self.arm.incomplete.push(why.to_owned());
    }

    fn keep(&mut self, turn: Turn, Sample(values): Sample) {
        let rounds = &mut self.arm.rounds;
        rounds.index.push(turn.index);
        rounds.position.push(turn.position);
        rounds.complete.push(true);
        rounds.started_us.push(ns(turn.started) / 1000);
        rounds.push_metrics(&values.iter().map(|(key, all)| (key.clone(), Summary::of_values(all))).collect());
        for (key, all) in values {
            self.values.entry(key).or_default().extend(all);
        }
    }
}

/// Keeps the document as it grows.
pub type Save<'a> = &'a mut dyn FnMut(&Record) -> Result<(), Error>;

/// An experiment of such arms.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Its name in documents.
    pub name: &'static str,
    /// Every parameter, by name.
    pub parameters: Value,
    /// Its rounds.
    pub rounds: Rounds,
}

impl Experiment {
    /// Runs the arms here, whose facts are those before the run. `save` is called with the document as it grows.
    ///
    /// # Errors
    /// If nothing was measured before an error, and exit 3 if that was an interrupt.
    pub fn measure(
        &self,
        arms: &mut [Plain<'_>],
        (host, fs): (HostFacts, &HostFs),
        command_line: &[String],
        progress: &mut dyn Progress,
        save: Save<'_>,
    ) -> Result<Measured<Any>, Error> {
        let mut names = BTreeSet::new();
        if let Some(arm) = arms.iter().find(|arm| !names.insert(arm.arm.name.clone())) {
            return Err(Error::usage(format!("two arms are called {}", arm.arm.name), "", "leave one out"));
        }
        let complete = &|document: &mut Record, is_last: bool| {
            document.warnings = warnings::of_run(&document.tool, &document.host);
            document.warnings.extend(warnings::of_settings(&document.host, &[]));
            if is_last {
                let metric = document.metric().unwrap_or_default().to_owned();
                document.conclude(&metric);
            }
        };
        let parameters = self.parameters.as_object().cloned().unwrap_or_default();
        let about = About { name: self.name, place: Some("host"), parameters, complete };
        let context = Context { stop: sys::interrupted(), fs, host, command_line, progress, save };
        measure(arms, &self.rounds, &about, context, &mut |_, _| false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::progress::Silent;
    use results::document::Status;
    use results::error::Exit;
    use results::metric::ELAPSED;

    fn measured(names: [&str; 2], rounds: u64, fails: Option<u64>) -> (Result<Measured<Any>, Error>, usize) {
        let take = |name: &str, turn: Turn| match fails {
            Some(at) if name == "b" && turn.index == at => Err(Error::host("no more files", "EMFILE", "")),
            _ => Ok(Some(Sample::default().with(&ELAPSED, [1000 * (1 + turn.index), 7000]))),
        };
        let mut arms = names.map(|name| Plain::new(name, "none", move |turn| take(name, turn)));
        let rounds = Rounds { warmup: 1, ..Rounds::of(rounds, 1) };
        let experiment = Experiment { name: "trial", parameters: Value::Null, rounds };
        let (fs, mut saves) = (HostFs::at("/nonexistent"), 0);
        let mut save = |_: &Record| {
            saves += 1;
            Ok(())
        };
        let facts = (HostFacts::default(), &fs);
        (experiment.measure(&mut arms, facts, &[], &mut Silent, &mut save), saves)
    }

    #[test]
    fn an_arm_is_its_values_by_round_and_together() {
        let (document, error) = measured(["a", "b"], 3, None).0.unwrap();
        assert!(error.is_none() && document.status == Status::Complete);
        let arm = document.arm("b").unwrap();
        assert_eq!(arm.rounds.index, [0, 1, 2], "the warm-up is in no figure");
        let column = &arm.rounds.metrics[ELAPSED.key];
        assert_eq!((column.count.as_slice(), column.p50.as_slice()), (&[2; 3][..], &[1000, 2000, 3000][..]));
        let all = &arm.metrics[ELAPSED.key];
        assert_eq!((all.count, all.max, all.decode().unwrap().unwrap().len()), (6, Some(7000), 6));
    }

    #[test]
    fn an_arm_that_fails_at_its_nth_turn_leaves_whole_rounds_and_the_reason() {
        let (found, saves) = measured(["a", "b"], 5, Some(2));
        let (document, error) = found.unwrap();
        assert_eq!((error.unwrap().exit, document.status, saves), (Exit::Host, Status::Incomplete, 1));
        assert!(document.arms.iter().all(|arm| arm.rounds.len() == 2 && arm.incomplete[0].contains("EMFILE")));
        let (found, saves) = measured(["a", "b"], 5, Some(0));
        assert_eq!((found.unwrap_err().exit, saves), (Exit::Host, 0), "nothing is kept of no round");
    }

    #[test]
    fn two_arms_of_one_name_are_refused() {
        assert_eq!(measured(["a", "a"], 2, None).0.unwrap_err().exit, Exit::Usage);
    }
}
