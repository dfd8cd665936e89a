//! A campaign's findings say how far its elements are, and set its hosts, and its variants on the same hosts, beside each other.

use results::compare::Comparison;
use results::error::Exit;
use results::verdict::Limits;
use schemars::JsonSchema;
use serde::Serialize;

use crate::campaign::folder::Campaign;
use crate::campaign::standing::Standing;
use crate::compare::compare;
use crate::hosts::Analysis;
use crate::run::Run;

/// Everything that a campaign found.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Findings {
    /// How far its elements are.
    pub standing: Standing,
    /// Its hosts beside each other.
    pub analysis: Analysis,
    /// Each further variant beside the first.
    #[serde(rename = "answer")]
    pub variants: Vec<Variant>,
}

/// A variant beside the first.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Variant {
    /// Name of the first.
    pub base: String,
    /// Its own name.
    pub new: String,
    /// Its comparison with the first; `None` if they cannot be compared.
    pub comparison: Option<Comparison>,
    /// Why they cannot be compared.
    pub error: Option<String>,
}

/// Compares each further variant with the first. Variants share the plan's experiment: their options may differ.
pub fn variants(campaign: &Campaign, runs: &[Run]) -> Vec<Variant> {
    let of_experiment = |run: &Run| {
        let name = &campaign.element(run.labels.element?)?.experiment;
        Some(Run { key: format!("{name}\n{}\n{}", run.backend, run.stand_in), setting: name.clone(), ..run.clone() })
    };
    let runs: Vec<Run> = runs.iter().filter_map(of_experiment).collect();
    let mut names: Vec<&str> = Vec::new();
    // The first repetition has the variants in the plan's order.
    for element in campaign.elements.iter().filter(|element| element.part.is_none() && element.repetition == 0) {
        if !names.contains(&element.variant.as_str()) {
            names.push(&element.variant);
        }
    }
    let Some((&base, others)) = names.split_first().filter(|_| !runs.is_empty()) else { return Vec::new() };
    let of = |name: &str| -> Vec<Run> {
        runs.iter().filter(|run| run.labels.variant.as_deref() == Some(name)).cloned().collect()
    };
    let beside = |&new: &&str| {
        let found = compare((base, &of(base)), (new, &of(new)), &Limits::default());
        let error = found.as_ref().err().map(ToString::to_string);
        Variant { base: base.to_owned(), new: new.to_owned(), comparison: found.ok(), error }
    };
    others.iter().map(beside).collect()
}

impl Findings {
    /// Returns 1 if an element failed or something is slower, 3 if an outcome is missing or a variant inconclusive, else 0. A
    /// fleet of too few hosts for one to stand apart is no failure of the campaign.
    pub fn exit(&self) -> Exit {
        let mut verdicts = vec![self.standing.exit()];
        verdicts.extend(Some(self.analysis.exit()).filter(|&exit| exit == Exit::Regression));
        let of = |variant: &Variant| variant.comparison.as_ref().map_or(Exit::Inconclusive, Comparison::exit);
        verdicts.extend(self.variants.iter().map(of));
        let worst = [Exit::Regression, Exit::Inconclusive].into_iter().find(|exit| verdicts.contains(exit));
        worst.unwrap_or(Exit::Done)
    }
}
