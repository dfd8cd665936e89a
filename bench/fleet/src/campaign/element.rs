//! The elements of a campaign: each is one run of `vpmu`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::plan::{Experiment, Plan, Target};

/// One run of `vpmu`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Element {
    /// Its number, from 0.
    pub number: u64,
    /// Experiment, variant, target and repetition in one word.
    pub name: String,
    /// Name of the experiment in the plan.
    pub experiment: String,
    /// Name of the variant.
    pub variant: String,
    /// Place at which it is to run.
    pub target: Target,
    /// Which repetition, from 0.
    pub repetition: u32,
    /// Which part of a sweep, from 1, of how many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<[u64; 2]>,
    /// The command line after the binary's name, without the folder of results.
    pub words: Vec<String>,
    /// Start, seconds after the submission.
    pub begins_s: u64,
    /// Time after which it is stopped, seconds.
    pub limit_s: u64,
}

/// Time limit of an element whose experiment has no `time`.
const DEFAULT_LIMIT: Duration = Duration::from_secs(30 * 60);

/// Lists the elements of a plan: experiment by experiment, repetition by repetition, host by host, with the variants of
/// a host beside each other and in turns first.
pub fn elements(plan: &Plan) -> Vec<Element> {
    let mut elements = Vec::new();
    for (at, experiment) in plan.experiments.iter().enumerate() {
        for (side, variant) in plan.variants.iter().enumerate() {
            let options = experiment.options.with(&variant.options).words();
            let words: Vec<String> = std::iter::once(experiment.run.clone()).chain(options).collect();
            let common = Element {
                number: 0,
                name: String::new(),
                experiment: experiment.name.clone(),
                variant: variant.name.clone(),
                target: Target::Any,
                repetition: 0,
                part: None,
                words,
                begins_s: 0,
                limit_s: whole_seconds(experiment.time.unwrap_or(DEFAULT_LIMIT)),
            };
            for (place, element) in of_variant(plan, experiment, &common) {
                // Each side is first as often as the other.
                let turn = if element.repetition % 2 == 0 { side } else { plan.variants.len() - side };
                elements.push(((at, element.repetition, place, turn), element));
            }
        }
    }
    elements.sort_by_key(|(place, _)| *place);
    (0..).zip(elements).map(|(number, (_, element))| Element { number, ..element }).collect()
}

/// Lists the elements of one experiment and variant, each with its place among the targets or parts.
fn of_variant(plan: &Plan, experiment: &Experiment, common: &Element) -> Vec<(usize, Element)> {
    let start = format!("{}/{}", common.experiment, common.variant);
    if let Some(parts) = experiment.parts {
        let part = |part: u64| {
            let mut words = common.words.clone();
            if parts > 1 {
                words.extend(["--part".to_owned(), format!("{part}/{parts}")]);
            }
            (
                part as usize,
                Element { part: Some([part, parts]), name: format!("{start}/part{part}"), words, ..common.clone() },
            )
        };
        return (1..=parts).map(part).collect();
    }
    let repetitions = (0..plan.repeat.times())
        .flat_map(|repetition| plan.targets.iter().enumerate().map(move |(at, target)| (repetition, at, target)));
    let element = |(repetition, at, target): (u32, usize, &Target)| {
        let name = match target {
            Target::Host(host) => host.clone(),
            Target::Any | Target::Constraint(_) if plan.targets.len() == 1 => target.to_string(),
            Target::Any | Target::Constraint(_) => format!("{target}{at}"),
        };
        let begins = plan.repeat.every().saturating_mul(repetition);
        let element = Element {
            name: format!("{start}/{name}/r{repetition}"),
            target: target.clone(),
            repetition,
            begins_s: whole_seconds(begins),
            ..common.clone()
        };
        (at, element)
    };
    repetitions.map(element).collect()
}

const fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + (time.subsec_nanos() > 0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slurm::command::Slurm;

    fn of(text: &str) -> Vec<Element> {
        elements(&Plan::parse(text, "/plans".into(), &Slurm::default()).unwrap())
    }

    #[test]
    fn variants_of_a_host_are_neighbours_and_take_turns_first() {
        let found = of(
            "name = 'x'\nrepeat = { times = 2, every = '1h' }\nhosts = [{ names = 'a' }, { constraint = 'clx', count = 2 }]\n\
             experiment = [{ run = 'sim', options = { rounds = 3 }, time = '1500ms' }]\n\
             variant = [{ name = 'old' }, { name = 'new', options = { rounds = 5 } }]",
        );
        let names: Vec<&str> = found.iter().map(|element| element.name.as_str()).collect();
        let sides = [["old", "new"], ["new", "old"]];
        let hosts = ["a", "[clx]1", "[clx]2"];
        let name = |repetition, host, side| format!("sim/{side}/{host}/r{repetition}");
        let expected: Vec<String> =
            (0..2).flat_map(|at| hosts.map(|host| sides[at].map(|side| name(at, host, side))).concat()).collect();
        assert_eq!(names, expected);
        assert!(found.iter().enumerate().all(|(at, element)| element.number == at as u64));
        assert_eq!(found[0].words.join(" ") + "; " + &found[1].words.join(" "), "sim --rounds 3; sim --rounds 5");
        assert_eq!((found[0].begins_s, found[6].begins_s, found[0].limit_s), (0, 3600, 2));
    }

    #[test]
    fn a_sweep_has_parts() {
        let found = of("name = 'x'\nrepeat = { times = 9 }\nexperiment = [{ run = 'sweep', parts = 3 }]");
        let lines: Vec<String> = found.iter().map(|element| element.words.join(" ")).collect();
        assert_eq!(lines, ["sweep --part 1/3", "sweep --part 2/3", "sweep --part 3/3"]);
        assert_eq!(found[0].limit_s, 1800);
        assert_eq!(of("name = 'x'\nexperiment = [{ run = 'sweep' }]")[0].words, ["sweep"]);
    }
}
