//! `vpmu reproduce`.

use clap::Args;
use results::error::{Error, Exit};
use results::write::OutputFolder;

use crate::experiment::reproduce::measure::{Asked, measure};
use crate::experiment::reproduce::run::simulated;
use crate::experiment::reproduce::show;
use crate::setting::backend::this_host;
use crate::setting::options::{FormOptions, QuietOption};
use crate::terminal::console;
use crate::terminal::progress;

/// Options of `vpmu reproduce`.
#[derive(Clone, Debug, Args)]
pub struct ReproduceArgs {
    /// Measure on this host what a published figure says, in place of the table
    ///
    /// vpmu-reuse: the series that reuses host events, predicted, measured, compared, with the NMI watchdog as it is; with the
    /// module of host-pmu/kernel loaded, in KVM itself, too. perf-stat-setup: 700 events by perf's orders before and since its series.
    /// record-compression: a recording by level, beside stock perf. The others are measured by `vpmu triage`.
    #[arg(long, value_name = "FIGURE", value_parser = FIGURES)]
    pub run: Option<String>,

    /// Its size, and where its documents go.
    #[command(flatten)]
    pub asked: Asked,

    /// Form of the result.
    #[command(flatten)]
    pub form: FormOptions,

    /// Less on stderr.
    #[command(flatten)]
    pub quiet: QuietOption,
}

/// Figures that are measured here, by their ids' begin.
const FIGURES: [&str; 6] = [
    "vpmu-reuse",
    "perf-stat-setup",
    "record-compression",
    "event-practice.rand",
    "spinlock-share",
    "parallel-probing",
];

pub(super) fn run(args: &ReproduceArgs) -> Result<Exit, Error> {
    let Some(figure) = &args.run else {
        let found = simulated(args.asked.seed.seed)?;
        console::show(args.form.form(), &show::report(&found), &found)?;
        return Ok(Exit::Done);
    };
    // Whether it can be written to is known before anything is measured.
    let _folder = args.asked.output.as_deref().map(OutputFolder::open).transpose()?;
    console::catch_interrupts()?;
    let found = measure(figure, &args.asked, &this_host, progress::shown(!args.quiet.quiet).as_mut())?;
    console::show(args.form.form(), &show::report(&found), &found)?;
    let whole = found.here.as_ref().is_some_and(|here| here.whole);
    Ok(if whole { Exit::Done } else { Exit::Inconclusive })
}
