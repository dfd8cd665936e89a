//! Simulates the missing points of a grid on all cores.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

use super::point::{Point, Shared};
use super::store::{Found, Store};
use crate::terminal::console::internal;
use crate::terminal::progress::Progress;
use results::error::Error;
use results::sweep::Line;

/// State of a sweep at its end.
#[derive(Debug)]
pub struct Outcome {
    /// Lines of finished points, in the order of the grid.
    pub lines: Vec<Line>,
    /// Number of points found in the store.
    pub skipped: usize,
    /// True if the user interrupted the sweep.
    pub interrupted: bool,
}

/// Returns the stored lines of `points`, by index.
pub fn finished(points: &[Point], found: &Found) -> BTreeMap<usize, Line> {
    let here: BTreeMap<&str, usize> = points.iter().enumerate().map(|(at, point)| (point.key.as_str(), at)).collect();
    let mut finished = BTreeMap::new();
    for line in found.lines.iter().filter_map(|text| Line::parse(text).ok()) {
        if let Some(&at) = here.get(line.key.as_str()) {
            finished.entry(at).or_insert(line);
        }
    }
    finished
}

fn text(line: &Line) -> Result<String, Error> {
    serde_json::to_string(line).map_err(|error| internal("cannot show a point", error))
}

/// Simulates the missing points on the threads of rayon's current pool.
///
/// # Errors
/// Exit 2 if a result cannot be written; results written before stay.
pub fn run(
    points: &[Point],
    shared: &Shared,
    (mut store, found): (Store, Found),
    stop: &AtomicBool,
    progress: &mut (dyn Progress + Send),
) -> Result<Outcome, Error> {
    let mut lines = finished(points, &found);
    let skipped = lines.len();
    progress.begin((points.len() - skipped) as u64);
    let missing: Vec<usize> = (0..points.len()).filter(|at| !lines.contains_key(at)).collect();
    let guarded = Mutex::new((&mut store, progress));
    let failed = AtomicBool::new(false);
    let one = |&at: &usize| -> Result<Option<(usize, Line)>, Error> {
        if stop.load(Ordering::Relaxed) || failed.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let Some(line) = shared.line(&points[at], stop)? else { return Ok(None) };
        let Ok(mut guard) = guarded.lock() else { return Ok(None) };
        // After a failed write (disk full), other threads append nothing more.
        if failed.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let (store, progress) = &mut *guard;
        store.append(&text(&line)?).inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
        progress.step();
        Ok(Some((at, line)))
    };
    let results: Vec<Result<_, Error>> = missing.par_iter().with_max_len(1).map(one).collect();
    if let Ok((_, progress)) = guarded.into_inner() {
        progress.end();
    }
    let mut first_error = None;
    for result in results {
        match result {
            Ok(Some((at, line))) => drop(lines.insert(at, line)),
            Ok(None) => {}
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    if let Some(mut error) = first_error {
        error.remedy = format!(
            "{} of {} points are kept there; run the same command again to go on{}",
            lines.len(),
            points.len(),
            if error.remedy.is_empty() { String::new() } else { format!(" ({})", error.remedy) }
        );
        return Err(error);
    }
    let interrupted = lines.len() < points.len();
    if interrupted {
        store.sync()?;
    } else {
        let mut sorted = lines.values().map(text).collect::<Result<Vec<_>, _>>()?;
        sorted.extend(found.others(points));
        store.finish(&sorted)?;
    }
    Ok(Outcome { lines: lines.into_values().collect(), skipped, interrupted })
}
