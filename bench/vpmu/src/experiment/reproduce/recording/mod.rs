//! What compressing a recording costs: the published table of `perf record -z` by level, beside `vpmu record` and stock perf here. Each
//! way is a command, run in turns with the others.

mod guest;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Instant;

use host_pmu::stats::ns;
use perf_data::reader::Recording;
use perf_data::record::Record as RecordOf;
use results::document::{Record, Status};
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};
use results::metric::{ELAPSED, PROCESSOR};
use results::published::{Number, Row};
use results::write::OutputFolder;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use triage::child::this_program;

use super::recipe::{FIGURES, RECIPES, Recipe, Statistic};
use crate::engine::Rounds;
use crate::engine::plain::{Experiment, Plain, Sample};
use crate::experiment::stat_setup::peer;
use crate::machine;
use crate::setting::tool;
use crate::sys;
use crate::terminal::console::internal;
use crate::terminal::progress::Progress;

/// The experiment's name in documents, which is that of the published figure.
pub(super) const NAME: &str = "record-compression";
/// The name by which its recipe runs this module.
pub(super) const RUN: &str = "record";
/// zstd's levels that were published; 0 is without compression.
const LEVELS: [u32; 6] = [0, 1, 2, 3, 5, 8];
/// Rounds by default.
const ROUNDS: u64 = 5;
/// The usual rate: perf's 4000, and a prime.
const HERTZ: &str = "3989";
/// Calls that the guest's products of matrices are below: longest chains that this recorder takes have some more entries.
const DEPTH: u64 = 100;
/// Products that the guest makes, some ms each.
const PRODUCTS: u64 = 1000;
/// The recording in its folder.
const FILE: &str = "x.data";
/// Keys of what a recording leaves beside its times, a value a turn.
const SAMPLES: &str = "samples";
const TRANSFERRED: &str = "transferred_bytes";
const COMPRESSED: &str = "compressed_bytes";

/// Returns the published table, by level and way to write: time over that without compression, and bytes before it over bytes after
/// it; for this tool's recorder and for stock perf.
pub(super) fn rows() -> Vec<(Row, Recipe)> {
    let mut all = Vec::new();
    let figure = FIGURES.iter().find(|figure| figure.id == NAME);
    let Some((usual, figure)) = RECIPES.get(NAME).zip(figure) else { return all };
    let levels = figure.rows.iter().filter_map(|row| row.clone().try_into::<(u32, f64, f64, f64, f64)>().ok());
    for ((level, serial, bytes, aio, aio_bytes), by) in levels.flat_map(|row| ["vpmu", "perf"].map(|by| (row, by))) {
        for (writes, time, bytes) in [("serial", serial, bytes), ("aio", aio, aio_bytes)] {
            let [with, without] = [level, 0].map(|level| Way { by, level, aio: writes == "aio" }.name());
            for (what, number, published, arms, metrics, statistic) in [
                ("time", Number::Ratio, time, [&with, &without], &[ELAPSED.key][..], Statistic::P50),
                ("bytes", Number::After, bytes, [&without, &with], &[TRANSFERRED, COMPRESSED], Statistic::Quotient),
            ] {
                let (figure, unit) = (format!("{NAME}.{by}.{level}-{writes}.{what}"), "ratio".to_owned());
                let row = Row { figure, number, unit, published: Some(published), ..Row::default() };
                let metrics = metrics.iter().map(|&key| key.to_owned()).collect();
                all.push((row, Recipe { arms: arms.map(String::clone), metrics, statistic, ..usual.clone() }));
            }
        }
    }
    all
}

/// A way to record the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    /// `vpmu`, the guest; or `perf`, the VMM that runs the guest.
    by: &'static str,
    level: u32,
    aio: bool,
}

impl Way {
    /// Returns the name of its arm.
    fn name(&self) -> String {
        let Self { by, level, aio } = *self;
        format!("{by} {HERTZ} Hz -g, level {level}, {}", if aio { "aio" } else { "serial" })
    }
}

/// The commands, and the folder in which they run.
#[derive(Debug)]
struct Recordings {
    folder: TempDir,
    tool: PathBuf,
    ways: Vec<Way>,
    parameters: Map<String, Value>,
}

/// Records the guest in each way; returns the document, and what keeps it from being whole.
///
/// # Errors
/// Exit 4: this host has no compiler for the guest.
pub(super) fn measure(
    (rounds, seed): (Option<u64>, u64),
    output: Option<&Path>,
    progress: &mut dyn Progress,
) -> Result<(Record, Option<String>), Error> {
    let all = Recordings::prepare()?;
    let arms = all.ways.iter().map(|way| Plain::new(way.name(), "cpu-clock", |_| all.take(*way)));
    let rounds = Rounds::of(rounds.unwrap_or(ROUNDS), seed);
    let experiment = Experiment { name: NAME, parameters: all.parameters.clone(), rounds };
    let fs = HostFs::default();
    let facts = (HostFacts::begin(&fs), &fs);
    let (document, error) = experiment.measure(&mut arms.collect::<Vec<_>>(), facts, &[], progress, &mut |_| Ok(()))?;
    if let Some(folder) = output {
        let json = document.to_json().map_err(|error| internal("cannot show the result", error))?;
        OutputFolder::open(folder)?.write(NAME, json.as_bytes())?;
    }
    let early = (document.status != Status::Complete).then(|| "it ended early".to_owned());
    Ok((document, error.map(|error| error.to_string()).or(early)))
}

impl Recordings {
    /// Builds the guest, and looks for stock perf.
    fn prepare() -> Result<Self, Error> {
        let folder =
            tempfile::tempdir().map_err(|error| Error::output("cannot make a temporary folder", &error, ""))?;
        guest::build(folder.path(), PRODUCTS, DEPTH)?;
        let tool = this_program().map_err(|error| internal("cannot find this program", error))?;
        let mut all = Self { folder, tool, ways: Vec::new(), parameters: Map::new() };
        let first = Way { by: "perf", level: 0, aio: false };
        let perf = peer::version().and_then(|version| all.take(first).map(|_| version).map_err(|error| error.why));
        for by in ["vpmu", "perf"].into_iter().take(1 + usize::from(perf.is_ok())) {
            all.ways.extend(LEVELS.into_iter().flat_map(|level| [false, true].map(|aio| Way { by, level, aio })));
        }
        let perf = perf.unwrap_or_else(|why| format!("not measured: {why}"));
        let guest = format!("an image that makes {PRODUCTS} products of matrices below {DEPTH} calls");
        all.parameters.extend([("guest".to_owned(), json!(guest)), ("perf".to_owned(), json!(perf))]);
        Ok(all)
    }

    /// Records the guest in one way.
    fn take(&self, way: Way) -> Result<Option<Sample>, Error> {
        let mut command = if way.by == "perf" { Command::new("perf") } else { Command::new(&self.tool) };
        command.args(["record", "--quiet", "-e", "cpu-clock", "-o", FILE, "-F", HERTZ, "-g"]);
        command.args((way.level > 0).then(|| format!("--compression-level={}", way.level)));
        command.args(way.aio.then_some("--aio=1")).arg("--");
        command.args((way.by == "perf").then_some(&self.tool)).args(["run", "--quiet", guest::IMAGE]);
        command.current_dir(self.folder.path());
        let what = || format!("cannot record the guest ({})", way.name());
        let (began, before) = (Instant::now(), sys::children_s());
        let interrupted = || sys::interrupted().load(Ordering::Relaxed);
        let ran = tool::run(&mut command, interrupted).map_err(|error| Error::host(what(), error.to_string(), ""))?;
        let (elapsed, busy) = (ns(began.elapsed()), sys::children_s() - before);
        if interrupted() {
            return Ok(None);
        }
        if !ran.status.success() {
            let exit = if ran.exit() == Some(Exit::Host) { Exit::Host } else { Exit::Inconclusive };
            return Err(Error::new(exit, what(), ran.why(), "vpmu doctor says what this host can do"));
        }
        let damaged = |why: String| Error::new(Exit::Inconclusive, what(), why, "make room, and measure again");
        let bytes = machine::read(&self.folder.path().join(FILE), "the recording")?;
        let mut recording = Recording::open(&bytes).map_err(|error| damaged(error.to_string()))?;
        let mut samples = 0;
        let read = recording.records(|_, record| samples += u64::from(matches!(record, RecordOf::Sample(_))));
        read.map_err(|error| damaged(error.to_string()))?;
        #[expect(clippy::cast_sign_loss, reason = "processor time does not shrink")]
        let mut sample = Sample::default().with(&ELAPSED, [elapsed]).with(&PROCESSOR, [(busy * 1e9) as u64]);
        let (transferred, compressed) = recording.volume;
        for (key, value) in [(SAMPLES, samples), (TRANSFERRED, transferred), (COMPRESSED, compressed)] {
            sample.add(key, [value]);
        }
        Ok(Some(sample))
    }
}
