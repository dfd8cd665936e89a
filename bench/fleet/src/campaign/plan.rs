//! The plan of a campaign: what runs where, how often and in which variants. A TOML file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use results::error::Error;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::options::Options;
use crate::slurm::hostlist;
use crate::slurm::request::SlurmOptions;
use results::parse;

/// Largest plan, bytes.
const MAX_PLAN: u64 = 1 << 20;
/// Most elements of a campaign.
pub const MAX_ELEMENTS: usize = 100_000;
/// Experiments that an element can be.
pub const RUNNABLE: [&str; 6] = ["nmi-latency", "sim", "stat-setup", "guest-stat", "conformance", "sweep"];

/// A plan as it is written.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Written {
    name: String,
    #[serde(default)]
    hosts: Vec<Hosts>,
    experiment: Vec<Experiment>,
    #[serde(default)]
    variant: Vec<Variant>,
    #[serde(default)]
    repeat: Repeat,
    #[serde(default)]
    slurm: SlurmOptions,
}

/// Hosts: by name, or any that satisfy a constraint.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Hosts {
    names: Option<String>,
    constraint: Option<String>,
    count: Option<u32>,
}

/// Measurement of an element.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Experiment {
    /// Its name in this plan; by default that of the command.
    #[serde(default)]
    pub name: String,
    /// The command of `vpmu`.
    pub run: String,
    /// Its options.
    #[serde(default)]
    pub options: Options,
    /// Time limit of an element, if the plan has one.
    #[serde(default, deserialize_with = "duration")]
    pub time: Option<Duration>,
    /// Parts of a sweep, which always has some.
    pub parts: Option<u64>,
    /// Names of experiments that have ended before.
    #[serde(default)]
    pub after: Vec<String>,
}

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Variant {
    /// Its name.
    pub name: String,
    /// The binary; `None`: this one.
    pub binary: Option<PathBuf>,
    /// Options, added to those of the experiment.
    #[serde(default)]
    pub options: Options,
}

/// Number of repetitions, and their distance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Repeat {
    times: Option<u32>,
    #[serde(default, deserialize_with = "duration")]
    every: Option<Duration>,
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    parse::duration(&String::deserialize(deserializer)?).map(Some).map_err(D::Error::custom)
}

/// Host on which an element is to run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// On any host.
    Any,
    /// On the host of this name.
    Host(String),
    /// On a host that satisfies this constraint, as Slurm writes them.
    Constraint(String),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Host(name) => f.write_str(name),
            Self::Constraint(constraint) => write!(f, "[{constraint}]"),
        }
    }
}

/// A plan that was checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Name of the campaign.
    pub name: String,
    /// The text of the file.
    pub text: String,
    /// The folder that relative paths in options start from.
    pub folder: PathBuf,
    /// Targets, each once per experiment, variant and repetition.
    pub targets: Vec<Target>,
    /// Experiments; each after those that it is to follow.
    pub experiments: Vec<Experiment>,
    /// Variants; never empty.
    pub variants: Vec<Variant>,
    /// Repetitions.
    pub times: u32,
    /// Time from one repetition's start to the next.
    pub every: Duration,
    /// Options for Slurm.
    pub slurm: SlurmOptions,
}

/// Name of the only variant of a plan that has none.
pub const ONLY_VARIANT: &str = "default";

impl Plan {
    /// Reads and checks a plan.
    ///
    /// # Errors
    /// Exit 2 with the line or the key.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        let refuse = |why: String| refused(&path.display().to_string(), why);
        let text = results::open::named_text(path, MAX_PLAN).map_err(|error| refuse(error.to_string()))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = folder.canonicalize().map_err(|error| refuse(error.to_string()))?;
        Self::parse(&text, folder).map_err(refuse)
    }

    /// Checks a plan's text; relative paths start from `folder`.
    ///
    /// # Errors
    /// A fault of the plan.
    pub fn parse(text: &str, folder: PathBuf) -> Result<Self, String> {
        let written: Written = toml::from_str(text).map_err(|error: toml::de::Error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            format!("line {line}: {}", error.message())
        })?;
        check_name("name", &written.name)?;
        let times = written.repeat.times.unwrap_or(1);
        if times == 0 {
            return Err("repeat.times is 0; give 1 or more".to_owned());
        }
        let mut plan = Self {
            name: written.name,
            text: text.to_owned(),
            targets: targets(&written.hosts)?,
            experiments: Vec::new(),
            variants: variants(written.variant, &folder)?,
            times,
            every: written.repeat.every.unwrap_or_default(),
            slurm: written.slurm,
            folder,
        };
        plan.experiments = in_order(experiments(written.experiment)?)?;
        let elements: u64 =
            plan.experiments.iter().map(|experiment| plan.runs(experiment)).fold(0, u64::saturating_add);
        if elements > MAX_ELEMENTS as u64 {
            return Err(format!("it has {elements} elements, more than {MAX_ELEMENTS}; split it"));
        }
        Ok(plan)
    }

    /// Elements of an experiment.
    pub fn runs(&self, experiment: &Experiment) -> u64 {
        let variants = self.variants.len() as u64;
        match experiment.parts {
            // A sweep simulates: neither hosts nor repetitions change a byte of it.
            Some(parts) => variants.saturating_mul(parts),
            None => variants.saturating_mul(self.targets.len() as u64).saturating_mul(u64::from(self.times)),
        }
    }
}

/// Builds the error of a plan.
pub fn refused(plan: &str, why: String) -> Error {
    Error::usage(format!("cannot use plan {plan}"), why, "docs/fleet.md has the keys")
}

/// Checks a name that becomes part of file and job names.
fn check_name(key: &str, name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > 64 || name.starts_with(['.', '-']) || !name.chars().all(plain) {
        return Err(format!(
            "{key} '{name}': a name has 1 to 64 of a-z, A-Z, 0-9, '.', '_', '-', and begins with a letter or digit"
        ));
    }
    Ok(())
}

fn targets(hosts: &[Hosts]) -> Result<Vec<Target>, String> {
    let mut targets = Vec::new();
    let mut names = BTreeSet::new();
    for (at, entry) in hosts.iter().enumerate() {
        let refuse = |why: String| format!("hosts {}: {why}", at + 1);
        match (&entry.names, &entry.constraint) {
            (Some(list), None) => {
                if entry.count.is_some() {
                    return Err(refuse("count is for a constraint; a host by name is one".to_owned()));
                }
                for name in hostlist::expand(list).map_err(refuse)? {
                    if !names.insert(name.clone()) {
                        return Err(refuse(format!("{name} is there twice")));
                    }
                    targets.push(Target::Host(name));
                }
            }
            (None, Some(constraint)) => {
                let plain = |c: char| c.is_ascii_alphanumeric() || "_-.:&|()[]*,!".contains(c);
                if constraint.is_empty() || !constraint.chars().all(plain) {
                    return Err(refuse(format!(
                        "constraint '{constraint}' is none of Slurm's, such as clx or clx&hbm"
                    )));
                }
                let count = entry.count.unwrap_or(1) as usize;
                if count == 0 || count.saturating_add(targets.len()) > MAX_ELEMENTS {
                    return Err(refuse(format!("count is {count}; give 1 to {MAX_ELEMENTS}")));
                }
                targets.extend(std::iter::repeat_n(Target::Constraint(constraint.clone()), count));
            }
            _ => return Err(refuse("give names = 'clx[001-004]' or constraint = 'clx', and one of them".to_owned())),
        }
    }
    if targets.is_empty() {
        targets.push(Target::Any);
    }
    Ok(targets)
}

fn variants(mut variants: Vec<Variant>, folder: &Path) -> Result<Vec<Variant>, String> {
    if variants.is_empty() {
        variants.push(Variant { name: ONLY_VARIANT.to_owned(), binary: None, options: Options::default() });
    }
    let mut names = BTreeSet::new();
    for Variant { name, binary, options } in &mut variants {
        check_name("variant", name)?;
        if !names.insert(name.clone()) {
            return Err(format!("variant '{name}' is there twice"));
        }
        options.check(&format!("variant '{name}'"))?;
        *binary = binary.take().map(|binary| folder.join(binary));
    }
    Ok(variants)
}

fn experiments(mut experiments: Vec<Experiment>) -> Result<Vec<Experiment>, String> {
    if experiments.is_empty() {
        return Err("it has no [[experiment]]".to_owned());
    }
    let mut names = BTreeSet::new();
    for Experiment { name, run, options, parts, .. } in &mut experiments {
        if name.is_empty() {
            name.clone_from(run);
        }
        check_name("experiment", name)?;
        let refuse = |why: String| Err(format!("experiment '{name}': {why}"));
        if !RUNNABLE.contains(&run.as_str()) {
            let known = parse::suggestion(run, &RUNNABLE, "");
            return refuse(format!("run = '{run}' is no experiment of a campaign; {known}"));
        }
        if !names.insert(name.clone()) {
            return refuse("it is there twice; give each a name".to_owned());
        }
        options.check(&format!("experiment '{name}'"))?;
        if run == "sweep" {
            parts.get_or_insert(1);
        } else if parts.is_some() {
            return refuse("only a sweep has parts".to_owned());
        }
        if parts.is_some_and(|parts| parts == 0 || parts > MAX_ELEMENTS as u64) {
            return refuse(format!("give 1 to {MAX_ELEMENTS} parts"));
        }
    }
    Ok(experiments)
}

/// Orders the experiments, each after those that it is to follow; else in the order of the plan.
fn in_order(mut waiting: Vec<Experiment>) -> Result<Vec<Experiment>, String> {
    let names: Vec<String> = waiting.iter().map(|experiment| experiment.name.clone()).collect();
    let refers: BTreeMap<&str, &[String]> =
        waiting.iter().map(|experiment| (experiment.name.as_str(), &experiment.after[..])).collect();
    for (name, after) in refers {
        if let Some(unknown) = after.iter().find(|other| !names.contains(other)) {
            let known: Vec<&str> = names.iter().map(String::as_str).collect();
            let known = parse::suggestion(unknown, &known, "; give the name of another [[experiment]]");
            return Err(format!("experiment '{name}': after '{unknown}', which is not there; {known}"));
        }
    }
    let mut ordered: Vec<Experiment> = Vec::new();
    while !waiting.is_empty() {
        let is_ready =
            |experiment: &Experiment| experiment.after.iter().all(|name| ordered.iter().any(|done| done.name == *name));
        let Some(next) = waiting.iter().position(is_ready) else {
            let circle: Vec<&str> = waiting.iter().map(|experiment| experiment.name.as_str()).collect();
            return Err(format!("experiments wait for each other: {}", circle.join(", ")));
        };
        ordered.push(waiting.remove(next));
    }
    Ok(ordered)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Result<Plan, String> {
        Plan::parse(text, PathBuf::from("/plans"))
    }

    const SMALL: &str = "name = 'small'\n[[experiment]]\nrun = 'sim'\n";

    #[test]
    fn hosts_variants_and_repetitions_multiply_and_a_sweep_has_parts_instead() {
        let plan = plan(
            "name = 'x'\nrepeat = { times = 3, every = '6h' }\n\
             [[hosts]]\nnames = 'clx[01-04]'\n[[hosts]]\nconstraint = 'icx'\ncount = 2\n\
             [[variant]]\nname = 'old'\nbinary = 'bin/old'\n[[variant]]\nname = 'new'\n\
             [[experiment]]\nrun = 'sweep'\nparts = 16\nafter = ['sim']\n[[experiment]]\nrun = 'sim'\n",
        )
        .unwrap();
        let names: Vec<&str> = plan.experiments.iter().map(|experiment| experiment.name.as_str()).collect();
        assert_eq!(names, ["sim", "sweep"], "in the order of `after`");
        assert_eq!(plan.runs(&plan.experiments[0]), 6 * 3 * 2);
        assert_eq!(plan.runs(&plan.experiments[1]), 32);
        assert_eq!(plan.variants[0].binary.as_deref(), Some(Path::new("/plans/bin/old")));
        assert_eq!(plan.targets[3].to_string(), "clx04");
        assert_eq!(plan.every, Duration::from_secs(6 * 3600));
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        let more = |text: &str| format!("{SMALL}{text}");
        for (text, needle) in [
            ("", "missing field `name`"),
            ("name = 'x'\nbogus = 1\n[[experiment]]\nrun = 'sim'", "line 2: unknown field `bogus`"),
            ("name = 'x'\nexperiment = []", "no [[experiment]]"),
            ("name = 'x'\n[[experiment]]\nrun = 'nmi'", "did you mean"),
            (&more("parts = 3"), "only a sweep"),
            (&more("options = { output = 'x' }"), "output"),
            (&more("time = 'soon'"), "line 4: not a duration"),
            (&more("after = ['other']"), "not there"),
            (&more("after = ['sim']"), "wait for each other: sim"),
            (&more("[[experiment]]\nrun = 'sim'"), "there twice"),
            (&more("[[hosts]]\nnames = 'a,a'"), "a is there twice"),
            (&more("[[hosts]]\ncount = 2"), "names = 'clx"),
            (&more("[[hosts]]\nconstraint = 'a;b'"), "none of Slurm's"),
            (&more("[[hosts]]\nconstraint = 'a'\ncount = 0"), "count is 0"),
            (&more("[repeat]\ntimes = 0"), "repeat.times"),
            (&more("[repeat]\ntimes = 200000"), "more than 100000"),
        ] {
            let error = plan(text).unwrap_err();
            assert!(error.contains(needle), "{error:?} lacks {needle:?}");
        }
        let error = refused("p.toml", plan("").unwrap_err());
        assert_eq!(error.exit.code(), 2);
    }
}
