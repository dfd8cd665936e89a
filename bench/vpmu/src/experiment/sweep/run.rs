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
    /// Lines of finished points, in the order of the grid; fewer than points if the user interrupted the sweep.
    pub lines: Vec<Line>,
    /// Number of points found in the store.
    pub skipped: usize,
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
    let mut lines: BTreeMap<usize, Line> = BTreeMap::new();
    let stored: BTreeMap<&str, &str> = found.lines.iter().map(|(key, line)| (key.as_str(), line.as_str())).collect();
    for (at, point) in points.iter().enumerate() {
        let line = stored.get(point.key.as_str()).and_then(|text| Line::parse(text).ok());
        line.map(|line| lines.insert(at, line));
    }
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
    let (done, errors): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    lines.extend(done.into_iter().filter_map(Result::ok).flatten());
    if let Some(mut error) = errors.into_iter().find_map(Result::err) {
        let kept =
            format!("{} of {} points are kept there; run the same command again to go on", lines.len(), points.len());
        error.remedy = [error.remedy, kept].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ");
        return Err(error);
    }
    if lines.len() == points.len() {
        let mut sorted = lines.values().map(text).collect::<Result<Vec<_>, _>>()?;
        sorted.extend(found.others(points).map(str::to_owned));
        store.finish(&sorted)?;
    }
    Ok(Outcome { lines: lines.into_values().collect(), skipped })
}
