//! What recording a guest costs: the published table of `perf record -z` by level of compression, and the guest's time with and
//! without being recorded. Each way is a command, run in turns with the others, stock perf's among them.

mod guest;
pub mod table;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Instant;

use host_pmu::stats::ns;
use perf_data::reader::Recording;
use perf_data::record::Record;
use results::child::{Gathered, Keep, POLL, Supervised};
use results::error::{Error, Exit};
use results::metric::{ELAPSED, PROCESSOR};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::engine::Rounds;
use crate::engine::plain::{Experiment, Plain, Sample};
use crate::experiment::stat_setup::peer;
use crate::machine;
use crate::sys;
use crate::terminal::console::internal;

/// zstd's levels that were published; 0 is without compression.
pub const LEVELS: [u32; 6] = [0, 1, 2, 3, 5, 8];
/// The usual rate: perf's 4000, and a prime.
pub const HERTZ: u64 = 3989;
/// Longest chains that this recorder takes have some more entries.
pub const MOST_DEPTH: u64 = 100;
/// Most bytes of a command's words on stderr.
const MOST_WORDS: usize = 64 << 10;
/// The recording in its folder.
const FILE: &str = "x.data";
/// Keys of what a recording leaves beside its times, a value a turn.
const SAMPLES: &str = "samples";
const TRANSFERRED: &str = "transferred_bytes";
const COMPRESSED: &str = "compressed_bytes";

/// A way to run the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    by: By,
    hertz: u64,
    chains: bool,
    /// Level of compression where levels are compared.
    level: Option<u32>,
    aio: bool,
}

/// What records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// Nothing.
    Nobody,
    /// `vpmu record`, the guest.
    Vpmu,
    /// `perf record`, the VMM that runs the guest.
    Perf,
}

impl By {
    const fn name(self) -> &'static str {
        match self {
            Self::Nobody => "unrecorded",
            Self::Vpmu => "vpmu",
            Self::Perf => "perf",
        }
    }
}

impl Way {
    const UNRECORDED: Self = Self { by: By::Nobody, hertz: 0, chains: false, level: None, aio: false };

    /// Returns the name of its arm.
    fn name(&self) -> String {
        let Self { by, hertz, chains, level, aio } = *self;
        if by == By::Nobody {
            return by.name().to_owned();
        }
        let writes = if aio { "aio" } else { "serial" };
        let level = level.map_or_else(String::new, |level| format!(", level {level}, {writes}"));
        format!("{} {hertz} Hz{}{level}", by.name(), if chains { " -g" } else { "" })
    }
}

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Each of these levels, serially and asynchronously.
    Compression {
        /// Levels beside 0, of [`LEVELS`].
        levels: Vec<u32>,
        /// Calls that the guest's products are below, [`MOST_DEPTH`] at the most. With any, call chains are recorded.
        depth: u64,
        /// Samples a second.
        hertz: u64,
    },
    /// The guest unrecorded, and recorded at 100 and 999 Hz.
    Overhead,
}

impl What {
    /// Returns the experiment's name in documents, which is that of the published figure.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Compression { .. } => "record-compression",
            Self::Overhead => "record-overhead",
        }
    }

    fn ways(&self) -> Vec<Way> {
        let Self::Compression { levels, depth, hertz } = self else {
            let way = |by, hertz, chains| Way { by, hertz, chains, ..Way::UNRECORDED };
            let ours =
                [(100, false), (100, true), (999, false), (999, true)].map(|(hz, chains)| way(By::Vpmu, hz, chains));
            // Stock perf cannot follow a guest's chains.
            let perfs = [100, 999].map(|hz| way(By::Perf, hz, false));
            return std::iter::once(Way::UNRECORDED).chain(ours).chain(perfs).collect();
        };
        let levels = LEVELS.into_iter().filter(|level| *level == 0 || levels.contains(level));
        let ways = levels.flat_map(|level| [false, true].map(|aio| (level, aio)));
        let ways: Vec<_> = ways.collect();
        let all =
            [By::Vpmu, By::Perf].into_iter().flat_map(|by| ways.iter().map(move |(level, aio)| (by, *level, *aio)));
        all.map(|(by, level, aio)| Way { by, hertz: *hertz, chains: *depth > 0, level: Some(level), aio }).collect()
    }
}

/// The commands, and the folder in which they run.
#[derive(Debug)]
pub struct Recordings {
    folder: TempDir,
    tool: PathBuf,
    ways: Vec<Way>,
    parameters: Map<String, Value>,
    name: &'static str,
}

impl Recordings {
    /// Builds the guest, which makes so many products of matrices, and looks for stock perf.
    ///
    /// # Errors
    /// Exit 4: this host has no compiler for the guest, or cannot record; exit 3: a recording ended early.
    pub fn prepare(what: &What, products: u64) -> Result<Self, Error> {
        let depth = if let What::Compression { depth, .. } = what { *depth } else { 0 };
        let folder =
            tempfile::tempdir().map_err(|error| Error::output("cannot make a temporary folder", &error, ""))?;
        guest::build(folder.path(), products, depth)?;
        let tool = std::env::current_exe().map_err(|error| internal("cannot find this program", error))?;
        let mut all = Self { folder, tool, ways: what.ways(), parameters: Map::new(), name: what.name() };
        let perf = peer::version().and_then(|version| {
            let first = all.ways.iter().find(|way| way.by == By::Perf);
            first.map_or(Ok(()), |way| all.take(*way).map(drop)).map_err(|error| error.why)?;
            Ok(version)
        });
        all.ways.retain(|way| way.by != By::Perf || perf.is_ok());
        let perf = perf.unwrap_or_else(|why| format!("not measured: {why}"));
        let guest = format!("an image that makes {products} products of matrices below {depth} calls");
        for (key, value) in
            [("guest", json!(guest)), ("products", json!(products)), ("depth", json!(depth)), ("perf", json!(perf))]
        {
            all.parameters.insert(key.to_owned(), value);
        }
        Ok(all)
    }

    /// Returns the experiment with these rounds, and its arms.
    pub fn experiment(&self, rounds: u64, seed: u64) -> (Experiment, Vec<Plain<'_>>) {
        let rounds = Rounds::of(rounds, seed);
        let arms = self.ways.iter().map(|way| Plain::new(way.name(), "cpu-clock", |_| self.take(*way)));
        (Experiment { name: self.name, parameters: self.parameters.clone(), rounds, expected: None }, arms.collect())
    }

    fn command(&self, way: Way) -> Command {
        let Way { by, hertz, chains, level, aio } = way;
        let mut command = if by == By::Perf { Command::new("perf") } else { Command::new(&self.tool) };
        if by != By::Nobody {
            command.args(["record", "--quiet", "-e", "cpu-clock", "-o", FILE, "-F", &hertz.to_string()]);
            command
                .args(chains.then_some("-g"))
                .args(level.filter(|level| *level > 0).map(|level| format!("--compression-level={level}")));
            command.args(aio.then_some("--aio=1")).arg("--");
        }
        if by == By::Perf {
            command.arg(&self.tool);
        }
        command.args(["run", "--quiet", guest::IMAGE]);
        command.current_dir(self.folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Runs the guest in one way.
    fn take(&self, way: Way) -> Result<Option<Sample>, Error> {
        let what = || format!("cannot run the guest ({})", way.name());
        let (began, before) = (Instant::now(), sys::children_s());
        let cannot = |error: std::io::Error| Error::host(what(), error.to_string(), "");
        let mut command = Supervised::start(self.command(way).stderr(Stdio::piped())).map_err(cannot)?;
        let errors = command.process.stderr.take().map(|pipe| Gathered::start(pipe, Keep::First(MOST_WORDS)));
        let ended = command.wait(POLL, || sys::interrupted().load(Ordering::Relaxed)).map_err(cannot)?;
        let Some(status) = ended else { return Ok(None) };
        let (elapsed, busy) = (ns(began.elapsed()), sys::children_s() - before);
        if !status.success() {
            let said = errors.map(|errors| errors.text(POLL).0).unwrap_or_default();
            let why = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it does not say why").to_owned();
            let exit = if status.code() == Some(4) { Exit::Host } else { Exit::Inconclusive };
            return Err(Error::new(exit, what(), why, "vpmu doctor says what this host can do"));
        }
        #[expect(clippy::cast_sign_loss, reason = "processor time does not shrink")]
        let mut sample = Sample::default().with(&ELAPSED, [elapsed]).with(&PROCESSOR, [(busy * 1e9) as u64]);
        if way.by != By::Nobody {
            let [samples, transferred, compressed] = self.volume(&what)?;
            sample.add(SAMPLES, [samples]);
            sample.add(TRANSFERRED, [transferred]);
            sample.add(COMPRESSED, [compressed]);
        }
        Ok(Some(sample))
    }

    /// Returns the samples of the last recording, its bytes before they were compressed, and after.
    fn volume(&self, what: &dyn Fn() -> String) -> Result<[u64; 3], Error> {
        let damaged = |why: String| Error::new(Exit::Inconclusive, what(), why, "make room, and measure again");
        let bytes = machine::read(&self.folder.path().join(FILE), "the recording")?;
        let mut recording = Recording::open(&bytes).map_err(|error| damaged(error.to_string()))?;
        let mut samples = 0;
        let damage = recording.records(|_, record| samples += u64::from(matches!(record, Record::Sample(_))));
        if damage.any() {
            return Err(damaged("the recording is damaged".to_owned()));
        }
        let (transferred, compressed) = recording.volume;
        Ok([samples, transferred, compressed])
    }
}
