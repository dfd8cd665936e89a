//! Accesses of Linux guests' traces per second: decoded, and replayed beside that: `cargo bench -p trace --bench speed`.

use std::path::Path;
use std::rc::Rc;

use arch_pmu::intel::IntelCaps;
use divan::Bencher;
use divan::counter::ItemsCount;
use host_pmu::strategy::Strategy;
use host_pmu::trace::Row;
use sim::model::Model;
use sim::replay::Replay;
use tempfile::TempDir;
use trace::read::Trace;
use trace::write::Writer;

/// Traces of one processor, one after the other.
const CORPUS: [&str; 4] = ["top-clx-6.1", "branches-clx-6.1", "record10-clx-6.1", "switching-clx-6.1"];
const STRATEGIES: [&str; 3] = ["reuse-lazy", "pool", "gate"];

fn main() {
    divan::main();
}

/// Writes the corpus so often that there are so many accesses.
fn written(accesses: u64) -> (TempDir, Trace) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/traces");
    let parts: Vec<Trace> = CORPUS.iter().map(|name| Trace::open(&corpus.join(name)).expect("a trace")).collect();
    let rows: Vec<Vec<Row>> =
        parts.iter().map(|part| part.batches().flat_map(|batch| batch.expect("rows")).collect()).collect();
    let dir = tempfile::tempdir().expect("a folder");
    let mut writer = Writer::begin(&dir.path().join("t"), parts[0].meta.clone()).expect("a trace");
    let once: u64 = parts.iter().map(|part| part.meta.accesses).sum();
    let mut at = 0;
    for part in (0..accesses.div_ceil(once)).flat_map(|_| &rows) {
        for row in part {
            writer.add(Row { at: at + row.at, ..*row }).expect("a row");
        }
        at += part.last().map_or(0, |row| row.at);
    }
    writer.finish().expect("a trace");
    let trace = Trace::open(&dir.path().join("t")).expect("a trace");
    (dir, trace)
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn decoded(bencher: Bencher<'_, '_>) {
    let (_dir, trace) = written(1_000_000);
    let decode = || trace.batches().map(|batch| batch.expect("rows").len()).sum::<usize>();
    bencher.counter(ItemsCount::new(trace.meta.accesses)).bench_local(decode);
}

#[divan::bench(args = STRATEGIES, sample_count = 20, sample_size = 1)]
fn replayed(bencher: Bencher<'_, '_>, strategy: &str) {
    let (_dir, trace) = written(1_000_000);
    let run = || {
        let model = Rc::new(Model::embedded("clx-ap-watchdog-on").expect("an embedded model"));
        let strategy = Strategy::preset(strategy).expect("a preset");
        let mut replay = Replay::new(&model, IntelCaps::default().into(), &strategy, 1, 0);
        trace.read_beside(|rows| replay.feed(rows)).expect("rows");
        replay.finish()
    };
    bencher.counter(ItemsCount::new(trace.meta.accesses)).bench_local(run);
}
