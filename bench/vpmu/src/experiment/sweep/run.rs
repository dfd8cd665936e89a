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
    let stored: BTreeMap<&str, &str> = found.lines.iter().map(|(key, line)| (key.as_str(), line.as_str())).collect();
    let parsed = |point: &Point| stored.get(point.key.as_str()).and_then(|text| serde_json::from_str(text).ok());
    let mut lines: Vec<Option<Line>> = points.iter().map(parsed).collect();
    let skipped = lines.iter().flatten().count();
    progress.begin((points.len() - skipped) as u64);
    let guarded = Mutex::new((&mut store, progress));
    let over = AtomicBool::new(false);
    let one = |(line, point): (&mut Option<Line>, &Point)| -> Result<(), Error> {
        if line.is_some() || stop.load(Ordering::Relaxed) || over.load(Ordering::Relaxed) {
            return Ok(());
        }
        let Some(found) = shared.line(point, stop)? else { return Ok(()) };
        let Ok(mut guard) = guarded.lock() else { return Ok(()) };
        // After a failed write (disk full), other threads append nothing more.
        if !over.load(Ordering::Relaxed) {
            let (store, progress) = &mut *guard;
            store.append(&text(&found)?).inspect_err(|_| over.store(true, Ordering::Relaxed))?;
            progress.step();
            *line = Some(found);
        }
        Ok(())
    };
    let ended = lines.par_iter_mut().zip(points).with_max_len(1).try_for_each(one);
    if let Ok((_, progress)) = guarded.into_inner() {
        progress.end();
    }
    let lines: Vec<Line> = lines.into_iter().flatten().collect();
    if let Err(mut error) = ended {
        let kept =
            format!("{} of {} points are kept there; run the same command again to go on", lines.len(), points.len());
        error.remedy = [error.remedy, kept].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ");
        return Err(error);
    }
    if lines.len() == points.len() {
        let mut sorted = lines.iter().map(text).collect::<Result<Vec<_>, _>>()?;
        sorted.extend(found.others(points).map(str::to_owned));
        store.finish(&sorted)?;
    }
    Ok(Outcome { lines, skipped })
}
