//! Options of `vpmu fleet`.

use std::fs::Metadata;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use fleet::campaign::element::{Element, elements};
use fleet::campaign::plan::{Plan, Variant, refused};
use fleet::slurm::command::Slurm;
use results::error::{Error, Exit};
use results::table::layout::{columns, plural};
use results::table::{Report, Table};

use crate::setting::options::{FormOptions, JsonOption};
use crate::setting::parse;
use crate::terminal::console::{print, print_json};

/// Commands for a campaign.
#[derive(Clone, Debug, Subcommand)]
pub enum FleetCommand {
    /// List a plan's elements and their time limits; run nothing
    Plan {
        /// The plan
        plan: PathBuf,
        /// The elements as JSON.
        #[command(flatten)]
        json: JsonOption,
    },
    /// Run the elements of a plan that have no outcome
    Submit(SubmitArgs),
    /// Show how far a campaign is
    Status {
        /// Folder of the campaign
        dir: PathBuf,
        /// Wait until no element runs or waits for a node; exit 4 for jobs that never start
        #[arg(long)]
        wait: bool,
        /// JSON in place of the table.
        #[command(flatten)]
        json: JsonOption,
    },
    /// Judge: failed elements, hosts that stand apart, variants; writes report.html, summary.md, junit.xml
    Report {
        /// Folder of the campaign
        dir: PathBuf,
        /// Form of the report.
        #[command(flatten)]
        form: FormOptions,
    },
    /// Run one element, as its job does
    #[command(hide = true)]
    Element {
        /// Folder of the campaign
        dir: PathBuf,
        /// Number of the element
        number: u64,
    },
}

/// Place at which elements run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum On {
    /// On this machine, one after the other; the plan's hosts and times are names only.
    #[default]
    Local,
    /// As Slurm's array jobs.
    Slurm,
}

/// Options of `vpmu fleet submit`.
#[derive(Clone, Debug, Args)]
pub struct SubmitArgs {
    /// The plan
    pub plan: PathBuf,

    /// Place where elements run: local, one after the other, or slurm
    #[arg(long, value_enum, default_value_t, value_name = "PLACE", hide_possible_values = true)]
    pub on: On,

    /// Folder of the campaign, on a file system that every node has [default: vpmu-campaigns/NAME]
    #[arg(short, long, value_name = "DIR", value_parser = parse::folder)]
    pub output: Option<PathBuf>,

    /// No progress
    #[arg(short, long)]
    pub quiet: bool,
}

/// Checks a command line, program name first.
pub(super) type Check<'a> = &'a dyn Fn(Vec<String>) -> Result<(), Error>;

/// Names the experiment and the variant of an element.
fn by_kind(element: &Element) -> [String; 2] {
    [element.experiment.clone(), element.variant.clone()]
}

/// Returns the plan's elements, with their command lines checked where this binary runs them.
pub(super) fn planned(path: &Path, check: Check<'_>, slurm: &Slurm) -> Result<(Plan, Vec<Element>), Error> {
    let plan = Plan::from_file(path, slurm)?;
    let line = |words: &[String]| std::iter::once("vpmu".to_owned()).chain(words.iter().cloned()).collect();
    let elements = elements(&plan);
    for (name, binary) in plan.variants.iter().filter_map(|one| Some((&one.name, one.binary.as_ref()?))) {
        let is_program = |meta: Metadata| meta.is_file() && meta.permissions().mode() & 0o111 != 0;
        if !std::fs::metadata(binary).is_ok_and(is_program) {
            let why = format!("variant '{name}': {} is no file that can be executed", binary.display());
            return Err(refused(&path.display().to_string(), why));
        }
    }
    // A variant's own binary knows its options.
    let own = |variant: &Variant| variant.binary.is_none();
    for (name, elements) in fleet::groups(&elements, by_kind) {
        if plan.variants.iter().any(|variant| variant.name == name[1] && own(variant)) {
            check(line(&elements[0].words)).map_err(|error| {
                let key =
                    error.what.split_once("unexpected argument '--").and_then(|(_, rest)| rest.split('\'').next());
                let at = plan.experiments.iter().position(|one| one.name == name[0]);
                let line = at.zip(key).and_then(|(at, key)| line_of(&plan.text, at, key));
                let line = line.map_or_else(String::new, |line| format!("line {line}: "));
                let why = format!("{line}experiment '{}', variant '{}': {error}", name[0], name[1]);
                refused(&path.display().to_string(), why)
            })?;
        }
    }
    Ok((plan, elements))
}

/// Returns the number of the line that gives an option of the experiment at this place, or of a variant.
fn line_of(plan: &str, at: usize, key: &str) -> Option<usize> {
    let gives = |line: &str| {
        let is_alone = |before: &str| !before.ends_with(|last: char| last.is_alphanumeric() || "-_".contains(last));
        let has_value = |after: &str| after.trim_start_matches('"').trim_start().starts_with('=');
        let is_key = |(start, _)| is_alone(&line[..start]) && has_value(&line[start + key.len()..]);
        !line.trim_start().starts_with('#') && line.match_indices(key).any(is_key)
    };
    let (mut experiments, mut is_here) = (0, false);
    let found = plan.lines().position(|line| {
        if line.trim_start().starts_with("[[") {
            let is_experiment = line.trim_start().starts_with("[[experiment]]");
            is_here = !is_experiment || experiments == at;
            experiments += usize::from(is_experiment);
        }
        is_here && gives(line)
    });
    found.map(|line| line + 1)
}

/// Runs `vpmu fleet plan`.
pub(super) fn plan(path: &Path, json: bool, check: Check<'_>) -> Result<Exit, Error> {
    let (plan, elements) = planned(path, check, &Slurm::default())?;
    if json {
        return print_json(&elements).map(|()| Exit::Done);
    }
    let mut table = Table::new(["experiment", "variant", "elements", "limit of each"]).keys(2);
    for ([experiment, variant], elements) in fleet::groups(&elements, by_kind) {
        table.add_row([experiment, variant, elements.len().to_string(), seconds(elements[0].limit_s)]);
    }
    let mut report = Report::default();
    report.table(table);
    report.note(format!(
        "{}: {} for {} (--on local: all on this one), {}",
        plan.name,
        plural(elements.len(), "element"),
        plural(plan.targets.len(), "host"),
        plural(plan.repeat.times() as usize, "repetition"),
    ));
    let all = elements.iter().map(|element| element.limit_s).sum();
    report.note(format!("one after the other: at most {}", seconds(all)));
    report.notes(fleet::too_few(plan.targets.len()).filter(|_| plan.variants.len() > 1));
    print(&report.text(columns())).map(|()| Exit::Done)
}

fn seconds(seconds: u64) -> String {
    humantime::format_duration(Duration::from_secs(seconds)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_an_option_is_the_one_that_gives_it() {
        let plan = "# rows = 1\nname = 'rows'\n[[experiment]]\nrun = 'sim'\noptions = { rounds = 3, no-rows = 1 }\n\
                    [[experiment]]\n# rows = 2\nname = 'b'\noptions = { seed=1, rows=2 }\n[[variant]]\noptions.cpu = 1\n";
        assert_eq!([0, 1].map(|at| line_of(plan, at, "rows")), [None, Some(9)]);
        assert_eq!([0, 1].map(|at| line_of(plan, at, "rounds")), [Some(5), None]);
        assert_eq!([0, 1].map(|at| line_of(plan, at, "cpu")), [Some(11); 2]);
    }
}
