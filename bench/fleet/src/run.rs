//! A document reduced to what statistics of a fleet need.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use results::compare::{doubt_of, facts, group_key, group_label};
use results::document::{Arm, ArmKind, Record};
use results::paired;

/// Labels that a campaign gives to a run, beside its document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

/// One arm's metric in one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The arm.
    pub arm: String,
    /// The metric, such as `nmi_handler_ns`.
    pub metric: String,
    /// Logarithm of the median over the rounds of their p50 in ns.
    pub time: f64,
    /// Logarithm of the ratio to the floor in paired rounds; `None` of the floor, and where there is none.
    pub ratio: Option<f64>,
    /// Why it is not whole: lost NMIs, throttling, an interrupted run. `None`: it is.
    pub doubt: Option<String>,
}

/// One document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The file, relative to the folder that was read.
    pub file: String,
    /// Labels by the campaign, which the index does not keep.
    #[serde(skip)]
    pub labels: Labels,
    /// Start, seconds since 1970, by the host's own clock; 0 of a simulation.
    pub started_unix: u64,
    /// Duration, ns.
    pub wall_ns: u64,
    /// The experiment and its main parameters, for people.
    pub setting: String,
    /// All parameters that must be the same for two runs to be comparable, as JSON.
    pub key: String,
    /// The backend.
    pub backend: String,
    /// The backend only stands in for hardware events.
    pub stand_in: bool,
    /// The host by the document's own name; empty where it has none.
    pub host: String,
    /// Facts that move a latency, by name: of host and build ("host class", "kernel" …; "revision" is the tool's), and "strategy NAME",
    /// which is its definition.
    pub facts: BTreeMap<String, String>,
    /// Its figures.
    pub figures: Vec<Figure>,
}

impl Run {
    /// Reduces a document.
    pub fn of(record: &Record, file: &str, labels: Labels) -> Self {
        let floor = record.arms.iter().find(|arm| arm.kind == ArmKind::Floor && !arm.rounds.is_empty());
        let figures = record.arms.iter().flat_map(|arm| of_arm(record, arm, floor)).collect();
        let mut facts: BTreeMap<String, String> = facts(record).map(|(name, value)| (name.to_owned(), value)).collect();
        facts.insert("revision".to_owned(), record.tool.git_revision.clone());
        let defined = record.arms.iter().filter_map(|arm| Some((&arm.name, record.definition(&arm.name)?)));
        facts.extend(defined.map(|(name, choices)| (format!("strategy {name}"), choices.join(", "))));
        Self {
            file: file.to_owned(),
            started_unix: record.started_unix,
            wall_ns: record.wall_ns,
            setting: group_label(record),
            key: group_key(record, &[]),
            backend: record.parameter("backend").unwrap_or_default(),
            stand_in: record.arms.iter().any(|arm| arm.stand_in),
            host: record.host.name.clone().unwrap_or_default(),
            facts,
            figures,
            labels,
        }
    }

    /// Returns the name of its host: the campaign's, else the document's own.
    pub fn host(&self) -> &str {
        match self.labels.host.as_deref().unwrap_or(&self.host) {
            "" => "(no name)",
            name => name,
        }
    }

    /// Returns the class of its host.
    pub fn class(&self) -> &str {
        self.facts.get("host class").map_or("", String::as_str)
    }
}

fn of_arm<'a>(record: &'a Record, arm: &'a Arm, floor: Option<&'a Arm>) -> impl Iterator<Item = Figure> + use<'a> {
    let doubt = doubt_of(record, arm);
    let floor = floor.filter(|floor| floor.name != arm.name);
    arm.metrics.keys().filter_map(move |metric| {
        let ns = paired::p50(arm, metric).filter(|ns| *ns > 0.0)?;
        Some(Figure {
            arm: arm.name.clone(),
            metric: metric.clone(),
            time: ns.ln(),
            ratio: floor.and_then(|floor| paired::log_ratio(arm, floor, metric)),
            doubt: doubt.clone(),
        })
    })
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
        let record = changed(value);
        let run = Run::of(&record, "a.json", Labels::default());
        assert_eq!((run.host(), run.started_unix), ("n1", 5));
        assert!(!run.class().is_empty() && run.facts.contains_key("kernel") && run.facts.contains_key("revision"));
        let figure = |arm: &str| {
            run.figures.iter().find(|figure| figure.arm == arm && figure.metric == "nmi_handler_ns").unwrap()
        };
        assert!((figure("recreate").ratio.unwrap() - 2.0_f64.ln()).abs() < 0.01, "{:?}", figure("recreate"));
        assert!((figure("recreate").time.exp() - 2009.0).abs() < 10.0, "{:?}", figure("recreate"));
        assert!(figure("recreate").doubt.is_none() && figure("floor").ratio.is_none());
        let labels = Labels { host: Some("node7".to_owned()), ..Labels::default() };
        assert_eq!(Run::of(&record, "a.json", labels).host(), "node7");
    }

    #[test]
    fn a_figure_that_is_not_whole_says_so() {
        let mut value = value(10, 5, |_, _| 1000);
        value["arms"][0]["lost"] = json!(2);
        let run = Run::of(&changed(value), "a.json", Labels::default());
        assert!(run.figures.iter().any(|figure| figure.doubt.is_some() && figure.arm == "recreate"));
        assert!(run.figures.iter().any(|figure| figure.doubt.is_none()));
    }
}
