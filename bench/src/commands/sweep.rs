//! `vpmu sweep`.

use std::path::Path;
use std::sync::atomic::Ordering;

use super::internal;
use crate::cli::sweep::SweepArgs;
use crate::console::{complain, print};
use crate::error::{Error, Exit};
use crate::experiment::sweep::grid::Grid;
use crate::experiment::sweep::pareto::{self, Pareto};
use crate::experiment::sweep::point::Point;
use crate::experiment::sweep::simulate::Simulator;
use crate::experiment::sweep::store::{self, Found, Store};
use crate::experiment::sweep::{run as sweep, show};
use crate::progress::{Bar, Progress, Silent};
use crate::sys;
use results::write::replace;

pub(super) fn run(args: &SweepArgs) -> Result<Exit, Error> {
    let file = args.grid.as_deref().map(Grid::from_file).transpose()?.unwrap_or_default();
    let (points, models) = file.overridden_by(args.to_grid()?).points()?;
    if args.dry_run {
        return dry_run(args, &points);
    }
    let mut pool = rayon::ThreadPoolBuilder::new();
    if let Some(threads) = args.threads {
        pool = pool.num_threads(usize::try_from(threads).unwrap_or(1));
    }
    let pool =
        pool.build().map_err(|error| Error::host("cannot start threads", error.to_string(), "give fewer --threads"))?;
    let (store, found) = Store::open(&args.output)?;
    say_what_was_found(&points, &found);
    sys::catch_interrupts().map_err(|error| internal("cannot catch SIGINT", error))?;

    let (mut bar, mut silent) = (Bar::new(), Silent);
    let progress: &mut (dyn Progress + Send) = if args.quiet { &mut silent } else { &mut bar };
    let (simulator, total) = (Simulator::new(models), points.len());
    let outcome = pool.install(|| sweep::run(points, &simulator, (store, found), sys::interrupted(), progress))?;

    let pareto = pareto::compare(&outcome.points, args.by);
    let json =
        serde_json::to_string_pretty(&pareto).map_err(|error| internal("cannot show the comparison", error))? + "\n";
    let markdown = show::markdown(&pareto);
    save(&args.output, &pareto, &json, &markdown)?;
    if args.json {
        print(&json)?;
    } else if args.markdown {
        print(&markdown)?;
    } else {
        let saved = format!("saved: {}\n", args.output.join(store::FILE).display());
        print(&format!(
            "{}{} of {total} points{}\n{saved}",
            show::text(&pareto),
            outcome.done(),
            skipped(outcome.skipped)
        ))?;
    }
    if outcome.interrupted {
        debug_assert!(sys::interrupted().load(Ordering::Relaxed), "nothing else ends a sweep without an error");
        complain("warning: interrupted; run the same command again to go on");
        return Ok(Exit::Inconclusive);
    }
    Ok(Exit::Done)
}

fn skipped(points: usize) -> String {
    if points == 0 { String::new() } else { format!(", {points} of them from before") }
}

/// pareto.json and pareto.md; nothing if no point is done.
fn save(dir: &Path, pareto: &Pareto, json: &str, markdown: &str) -> Result<(), Error> {
    if pareto.scenarios.iter().all(|scenario| scenario.rows.is_empty()) {
        return Ok(());
    }
    for (name, text) in [(store::FRONT, json), ("pareto.md", markdown)] {
        let path = dir.join(name);
        replace(&path, text.as_bytes()).map_err(|error| {
            Error::usage(
                format!("cannot write {}", path.display()),
                error.to_string(),
                "all points are kept; run the same command again once there is room",
            )
        })?;
    }
    Ok(())
}

fn say_what_was_found(points: &[Point], found: &Found) {
    if found.torn > 0 {
        complain(&format!("notice: the last line of {} was torn ({} bytes) and is dropped", store::FILE, found.torn));
    }
    let others = found.others(points).len();
    if others > 0 {
        complain(&format!(
            "notice: {others} points in {} are of another grid, model or revision: they stay in the file, and out of the table",
            store::FILE
        ));
    }
}

fn dry_run(args: &SweepArgs, points: &[Point]) -> Result<Exit, Error> {
    let done = sweep::finished(points, &Found::read(&args.output)?);
    if args.json {
        let lines = points
            .iter()
            .map(|point| serde_json::to_string(point).map_err(|error| internal("cannot show a point", error)));
        print(&(lines.collect::<Result<Vec<_>, _>>()?.join("\n") + "\n"))?;
    } else {
        let total = format!("{} points, {} of them done\n", points.len(), done.len());
        print(&(show::dry_run(points, |at| done.contains_key(&at)) + &total))?;
    }
    Ok(Exit::Done)
}
