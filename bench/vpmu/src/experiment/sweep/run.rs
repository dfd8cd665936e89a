//! Simulates the missing points of a grid on all cores.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

use super::point::{Entry, GridPoint, PointResult, StoredResult};
use super::simulate::Simulator;
use super::store::{Found, Store};
use crate::terminal::progress::Progress;
use results::error::Error;

/// State of a sweep at its end.
#[derive(Debug)]
pub struct Outcome {
    /// Points in the order of the grid, each with its result if there is one.
    pub points: Vec<Entry>,
    /// Number of points found in the store.
    pub skipped: usize,
    /// True if the user interrupted the sweep.
    pub interrupted: bool,
}

impl Outcome {
    /// Returns the number of points with a result.
    pub fn done(&self) -> usize {
        self.points.iter().filter(|(_, result)| result.is_some()).count()
    }
}

/// Returns the stored results of `points`, by index.
pub fn finished(points: &[GridPoint], found: &Found) -> BTreeMap<usize, StoredResult> {
    let here: BTreeMap<String, usize> = points.iter().enumerate().map(|(at, point)| (point.key(), at)).collect();
    let mut finished = BTreeMap::new();
    for line in found.lines.iter().filter_map(|text| StoredResult::parse(text)) {
        if let Some(&at) = here.get(&line.key)
            && line.point == points[at]
        {
            finished.entry(at).or_insert(line);
        }
    }
    finished
}

/// Simulates the missing points on the threads of rayon's current pool.
///
/// # Errors
/// Exit 2 if a result cannot be written; results written before stay.
pub fn run(
    points: Vec<GridPoint>,
    simulator: &Simulator,
    (mut store, found): (Store, Found),
    stop: &AtomicBool,
    progress: &mut (dyn Progress + Send),
) -> Result<Outcome, Error> {
    let mut lines = finished(&points, &found);
    let skipped = lines.len();
    progress.begin((points.len() - skipped) as u64);
    let missing: Vec<usize> = (0..points.len()).filter(|at| !lines.contains_key(at)).collect();
    let shared = Mutex::new((&mut store, progress));
    let failed = AtomicBool::new(false);
    let one = |&at: &usize| -> Result<Option<(usize, StoredResult)>, Error> {
        if stop.load(Ordering::Relaxed) || failed.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let line = StoredResult::new(points[at].clone(), simulator.result(&points[at])?);
        let Ok(mut shared) = shared.lock() else { return Ok(None) };
        // After a failed write (disk full), other threads append nothing more.
        if failed.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let (store, progress) = &mut *shared;
        store.append(&line.text()?).inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
        progress.step();
        Ok(Some((at, line)))
    };
    let results: Vec<Result<_, Error>> = missing.par_iter().with_max_len(1).map(one).collect();
    if let Ok((_, progress)) = shared.into_inner() {
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
        let mut sorted = lines.values().map(StoredResult::text).collect::<Result<Vec<_>, _>>()?;
        sorted.extend(found.others(&points));
        store.finish(&sorted)?;
    }
    let mut results: BTreeMap<usize, PointResult> = lines.into_iter().map(|(at, line)| (at, line.result)).collect();
    let points = points.into_iter().enumerate().map(|(at, point)| (point, results.remove(&at))).collect();
    Ok(Outcome { points, skipped, interrupted })
}
