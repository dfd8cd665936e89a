//! Measures the cost of sampling to a guest: the same guest unrecorded and recorded, by frequency, beside stock perf.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use results::error::{Error, Exit};
use results::stats::median;
use results::table::layout::plural;
use results::table::{Report, Table};
use serde::Serialize;

use super::document::{Quotient, Recorder};
use super::measure::Guest;
use crate::engine::Schedule;
use crate::sys;
use crate::terminal::console::{complain, internal};

/// Parameters of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverheadSpec {
    /// Rounds, with each way once.
    pub rounds: u64,
    /// Products of matrices that the guest makes.
    pub products: u64,
    /// Seed of the order in a round.
    pub seed: u64,
}

/// A way to run the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arm {
    recorder: Option<Recorder>,
    hertz: u64,
    chains: bool,
}

const UNRECORDED: Arm = Arm { recorder: None, hertz: 0, chains: false };
/// Arms of the measurement; perf only without chains, because it cannot follow a guest's.
const ARMS: [Arm; 7] = {
    const fn arm(recorder: Recorder, hertz: u64, chains: bool) -> Arm {
        Arm { recorder: Some(recorder), hertz, chains }
    }
    [
        UNRECORDED,
        arm(Recorder::Vpmu, 100, false),
        arm(Recorder::Vpmu, 100, true),
        arm(Recorder::Vpmu, 999, false),
        arm(Recorder::Vpmu, 999, true),
        arm(Recorder::Perf, 100, false),
        arm(Recorder::Perf, 999, false),
    ]
};

/// A way to record, and its cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Recorder in use.
    pub recorder: Recorder,
    /// Samples a second.
    pub hertz: u64,
    /// True if call chains are recorded.
    pub chains: bool,
    /// Time over that of the unrecorded guest in the same round.
    pub elapsed: Quotient,
    /// Quotient of processor time, the recorder's threads included.
    pub processor: Quotient,
}

/// Everything that was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Overhead {
    /// The guest.
    pub guest: String,
    /// The version of stock perf, or why it is not there.
    pub perf: String,
    /// Rounds.
    pub rounds: u64,
    /// Seed of the order in a round.
    pub seed: u64,
    /// Medians of the unrecorded guest: time and processor time, s.
    pub unrecorded_s: [f64; 2],
    /// The ways.
    pub rows: Vec<Row>,
}

/// Measures.
///
/// # Errors
/// Exit 4: this host cannot record, or has no compiler for the guest; exit 3: a run ended early.
pub fn overhead(spec: &OverheadSpec) -> Result<Overhead, Error> {
    let cannot = |error: std::io::Error| Error::output("cannot make a temporary folder", &error, "");
    let folder = tempfile::tempdir().map_err(cannot)?;
    let guest = Guest::build(folder.path(), spec.products, 0)?;
    let Some(alone) = guest.alone() else {
        return Err(Error::host("there is no guest to measure", "cc does not build it", "install a C compiler"));
    };
    let tool = std::env::current_exe().map_err(|error| internal("cannot find this program", error))?;
    let run = Run { folder: folder.path(), tool: tool.into_os_string(), recorded: guest.recorded(), alone };
    let perf = perf_version();
    let there = |arm: &&Arm| arm.recorder != Some(Recorder::Perf) || perf.is_ok();
    let arms: Vec<Arm> = ARMS.iter().filter(there).copied().collect();
    complain(&format!("{} runs of one guest in each round, {} of them", arms.len(), spec.rounds));
    let mut all = vec![Vec::new(); arms.len()];
    let mut schedule = Schedule::new(spec.seed);
    for _ in 0..spec.rounds {
        for at in schedule.next_round(arms.len()) {
            all[at].push(run.once(arms[at])?);
        }
    }
    found(spec, &arms, &all, perf).ok_or_else(|| internal("cannot make the table", "of overheads"))
}

fn found(spec: &OverheadSpec, arms: &[Arm], all: &[Vec<[f64; 2]>], perf: Result<String, String>) -> Option<Overhead> {
    let unrecorded = arms.iter().position(|arm| *arm == UNRECORDED).and_then(|at| all.get(at))?;
    let over = |times: &[[f64; 2]], which: usize| {
        Quotient::of(times.iter().zip(unrecorded).map(|(one, without)| (one[which], without[which])))
    };
    let mut rows = Vec::new();
    for (arm, times) in arms.iter().zip(all) {
        let Some(recorder) = arm.recorder else { continue };
        let (elapsed, processor) = (over(times, 0)?, over(times, 1)?);
        rows.push(Row { recorder, hertz: arm.hertz, chains: arm.chains, elapsed, processor });
    }
    let middle = |which: usize| median(&unrecorded.iter().map(|times| times[which]).collect::<Vec<_>>());
    Some(Overhead {
        guest: format!("an image that makes {} products of matrices", spec.products),
        perf: perf.unwrap_or_else(|why| format!("not measured: {why}")),
        rounds: spec.rounds,
        seed: spec.seed,
        unrecorded_s: [middle(0)?, middle(1)?],
        rows,
    })
}

fn perf_version() -> Result<String, String> {
    let version = Command::new("perf").arg("version").stdin(Stdio::null()).output();
    let version = version.map_err(|error| format!("perf does not start: {error}"))?;
    let said = String::from_utf8_lossy(&version.stdout).trim().to_owned();
    if version.status.success() { Ok(said) } else { Err("perf version fails".to_owned()) }
}

struct Run<'a> {
    folder: &'a Path,
    tool: OsString,
    recorded: Vec<OsString>,
    alone: [&'static str; 3],
}

impl Run<'_> {
    fn command(&self, arm: Arm) -> Command {
        let mut command = match arm.recorder {
            Some(Recorder::Perf) => Command::new("perf"),
            Some(Recorder::Vpmu) | None => Command::new(&self.tool),
        };
        if arm.recorder.is_some() {
            command.args(["record", "--quiet", "-e", "cpu-clock", "-o", "x.data", "-F", &arm.hertz.to_string()]);
            command.args(arm.chains.then_some("-g")).arg("--");
        }
        match arm.recorder {
            Some(Recorder::Vpmu) => command.args(&self.recorded),
            Some(Recorder::Perf) => command.arg(&self.tool).args(self.alone),
            None => command.args(self.alone),
        };
        command.current_dir(self.folder).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Measures time and processor time of one run, s.
    fn once(&self, arm: Arm) -> Result<[f64; 2], Error> {
        let by = match arm.recorder {
            Some(by) => format!("by {} at {} Hz{}", name(by), arm.hertz, if arm.chains { " with chains" } else { "" }),
            None => "unrecorded".to_owned(),
        };
        let what = || format!("cannot run the guest {by}");
        let (began, before) = (Instant::now(), sys::children_s());
        let output = self.command(arm).output().map_err(|error| Error::host(what(), error.to_string(), ""))?;
        let times = [began.elapsed().as_secs_f64(), sys::children_s() - before];
        if output.status.success() {
            return Ok(times);
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let why = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it does not say why").to_owned();
        let exit = if output.status.code() == Some(4) { Exit::Host } else { Exit::Inconclusive };
        Err(Error::new(exit, what(), why, "vpmu doctor says what this host can do"))
    }
}

const COLUMNS: [&str; 5] = ["recorder", "Hz", "chains", "time", "processor time"];

const fn name(recorder: Recorder) -> &'static str {
    if matches!(recorder, Recorder::Vpmu) { "vpmu record" } else { "perf record" }
}

fn cells(row: &Row) -> Vec<String> {
    let recorder = name(row.recorder);
    let chains = if row.chains { "yes" } else { "no" };
    vec![recorder.into(), row.hertz.to_string(), chains.into(), row.elapsed.text(4), row.processor.text(4)]
}

fn lines(found: &Overhead) -> Vec<String> {
    let [time, busy] = found.unrecorded_s;
    vec![
        "Time and processor time over those of the unrecorded guest in the same round, start-up and the recorder's threads included, with 95 % intervals where there are five rounds and more."
            .to_owned(),
        format!(
            "{}, unrecorded {time:.3} s, {busy:.3} s of a processor; {} in random order, seed {}.",
            found.guest,
            plural(found.rounds as usize, "round"),
            found.seed
        ),
        format!("Stock perf record of the VMM with the same guest: {}.", found.perf),
    ]
}

/// Returns the findings as they are shown.
pub fn report(found: &Overhead) -> Report {
    let mut table = Table::new(COLUMNS);
    found.rows.iter().for_each(|row| table.add_row(cells(row)));
    let mut report = Report::new("vpmu reproduce");
    report.table(table);
    report.gap();
    report.notes(lines(found));
    report
}
