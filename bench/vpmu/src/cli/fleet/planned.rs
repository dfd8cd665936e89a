//! A plan's elements, and `vpmu fleet plan`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use results::error::{Error, Exit};
use results::table::fold::Table;
use results::table::layout::{columns, dash, plural};

use super::args::PlanArgs;
use crate::terminal::console::{print, print_json};
use fleet::campaign::element::{Element, elements};
use fleet::campaign::plan::{Plan, PlannedVariant, refused};

/// Checks a command line, program name first, and says how long it takes about; `None`: unknown.
pub(super) type Check<'a> = &'a dyn Fn(Vec<String>) -> Result<Option<Duration>, Error>;

/// Returns the plan's elements, with their command lines checked where this binary runs them.
pub(super) fn planned(path: &Path, check: Check<'_>) -> Result<(Plan, Vec<Element>), Error> {
    let plan = Plan::from_file(path)?;
    let line = |words: &[String]| std::iter::once("vpmu".to_owned()).chain(words.iter().cloned()).collect();
    let elements = elements(&plan, &|words| check(line(words)).ok().flatten());
    let own: BTreeSet<&str> =
        plan.variants.iter().filter(|variant| is_own(variant)).map(|variant| variant.name.as_str()).collect();
    for variant in &plan.variants {
        let Some(binary) = &variant.binary else { continue };
        let usable =
            std::fs::metadata(binary).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
        if !usable {
            let why = format!("variant '{}': {} is no file that can be executed", variant.name, binary.display());
            return Err(refused(&path.display().to_string(), why));
        }
    }
    let mut checked = BTreeSet::new();
    for element in elements.iter().filter(|element| own.contains(element.variant.as_str())) {
        if !checked.insert((&element.experiment, &element.variant)) {
            continue;
        }
        if let Err(error) = check(line(&element.words)) {
            let why = format!("experiment '{}', variant '{}': {error}", element.experiment, element.variant);
            return Err(refused(&path.display().to_string(), why));
        }
    }
    Ok((plan, elements))
}

const fn is_own(variant: &PlannedVariant) -> bool {
    variant.binary.is_none()
}

/// Runs `vpmu fleet plan`.
pub(super) fn plan(args: &PlanArgs, check: Check<'_>) -> Result<Exit, Error> {
    let (plan, elements) = planned(&args.plan, check)?;
    if args.json {
        return print_json(&elements).map(|()| Exit::Done);
    }
    let mut table = Table::new(["experiment", "variant", "elements", "each takes", "limit", "together"]).keys(2);
    let mut rows: Vec<(&str, &str, Vec<&Element>)> = Vec::new();
    for element in &elements {
        let name = (element.experiment.as_str(), element.variant.as_str());
        match rows.iter_mut().find(|row| (row.0, row.1) == name) {
            Some(row) => row.2.push(element),
            None => rows.push((name.0, name.1, vec![element])),
        }
    }
    let mut unknown = false;
    for (experiment, variant, elements) in &rows {
        let each = elements[0].estimate_s;
        unknown |= each.is_none();
        let all = each.map(|each| each.saturating_mul(elements.len() as u64));
        table.add_row([
            (*experiment).to_owned(),
            (*variant).to_owned(),
            elements.len().to_string(),
            each.map_or_else(dash, seconds),
            seconds(elements[0].limit_s),
            all.map_or_else(dash, seconds),
        ]);
    }
    let mut text = table.text(columns()) + "\n";
    for (experiment, variant, elements) in &rows {
        if elements[0].estimate_s.is_some_and(|estimate| estimate > elements[0].limit_s) {
            let _ = writeln!(
                text,
                "{experiment}, {variant}: takes longer than its limit: it would be stopped each time; give a longer `time`"
            );
        }
    }
    let targets: Vec<String> = plan.targets.iter().map(ToString::to_string).collect();
    let spread = seconds(plan.every.as_secs().saturating_mul(u64::from(plan.times.saturating_sub(1))));
    let _ = writeln!(
        text,
        "{}: {} on {} ({}), {} over {spread}",
        plan.name,
        plural(elements.len(), "element"),
        plural(plan.targets.len(), "host"),
        shortened(&targets),
        plural(plan.times as usize, "repetition"),
    );
    let known: u64 = elements.iter().filter_map(|element| element.estimate_s).sum();
    let least =
        if unknown { ", and what has no estimate (its limit is the experiment's `time`, or 30 min)" } else { "" };
    let _ = writeln!(text, "one after the other: about {}{least}", seconds(known));
    print(&text).map(|()| Exit::Done)
}

/// Returns the first names of a list, and how many more.
fn shortened(names: &[String]) -> String {
    const SHOWN: usize = 6;
    let more = names.len().saturating_sub(SHOWN);
    let first = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if more == 0 { first } else { format!("{first} and {more} more") }
}

fn seconds(seconds: u64) -> String {
    humantime::format_duration(Duration::from_secs(seconds)).to_string()
}
