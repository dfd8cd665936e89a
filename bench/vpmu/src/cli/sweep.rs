//! `vpmu sweep`.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use clap::Args;
use results::error::{Error, Exit};
use results::paired::Statistic;

use crate::experiment::sweep::grid::Grid;
use crate::experiment::sweep::pareto;
use crate::experiment::sweep::point::{Point, Shared};
use crate::experiment::sweep::store::{self, Found, Store};
use crate::experiment::sweep::{run as sweep, show};
use crate::setting::parse::{folder, number_in, one_of};
use crate::sys;
use crate::terminal::console::{self, Form, complain, internal, print};
use crate::terminal::progress;

pub(super) const EXAMPLES: &str = "\
Examples:
  # every preset on the default model, ten events multiplexed
  vpmu sweep
  # two strategies where creating an event costs more or less
  vpmu sweep strategy=deferred,pool seed=1-5 -o out \\
    workload=sampling4,sampling10 cost.open=0.1,1,10
  # eight vCPUs that share CPUs
  vpmu sweep model=clx-ap-watchdog-on vcpus=8 cpus=2,4,8 \\
    slice=1ms,10ms release-slices=1,2,8
  # list the points, simulate nothing
  vpmu sweep --grid grid.toml --dry-run
  # again after a kill or a full disk: goes on where it stopped
  vpmu sweep --grid grid.toml -o out

A grid file has the same keys (docs/simulator.md):
  strategy = ['deferred', 'mine.toml']
  workload = 'sampling10'
  cost.open = [0.1, 1, 10]
  seed = '1-5'

Exit codes: 0 done, 2 bad usage, bad grid or a result that
cannot be written, 3 interrupted, 70 a bug of vpmu.";

/// Statistics to compare by.
const BY: [Statistic; 4] = [Statistic::P50, Statistic::P90, Statistic::P99, Statistic::Mean];

/// Options of `vpmu sweep`.
#[derive(Clone, Debug, Args)]
pub struct SweepArgs {
    /// Values of an option of vpmu sim, by its long name: each combination is a point
    ///
    /// model, workload, vcpus, cpus, period, freq, mux-interval, seed (1-5 is five of them), rounds, samples and so on; cost.NAME
    /// multiplies a cost of the model; trace=DIR takes the place of the guest. The strategies are arms of one point, as in vpmu sim. A
    /// point has one round of 2000 samples in at most 10 s of fresh guests with sampling10 unless a key says otherwise.
    #[arg(value_name = "KEY=LIST")]
    pub keys: Vec<String>,

    /// Keys from a TOML file; those on the command line replace the file's
    #[arg(long, value_name = "FILE")]
    pub grid: Option<PathBuf>,

    /// Simulate one of N parts of the points, e.g. 3/16: for machines that share the work; `vpmu fleet` puts them together
    #[arg(long, value_name = "K/N", value_parser = part)]
    pub part: Option<Part>,

    /// List the points with their keys (+ marks those that are done) and simulate nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Latency statistic to compare by [default: p50; of traces mean]
    #[arg(long, value_name = "NUMBER", value_parser = one_of(&BY, Statistic::name, Statistic::about))]
    pub by: Option<Statistic>,

    /// Threads [default: one for each CPU]; results do not depend on it
    #[arg(long, value_name = "N", value_parser = number_in(1..=1024))]
    pub threads: Option<u64>,

    /// Folder of sweep.jsonl, a line per point, and of pareto.json and pareto.md
    #[arg(short = 'o', long = "output", value_name = "DIR", default_value = "vpmu-results", value_parser = folder)]
    pub output: PathBuf,

    /// Print the comparison (with --dry-run the points) as JSON
    #[arg(long, conflicts_with = "markdown")]
    pub json: bool,

    /// Print the comparison as Markdown
    #[arg(long, conflicts_with = "dry_run")]
    pub markdown: bool,

    /// No progress bar
    #[arg(short, long)]
    pub quiet: bool,
}

/// One of N parts: K and N.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    of: usize,
    number: usize,
}

impl Part {
    /// Takes this part of the points of a grid: point i is in part i mod N.
    fn take<T>(self, points: Vec<T>) -> Vec<T> {
        points.into_iter().skip(self.number - 1).step_by(self.of).collect()
    }
}

fn part(text: &str) -> Result<Part, String> {
    let numbers = text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
    match numbers {
        Some((number, of)) if number >= 1 && number <= of => Ok(Part { of, number }),
        _ => Err(format!("'{text}' is no part; give K/N with K from 1 to N, e.g. 3/16")),
    }
}

pub(super) fn run(args: &SweepArgs) -> Result<Exit, Error> {
    let (mut points, shared) = Grid::new(args.grid.as_deref(), &args.keys)?.points()?;
    if let Some(part) = args.part {
        points = part.take(points);
    }
    if args.dry_run {
        return dry_run(args, &points, &shared);
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

    sys::keep_freed_memory();
    let mut progress = progress::shown(!args.quiet);
    let outcome =
        pool.install(|| sweep::run(&points, &shared, (store, found), sys::interrupted(), progress.as_mut()))?;

    let pareto = pareto::compare(&outcome.lines, args.by);
    let fronts = show::save(&args.output, &pareto)?;
    let form = Form::of(args.json, args.markdown);
    console::show(form, &show::report(&pareto), &pareto)?;
    if form == Form::Text {
        let saved = format!("saved: {}{}\n", args.output.join(store::FILE).display(), beside(fronts));
        let done = format!("{} of {} points{}", outcome.lines.len(), points.len(), skipped(outcome.skipped));
        print(&format!("{done}\n{saved}"))?;
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

/// Returns the files beside the points, in the line that names those.
fn beside(fronts: bool) -> String {
    if fronts { format!(" (and {}, {})", store::FRONT, show::MARKDOWN) } else { String::new() }
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

fn dry_run(args: &SweepArgs, points: &[Point], shared: &Shared) -> Result<Exit, Error> {
    let done = sweep::finished(points, &Found::read(&args.output)?);
    if args.json {
        let lines = points
            .iter()
            .map(|point| serde_json::to_string(&point.shown()).map_err(|error| internal("cannot show a point", error)));
        print(&(lines.collect::<Result<Vec<_>, _>>()?.join("\n") + "\n"))?;
    } else {
        let total = format!("{} points of {}, {} of them done\n", points.len(), shared.names().join(", "), done.len());
        print(&(show::dry_run(points, |at| done.contains_key(&at)) + &total))?;
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_take_every_nth_point() {
        let of = |text: &str| part(text).unwrap().take((0..7).collect());
        assert_eq!((of("1/3"), of("2/3"), of("3/3")), (vec![0, 3, 6], vec![1, 4], vec![2, 5]));
        assert_eq!(of("8/9"), Vec::<i32>::new());
    }
}
