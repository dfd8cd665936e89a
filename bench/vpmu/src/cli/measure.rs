//! Carrying out an experiment of arms and rounds: progress, files, table, exit code.

use std::collections::BTreeSet;

use results::answers::exit;
use results::document::{Document, Record};
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};
use results::table::layout::columns;
use results::table::{self, Part, Report, add_choice};

use super::files::Kept;
use super::options::{GuestResultOptions, ResultOptions};
use super::prepare::{Fallback, MakePlan, On, ready, tried};
use crate::arms::rounds::run as rounds;
use crate::engine::plain::{self, Plain};
use crate::engine::{Context, Measured};
use crate::sys;
use crate::terminal::console::{self, complain, print};
use crate::terminal::progress;

/// Runs a plan, shows its progress, and keeps its document as it grows.
fn measure(
    on: On<'_>,
    plan: MakePlan<'_>,
    options: &ResultOptions,
    command_line: &[String],
) -> Result<(Measured, Kept), Error> {
    let mut kept = Kept::of(options)?;
    let (plan, runner, host, fs) = ready(on, plan)?;
    console::catch_interrupts()?;
    let mut progress = progress::shown(!options.quiet.quiet);
    let context = Context {
        stop: sys::interrupted(),
        fs: &fs,
        host,
        command_line,
        progress: progress.as_mut(),
        save: &mut |document: &Document| kept.save(document),
    };
    Ok((rounds::run(&plan, &runner, context)?, kept))
}

/// Documents of several plans, and how they ended.
pub(super) struct Found {
    pub(super) documents: Vec<Document>,
    /// Their files.
    pub(super) kept: Vec<Kept>,
    /// The first error.
    pub(super) failed: Option<Error>,
}

/// Measures by each plan, one after the other, until the user ends them, or one fails unless it `goes_on`.
pub(super) fn measure_each(
    mut on: On<'_>,
    goes_on: bool,
    options: &ResultOptions,
    plans: &[MakePlan<'_>],
    command_line: &[String],
) -> Result<Found, Error> {
    let mut found = Found { documents: Vec::new(), kept: Vec::new(), failed: None };
    for plan in plans {
        match measure(on, *plan, options, command_line) {
            Ok(((document, error), kept)) => {
                found.documents.push(document);
                found.failed = found.failed.or(error).or_else(|| kept.failed.clone());
                found.kept.push(kept);
                // What is missing is the same for all plans, and is said once.
                on.fallback = on.fallback.min(Fallback::Quietly);
            }
            Err(error) if found.documents.is_empty() => return Err(error),
            // What was measured before is shown.
            Err(error) => found.failed = found.failed.or(Some(error)),
        }
        if found.failed.is_some() && !goes_on || sys::stopped() {
            break;
        }
        // The first answer is there while the rest is measured.
        let more = !goes_on && !options.quiet.quiet && found.documents.len() < plans.len();
        if more && let Some(Part::Note(answer)) = table::report(&found.documents, false).parts.first() {
            complain(answer);
        }
    }
    Ok(found)
}

/// Measures by each plan, and shows and keeps what they found together.
pub(super) fn measure_all(
    on: On<'_>,
    out: &GuestResultOptions,
    plans: &[MakePlan<'_>],
    command_line: &[String],
) -> Result<Exit, Error> {
    let GuestResultOptions { result: options, verbose, baseline } = out;
    // Whatever can be refused is refused before anything is measured.
    plans.iter().try_for_each(|plan| tried(on.model, *plan))?;
    baseline.check(options)?;
    let measured = measure_each(on, false, options, plans, command_line)?;
    let Found { documents: mut found, mut kept, mut failed } = measured;
    // What was chosen of all workloads is in the file of each.
    if found.len() == plans.len() && add_choice(&mut found) {
        for (document, kept) in found.iter().zip(&mut kept) {
            kept.save(document)?;
            failed = failed.or_else(|| kept.failed.clone());
        }
    }
    if failed.is_none() && found.len() < plans.len() {
        complain(&format!("warning: interrupted: {} of {} workloads were measured", found.len(), plans.len()));
    }
    if found.len() == plans.len() {
        let keep = |document: &Document| {
            let (workload, mut name) = (&document.parameters.workload, document.experiment.clone());
            if plans.len() > 1 {
                name = format!("{name}-{}", workload.replace('/', "-"));
            }
            let exit = document.exit.map_or_else(|| exit(document), Exit::from_code);
            baseline.keep(options, document, &name, exit)
        };
        failed = failed.or(found.iter().try_for_each(keep).err());
    } else if baseline.save_baseline.is_some() {
        complain("warning: the baseline is left as it was: this run is not complete");
    }
    if let Some(last) = found.last_mut() {
        last.ended_by(failed.as_ref());
    }
    if options.json.json {
        found.iter().try_for_each(|document| print(&document.to_json()?))?;
    } else {
        let mut report = table::report(&found, *verbose);
        let more = if plans.len() > 1 { "; vpmu advise: more strategies, how sure" } else { "" };
        report.notes((!verbose).then(|| format!("vpmu -v: percentiles, host work{more}")));
        print(&(report.text(columns()) + &kept.iter().map(Kept::line).collect::<String>()))?;
    }
    let mut printed = BTreeSet::new();
    for document in &found {
        let of = if plans.len() > 1 { format!("{}: ", document.parameters.workload) } else { String::new() };
        for line in table::warnings(&document.warnings) {
            // The host's are those of every workload.
            let line = if line.starts_with("noise sources") { line } else { of.clone() + &line };
            if printed.insert(line.clone()) {
                complain(&format!("warning: {line}"));
            }
        }
    }
    let worst = found.iter().filter_map(|document| document.exit).map(Exit::from_code).find(|exit| *exit != Exit::Done);
    failed.map_or_else(|| Ok(worst.unwrap_or(Exit::Done)), Err)
}

/// Carries out an experiment of plain arms on this host, shows its document, and keeps it as it grows; `then` adds to the document what
/// follows from its rounds.
pub(super) fn measure_then(
    (experiment, mut arms): (plain::Experiment, Vec<Plain<'_>>),
    options: &ResultOptions,
    command_line: &[String],
    then: &mut dyn FnMut(&mut Record),
    report: &dyn Fn(&Record) -> Report,
) -> Result<Record, Error> {
    let mut kept = Kept::of(options)?;
    let fs = HostFs::default();
    let host = HostFacts::begin(&fs);
    console::catch_interrupts()?;
    let mut progress = progress::shown(!options.quiet.quiet);
    let save = &mut |document: &Record| kept.save(document);
    let (mut document, error) = experiment.measure(&mut arms, (host, &fs), command_line, progress.as_mut(), save)?;
    then(&mut document);
    document.ended_by(error.as_ref());
    kept.save(&document)?;
    let error = error.or_else(|| kept.failed.clone());
    document.ended_by(error.as_ref());
    print(&if options.json.json { document.to_json()? } else { report(&document).text(columns()) + &kept.line() })?;
    for line in table::warnings(&document.warnings) {
        complain(&format!("warning: {line}"));
    }
    error.map_or(Ok(document), Err)
}
