//! Rates at which the statistics are right: intervals, comparisons and histories of synthetic hosts with a known truth.
//!
//! `cargo run --release -p results --features testing --example statistics [ratio|level|until|compare] [RUNS] [HOST]`;
//! docs/validation.md has the tables.

mod tables {
    pub(crate) mod compare;
    pub(crate) mod level;
    pub(crate) mod ratio;
    pub(crate) mod until;
}

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runs = arguments.get(1).and_then(|runs| runs.parse().ok()).unwrap_or(1000);
    let wanted = |name: &str| arguments.first().is_none_or(|asked| asked == name);
    if wanted("ratio") {
        tables::ratio::print(runs);
    }
    if wanted("level") {
        tables::level::print(runs);
    }
    if wanted("until") {
        tables::until::print(runs);
    }
    if wanted("compare") {
        tables::compare::print(runs, arguments.get(2).map_or("", String::as_str));
    }
    ExitCode::SUCCESS
}
