//! Folders of a thousand results: `cargo bench -p results --features testing --bench documents`.
//!
//! Reading is part of each row but `compare_read`. The documents are small, ten rounds and four arms; `.ci/thousand`
//! has simulated ones.
#![allow(missing_docs, reason = "functions of a benchmark")]

use divan::{Bencher, black_box};
use results::compare::{self, CompareSpec, Statistic};
use results::document::Record;
use results::fixture;
use results::history::{self, HistorySpec};
use results::read;
use results::report::{Sources, html};
use results::stats::change_points::Rules;
use tempfile::TempDir;

const DOCUMENTS: u64 = 1000;
const ROUNDS: u64 = 10;

fn main() {
    divan::main();
}

/// Makes a folder of results of one setting, an hour apart.
fn folder(first: u64) -> TempDir {
    let dir = tempfile::tempdir().expect("a folder for the documents");
    for number in 0..DOCUMENTS {
        // Figures that differ, without a source of chance.
        let ns = |arm: &str, round: u64| 100_000 + 977 * arm.len() as u64 + (number * 7919 + round * 104_729) % 6007;
        let value = fixture::value(ROUNDS, first + 3600 * number, ns);
        let text = serde_json::to_string_pretty(&value).expect("a document is JSON");
        std::fs::write(dir.path().join(format!("{number:04}.json")), text).expect("a document is written");
    }
    dir
}

fn records(dir: &TempDir) -> Vec<Record> {
    read::folder(dir.path()).expect("the documents are sound")
}

#[divan::bench(sample_count = 10, sample_size = 1)]
fn read(bencher: Bencher<'_, '_>) {
    let dir = folder(1_700_000_000);
    bencher.bench_local(|| records(black_box(&dir)));
}

#[divan::bench(sample_count = 10, sample_size = 1)]
fn compare(bencher: Bencher<'_, '_>) {
    let (base, new) = (folder(1_700_000_000), folder(1_710_000_000));
    bencher.bench_local(|| {
        let (base, new) = (records(&base), records(&new));
        compare::compare(("base", &base), ("new", &new), &CompareSpec::default())
    });
}

#[divan::bench(sample_count = 10, sample_size = 1)]
fn compare_read(bencher: Bencher<'_, '_>) {
    let (base, new) = (records(&folder(1_700_000_000)), records(&folder(1_710_000_000)));
    bencher.bench_local(|| compare::compare(("base", &base), ("new", &new), &CompareSpec::default()));
}

#[divan::bench(sample_count = 10, sample_size = 1)]
fn history(bencher: Bencher<'_, '_>) {
    let dir = folder(1_700_000_000);
    let spec = HistorySpec {
        rules: Rules::default(),
        statistic: Statistic::default(),
        arms: Vec::new(),
        metrics: Vec::new(),
        times: false,
    };
    bencher.bench_local(|| history::history("bench", &records(&dir), &spec));
}

#[divan::bench(sample_count = 10, sample_size = 1)]
fn report(bencher: Bencher<'_, '_>) {
    let dir = folder(1_700_000_000);
    bencher.bench_local(|| {
        let (published, tool) = (fixture::reproduction(), fixture::tool());
        html(&Sources { records: records(&dir), sweeps: Vec::new(), published, tool }, "bench")
    });
}
