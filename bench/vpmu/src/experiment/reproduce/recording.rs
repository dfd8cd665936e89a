//! The cost of compressing a recording: the published table of `perf record -z` by level, beside `vpmu record` and stock perf here. Each
//! way is a command, run in turns with the others.

use std::path::{Path, PathBuf};
use std::process::Command;

use perf_data::reader::Recording;
use perf_data::record::Record as RecordOf;
use results::document::Record;
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};
use results::metric::ELAPSED;
use results::write::{OutputFolder, replace};
use serde_json::json;
use sim::model::Number;
use tempfile::TempDir;
use triage::child::this_program;

use super::published::Row;
use super::recipe::{ALL, Recipe, Statistic, recipe, row};
use crate::engine::Rounds;
use crate::engine::plain::{Experiment, Plain, Sample};
use crate::experiment::stat_setup::peer::LIMIT;
use crate::machine;
use crate::setting::program;
use crate::terminal::console::complain;
use crate::terminal::progress::Progress;

/// The experiment's name in documents, which is that of the published figure.
pub(super) const NAME: &str = "record-compression";
/// zstd's levels that were published; 0 is without compression.
const LEVELS: [u32; 6] = [0, 1, 2, 3, 5, 8];
/// Rounds by default.
const ROUNDS: u64 = 5;
/// The usual rate: perf's 4000, and a prime.
const HERTZ: &str = "3989";
/// The guest, its file and its recording in a folder of their own.
const GUEST: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/matrix.elf"));
const IMAGE: &str = "matrix";
const FILE: &str = "x.data";
/// Keys of the volume of a recording, a value a turn.
const VOLUME: [&str; 2] = ["transferred_bytes", "compressed_bytes"];

/// Returns the published table, by level and way to write: time over that without compression, and bytes before it over bytes after
/// it; for this tool's recorder and for stock perf.
pub(super) fn rows() -> Vec<(Row, Recipe)> {
    let mut all = Vec::new();
    let figure = ALL.figures.iter().find(|figure| figure.id == NAME);
    let Some((usual, figure)) = recipe(NAME).zip(figure) else { return all };
    let levels = figure.rows.iter().filter_map(|row| row.clone().try_into::<(u32, [f64; 2], [f64; 2])>().ok());
    for ((level, serial, aio), by) in levels.flat_map(|row| ["vpmu", "perf"].map(|by| (row, by))) {
        for (writes, [time, bytes]) in [("serial", serial), ("aio", aio)] {
            let [with, without] = [level, 0].map(|level| Way { by, level, aio: writes == "aio" }.name());
            let volume = VOLUME.map(str::to_owned).to_vec();
            for (what, number, published, arms, metrics, statistic) in [
                ("time", Number::Ratio, time, [&with, &without], vec![ELAPSED.key.to_owned()], Statistic::P50),
                ("bytes", Number::After, bytes, [&without, &with], volume, Statistic::Quotient),
            ] {
                let row = row(&format!("{NAME}.{by}.{level}-{writes}.{what}"), ("", "ratio"), number, Some(published));
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

/// Records the guest in each way, and returns the document.
///
/// # Errors
/// Nothing was recorded.
pub(super) fn measure(
    (rounds, seed): (Option<u64>, u64),
    output: Option<&Path>,
    progress: &mut dyn Progress,
) -> Result<Record, Error> {
    let cannot = |error| Error::output("cannot make a temporary folder", &error, "");
    let folder = tempfile::tempdir().map_err(cannot)?;
    replace(&folder.path().join(IMAGE), GUEST).map_err(cannot)?;
    let tool = this_program().map_err(|error| Error::internal("cannot find this program", error))?;
    let take = |way| take(&folder, &tool, way);
    let first = Way { by: "perf", level: 0, aio: false };
    let perf = program::perf_version("perf".as_ref())
        .and_then(|version| take(first).map(|_| version).map_err(|error| error.why));
    let mut arms = Vec::new();
    for by in ["vpmu", "perf"].into_iter().take(1 + usize::from(perf.is_ok())) {
        for (level, aio) in LEVELS.into_iter().flat_map(|level| [false, true].map(|aio| (level, aio))) {
            let way = Way { by, level, aio };
            arms.push(Plain::new(way.name(), "cpu-clock", move |_| take(way)));
        }
    }
    let guest = "an image that makes 1000 products of matrices below 100 calls";
    let perf = perf.unwrap_or_else(|why| format!("not measured: {why}"));
    let parameters = json!({ "guest": guest, "perf": perf });
    let rounds = Rounds::of(rounds.unwrap_or(ROUNDS), seed);
    let fs = HostFs::default();
    let experiment = Experiment { name: NAME, parameters, rounds };
    let (document, error) =
        experiment.measure(&mut arms, (HostFacts::begin(&fs), &fs), &[], progress, &mut |_| Ok(()))?;
    if let Some(error) = error {
        complain(&format!("warning: {error}"));
    }
    if let Some(folder) = output {
        OutputFolder::open(folder)?.write(NAME, document.to_json()?.as_bytes())?;
    }
    Ok(document)
}

/// Records the guest in one way.
fn take(folder: &TempDir, tool: &PathBuf, way: Way) -> Result<Option<Sample>, Error> {
    let mut command = if way.by == "perf" { Command::new("perf") } else { Command::new(tool) };
    command.args(["record", "--quiet", "-e", "cpu-clock", "-o", FILE, "-F", HERTZ, "-g"]);
    command.args((way.level > 0).then(|| format!("--compression-level={}", way.level)));
    command.args(way.aio.then_some("--aio=1")).arg("--");
    command.args((way.by == "perf").then_some(tool)).args(["run", "--quiet", IMAGE]);
    command.current_dir(folder.path());
    let failed = |exit: Option<Exit>, why: String| {
        let exit = if exit.is_some_and(|exit| exit != Exit::Host) { Exit::Inconclusive } else { Exit::Host };
        let what = format!("cannot record the guest ({})", way.name());
        Error::new(exit, what, why, "`vpmu doctor` says what this host can do")
    };
    let Some(ran) = program::ended(&mut command, LIMIT, &[Exit::Done], &failed)? else { return Ok(None) };
    let bytes = machine::read(&folder.path().join(FILE), "the recording")?;
    let mut samples = 0;
    let volume = Recording::open(&bytes).and_then(|mut recording| {
        recording.records(|_, record| samples += u64::from(matches!(record, RecordOf::Sample(_))))?;
        Ok(recording.volume)
    });
    let (transferred, compressed) = volume.map_err(|error| failed(Some(Exit::Inconclusive), error.to_string()))?;
    let mut sample = Sample::default().with(&ELAPSED, [ran.wall_ns]);
    for (key, value) in [("samples", samples), (VOLUME[0], transferred), (VOLUME[1], compressed)] {
        sample.add(key, [value]);
    }
    Ok(Some(sample))
}
