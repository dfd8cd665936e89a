//! `vpmu reproduce`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use results::document::{Document, Status};
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};
use results::published::Reproduction;
use results::read;
use results::write::{OutputFolder, now_unix, time_stamp};

use super::measure::{Invocation, Shown, measure_plain};
use crate::arms::linux::job::{Kind, LinuxJob};
use crate::arms::linux::spec::{GuestKind, LinuxGuestOptions};
use crate::experiment::reproduce::recipe;
use crate::experiment::reproduce::recording::{self, HERTZ, LEVELS, MOST_DEPTH, Recordings, What};
use crate::experiment::reproduce::run::reproduce;
use crate::experiment::reproduce::series::{SeriesSpec, series};
use crate::experiment::reproduce::set_up;
use crate::experiment::reproduce::show;
use crate::experiment::reproduce::watchdog::Watchdog;
use crate::inspect::triage::published::Practice;
use crate::inspect::triage::{Triage, cpus};
use crate::setting::backend::{ThisHost, open_kvm};
use crate::setting::parse::{duration_in, folder, number_in};
use crate::sys;
use crate::terminal::console::{self, Form, complain, internal};
use crate::terminal::progress;

pub(super) const EXAMPLES: &str = "\
Examples:
  # published beside simulated figures
  vpmu reproduce
  # and measured ones, where they answer a figure
  vpmu reproduce --measured vpmu-results/nmi-*.json
  # record a guest at each level of compression, some minutes
  vpmu reproduce --run record-compression
  # the series of 2019 on this host, ten minutes; a file to send
  vpmu reproduce --run vpmu-reuse --markdown -o out > reuse.md
  # threads in rand(), here: half a minute
  vpmu reproduce --run event-practice.rand

Exit codes: 0 done, 2 bad usage or input; with --run 3 it ended
early or could not measure all, 4 the host cannot do it; 70 a bug
of vpmu.";

/// Options of `vpmu reproduce`.
#[derive(Clone, Debug, Args)]
pub struct ReproduceArgs {
    /// Result documents (.json of nmi-latency) to set beside the published figures
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub measured: Vec<PathBuf>,

    /// Measure on this host what a published figure says, in place of the table
    #[arg(long, value_name = "FIGURE", value_enum, conflicts_with = "measured")]
    pub run: Option<Measurable>,

    /// Bound on --run vpmu-reuse, and on the rounds of perf-stat-setup [default: 10m, 1m]
    #[arg(long, value_name = "TIME", requires = "run",
          value_parser = duration_in(Duration::from_secs(1)..=Duration::from_secs(86_400)))]
    pub duration: Option<Duration>,

    /// Folder for the documents of vpmu-reuse, record-compression and record-overhead
    #[arg(short = 'o', long = "output", value_name = "DIR", requires = "run", value_parser = folder)]
    pub output: Option<PathBuf>,

    /// Rounds of --run, with everything once; five have an interval [default: 10; vpmu-reuse as many as fit, perf-stat-setup 15, record-compression 5]
    #[arg(long, value_name = "N", requires = "run", value_parser = number_in(1..=1000))]
    pub rounds: Option<u64>,

    /// Products of matrices that the guest of a recording makes, some ms each: how long it is [default: 1000, of record-overhead 3000]
    #[arg(long, value_name = "N", requires = "run", value_parser = number_in(1..=1_000_000))]
    pub products: Option<u64>,

    /// Calls that they are below: how large a sample is; 0: without call chains [default: 100]
    #[arg(long, value_name = "N", requires = "run", value_parser = number_in(0..=MOST_DEPTH))]
    pub depth: Option<u64>,

    /// Samples a second of record-compression [default: 3989]
    #[arg(long, value_name = "HZ", requires = "run", value_parser = number_in(1..=100_000))]
    pub frequency: Option<u64>,

    /// Levels of record-compression beside 0, of 1, 2, 3, 5, 8 [default: all]
    #[arg(long, value_name = "LIST", requires = "run", value_delimiter = ',', value_parser = level)]
    pub levels: Vec<u32>,

    /// Seed of the simulations; with --run of the order of what is measured [default: 1]
    #[arg(long, value_name = "N", value_parser = number_in(0..=u64::MAX))]
    pub seed: Option<u64>,

    /// Print Markdown in place of the table
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,

    /// Print JSON in place of the table
    #[arg(long)]
    pub json: bool,

    /// The guest of vpmu-reuse besides the payload.
    #[command(flatten)]
    pub linux: LinuxGuestOptions,
}

const SEED: u64 = 1;

/// A figure that is measured here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Measurable {
    /// The series that reuses host events: predicted, measured, compared, with the NMI watchdog on and off; with
    /// the module of host-pmu/kernel loaded, in KVM itself, too
    VpmuReuse,
    /// The set-up of 700 events by perf's orders before and since its series, likewise
    PerfStatSetup,
    /// Cost and savings of compressing a recording, by level, beside stock perf
    RecordCompression,
    /// Cost of recording a guest at 100 and 999 Hz, beside stock perf; was not published
    RecordOverhead,
    /// Threads that draw from one generator, and each from its own
    #[value(name = "event-practice.rand")]
    Rand,
    /// The share of time in a spin lock, copies of a program that faults pages
    SpinlockShare,
    /// Devices probed one after the other and at once
    ParallelProbing,
}

fn level(text: &str) -> Result<u32, String> {
    let published = || LEVELS.into_iter().filter(|level| *level > 0);
    let found = text.parse().ok().filter(|level| published().any(|one| one == *level));
    found.ok_or_else(|| format!("give {}", published().map(|level| level.to_string()).collect::<Vec<_>>().join(", ")))
}

/// Repeats the series that reuses host events.
fn measured_series(args: &ReproduceArgs, invocation: &Invocation) -> Result<Exit, Error> {
    refuse(&unused(args))?;
    let spec = SeriesSpec {
        rounds: args.rounds,
        duration: args.duration.unwrap_or(Duration::from_secs(600)),
        seed: args.seed.unwrap_or(SEED),
        linux: LinuxJob::new(&args.linux, Kind::Record)?,
    };
    open_kvm()?;
    // Whether it can be written to is known before anything is measured.
    let _folder = args.output.as_deref().map(OutputFolder::open).transpose()?;
    sys::catch_interrupts().map_err(|error| internal("cannot catch SIGINT", error))?;
    let began = time_stamp(now_unix());
    let mut keep = |name: &str, document: &Document| {
        let Some(folder) = &args.output else { return Ok(()) };
        let json = document.to_json().map_err(|error| internal("cannot show the result", error))?;
        OutputFolder::open(folder)?.write(&format!("reproduce-{began}-{name}"), json.as_bytes()).map(drop)
    };
    let mut progress = progress::shown(true);
    let watchdog = Watchdog::take(&HostFs::default(), &ThisHost);
    let found = series(&spec, &ThisHost, watchdog, &invocation.command_line, progress.as_mut(), &mut keep)?;
    shown(args, &found)
}

/// Repeats the series that sets events up CPU by CPU.
fn measured_set_up(args: &ReproduceArgs, invocation: &Invocation) -> Result<Exit, Error> {
    refuse(&unused(args))?;
    sys::catch_interrupts().map_err(|error| internal("cannot catch SIGINT", error))?;
    let duration = args.duration.unwrap_or(Duration::from_secs(60));
    let size = (args.rounds.unwrap_or(15), duration, args.seed.unwrap_or(SEED));
    let found = set_up::set_up(size, &invocation.command_line, progress::shown(true).as_mut())?;
    shown(args, &found)
}

/// Shows a run here.
fn shown(args: &ReproduceArgs, found: &Reproduction) -> Result<Exit, Error> {
    console::show(Form::of(args.json, args.markdown), &show::report(found, false), found)?;
    Ok(if found.here.as_ref().is_some_and(|here| here.whole) { Exit::Done } else { Exit::Inconclusive })
}

/// Options that only recordings have.
fn unused(args: &ReproduceArgs) -> [(&'static str, bool); 4] {
    [
        ("--products", args.products.is_some()),
        ("--depth", args.depth.is_some()),
        ("--frequency", args.frequency.is_some()),
        ("--levels", !args.levels.is_empty()),
    ]
}

/// Records a guest in several ways.
fn measured_recordings(
    args: &ReproduceArgs,
    what: &What,
    (rounds, products): (u64, u64),
    invocation: &Invocation,
) -> Result<Exit, Error> {
    sys::catch_interrupts().map_err(|error| internal("cannot catch SIGINT", error))?;
    let all = Recordings::prepare(what, args.products.unwrap_or(products))?;
    let experiment = all.experiment(args.rounds.unwrap_or(rounds), args.seed.unwrap_or(SEED));
    let shown = Shown { folder: args.output.as_deref(), form: Form::of(args.json, args.markdown), quiet: false };
    let document = measure_plain(experiment, shown, invocation, &|document| recording::table::report(document, what))?;
    Ok(if document.status == Status::Complete { Exit::Done } else { Exit::Inconclusive })
}

/// Records a guest at each level of compression.
fn measured_compression(args: &ReproduceArgs, invocation: &Invocation) -> Result<Exit, Error> {
    let what = What::Compression {
        depth: args.depth.unwrap_or(MOST_DEPTH),
        hertz: args.frequency.unwrap_or(HERTZ),
        levels: if args.levels.is_empty() { LEVELS.to_vec() } else { args.levels.clone() },
    };
    measured_recordings(args, &what, (5, 1000), invocation)
}

/// Runs a guest unrecorded and recorded.
fn measured_overhead(args: &ReproduceArgs, invocation: &Invocation) -> Result<Exit, Error> {
    refuse(&[
        ("--depth", args.depth.is_some()),
        ("--frequency", args.frequency.is_some()),
        ("--levels", !args.levels.is_empty()),
    ])?;
    measured_recordings(args, &What::Overhead, (10, 3000), invocation)
}

/// Refuses options that were given and have nothing to do.
fn refuse(options: &[(&str, bool)]) -> Result<(), Error> {
    match options.iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((option, _)) => {
            Err(Error::usage(format!("{option} has nothing to do"), "this --run makes no use of it", "leave it out"))
        }
    }
}

/// Runs workloads of triage.
fn measured_practice(args: &ReproduceArgs, figure: Practice, invocation: &Invocation) -> Result<Exit, Error> {
    refuse(&unused(args))?;
    sys::catch_interrupts().map_err(|error| internal("cannot catch SIGINT", error))?;
    let (mut progress, fs) = (progress::shown(true), HostFs::default());
    let mut all = Vec::new();
    for spec in figure.runs(args.rounds.unwrap_or(10), args.seed.unwrap_or(SEED)) {
        let host = HostFacts::begin(&fs);
        let triage = Triage::prepare(spec, cpus(&host))?;
        let (experiment, mut arms) = triage.experiment();
        let (mut document, error) = experiment.measure(
            &mut arms,
            (host, &fs),
            &invocation.command_line,
            progress.as_mut(),
            (&mut |_| false, &mut |_| Ok(())),
        )?;
        error.map_or(Ok(()), Err)?;
        triage.sample(&mut document);
        all.push(document);
    }
    let (report, is_whole) = figure.report(&all);
    console::show(Form::of(args.json, args.markdown), &report, &all)?;
    let is_whole = is_whole && all.iter().all(|document| document.status == Status::Complete);
    Ok(if is_whole { Exit::Done } else { Exit::Inconclusive })
}

pub(super) fn run(args: &ReproduceArgs, invocation: &Invocation) -> Result<Exit, Error> {
    if args.run != Some(Measurable::VpmuReuse) {
        let linux = args.linux.guest == GuestKind::Linux || args.linux.kernel.is_some();
        refuse(&[("--guest and --kernel", linux)])?;
    }
    let keeps = [Measurable::VpmuReuse, Measurable::RecordCompression, Measurable::RecordOverhead];
    if !args.run.is_some_and(|run| keeps.contains(&run)) {
        refuse(&[("--output", args.output.is_some())])?;
    }
    if !matches!(args.run, Some(Measurable::VpmuReuse | Measurable::PerfStatSetup)) {
        refuse(&[("--duration", args.duration.is_some())])?;
    }
    match args.run {
        Some(Measurable::PerfStatSetup) => return measured_set_up(args, invocation),
        Some(Measurable::VpmuReuse) => return measured_series(args, invocation),
        Some(Measurable::RecordCompression) => return measured_compression(args, invocation),
        Some(Measurable::RecordOverhead) => return measured_overhead(args, invocation),
        Some(Measurable::Rand) => return measured_practice(args, Practice::Rand, invocation),
        Some(Measurable::SpinlockShare) => return measured_practice(args, Practice::SpinlockShare, invocation),
        Some(Measurable::ParallelProbing) => return measured_practice(args, Practice::ParallelProbing, invocation),
        None => {}
    }
    let documents = args.measured.iter().map(|file| read::document(file)).collect::<Result<Vec<_>, _>>()?;
    for (file, document) in args.measured.iter().zip(&documents) {
        if !recipe::answers(document) {
            complain(&format!(
                "notice: {}: no published figure matches it ({}backend {}, workload {}, {}); docs/simulator.md has what does",
                file.display(),
                recipe::first_event(document).err().map_or_else(String::new, |why| format!("{why}; ")),
                document.parameters.backend,
                document.parameters.workload,
                document.arms.iter().map(|arm| arm.name.as_str()).collect::<Vec<_>>().join(", ")
            ));
        }
    }
    let found = reproduce(args.seed.unwrap_or(SEED), &documents)?;
    console::show(Form::of(args.json, args.markdown), &show::report(&found, !args.markdown), &found)?;
    Ok(Exit::Done)
}
