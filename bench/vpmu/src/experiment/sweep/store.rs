//! File of finished points, appended line by line: a kill leaves complete lines and at most one truncated line. The points that are
//! missing in it are simulated on all cores.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use serde::Deserialize;

use super::grid::{Point, Strategies};
use crate::setting::process;
use crate::terminal::progress::Progress;
use results::error::{Error, Exit};
use results::open::{self, Folder};
use results::sweep::{FILE, Line, MAX_BYTES, SCHEMA};
use results::write::append;

/// The file, open for appending and locked against other sweeps.
#[derive(Debug)]
pub struct Store {
    /// Its path.
    pub path: PathBuf,
    file: File,
    /// The folder, locked until drop.
    _locked: File,
    /// Complete lines with their keys, as they were when it was opened.
    lines: Vec<(String, String)>,
    /// Bytes of a truncated last line, which was removed.
    pub torn: usize,
}

impl Store {
    /// Opens or creates the file in `dir` and removes a truncated last line.
    ///
    /// # Errors
    /// Exit 2 for a file system error, a line that does not belong to a sweep, or if another sweep holds the lock.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let failed = |error: &io::Error| Error { remedy: "give -o another folder".to_owned(), ..cannot(dir, error) };
        let path = dir.join(FILE);
        let locked = Folder::make(dir).and_then(|folder| folder.handle()).map_err(|error| failed(&error))?;
        if !process::try_lock(&locked).map_err(|error| failed(&error))? {
            return Err(Error::usage(
                format!("another sweep is writing to {}", dir.display()),
                "",
                "wait for it, or choose another folder with -o DIR",
            ));
        }
        let (lines, torn) = read(&path)?;
        let file = append(&path).map_err(|error| failed(&error))?;
        let len = lines.iter().map(|(_, line)| line.len() as u64 + 1).sum();
        file.set_len(len).map_err(|error| failed(&error))?;
        Ok(Self { path, file, _locked: locked, lines, torn })
    }

    /// Returns the number of lines of points not in `points`: of another grid, model or revision.
    pub fn others(&self, points: &[Point]) -> usize {
        let here: BTreeSet<&str> = points.iter().map(|point| point.key.as_str()).collect();
        self.lines.iter().filter(|(key, _)| !here.contains(key.as_str())).count()
    }

    /// Appends a line. An incomplete write is undone.
    fn append(&mut self, line: &Line) -> Result<(), Error> {
        let text = serde_json::to_string(line).map_err(|error| Error::internal("cannot show a point", error))? + "\n";
        let end = self.file.metadata().map_err(|error| cannot(&self.path, &error))?.len();
        self.file.write_all(text.as_bytes()).map_err(|error| {
            // If this fails, too, the next sweep removes the truncated line.
            let _ = self.file.set_len(end);
            cannot(&self.path, &error)
        })
    }

    /// Simulates the missing points on as many threads as rayon's pool has, and appends a line as soon as those before it are there, in
    /// the order of the grid. Returns the lines of finished points, fewer than points if the user interrupted the sweep, and how many of
    /// them were there before.
    ///
    /// # Errors
    /// Exit 2 if a result cannot be written; results written before stay.
    pub fn run(
        mut self,
        points: &[Point],
        strategies: &Strategies,
        stop: &AtomicBool,
        progress: &mut dyn Progress,
    ) -> Result<(Vec<Line>, usize), Error> {
        let stored: BTreeMap<&str, &str> = self.lines.iter().map(|(key, line)| (key.as_str(), line.as_str())).collect();
        let parsed = |point: &Point| stored.get(point.key.as_str()).and_then(|text| serde_json::from_str(text).ok());
        let mut lines: Vec<Option<Line>> = points.iter().map(parsed).collect();
        let skipped = lines.iter().flatten().count();
        let missing: Vec<usize> = (0..points.len()).filter(|&at| lines[at].is_none()).collect();
        progress.begin(missing.len() as u64);
        // The next of `missing` that nobody has taken.
        let next = AtomicUsize::new(0);
        let ended: Result<(), Error> = thread::scope(|scope| {
            let (sender, finished) = mpsc::channel();
            for _ in 0..rayon::current_num_threads().min(missing.len()) {
                let (sender, missing, next) = (sender.clone(), &missing, &next);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed)
                        && let Some(&at) = missing.get(next.fetch_add(1, Ordering::Relaxed))
                        // Without a receiver an error has ended the sweep.
                        && sender.send((at, strategies.line(&points[at], stop))).is_ok()
                    {}
                });
            }
            drop(sender);
            let mut early = BTreeMap::new();
            let mut due = missing.iter().copied().peekable();
            for (at, found) in finished {
                early.insert(at, found);
                while let Some(found) = due.peek().and_then(|at| early.remove(at)) {
                    // What lies behind a point that was stopped is not kept: lines are in order.
                    let Some(found) = found? else { return Ok(()) };
                    self.append(&found)?;
                    progress.step();
                    lines[due.next().unwrap_or_default()] = Some(found);
                }
            }
            Ok(())
        });
        progress.end();
        let lines: Vec<Line> = lines.into_iter().flatten().collect();
        ended.map_err(|error| {
            let (done, all) = (lines.len(), points.len());
            let kept = format!("{done} of {all} points are in {}", self.path.display());
            let again = format!("run the same command again to go on: {kept}");
            let is_bare = error.exit == Exit::Inconclusive || error.remedy.is_empty();
            Error { remedy: if is_bare { again } else { format!("{}; {again}", error.remedy) }, ..error }
        })?;
        Ok((lines, skipped))
    }
}

/// Reads the complete lines of the file with their keys, and the bytes of a truncated last one; nothing if there is no file.
fn read(path: &Path) -> Result<(Vec<(String, String)>, usize), Error> {
    /// Fields of a line of any revision.
    #[derive(Deserialize)]
    struct Head {
        schema: String,
        key: String,
    }
    let refuse = |why: String| {
        let remedy = "move it away, or choose another folder with -o DIR";
        Error::usage(format!("cannot go on with {}", path.display()), why, remedy)
    };
    let text = match open::found(path, MAX_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        file => file.and_then(open::bytes).map_err(|error| refuse(error.to_string()))?,
    };
    let mut text = String::from_utf8(text).map_err(|error| refuse(error.to_string()))?;
    let torn = text.len() - text.rfind('\n').map_or(0, |at| at + 1);
    text.truncate(text.len() - torn);
    let line = |(n, line): (usize, &str)| match serde_json::from_str(line) {
        Ok(Head { schema, key }) if schema == SCHEMA => Ok((key, line.to_owned())),
        Ok(Head { schema, .. }) => Err(refuse(format!("line {n}: its schema is {schema}, not {SCHEMA}"))),
        Err(error) => Err(refuse(format!("line {n}: {error}"))),
    };
    Ok(((1..).zip(text.lines()).map(line).collect::<Result<_, _>>()?, torn))
}

fn cannot(path: &Path, error: &io::Error) -> Error {
    Error::output(format!("cannot write {}", path.display()), error, "")
}

#[cfg(test)]
mod tests {
    use super::super::grid;
    use super::*;

    /// Ends the sweep at its first line.
    struct Stops<'a>(&'a AtomicBool);

    impl Progress for Stops<'_> {
        fn step(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_line_does_not_wait_for_the_points_behind_it() {
        let dir = tempfile::tempdir().unwrap();
        let words = ["strategy=recreate", "seed=1-40", "samples=20000"].map(str::to_owned);
        let (points, strategies) = grid::points(&words).unwrap();
        let stop = AtomicBool::new(false);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let run = || Store::open(dir.path())?.run(&points, &strategies, &stop, &mut Stops(&stop));
        // A point that is stopped in its first round is an error, a later one is not.
        let ended = pool.install(run).ok().map(|(lines, _)| lines.len());
        let done = std::fs::read_to_string(dir.path().join(FILE)).unwrap().lines().count();
        assert!((1..10).contains(&done) && ended.is_none_or(|lines| lines == done), "{done}");
    }

    #[test]
    fn a_folder_is_one_sweeps_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let _held = Store::open(&dir.path().join("new")).unwrap();
        assert!(Store::open(&dir.path().join("new")).unwrap_err().to_string().contains("another sweep"));
    }
}
