//! A document reduced to what statistics of a fleet need.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use results::compare::{doubt_of, facts, group_key, group_label};
use results::document::{Any, Arm, ArmKind, Record};
use results::paired::{self, Statistic};
use results::stats::interval::NORMAL_95;
use results::stats::jackknife::Estimate;

/// A value that many runs share, as the index has it: whole in each run.
pub(crate) mod shared {
    use std::borrow::Borrow;
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<T: Serialize + ?Sized, S: Serializer>(
        value: &Arc<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, T: ToOwned + ?Sized, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<T>, D::Error>
    where
        T::Owned: Deserialize<'de> + Borrow<T>,
        Arc<T>: From<T::Owned>,
    {
        T::Owned::deserialize(deserializer).map(Arc::from)
    }
}

/// Form of a doubt, which may be absent.
mod doubt {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::ref_option, reason = "the shape serde asks for")]
    pub(super) fn serialize<S: Serializer>(doubt: &Option<Arc<str>>, serializer: S) -> Result<S::Ok, S::Error> {
        doubt.as_deref().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<str>>, D::Error> {
        Ok(Option::<String>::deserialize(deserializer)?.map(Arc::from))
    }
}

/// Labels that a campaign gives to a run, beside its document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Labels {
    /// The host by the name that the campaign has for it, such as Slurm's node name. `None`: by the document's.
    pub host: Option<String>,
    /// Number of the element.
    pub element: Option<u64>,
    /// Name of the variant.
    pub variant: Option<String>,
    /// Which repetition, from 0. It orders runs where the clocks of hosts differ.
    pub repetition: Option<u64>,
}

/// A figure with its uncertainty, both of its logarithm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Logarithm of the figure: of ns, or of a ratio.
    pub log: f64,
    /// Standard error of that logarithm within the run; `None` with too few rounds.
    pub error: Option<f64>,
}

/// One arm's metric in one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The arm.
    #[serde(with = "shared")]
    pub arm: Arc<str>,
    /// The metric, such as `nmi_handler_ns`.
    #[serde(with = "shared")]
    pub metric: Arc<str>,
    /// Rounds that count.
    pub rounds: u64,
    /// Median over the rounds of their p50, ns.
    pub time: Level,
    /// Ratio to the floor in paired rounds; `None` of the floor, and where there is none.
    pub ratio: Option<Level>,
    /// Why it is not whole: lost NMIs, throttling, an interrupted run. `None`: it is.
    #[serde(with = "doubt")]
    pub doubt: Option<Arc<str>>,
}

/// One document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The file, relative to the folder that was read.
    pub file: String,
    /// Labels by the campaign.
    pub labels: Labels,
    /// Start, seconds since 1970, by the host's own clock; 0 of a simulation.
    pub started_unix: u64,
    /// Duration, ns.
    pub wall_ns: u64,
    /// Name of the experiment.
    #[serde(with = "shared")]
    pub experiment: Arc<str>,
    /// The experiment and its main parameters, for people.
    #[serde(with = "shared")]
    pub setting: Arc<str>,
    /// All parameters that must be the same for two runs to be comparable, as JSON.
    #[serde(with = "shared")]
    pub key: Arc<str>,
    /// The backend.
    #[serde(with = "shared")]
    pub backend: Arc<str>,
    /// The backend only stands in for hardware events.
    pub stand_in: bool,
    /// The host: by the campaign's name, else the document's own; empty where neither has one.
    #[serde(with = "shared")]
    pub host: Arc<str>,
    /// Identity of the boot; empty where the document has none.
    #[serde(with = "shared")]
    pub boot: Arc<str>,
    /// Facts that move a latency, by name: of host and build ("host class", "kernel" …; "revision" is the tool's), and "strategy NAME",
    /// which is its definition.
    #[serde(with = "shared")]
    pub facts: Arc<BTreeMap<String, String>>,
    /// Its figures.
    pub figures: Vec<Figure>,
}

impl Run {
    /// Reduces a document.
    pub fn of(record: &Record, file: &str, labels: Labels) -> Self {
        let floor = record.arms.iter().find(|arm| arm.kind == ArmKind::Floor && !arm.rounds.is_empty());
        let figures = record.arms.iter().flat_map(|arm| of_arm(record, arm, floor)).collect();
        let mut facts: BTreeMap<String, String> = facts(record).map(|(name, value)| (name.to_owned(), value)).collect();
        facts.insert(REVISION.to_owned(), record.tool.git_revision.clone());
        let defined = record.arms.iter().filter_map(|arm| Some((&arm.name, record.definition(&arm.name)?)));
        facts.extend(defined.map(|(name, choices)| (format!("strategy {name}"), choices.join(", "))));
        let host = labels.host.as_deref().or(record.host.name.as_deref()).unwrap_or_default();
        Self {
            file: file.to_owned(),
            started_unix: record.started_unix,
            wall_ns: record.wall_ns,
            experiment: record.experiment.as_str().into(),
            setting: group_label(record).into(),
            key: serde_json::to_string(&group_key(record)).unwrap_or_default().into(),
            backend: record.parameter("backend").unwrap_or_default().into(),
            stand_in: record.arms.iter().any(|arm| arm.stand_in),
            host: host.into(),
            boot: record.host.boot.as_deref().unwrap_or_default().into(),
            facts: Arc::new(facts),
            figures,
            labels,
        }
    }

    /// Returns the class of its host.
    pub fn class(&self) -> &str {
        self.facts.get("host class").map_or("", String::as_str)
    }

    /// Returns one of its figures.
    pub fn figure(&self, arm: &str, metric: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| &*figure.arm == arm && &*figure.metric == metric)
    }
}

/// The fact that is the tool's git revision.
pub(crate) const REVISION: &str = "revision";

fn of_arm<'a>(
    record: &'a Record,
    arm: &'a Arm<Any>,
    floor: Option<&'a Arm<Any>>,
) -> impl Iterator<Item = Figure> + use<'a> {
    let doubt: Option<Arc<str>> = doubt_of(record, arm).map(Into::into);
    let floor = floor.filter(|floor| floor.name != arm.name);
    arm.metrics.keys().filter_map(move |metric| {
        let level = paired::level(arm, metric, Statistic::P50).filter(|level| level.ns > 0.0)?;
        let ratio = floor.and_then(|floor| paired::ratio(arm, floor, metric, Statistic::P50));
        let error =
            level.interval.map(|interval| error_of(interval.low.max(f64::MIN_POSITIVE).ln(), interval.high.ln()));
        Some(Figure {
            arm: arm.name.as_str().into(),
            metric: metric.as_str().into(),
            rounds: level.rounds as u64,
            time: Level { log: level.ns.ln(), error },
            ratio: ratio
                .filter(|ratio| ratio.ratio > 0.0)
                .map(|ratio| Level { log: ratio.ratio.ln(), error: ratio.log.map(|Estimate { error, .. }| error) }),
            doubt: doubt.clone(),
        })
    })
}

/// Returns the standard error behind a 95 % interval.
fn error_of(low: f64, high: f64) -> f64 {
    (high - low).max(0.0) / (2.0 * NORMAL_95)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use trials::fixture::{changed, value};

    #[test]
    fn a_run_has_the_figures_of_its_document_and_the_names_of_its_campaign() {
        let mut value = value(10, 5, |arm, round| if arm == "floor" { 1000 + round } else { 2000 + 2 * round });
        value["host"]["name"] = json!("n1");
        value["host"]["boot"] = json!("b1");
        let record = changed(value);
        let run = Run::of(&record, "a.json", Labels::default());
        assert_eq!((&*run.host, &*run.boot, run.started_unix), ("n1", "b1", 5));
        assert!(!run.class().is_empty() && run.facts.contains_key("kernel") && run.facts.contains_key(REVISION));
        let figure = run.figure("recreate", "nmi_handler_ns").unwrap();
        let ratio = figure.ratio.unwrap();
        assert!((ratio.log - 2.0_f64.ln()).abs() < 0.01 && ratio.error.is_some(), "{ratio:?}");
        assert!((figure.time.log.exp() - 2009.0).abs() < 10.0, "{figure:?}");
        assert_eq!((figure.rounds, &figure.doubt), (10, &None));
        assert!(run.figure("floor", "nmi_handler_ns").unwrap().ratio.is_none());
        let labels = Labels { host: Some("node7".to_owned()), ..Labels::default() };
        assert_eq!(&*Run::of(&record, "a.json", labels).host, "node7");
    }

    #[test]
    fn a_figure_that_is_not_whole_says_so() {
        let mut value = value(10, 5, |_, _| 1000);
        value["arms"][0]["lost"] = json!(2);
        let run = Run::of(&changed(value), "a.json", Labels::default());
        assert!(run.figures.iter().any(|figure| figure.doubt.is_some() && &*figure.arm == "recreate"));
        assert!(run.figures.iter().any(|figure| figure.doubt.is_none()));
    }
}
