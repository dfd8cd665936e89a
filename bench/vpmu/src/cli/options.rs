//! Options that several commands share, each with one meaning: what is compared, where a result goes, and its baseline.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use results::document::{Document, Experiment, Status};
use results::error::{Error, Exit};
use results::read::{self, RESULTS};
use results::write::OutputFolder;

use crate::experiment::nmi_latency::spec as nmi_latency;
use crate::experiment::{guest_stat, stat_setup};
use crate::setting::options::{FolderOption, JsonOption, QuietOption};
use crate::terminal::console::complain;

/// Arms and metrics to compare or follow.
#[derive(Clone, Debug, Args)]
pub struct SeriesOptions {
    /// Only these arms
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub arm: Vec<String>,

    /// Only these metrics, e.g. nmi_handler_ns
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub metric: Vec<String>,
}

/// Place and form of an experiment's result.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Result")]
pub struct ResultOptions {
    /// The folder of results.
    #[command(flatten)]
    pub output: FolderOption,

    /// Write no results
    #[arg(long)]
    pub no_save: bool,

    /// The document in place of the table.
    #[command(flatten)]
    pub json: JsonOption,

    /// Less on stderr.
    #[command(flatten)]
    pub quiet: QuietOption,
}

/// Place and form of the result of an experiment with guests.
#[derive(Clone, Debug, Args)]
pub struct GuestResultOptions {
    /// The result.
    #[command(flatten)]
    pub result: ResultOptions,

    /// Also show percentiles and host work by kind
    #[arg(short, long, conflicts_with = "json")]
    pub verbose: bool,

    /// The result as a baseline.
    #[command(flatten)]
    pub baseline: BaselineOptions,
}

impl ResultOptions {
    /// Returns the folder of results.
    pub(super) fn folder(&self) -> PathBuf {
        self.output.or(RESULTS)
    }
}

/// A baseline that the result is kept as.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Result")]
pub struct BaselineOptions {
    /// Also keep the result as DIR/baselines/NAME, even with --no-save, where `vpmu compare NAME NEW` finds it; with -o name that path
    #[arg(long, value_name = "NAME", value_parser = read::check_name)]
    pub save_baseline: Option<String>,
}

/// The experiments whose results are kept. A document's name begins with its experiment.
const EXPERIMENTS: [&str; 3] = [nmi_latency::NAME, guest_stat::NAME, stat_setup::NAME];

impl BaselineOptions {
    /// Returns the baseline's document of that name, in the folder of results: a file for each experiment.
    fn document(&self, result: &ResultOptions, name: &str) -> Option<PathBuf> {
        Some(read::baseline_folder(&result.folder(), self.save_baseline.as_ref()?).join(format!("{name}.json")))
    }

    /// Refuses one that has a document of the experiment, of whatever workload: `compare` would pool the two.
    pub(super) fn check(&self, result: &ResultOptions, name: &str) -> Result<(), Error> {
        let Some(path) = self.document(result, name) else { return Ok(()) };
        let folder = path.parent().unwrap_or(&path);
        let experiment = EXPERIMENTS.into_iter().find(|one| name.starts_with(one)).unwrap_or(name);
        let names = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let of_it = |name: &OsString| name.to_string_lossy().starts_with(experiment);
        match names.filter(of_it).min() {
            Some(there) => Err(Error::usage(
                format!("baseline {} already exists", folder.join(there).display()),
                "replacing it or adding to it changes later comparisons",
                "give another name, or remove it",
            )),
            None => OutputFolder::open(folder).map(drop),
        }
    }

    /// Keeps a complete document of a run that answers its question (`exit`) by this name.
    pub(super) fn keep<E: Experiment>(
        &self,
        result: &ResultOptions,
        document: &Document<E>,
        name: &str,
        exit: Exit,
    ) -> Result<(), Error> {
        let Some(path) = self.document(result, name) else { return Ok(()) };
        let folder = path.parent().unwrap_or(&path);
        let lacks = match (document.status, exit) {
            (Status::Complete, Exit::Done) => {
                OutputFolder::open(folder)?.replace(&path, document.to_json()?.as_bytes())?;
                complain(&format!("baseline: {}", path.display()));
                return Ok(());
            }
            (Status::Complete, _) => "inconclusive",
            _ => "not complete",
        };
        complain(&format!("warning: {} is left as it was: this run is {lacks}", folder.display()));
        Ok(())
    }
}
