//! Records the same guest at each level, serially and asynchronously, by this tool and by stock perf.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use perf_data::reader::Recording;
use perf_data::record::Record;
use results::error::{Error, Exit};

use super::document::{Compression, FIGURE, Found, LEVELS, Mode, Quotient, Recorded, Recorder, Row, published};
use crate::engine::Schedule;
use crate::experiment::stat_setup::peer;
use crate::machine;
use crate::sys;
use crate::terminal::console::{complain, internal};

/// Parameters of the measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressionSpec {
    /// Rounds, with each recording once.
    pub rounds: u64,
    /// Products of matrices that the guest makes.
    pub products: u64,
    /// Seed of the order of recordings in a round.
    pub seed: u64,
    /// Calls that the products are below, [`MOST_DEPTH`] at the most. With any, call chains are recorded.
    pub depth: u64,
    /// Samples a second.
    pub hertz: u64,
    /// The levels beside 0, of [`LEVELS`].
    pub levels: Vec<u32>,
}

/// The usual rate: perf's 4000, and a prime.
pub const HERTZ: u64 = 3989;
/// Longest chains that this recorder takes have some more entries.
pub const MOST_DEPTH: u64 = 100;
/// The recording in its folder.
const FILE: &str = "x.data";

/// A command that records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arm {
    recorder: Recorder,
    level: u32,
    mode: Mode,
}

/// Measures.
///
/// # Errors
/// Exit 4: this host cannot record; exit 3: a recording ended early.
pub fn compression(spec: &CompressionSpec) -> Result<Compression, Error> {
    let cannot = |error: std::io::Error| Error::output("cannot make a temporary folder", &error, "");
    let folder = tempfile::tempdir().map_err(cannot)?;
    let guest = Guest::build(folder.path(), spec.products, spec.depth)?;
    let levels: Vec<u32> = LEVELS.into_iter().filter(|level| *level == 0 || spec.levels.contains(level)).collect();
    let tool = std::env::current_exe().map_err(|error| internal("cannot find this program", error))?;
    let run = Run { folder: folder.path(), tool: tool.as_os_str().to_owned(), guest: &guest, spec };
    let perf = run.perf();
    let mut arms = Vec::new();
    for recorder in [Recorder::Vpmu, Recorder::Perf].into_iter().take(if perf.is_ok() { 2 } else { 1 }) {
        for &level in &levels {
            arms.extend([Mode::Serial, Mode::Aio].map(|mode| Arm { recorder, level, mode }));
        }
    }
    complain(&format!("{} recordings of one guest in each round, {} of them", arms.len(), spec.rounds));
    let mut all = vec![Vec::new(); arms.len()];
    let mut schedule = Schedule::new(spec.seed);
    for _ in 0..spec.rounds {
        for at in schedule.next_round(arms.len()) {
            all[at].push(run.record(arms[at])?);
        }
    }
    let found = |recorder, level, mode| {
        let recordings = |level| arms.iter().position(|&arm| arm == Arm { recorder, level, mode }).map(|at| &all[at]);
        Found::of(recordings(level)?, recordings(0)?)
    };
    let mut rows = Vec::new();
    for &level in &levels {
        for mode in [Mode::Serial, Mode::Aio] {
            let whole = published(level, mode).zip(found(Recorder::Vpmu, level, mode));
            let (published, vpmu) = whole.ok_or_else(|| internal("cannot make the table", FIGURE))?;
            let perf = found(Recorder::Perf, level, mode);
            let against_perf = perf.as_ref().and_then(|_| against(&arms, &all, level, mode));
            rows.push(Row { level, mode, published, vpmu, perf, against_perf });
        }
    }
    Ok(Compression {
        figure: FIGURE,
        guest: match &guest {
            Guest::Matrices => {
                format!("an image that makes {} products of matrices below {} calls", spec.products, spec.depth)
            }
            Guest::Payload(samples, why) => format!("the payload with {samples} samples, as there is no image: {why}"),
        },
        perf: perf.unwrap_or_else(|why| format!("not measured: {why}")),
        hertz: spec.hertz,
        chains: spec.depth > 0,
        rounds: spec.rounds,
        seed: spec.seed,
        rows,
    })
}

struct Run<'a> {
    folder: &'a Path,
    tool: OsString,
    guest: &'a Guest,
    spec: &'a CompressionSpec,
}

impl Run<'_> {
    /// Returns the version of stock perf if it can record, else why not.
    fn perf(&self) -> Result<String, String> {
        let version = peer::version()?;
        if self.guest.alone().is_none() {
            return Err("the payload has no command of its own that perf could record".to_owned());
        }
        self.record(Arm { recorder: Recorder::Perf, level: 1, mode: Mode::Aio }).map_err(|error| error.why)?;
        Ok(version)
    }

    fn command(&self, arm: Arm) -> Command {
        let mut command = match arm.recorder {
            Recorder::Vpmu => Command::new(&self.tool),
            Recorder::Perf => Command::new("perf"),
        };
        command.current_dir(self.folder).args(["record", "--quiet", "-e", "cpu-clock", "-o", FILE]);
        command.args(["-F", &self.spec.hertz.to_string()]);
        if self.spec.depth > 0 {
            command.arg("-g");
        }
        if arm.level > 0 {
            command.arg(format!("--compression-level={}", arm.level));
        }
        if arm.mode == Mode::Aio {
            command.arg("--aio=1");
        }
        command.arg("--");
        match arm.recorder {
            Recorder::Vpmu => command.args(self.guest.recorded()),
            Recorder::Perf => command.arg(&self.tool).args(self.guest.alone().into_iter().flatten()),
        };
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    fn record(&self, arm: Arm) -> Result<Recorded, Error> {
        let what = || format!("cannot record at level {} by {:?}", arm.level, arm.recorder).to_lowercase();
        let (began, before) = (Instant::now(), sys::children_s());
        let output = self.command(arm).output().map_err(|error| Error::host(what(), error.to_string(), ""))?;
        let (elapsed, busy) = (began.elapsed().as_secs_f64(), sys::children_s() - before);
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let why = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it does not say why").to_owned();
            let exit = if output.status.code() == Some(4) { Exit::Host } else { Exit::Inconclusive };
            return Err(Error::new(exit, what(), why, "vpmu doctor says what this host can do"));
        }
        let bytes = machine::read(&self.folder.join(FILE), "the recording")?;
        let mut recording =
            Recording::open(&bytes).map_err(|error| Error::new(Exit::Inconclusive, what(), error.to_string(), ""))?;
        let mut samples = 0;
        let damage = recording.records(|_, record| samples += u64::from(matches!(record, Record::Sample(_))));
        if damage.any() {
            return Err(Error::new(
                Exit::Inconclusive,
                what(),
                "the recording is damaged",
                "make room, and measure again",
            ));
        }
        let (transferred, compressed) = recording.volume;
        Ok(Recorded { elapsed, busy, samples, transferred, compressed })
    }
}

/// Returns the overhead of `vpmu record` over that of stock perf in the same round: of time, and of processor time.
fn against(arms: &[Arm], all: &[Vec<Recorded>], level: u32, mode: Mode) -> Option<[Quotient; 2]> {
    let recordings = |recorder, level| {
        let at = arms.iter().position(|&arm| arm == Arm { recorder, level, mode })?;
        Some(all[at].iter())
    };
    let rounds: Vec<_> = recordings(Recorder::Vpmu, level)?
        .zip(recordings(Recorder::Vpmu, 0)?)
        .zip(recordings(Recorder::Perf, level)?.zip(recordings(Recorder::Perf, 0)?))
        .collect();
    let over = |of: fn(&Recorded) -> f64| {
        Quotient::of(
            rounds.iter().map(|((ours, zero), (perfs, perf_zero))| (of(ours) / of(zero), of(perfs) / of(perf_zero))),
        )
    };
    Some([over(|one| one.elapsed)?, over(|one| one.busy)?])
}

const SOURCE: &str = concat!(include_str!("matrix.c"), include_str!("ring_3.c"));
/// Compiler options for a guest that needs no operating system.
const FREESTANDING: [&str; 13] = [
    "-O2",
    "-mgeneral-regs-only",
    "-ffreestanding",
    "-nostdlib",
    "-static",
    "-fno-pie",
    "-no-pie",
    "-fno-asynchronous-unwind-tables",
    "-fcf-protection=none",
    "-mno-red-zone",
    "-fno-stack-protector",
    "-fno-omit-frame-pointer",
    "-mno-omit-leaf-frame-pointer",
];
const LINKING: &str = "-Wl,-Ttext-segment=0x200000,--build-id=none,-z,noexecstack,-z,max-page-size=4096";
/// Samples of the payload for each product that was asked for.
const SAMPLES: u64 = 5;

/// Guest that is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Guest {
    /// The image in the folder that multiplies matrices.
    Matrices,
    /// The payload with so many samples, and why not the image.
    Payload(u64, String),
}

impl Guest {
    /// Builds the image in `folder`, with so many products below so many calls.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub(super) fn build(folder: &Path, products: u64, depth: u64) -> Result<Self, Error> {
        let source = folder.join("matrix.c");
        fs::write(&source, SOURCE)
            .map_err(|error| Error::output(format!("cannot write {}", source.display()), &error, ""))?;
        let mut cc = Command::new("cc");
        cc.current_dir(folder).args(FREESTANDING).arg(LINKING);
        cc.args([format!("-DPRODUCTS={products}"), format!("-DDEPTH={depth}")]);
        let built = cc.args(["-o", IMAGE, "matrix.c"]).stdin(Stdio::null()).output();
        let why = match built {
            Ok(output) if output.status.success() => return Ok(Self::Matrices),
            Ok(output) => String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or("cc fails").to_owned(),
            Err(error) => format!("cc does not start: {error}"),
        };
        Ok(Self::Payload(products.saturating_mul(SAMPLES), why))
    }

    /// Returns the arguments with which `vpmu record` takes it.
    pub(super) fn recorded(&self) -> Vec<OsString> {
        match self {
            Self::Matrices => ["run", "--quiet", IMAGE].map(OsString::from).into(),
            Self::Payload(samples, _) => {
                ["payload".to_owned(), "--samples".to_owned(), samples.to_string()].map(OsString::from).into()
            }
        }
    }

    /// Returns the command of vpmu that runs it unrecorded, for stock perf. The payload has none.
    pub(super) fn alone(&self) -> Option<[&'static str; 3]> {
        matches!(self, Self::Matrices).then_some(["run", "--quiet", IMAGE])
    }
}

/// The image's name in its folder.
const IMAGE: &str = "matrix";
