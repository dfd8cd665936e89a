//! `vpmu report`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use results::error::{Error, Exit};
use results::fleet::{self, FleetSpec};
use results::report::{Sources, html, published};
use results::table::layout::plural;

use super::by_host;
use super::files::{records, write};
use crate::console::{complain, print};
use crate::experiment::reproduce::run::reproduce;
use crate::experiment::sweep::store;
use crate::record::{flame, profile};
use crate::tool;

pub(super) const EXAMPLES: &str = "\
Examples:
  # every result of vpmu-results, as report.html
  vpmu report
  # two results, the page on stdout
  vpmu report before.json after.json -o -
  # a folder and a sweep
  vpmu report nightly sweep.jsonl -o nightly.html

  # a recording as a flame graph; its folded stacks
  vpmu report perf.data -o flame.html
  vpmu report perf.data --format folded

  # many hosts
  vpmu report --by-host fleet/ -o fleet.html

The page needs no network; that of results needs no script: open it
in any browser, send it, print it.

Exit codes: 0 done, 2 bad usage or input, 3 a document by host
could not be used, or a recording is damaged, 70 a bug of vpmu.";

/// Options of `vpmu report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// Result documents (.json), sweeps (.jsonl), or folders of them; or one recording of `vpmu record`
    #[arg(value_name = "DIR|FILE", default_value = "vpmu-results")]
    pub sources: Vec<PathBuf>,

    /// The page; - for stdout [default: report.html; folded: -]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// What is made of a recording
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "page")]
    pub format: RecordingFormat,

    /// A page by host: odd hosts, changes, a map of hosts and time; always so for campaigns
    #[arg(long)]
    pub by_host: bool,

    /// The page's title
    #[arg(long, value_name = "TEXT", default_value = "vPMU lab report")]
    pub title: String,
}

/// What is made of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RecordingFormat {
    /// A flame graph to click through, as HTML
    Page,
    /// Folded stacks, for FlameGraph, inferno and speedscope
    Folded,
}

impl ReportArgs {
    fn output(&self) -> &Path {
        let default = if self.format == RecordingFormat::Folded { "-" } else { "report.html" };
        self.output.as_deref().unwrap_or(Path::new(default))
    }
}

/// What `vpmu sweep` writes to a folder.
const SWEEP: &str = "jsonl";
/// Seed of the simulations behind published figures, the default of `vpmu reproduce`.
const SEED: u64 = 1;

/// The page, or the stacks, of a recording.
fn recording(args: &ReportArgs, source: &Path) -> Result<Exit, Error> {
    let profile = profile::read(source)?;
    for other in profile.events.iter().skip(1) {
        complain(&format!("notice: samples of {other} are left out: the page shows the first event"));
    }
    if profile.damage.any() {
        let damage = &profile.damage;
        complain(&format!(
            "warning: the recording is damaged: {} records, {} frames and {} bytes could not be used",
            damage.records, damage.frames, damage.rest
        ));
    }
    let made = match args.format {
        RecordingFormat::Page => flame::page(&profile, &source.display().to_string()),
        RecordingFormat::Folded => profile.stacks.folded(),
    };
    if args.output() == Path::new("-") {
        print(&made)?;
    } else {
        write(args.output(), made.as_bytes())?;
        complain(&format!("{} samples in {}", profile.stacks.total(), args.output().display()));
    }
    Ok(if profile.damage.any() { Exit::Inconclusive } else { Exit::Done })
}

pub(super) fn run(args: &ReportArgs) -> Result<Exit, Error> {
    if let [source] = &args.sources[..]
        && profile::is_recording(source)
    {
        return recording(args, source);
    }
    if args.sources.iter().any(|source| profile::is_recording(source)) {
        return Err(Error::usage(
            "a recording has a page of its own",
            "several sources are given",
            "give one recording",
        ));
    }
    if args.format != RecordingFormat::Page {
        return Err(Error::usage("--format is for a recording", "no source is one", "see vpmu export for results"));
    }
    if let [source] = &args.sources[..]
        && by_host::is_wanted(source, args.by_host)
    {
        return hosts(args, source);
    }
    if args.by_host || args.sources.iter().any(|source| by_host::is_wanted(source, false)) {
        return Err(Error::usage("a page by host has one source", "several are given", "give one campaign or folder"));
    }
    let sources = sources(&args.sources)?;
    let page = html(&sources, &args.title)?;
    if args.output() == Path::new("-") {
        return print(&page).map(|()| Exit::Done);
    }
    write(args.output(), page.as_bytes())?;
    complain(&format!(
        "{}, {} in {} ({:.1} MB)",
        plural(sources.records.len(), "result"),
        plural(sources.sweeps.len(), "sweep"),
        args.output().display(),
        page.len() as f64 / 1e6
    ));
    Ok(Exit::Done)
}

/// By host.
fn hosts(args: &ReportArgs, source: &Path) -> Result<Exit, Error> {
    let gathered = by_host::gather(source, false)?;
    let page = fleet::page(&fleet::analyse(&gathered.runs, &FleetSpec::default()), &[], &args.title)?;
    if args.output() == Path::new("-") {
        print(&page)?;
    } else {
        write(args.output(), page.as_bytes())?;
        let size = page.len() as f64 / 1e6;
        complain(&format!("{} in {} ({size:.1} MB)", plural(gathered.runs.len(), "result"), args.output().display()));
    }
    Ok(gathered.exit(Exit::Done))
}

fn is_sweep(path: &Path) -> bool {
    path.extension() == Some(OsStr::new(SWEEP))
}

/// The results and sweeps of files and folders. A folder may have either.
fn sources(given: &[PathBuf]) -> Result<Sources, Error> {
    let (mut all, mut sweeps) = (Vec::new(), Vec::new());
    for source in given {
        if is_sweep(source) {
            sweeps.push(source.clone());
            continue;
        }
        let here = if source.is_dir() { of_kind(source, SWEEP)? } else { Vec::new() };
        if here.is_empty() {
            all.extend(records(std::slice::from_ref(source))?);
        } else {
            // A sweep leaves its front beside its lines; whatever else is there are results.
            let own = |path: &PathBuf| path.file_name().is_some_and(|name| name == store::FRONT);
            let results: Vec<PathBuf> = of_kind(source, "json")?.into_iter().filter(|path| !own(path)).collect();
            all.extend(records(&results)?);
            sweeps.extend(here);
        }
    }
    let published = reproduce(SEED, &published::documents(&all)?)?;
    Ok(Sources { records: all, sweeps, published, tool: tool::this() })
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let unreadable = |error: std::io::Error| {
        Error::usage(format!("cannot read {}", dir.display()), error.to_string(), "give a folder of results")
    };
    let entries = std::fs::read_dir(dir).map_err(unreadable)?;
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(unreadable)).collect()
}

/// The folder's files with that extension, in order of their names.
fn of_kind(dir: &Path, extension: &str) -> Result<Vec<PathBuf>, Error> {
    let mut paths: Vec<PathBuf> =
        entries(dir)?.into_iter().filter(|path| path.extension() == Some(OsStr::new(extension))).collect();
    paths.sort();
    Ok(paths)
}
