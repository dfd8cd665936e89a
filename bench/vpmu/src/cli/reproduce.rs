//! `vpmu reproduce`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use results::document::{Document, Status};
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};
use results::published::Reproduction;
use results::read;
use results::table::warnings;
use results::verdict::Verdict;
use results::write::{OutputFolder, now_unix, time_stamp};

use super::measure::{Invocation, Shown, measure_plain};
use crate::arms::linux::job::{Kind, LinuxJob};
use crate::arms::linux::spec::LinuxGuestOptions;
use crate::experiment::reproduce::recipe::first_event;
use crate::experiment::reproduce::recording::{Recordings, table};
use crate::experiment::reproduce::run::Simulated;
use crate::experiment::reproduce::series::{SeriesSpec, series};
use crate::experiment::reproduce::watchdog::Watchdog;
use crate::experiment::reproduce::{set_up, show};
use crate::inspect::triage::published::Figure;
use crate::inspect::triage::{Triage, cpus};
use crate::setting::backend::{ThisHost, open_kvm};
use crate::setting::options::FormOptions;
use crate::setting::parse::{duration_in, folder, number_in, options};
use crate::sys;
use crate::terminal::console::{self, complain, internal};
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
  # also with a Linux guest, whose options stand behind --
  vpmu reproduce --run vpmu-reuse -- --guest linux --kernel FILE
  # threads in rand(), here: half a minute
  vpmu reproduce --run event-practice.rand

Exit codes: 0 done, 2 bad usage or input; with --run 3 it ended
early, could not measure all or judge anything, 4 the host cannot
do it; 70 a bug of vpmu.";

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

    /// Folder for the documents of vpmu-reuse and record-compression
    #[arg(short = 'o', long = "output", value_name = "DIR", requires = "run", value_parser = folder)]
    pub output: Option<PathBuf>,

    /// Rounds of --run, with everything once; five have an interval [default: 10; vpmu-reuse as many as fit, perf-stat-setup 15, record-compression 5]
    #[arg(long, value_name = "N", requires = "run", value_parser = number_in(1..=1000))]
    pub rounds: Option<u64>,

    /// Seed of the simulations; with --run of the order of what is measured [default: 1]
    #[arg(long, value_name = "N", value_parser = number_in(0..=u64::MAX))]
    pub seed: Option<u64>,

    /// Form of the result.
    #[command(flatten)]
    pub form: FormOptions,

    /// A Linux guest of vpmu-reuse besides the payload: as of `vpmu nmi-latency --guest linux`
    #[arg(last = true, value_name = "OPTIONS", requires = "run")]
    pub linux: Vec<String>,
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
    /// Threads that draw from one generator, and each from its own
    #[value(name = "event-practice.rand")]
    Rand,
    /// The share of time in a spin lock, copies of a program that faults pages
    SpinlockShare,
    /// Devices probed one after the other and at once
    ParallelProbing,
}

/// Repeats the series that reuses host events.
fn measured_series(args: &ReproduceArgs, invocation: &Invocation) -> Result<Exit, Error> {
    let words: Vec<&str> = args.linux.iter().map(String::as_str).collect();
    let linux: LinuxGuestOptions = options(&words).map_err(|error| {
        let line = error.to_string();
        Error::usage("bad options behind --", line.lines().next().unwrap_or_default(), "see vpmu nmi-latency --help")
    })?;
    let spec = SeriesSpec {
        rounds: args.rounds,
        duration: args.duration.unwrap_or(Duration::from_secs(600)),
        seed: args.seed.unwrap_or(SEED),
        linux: LinuxJob::new(&linux, Kind::Record)?,
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
    sys::catch_interrupts().map_err(|error| internal("cannot catch SIGINT", error))?;
    let duration = args.duration.unwrap_or(Duration::from_secs(60));
    let size = (args.rounds.unwrap_or(15), duration, args.seed.unwrap_or(SEED));
    let found = set_up::set_up(size, &invocation.command_line, progress::shown(true).as_mut())?;
    shown(args, &found)
}

/// Shows a run here, which answers its question if all was measured, and some of it agrees or differs.
fn shown(args: &ReproduceArgs, found: &Reproduction) -> Result<Exit, Error> {
    console::show(args.form.form(), &show::report(found, false), found)?;
    let judged = found.rows.iter().flat_map(|row| [&row.against_published, &row.against_predicted]).flatten();
    let open = |verdict| matches!(verdict, Verdict::Inconclusive | Verdict::NotJudged);
    let answered = judged.into_iter().any(|one| !open(one.verdict));
    let whole = found.here.as_ref().is_some_and(|here| here.whole);
    Ok(if whole && answered { Exit::Done } else { Exit::Inconclusive })
}

/// Records a guest at each level of compression.
fn measured_compression(args: &ReproduceArgs, invocation: &Invocation) -> Result<Exit, Error> {
    let all = Recordings::prepare()?;
    let experiment = all.experiment(args.rounds.unwrap_or(5), args.seed.unwrap_or(SEED));
    let shown = Shown { folder: args.output.clone(), form: args.form.form(), quiet: false };
    let document = measure_plain(experiment, &shown, invocation, &table::report)?;
    Ok(if document.status == Status::Complete { Exit::Done } else { Exit::Inconclusive })
}

/// Runs workloads of triage.
fn measured_practice(args: &ReproduceArgs, figure: &str, invocation: &Invocation) -> Result<Exit, Error> {
    let figure = Figure::find(figure)?;
    sys::catch_interrupts().map_err(|error| internal("cannot catch SIGINT", error))?;
    let (mut progress, fs) = (progress::shown(true), HostFs::default());
    let (mut all, mut failed) = (Vec::new(), None);
    for spec in figure.runs(args.rounds.unwrap_or(10), args.seed.unwrap_or(SEED)) {
        let host = HostFacts::begin(&fs);
        let triage = Triage::prepare(spec, cpus(&host))?;
        let (experiment, mut arms) = triage.experiment();
        let line = &invocation.command_line;
        let measured =
            experiment.measure(&mut arms, (host, &fs), line, progress.as_mut(), (&mut |_| false, &mut |_| Ok(())));
        let (mut document, error) = match measured {
            Ok(measured) => measured,
            // What was measured before is shown.
            Err(error) if !all.is_empty() => {
                failed = Some(error);
                break;
            }
            Err(error) => return Err(error),
        };
        let goes_on = error.is_none() && document.status == Status::Complete;
        if goes_on {
            triage.sample(&mut document);
        }
        all.push(document);
        failed = error;
        if !goes_on {
            break;
        }
    }
    let (report, is_whole) = figure.report(&all);
    console::show(args.form.form(), &report, &figure.document(&all))?;
    for document in &all {
        let what = document.parameter("workload").unwrap_or_default();
        warnings(&document.warnings).for_each(|line| complain(&format!("warning: {what}: {line}")));
    }
    let is_whole = is_whole && all.iter().all(|document| document.status == Status::Complete);
    failed.map_or(Ok(if is_whole { Exit::Done } else { Exit::Inconclusive }), Err)
}

pub(super) fn run(args: &ReproduceArgs, invocation: &Invocation) -> Result<Exit, Error> {
    use Measurable::{ParallelProbing, PerfStatSetup, Rand, RecordCompression, SpinlockShare, VpmuReuse};
    // Options that were given, and the runs that make use of them.
    for (option, given, of) in [
        ("--", !args.linux.is_empty(), &[VpmuReuse][..]),
        ("--output", args.output.is_some(), &[VpmuReuse, RecordCompression]),
        ("--duration", args.duration.is_some(), &[VpmuReuse, PerfStatSetup]),
        ("--seed", args.seed.is_some() && args.run.is_some(), Measurable::value_variants()),
    ] {
        if given && !args.run.is_some_and(|run| of.contains(&run)) {
            let what = format!("{option} has nothing to do");
            return Err(Error::usage(what, "this --run makes no use of it", "leave it out"));
        }
    }
    match args.run {
        Some(PerfStatSetup) => measured_set_up(args, invocation),
        Some(VpmuReuse) => measured_series(args, invocation),
        Some(RecordCompression) => measured_compression(args, invocation),
        Some(Rand) => measured_practice(args, "event-practice.rand", invocation),
        Some(SpinlockShare) => measured_practice(args, "spinlock-share", invocation),
        Some(ParallelProbing) => measured_practice(args, "parallel-probing", invocation),
        None => published(args),
    }
}

/// Sets published, simulated and measured figures side by side.
fn published(args: &ReproduceArgs) -> Result<Exit, Error> {
    let documents = args.measured.iter().map(|file| read::document(file)).collect::<Result<Vec<_>, _>>()?;
    let simulated = Simulated::run(args.seed.unwrap_or(SEED))?;
    for (file, document) in args.measured.iter().zip(&documents).filter(|(_, document)| !simulated.answers(document)) {
        complain(&format!(
            "notice: {}: no published figure matches it ({}backend {}, workload {}, {}); docs/simulator.md has what does",
            file.display(),
            first_event(document).err().map_or_else(String::new, |why| format!("{why}; ")),
            document.parameters.backend,
            document.parameters.workload,
            document.arms.iter().map(|arm| arm.name.as_str()).collect::<Vec<_>>().join(", ")
        ));
    }
    let found = simulated.beside(&documents)?;
    console::show(args.form.form(), &show::report(&found, !args.form.markdown), &found)?;
    Ok(Exit::Done)
}
