//! `vpmu report`.

use std::ffi::OsStr;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use fleet::{self, FleetSpec};
use perf_data::calls::CUT;
use perf_data::record::MOST_ENTRIES;
use results::document::Record;
use results::error::{Error, Exit};
use results::read::{LeftOut, folder_beside, found, record};
use results::report::{Sources, html, published};
use results::shown;
use results::table::layout::plural;
use results::write::check_no_input;

use super::by_host;
use super::files::write;
use crate::experiment::reproduce::run::Simulated;
use crate::experiment::sweep::store;
use crate::inspect::record::beside::Nmis;
use crate::inspect::record::profile::{Contents, FEWER, MOST_MADE};
use crate::inspect::record::spec::PIPED;
use crate::inspect::record::{firefox, flame, profile};
use crate::removed;
use crate::setting::process;
use crate::terminal::console::{complain, print};

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
  # what a change made of it
  vpmu report before.data after.data
  # of several events that were recorded, one
  vpmu report perf.data --event exit:wrmsr
  # without a file
  vpmu record -g -o - -- run x.elf | vpmu report - -o x.html
  # for https://profiler.firefox.com
  vpmu report perf.data --format firefox -o profile.json

  # many hosts
  vpmu report --by-host fleet/ -o fleet.html

The page needs no network; that of results needs no script: open it
in any browser, send it, print it.

Exit codes: 0 done, 2 bad usage or input, 3 a document
could not be used, or a recording is damaged or empty, 70 a bug of vpmu.";

/// Options of `vpmu report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// Result documents (.json), sweeps (.jsonl), or folders of them; or one recording (- is stdin), or two
    /// for the page of their difference
    #[arg(value_name = "DIR|FILE", default_value = "vpmu-results")]
    pub sources: Vec<PathBuf>,

    /// The page; - for stdout [default: report.html; of a recording FILE.html, folded: -, firefox: profile.json]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Form that is made of a recording
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "page")]
    pub format: RecordingFormat,

    /// A page by host: odd hosts, changes, a map of hosts and time; always so for campaigns
    #[arg(long)]
    pub by_host: bool,

    /// The title of the page or profile [default: vPMU lab report; of a recording its name]
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,

    /// The event of a recording whose samples are shown [default: the first that has any]
    #[arg(short, long, value_name = "NAME")]
    pub event: Option<String>,
}

/// Forms in which a recording is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RecordingFormat {
    /// A flame graph to click through, as HTML
    Page,
    /// Folded stacks, for FlameGraph, inferno and speedscope
    Folded,
    /// A profile for the Firefox profiler, as JSON
    Firefox,
}

impl ReportArgs {
    fn title(&self) -> &str {
        self.title.as_deref().unwrap_or("vPMU lab report")
    }

    fn output(&self) -> &Path {
        self.output.as_deref().unwrap_or(Path::new("report.html"))
    }

    /// Returns the path for a view of recording `source`.
    fn output_of(&self, source: &Path) -> PathBuf {
        let default = || match self.format {
            RecordingFormat::Page => {
                // Without a slash behind a folder's name.
                let mut name = source.components().as_path().as_os_str().to_owned();
                name.push(if self.sources.len() == 2 { ".difference.html" } else { ".html" });
                name.into()
            }
            RecordingFormat::Folded => "-".into(),
            RecordingFormat::Firefox => "profile.json".into(),
        };
        self.output.clone().unwrap_or_else(default)
    }
}

/// Extension of the file that `vpmu sweep` writes to a folder.
const SWEEP: &str = "jsonl";

/// Most samples whose times are in a page: some megabytes.
const MOST_TIMED: usize = 200_000;

/// Reads a recording, and says what of it is not shown.
fn contents(args: &ReportArgs, source: &Path) -> Result<Contents, Error> {
    let event = args.event.as_deref();
    let piped = source == Path::new("-");
    let contents = if piped { profile::from_stdin(event)? } else { profile::read(source, event)? };
    if event.is_none() {
        for (other, samples) in contents.others.iter().filter(|(_, samples)| *samples > 0) {
            complain(&format!(
                "notice: {samples} samples of {other} are left out, those of {} are shown: --event {other}",
                contents.event.name
            ));
        }
    }
    let (damage, named) = (contents.damage, &contents.named);
    let samples = named.samples.len();
    if damage.any() {
        complain(&format!("warning: {}", profile::said(&damage)));
    }
    if samples == 0 {
        complain(&format!(
            "warning: the recording has no samples{}",
            event.map_or(String::new(), |name| format!(" of {name}"))
        ));
    }
    if contents.lost > 0 {
        let of = if contents.of_ring { " by its ring, of all events in it," } else { "" };
        complain(&format!("notice: {} lost{of} when it was recorded", plural(contents.lost as usize, "sample")));
    }
    if contents.throttled > 0 {
        let (name, times) = (&contents.event.name, plural(contents.throttled as usize, "time"));
        complain(&format!("notice: the kernel stopped {name} up to the next tick {times}, as it had too many samples"));
    }
    for file in &contents.older {
        complain(&format!("notice: {} is older than the recording and left out", file.display()));
    }
    let (chains, entries) = named.cut;
    if chains > 0 {
        complain(&format!(
            "notice: {} {} more than {MOST_ENTRIES} entries: the {entries} outermost are left out, below {CUT}",
            plural(chains as usize, "call chain"),
            if chains == 1 { "has" } else { "have" }
        ));
    }
    if named.not_unwound > 0 {
        complain(&format!(
            "notice: {} without their callers in user code: stacks of 32-bit tasks, and of other architectures than \
             x86_64, are not unwound",
            plural(named.not_unwound, "sample")
        ));
    }
    if named.left_out > 0 {
        complain(&format!("notice: {} without names: all together are too large", plural(named.left_out, "file")));
    }
    Ok(contents)
}

/// Shows a recording in one of the forms, or the difference of one `before` it.
fn recording(args: &ReportArgs, source: &Path, before: Option<&Path>) -> Result<Exit, Error> {
    if args.title.is_some() && args.format == RecordingFormat::Folded {
        return Err(Error::usage("--title has nothing to do", "folded stacks have no title", "leave it out"));
    }
    let before = before.map(|before| contents(args, before)).transpose()?;
    let contents = contents(args, source)?;
    let source = if source == Path::new("-") { Path::new(PIPED) } else { source };
    let (event, samples, named) = (&contents.event.name, contents.named.samples.len(), &contents.named);
    if let Some(before) =
        before.as_ref().filter(|before| profile::imprecise(&before.event.name) != profile::imprecise(event))
    {
        return Err(Error::usage(
            "the recordings have different events",
            format!("the first is sampled by {}, the second by {event}", before.event.name),
            "give an --event of both",
        ));
    }
    let title = args.title.clone().unwrap_or_else(|| match &args.sources[..] {
        [one, two] => format!("{}: difference from {}", two.display(), one.display()),
        _ => source.display().to_string(),
    });
    let inconclusive = before.iter().chain([&contents]).any(|side| side.damage.any() || side.named.samples.is_empty());
    let made = match args.format {
        RecordingFormat::Page => {
            let nmis = contents.nmis.as_deref().filter(|_| before.is_none()).and_then(Nmis::read);
            if nmis.is_some() && samples > MOST_TIMED {
                complain(&format!(
                    "notice: {samples} samples are too many for a page with the guest's NMIs: they are left out"
                ));
            }
            flame::page(&contents, &title, nmis.filter(|_| samples <= MOST_TIMED).as_ref(), before.as_ref())
        }
        RecordingFormat::Folded => {
            named.tree().folded(&named.names, MOST_MADE).map(|text| shown::text(&text).into_owned())
        }
        RecordingFormat::Firefox => firefox::json(&contents, &title),
    };
    let made = made.map_err(|bound| {
        let what = format!("cannot show the recording {}", source.display());
        Error::usage(what, format!("what is made of it takes {bound}"), FEWER)
    })?;
    let output = args.output_of(source);
    if output == Path::new("-") {
        print(&made)?;
    } else {
        check_no_input(&output, &args.sources)?;
        write(&output, made.as_bytes())?;
        complain(&format!("{samples} samples in {}", output.display()));
    }
    Ok(if inconclusive { Exit::Inconclusive } else { Exit::Done })
}

pub(super) fn run(args: &ReportArgs) -> Result<Exit, Error> {
    let of_recordings = |source: &&PathBuf| *source == Path::new("-") || profile::is_recording(source);
    if args.sources.iter().any(|source| of_recordings(&source)) {
        let refused = |what: &str, why: String, remedy: &str| Err(Error::usage(what, why, remedy));
        return match (&args.sources[..], args.sources.iter().find(|source| !of_recordings(source))) {
            _ if args.by_host => {
                refused("--by-host is for results of hosts", "a recording is given".to_owned(), "leave it out")
            }
            (_, Some(other)) => {
                let why = if other.exists() { "is no recording" } else { "does not exist" };
                refused(
                    "a recording has no page together with results",
                    format!("{} {why}", other.display()),
                    "give them one by one",
                )
            }
            ([source], _) => recording(args, source, None),
            ([_, _], _) if args.format != RecordingFormat::Page => refused(
                "the difference of two recordings is a page alone",
                "--format asks for another form".to_owned(),
                "leave it out, or give one recording",
            ),
            ([before, after], _) if [before, after].iter().all(|source| *source != Path::new("-")) => {
                recording(args, after, Some(before))
            }
            ([_, _], _) => refused(
                "a recording from stdin has no other beside it",
                "two are given".to_owned(),
                "write it to a file first",
            ),
            (all, _) => refused(
                "a page has one recording or two",
                format!("{} are given", all.len()),
                "give one recording, or two for the page of their difference",
            ),
        };
    }
    if args.format != RecordingFormat::Page {
        return Err(Error::usage("--format is for a recording", "no source is one", "see vpmu export for results"));
    }
    if args.event.is_some() {
        return Err(Error::usage("--event is for a recording", "no source is one", "leave it out"));
    }
    if let [source] = &args.sources[..]
        && by_host::is_wanted(source, args.by_host)
    {
        return hosts(args, source);
    }
    if args.by_host || args.sources.iter().any(|source| by_host::is_wanted(source, false)) {
        return Err(Error::usage("a page by host has one source", "several are given", "give one campaign or folder"));
    }
    // As in `compare`, memory is not given back piece by piece at the end.
    let (sources, done) = sources(&args.sources)?;
    let sources = ManuallyDrop::new(sources);
    let page = html(&sources, args.title())?;
    if args.output() == Path::new("-") {
        return print(&page).map(|()| done);
    }
    check_no_input(args.output(), sources.records.iter().map(|record| &record.path).chain(&sources.sweeps))?;
    write(args.output(), page.as_bytes())?;
    complain(&format!(
        "{}, {} in {} ({:.1} MB)",
        plural(sources.records.len(), "result"),
        plural(sources.sweeps.len(), "sweep"),
        args.output().display(),
        page.len() as f64 / 1e6
    ));
    Ok(done)
}

/// Reports per host.
fn hosts(args: &ReportArgs, source: &Path) -> Result<Exit, Error> {
    let gathered = by_host::gather(source, false)?;
    let page = fleet::page(&fleet::analyse(&gathered.runs, &FleetSpec::default()), &[], args.title())?;
    if args.output() == Path::new("-") {
        print(&page)?;
    } else {
        check_no_input(args.output(), gathered.files(source))?;
        write(args.output(), page.as_bytes())?;
        let size = page.len() as f64 / 1e6;
        complain(&format!("{} in {} ({size:.1} MB)", plural(gathered.runs.len(), "result"), args.output().display()));
    }
    Ok(gathered.exit(Exit::Done))
}

fn is_sweep(path: &Path) -> bool {
    path.extension() == Some(OsStr::new(SWEEP))
}

/// Reads the results and sweeps of files and folders, beside the published figures, and says what is left out.
fn sources(given: &[PathBuf]) -> Result<(Sources, Exit), Error> {
    let (records, sweeps, left_out) = read(given)?;
    for LeftOut { path, why, .. } in &left_out {
        complain(&format!("left out: {} ({})", path.display(), why.why));
    }
    let done = if left_out.iter().any(|left| left.damaged) { Exit::Inconclusive } else { Exit::Done };
    let published = Simulated::stored()?.beside(&published::documents(&records)?)?;
    Ok((Sources { records, sweeps, published, tool: process::tool() }, done))
}

/// Results, sweeps, and files that are neither.
type Read = (Vec<Record>, Vec<PathBuf>, Vec<LeftOut>);

/// Reads the results and sweeps of files and folders. A folder may have either.
fn read(given: &[PathBuf]) -> Result<Read, Error> {
    let (mut all, mut sweeps, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    for source in given {
        if is_sweep(source) {
            sweeps.push(source.clone());
            continue;
        }
        let mut here = if source.is_dir() { of_kind(source, SWEEP)? } else { Vec::new() };
        // The index that `--by-host` keeps there is no sweep.
        here.retain(|path| path.file_name() != Some(OsStr::new(fleet::index::INDEX)));
        if here.is_empty() && source.is_dir() {
            let (records, others) = folder_beside(source)?;
            all.extend(records);
            left_out.extend(others);
        } else if here.is_empty() {
            all.push(record(source).map_err(|error| removed::recording(source).unwrap_or(error))?);
        } else {
            // A sweep leaves its front beside its lines; whatever else is there are results.
            let own = |path: &PathBuf| path.file_name().is_some_and(|name| name == store::FRONT);
            let results: Vec<PathBuf> = of_kind(source, "json")?.into_iter().filter(|path| !own(path)).collect();
            for result in results {
                match found(&result) {
                    Ok(record) => all.push(record),
                    Err(why) => left_out.push(LeftOut::new(&result, why)),
                }
            }
            sweeps.extend(here);
        }
    }
    Ok((all, sweeps, left_out))
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let unreadable = |error: std::io::Error| {
        Error::usage(format!("cannot read {}", dir.display()), error.to_string(), "give a folder of results")
    };
    let entries = std::fs::read_dir(dir).map_err(unreadable)?;
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(unreadable)).collect()
}

/// Lists the folder's files with that extension, in order of their names.
fn of_kind(dir: &Path, extension: &str) -> Result<Vec<PathBuf>, Error> {
    let mut paths: Vec<PathBuf> =
        entries(dir)?.into_iter().filter(|path| path.extension() == Some(OsStr::new(extension))).collect();
    paths.sort();
    Ok(paths)
}
