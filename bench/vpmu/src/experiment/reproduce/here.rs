//! Published figures measured on this host: what every such run is asked for, and what it concludes.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use results::host::HostFacts;
use results::published::{Here, Number, Reproduction, Row};
use results::table::layout::ratio;
use results::verdict::{Judged, Tally};

use super::run::SEED;
use crate::setting::parse::{duration_in, folder, number_in};

/// A request to measure figures on this host.
#[derive(Clone, Debug, Args)]
pub struct Asked {
    /// Bound on --run vpmu-reuse, and on the rounds of perf-stat-setup [default: 10m, 1m]
    #[arg(long, value_name = "TIME", requires = "run",
          value_parser = duration_in(Duration::from_secs(1)..=Duration::from_secs(86_400)))]
    pub duration: Option<Duration>,

    /// Folder for the documents of --run
    #[arg(short = 'o', long = "output", value_name = "DIR", requires = "run", value_parser = folder)]
    pub output: Option<PathBuf>,

    /// Rounds of --run, with everything once; five have an interval [default: 10; vpmu-reuse as many as fit, perf-stat-setup 15, record-compression 5]
    #[arg(long, value_name = "N", requires = "run", value_parser = number_in(1..=1000))]
    pub rounds: Option<u64>,

    /// Seed of the simulations; with --run of the order of what is measured
    #[arg(long, value_name = "N", default_value_t = SEED, value_parser = number_in(0..=u64::MAX))]
    pub seed: u64,
}

/// Returns the measured rows with their conclusion: by how much the ratios, whether numbers agree, and what is missing.
pub(super) fn conclude(
    seed: u64,
    rows: Vec<Row>,
    host: HostFacts,
    (notes, mut missing): (Vec<String>, Vec<String>),
) -> Reproduction {
    let ratio_of = |row: &Row| {
        let measured = row.measured.as_ref()?.value;
        Some(format!("{} × {}", ratio(measured), row.figure))
    };
    let ratios = rows.iter().filter(|row| row.number == Number::Ratio && row.published.is_some()).filter_map(ratio_of);
    let ratios: Vec<String> = ratios.collect();
    let ratios = match ratios.len() {
        0 => "no ratio was measured".to_owned(),
        1..=6 => ratios.join(", "),
        many => format!("{many} ratios"),
    };
    let side = |what: &str, of: fn(&Row) -> Option<&Judged>| {
        let Tally { slower, faster, same, open } = Tally::of(rows.iter().filter_map(of).map(|found| found.verdict));
        let (differ, all) = (slower + faster, slower + faster + same + open);
        let text = format!("; of {all} {what} numbers {same} agree, {differ} differ, {open} are open");
        if all == 0 { String::new() } else { text }
    };
    let published = side("published", |row| row.against_published.as_ref());
    let predicted = side("predicted", |row| row.against_predicted.as_ref());
    let whole = missing.is_empty();
    if rows.iter().any(|row| row.measured.as_ref().is_some_and(|one| one.stand_in)) {
        missing.push("evidence on hardware, because hardware events do not open here".to_owned());
    }
    let missing = if missing.is_empty() { String::new() } else { format!(" Missing: {}.", missing.join("; ")) };
    let conclusion = format!("Before over after: {ratios}{published}{predicted}.{missing}");
    let here = Some(Here { host, notes, whole, conclusion });
    Reproduction { schema: "vpmu-reproduce/1", seed, rows, fitted: Vec::new(), here }
}
