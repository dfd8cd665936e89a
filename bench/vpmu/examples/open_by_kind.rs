//! A whole experiment in one file: how long a host takes to open and close an event, by what stands behind it.
//!
//! `cargo run -p vpmu --example open_by_kind FOLDER`. The document in FOLDER goes through `vpmu compare`, `report`, `export` and
//! `history` as any other.

use std::path::Path;
use std::time::Instant;

use host_pmu::backend::BackendKey;
use host_pmu::open::probe;
use host_pmu::stats::ns;
use results::document::Record;
use results::error::Error;
use results::host::{HostFacts, HostFs};
use results::metric::ELAPSED;
use results::table::layout::columns;
use results::write::{OutputFolder, time_stamp};
use serde_json::json;
use vpmu::engine::Rounds;
use vpmu::engine::plain::{Experiment, Plain, Sample};
use vpmu::terminal::progress;

/// Events of a turn.
const EVENTS: u64 = 20;

fn main() -> Result<(), Error> {
    let kinds: Vec<BackendKey> = ["cpu-clock", "tracepoint:sched/sched_switch", "hardware"]
        .iter()
        .filter_map(|kind| kind.parse().ok())
        .collect();
    let mut arms: Vec<Plain<'_>> = kinds
        .iter()
        .filter(|kind| probe(kind).is_ok())
        .map(|kind| Plain::new(kind.to_string(), &kind.to_string(), |_| take(kind)))
        .collect();
    let experiment = Experiment {
        name: "open-by-kind",
        parameters: json!({ "events": EVENTS }),
        rounds: Rounds { warmup: 1, ..Rounds::of(10, 1) },
    };
    let path = std::env::args_os().nth(1).unwrap_or_else(|| "vpmu-results".into());
    let mut folder = OutputFolder::open(Path::new(&path))?;
    let fs = HostFs::default();
    let (command_line, mut progress): (Vec<String>, _) = (std::env::args().collect(), progress::shown(true));
    let mut save = |document: &Record| {
        folder
            .write(&format!("open-by-kind-{}", time_stamp(document.started_unix)), document.to_json()?.as_bytes())
            .map(drop)
    };
    let host = (HostFacts::begin(&fs), &fs);
    let (document, error) = experiment.measure(&mut arms, host, &command_line, progress.as_mut(), &mut save)?;
    print!("{}", results::table::plain(&document).text(columns()));
    error.map_or(Ok(()), Err)
}

/// Opens and closes events of a kind, one after the other.
fn take(kind: &BackendKey) -> Result<Option<Sample>, Error> {
    let one = |_| {
        let began = Instant::now();
        probe(kind).map_err(|error| Error::host(format!("cannot open {kind}"), error.to_string(), ""))?;
        Ok(ns(began.elapsed()))
    };
    let times: Vec<u64> = (0..EVENTS).map(one).collect::<Result<_, Error>>()?;
    Ok(Some(Sample::default().with(&ELAPSED, times)))
}
