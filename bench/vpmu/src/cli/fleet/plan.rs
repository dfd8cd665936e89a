//! `vpmu fleet plan`.

use std::path::Path;
use std::time::Duration;

use fleet::campaign::element::{Element, elements};
use fleet::campaign::plan::{Plan, refused};
use fleet::slurm::command::Slurm;
use results::answers::List;
use results::error::{Error, Exit};
use results::table::layout::{columns, plural};
use results::table::{Report, Table};

use crate::setting::program::is_program;
use crate::terminal::console::{print, print_json};

/// Checks a command line, program name first.
pub(super) type Check<'a> = &'a dyn Fn(Vec<String>) -> Result<(), Error>;

/// Names the experiment and the variant of an element.
fn by_kind(element: &Element) -> [String; 2] {
    [element.experiment.clone(), element.variant.clone()]
}

/// Returns the plan's elements, with their command lines checked where this binary runs them.
pub(super) fn planned(path: &Path, check: Check<'_>, slurm: &Slurm) -> Result<(Plan, Vec<Element>), Error> {
    let plan = Plan::from_file(path, slurm)?;
    let elements = elements(&plan);
    for (name, binary) in plan.variants.iter().filter_map(|one| Some((&one.name, one.binary.as_ref()?))) {
        if !is_program(binary) {
            let why = format!("variant '{name}': {} is no file that can be executed", binary.display());
            return Err(refused(&path.display().to_string(), why));
        }
    }
    for (name, elements) in fleet::groups(&elements, by_kind) {
        // A variant's own binary knows its options.
        if plan.variants.iter().any(|variant| variant.name == name[1] && variant.binary.is_none()) {
            let words = std::iter::once("vpmu".to_owned()).chain(elements[0].words.iter().cloned());
            check(words.collect()).map_err(|error| {
                let why = format!("experiment '{}', variant '{}': {error}", name[0], name[1]);
                refused(&path.display().to_string(), why)
            })?;
        }
    }
    Ok((plan, elements))
}

/// Runs `vpmu fleet plan`.
pub(super) fn plan(path: &Path, json: bool, check: Check<'_>) -> Result<Exit, Error> {
    let (plan, elements) = planned(path, check, &Slurm::default())?;
    if json {
        return print_json(&List { items: elements }).map(|()| Exit::Done);
    }
    let mut table = Table::new(["experiment", "variant", "elements", "limit of each"]).keys(2);
    for ([experiment, variant], elements) in fleet::groups(&elements, by_kind) {
        table.add_row([experiment, variant, elements.len().to_string(), seconds(elements[0].limit_s)]);
    }
    let mut report = Report::default();
    report.heading(format!(
        "{}: {} for {} (--on local: all on this one), {}",
        plan.name,
        plural(elements.len(), "element"),
        plural(plan.targets.len(), "host"),
        plural(plan.repeat.times() as usize, "repetition"),
    ));
    report.table(table);
    let all = elements.iter().map(|element| element.limit_s).sum();
    report.note(format!("one after the other: at most {}", seconds(all)));
    report.notes(fleet::too_few(plan.targets.len()).filter(|_| plan.variants.len() > 1));
    print(&report.text(columns())).map(|()| Exit::Done)
}

fn seconds(seconds: u64) -> String {
    humantime::format_duration(Duration::from_secs(seconds)).to_string()
}
