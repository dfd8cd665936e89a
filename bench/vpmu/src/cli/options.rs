//! Options that several commands share, each with one meaning: what is compared, where a result goes, and its baseline.

use std::path::PathBuf;

use clap::Args;
use results::document::{Document, Experiment, Status};
use results::error::{Error, Exit};
use results::read::{self, RESULTS};
use results::write::OutputFolder;

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

/// A baseline that the result is kept as.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Result")]
pub struct BaselineOptions {
    /// Also keep the result as DIR/baselines/NAME, even with --no-save, where `vpmu compare NAME NEW` finds it; with -o name that path
    #[arg(long, value_name = "NAME", value_parser = read::check_name)]
    pub save_baseline: Option<String>,
}

impl BaselineOptions {
    /// Returns the baseline's folder, in that of results.
    fn folder(&self, result: &ResultOptions) -> Option<PathBuf> {
        Some(read::baseline_folder(&result.output.or(RESULTS), self.save_baseline.as_ref()?))
    }

    /// Refuses one that has a document: `compare` would pool the two.
    pub(super) fn check(&self, result: &ResultOptions) -> Result<(), Error> {
        let Some(folder) = self.folder(result) else { return Ok(()) };
        if read::files(&folder).is_ok() {
            return Err(Error::usage(
                format!("baseline {} already exists", folder.display()),
                "replacing it or adding to it changes later comparisons",
                "give another name, or remove it",
            ));
        }
        OutputFolder::open(&folder).map(drop)
    }

    /// Keeps a complete document of a run that answers its question (`exit`) by this name.
    pub(super) fn keep<E: Experiment>(
        &self,
        result: &ResultOptions,
        document: &Document<E>,
        name: &str,
        exit: Exit,
    ) -> Result<(), Error> {
        let Some(folder) = self.folder(result) else { return Ok(()) };
        let lacks = match (document.status, exit) {
            (Status::Complete, Exit::Done) => {
                let path = folder.join(format!("{name}.json"));
                OutputFolder::open(&folder)?.replace(&path, document.to_json()?.as_bytes())?;
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
