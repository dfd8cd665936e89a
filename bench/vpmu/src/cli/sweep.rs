//! `vpmu sweep`.

use clap::Args;
use results::error::{Error, Exit};

use crate::experiment::sweep::pareto::{self, Swept};
use crate::experiment::sweep::{grid, store::Store};
use crate::setting::options::{FolderOption, JsonOption, QuietOption};
use crate::sys;
use crate::terminal::console::{self, complain, print};
use crate::terminal::progress;
use results::read::RESULTS;
use results::sweep::FILE;

/// Options of `vpmu sweep`.
#[derive(Clone, Debug, Args)]
pub struct SweepArgs {
    /// Values of an option of vpmu sim, by its long name: each combination is a point
    ///
    /// model, workload, vcpus, cpus, period, freq, mux-interval, seed (1-5 is five of them), rounds, samples and so on; cost.NAME
    /// multiplies a cost of the model. The strategies are arms of one point, as in vpmu sim. A
    /// point has one round of 2000 samples in at most 10 s of fresh guests with sampling10 unless a key says otherwise.
    #[arg(value_name = "KEY=LIST")]
    pub keys: Vec<String>,

    /// Simulate one of N parts of the points, e.g. 3/16: for machines that share the work (docs/fleet.md joins them)
    #[arg(long, value_name = "K/N", value_parser = part)]
    pub part: Option<Part>,

    /// Folder of sweep.jsonl, a line per point
    #[command(flatten)]
    pub output: FolderOption,

    /// JSON in place of the table.
    #[command(flatten)]
    pub json: JsonOption,

    /// Nothing on stderr but errors.
    #[command(flatten)]
    pub quiet: QuietOption,
}

/// One of N parts: K and N. Point i is in part i mod N.
pub type Part = (usize, usize);

fn part(text: &str) -> Result<Part, String> {
    let numbers = text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
    let valid = numbers.filter(|(number, of)| (1..=*of).contains(number));
    valid.ok_or_else(|| format!("'{text}' is no part; give K/N with K from 1 to N, e.g. 3/16"))
}

pub(super) fn run(args: &SweepArgs) -> Result<Exit, Error> {
    let (mut points, strategies) = grid::points(&args.keys)?;
    if let Some((number, of)) = args.part {
        points = points.into_iter().skip(number - 1).step_by(of).collect();
    }
    let folder = args.output.or(RESULTS);
    let store = Store::open(&folder)?;
    if store.torn > 0 {
        complain(&format!("notice: the last line of {FILE} was torn ({} bytes) and is dropped", store.torn));
    }
    let others = store.others(&points);
    if others > 0 {
        complain(&format!("notice: {others} points of another grid, model or revision are in {FILE}, not shown"));
    }
    console::catch_interrupts()?;
    sys::keep_freed_memory();
    let (file, mut progress) = (store.path.clone(), progress::shown(!args.quiet.quiet));
    let (lines, skipped) = store.run(&points, &strategies, sys::interrupted(), progress.as_mut())?;

    let found = Swept { answer: pareto::compare(&lines) };
    console::show(args.json.json, &pareto::report(&found.answer), &found)?;
    if !args.json.json {
        let before = if skipped > 0 { format!(", {skipped} of them from before") } else { String::new() };
        let (done, all) = (lines.len(), points.len());
        print(&format!("{done} of {all} points{before}\nsaved: {}\n", file.display()))?;
    }
    if lines.len() < points.len() {
        complain("warning: interrupted; run the same command again to go on");
        return Ok(Exit::Inconclusive);
    }
    Ok(Exit::Done)
}
