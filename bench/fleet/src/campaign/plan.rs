//! The plan of a campaign: what runs where, how often and in which variants. A TOML file.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use results::error::Error;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::options::Options;
use crate::slurm::command::Slurm;
use results::parse;

/// Largest plan, bytes.
const MAX_PLAN: u64 = 1 << 20;
/// Most elements of a campaign.
pub const MAX_ELEMENTS: usize = 100_000;
/// Experiments that an element can be.
pub const RUNNABLE: [&str; 6] = ["nmi-latency", "sim", "stat-setup", "guest-stat", "conformance", "sweep"];

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

/// Options of `sbatch` beside hosts and time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SlurmOptions {
    /// `--partition`.
    pub partition: Option<String>,
    /// `--account`.
    pub account: Option<String>,
    /// `--qos`.
    pub qos: Option<String>,
    /// `--reservation`.
    pub reservation: Option<String>,
    /// Most elements that run at the same time: `%K` of `--array`.
    pub at_once: Option<NonZeroU32>,
    /// An element has its node for itself; absent: it has.
    pub exclusive: Option<bool>,
    /// Further options of sbatch.
    #[serde(default)]
    pub options: Vec<String>,
}

/// Options of `sbatch` that the plan has keys for, or that would change what a task runs or where its job is.
const OURS: &str = "--account --array --begin --chdir --clusters --constraint --dependency --error --exclusive --job-name --nodelist \
                    --nodes --ntasks --open-mode --output --parsable --partition --qos --reservation --signal --time --wait --wrap";

impl SlurmOptions {
    fn check(&self) -> Result<(), String> {
        for option in &self.options {
            let name = option.split('=').next().unwrap_or(option);
            if !name.starts_with("--") || name.len() < 3 {
                return Err(format!("slurm: option {option:?}: write it as --option=value"));
            }
            // sbatch takes any unambiguous beginning of an option's name.
            if OURS.split(' ').any(|ours| ours.starts_with(name)) {
                return Err(format!("slurm: option {name}: vpmu fleet sets it, or the plan has a key for it"));
            }
        }
        let values = [&self.partition, &self.account, &self.qos, &self.reservation].into_iter().flatten();
        match values.chain(&self.options).find(|value| value.chars().any(char::is_control)) {
            Some(value) => Err(format!("slurm: {value:?} has a control character")),
            None => Ok(()),
        }
    }
}

/// Number of repetitions, and their distance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Repeat {
    times: Option<NonZeroU32>,
    #[serde(default, deserialize_with = "duration")]
    every: Option<Duration>,
}

impl Repeat {
    /// Repetitions.
    pub fn times(&self) -> u32 {
        self.times.map_or(1, NonZeroU32::get)
    }

    /// Time from one repetition's start to the next.
    pub fn every(&self) -> Duration {
        self.every.unwrap_or_default()
    }
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    parse::duration(&String::deserialize(deserializer)?).map(Some).map_err(D::Error::custom)
}

/// Host on which an element is to run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
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

/// A plan: as it is written, and what was made of it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Plan {
    /// Name of the campaign.
    pub name: String,
    #[serde(default)]
    hosts: Vec<Hosts>,
    /// Targets, each once per experiment, variant and repetition.
    #[serde(skip)]
    pub targets: Vec<Target>,
    /// Experiments.
    #[serde(rename = "experiment")]
    pub experiments: Vec<Experiment>,
    /// Variants; never empty.
    #[serde(default, rename = "variant")]
    pub variants: Vec<Variant>,
    /// Number of repetitions, and their distance.
    #[serde(default)]
    pub repeat: Repeat,
    /// Options for Slurm.
    #[serde(default)]
    pub slurm: SlurmOptions,
    /// The text of the file.
    #[serde(skip)]
    pub text: String,
    /// The folder that relative paths in options start from.
    #[serde(skip)]
    pub folder: PathBuf,
}

/// Name of the only variant of a plan that has none.
pub const ONLY_VARIANT: &str = "default";

impl Plan {
    /// Reads and checks a plan.
    ///
    /// # Errors
    /// Exit 2 with the line or the key.
    pub fn from_file(path: &Path, slurm: &Slurm) -> Result<Self, Error> {
        let refuse = |why: String| refused(&path.display().to_string(), why);
        let text = results::open::named_text(path, MAX_PLAN).map_err(|error| refuse(error.to_string()))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = folder.canonicalize().map_err(|error| refuse(error.to_string()))?;
        Self::parse(&text, folder, slurm).map_err(refuse)
    }

    /// Checks a plan's text; relative paths start from `folder`.
    ///
    /// # Errors
    /// A fault of the plan.
    pub fn parse(text: &str, folder: PathBuf, slurm: &Slurm) -> Result<Self, String> {
        let mut plan: Self = toml::from_str(text).map_err(|error| parse::fault(text, &error))?;
        check_name("name", &plan.name)?;
        plan.slurm.check()?;
        plan.targets = targets(&plan.hosts, slurm)?;
        check_experiments(&mut plan.experiments)?;
        check_variants(&mut plan.variants, &folder)?;
        (plan.text, plan.folder) = (text.to_owned(), folder);
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
            None => variants.saturating_mul(self.targets.len() as u64).saturating_mul(u64::from(self.repeat.times())),
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

fn targets(hosts: &[Hosts], slurm: &Slurm) -> Result<Vec<Target>, String> {
    let mut targets = Vec::new();
    let mut names = BTreeSet::new();
    for (at, entry) in hosts.iter().enumerate() {
        let refuse = |why: String| format!("hosts {}: {why}", at + 1);
        match (&entry.names, &entry.constraint) {
            (Some(list), None) => {
                if entry.count.is_some() {
                    return Err(refuse("count is for a constraint; a host by name is one".to_owned()));
                }
                for name in slurm.hostnames(list).map_err(refuse)? {
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

fn check_variants(variants: &mut Vec<Variant>, folder: &Path) -> Result<(), String> {
    if variants.is_empty() {
        variants.push(Variant { name: ONLY_VARIANT.to_owned(), binary: None, options: Options::default() });
    }
    let mut names = BTreeSet::new();
    for Variant { name, binary, options } in variants {
        check_name("variant", name)?;
        if !names.insert(name.clone()) {
            return Err(format!("variant '{name}' is there twice"));
        }
        options.check(&format!("variant '{name}'"))?;
        *binary = binary.take().map(|binary| folder.join(binary));
    }
    Ok(())
}

fn check_experiments(experiments: &mut [Experiment]) -> Result<(), String> {
    if experiments.is_empty() {
        return Err("it has no [[experiment]]".to_owned());
    }
    let mut names: BTreeSet<String> = BTreeSet::new();
    for Experiment { name, run, options, parts, .. } in experiments {
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
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Result<Plan, String> {
        Plan::parse(text, PathBuf::from("/plans"), &Slurm::default())
    }

    const SMALL: &str = "name = 'small'\n[[experiment]]\nrun = 'sim'\n";

    #[test]
    fn a_variants_binary_is_found_from_the_plans_folder() {
        let plan = plan(&format!("{SMALL}[[variant]]\nname = 'old'\nbinary = 'bin/old'\n")).unwrap();
        assert_eq!(plan.variants[0].binary.as_deref(), Some(Path::new("/plans/bin/old")));
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
            (&more("[slurm]\nat-once = 0"), "line 5: invalid value"),
            (&more("[slurm]\noptions = ['--arr=0-9']"), "vpmu fleet sets it"),
            (&more("[slurm]\noptions = ['-a']"), "write it as --option=value"),
            (&more("[slurm]\nqos = \"a\\nb\""), "control character"),
            (&more("[[experiment]]\nrun = 'sim'"), "there twice"),
            (&more("[[hosts]]\nnames = 'a,a'"), "a is there twice"),
            (&more("[[hosts]]\ncount = 2"), "names = 'clx"),
            (&more("[[hosts]]\nconstraint = 'a;b'"), "none of Slurm's"),
            (&more("[[hosts]]\nconstraint = 'a'\ncount = 0"), "count is 0"),
            (&more("[repeat]\ntimes = 0"), "line 5: invalid value"),
            (&more("[repeat]\ntimes = 200000"), "more than 100000"),
        ] {
            let error = plan(text).unwrap_err();
            assert!(error.contains(needle), "{error:?} lacks {needle:?}");
        }
        let error = refused("p.toml", plan("").unwrap_err());
        assert_eq!(error.exit.code(), 2);
    }
}
