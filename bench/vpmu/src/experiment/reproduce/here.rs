//! Published figures measured on this host: what every such run is asked for, and what it concludes.

use std::path::PathBuf;
use std::time::Duration;

use results::host::HostFacts;
use results::published::{Here, Number, Reproduction, Row};
use results::table::layout::ratio;
use results::verdict::{Judged, Tally};

/// What is asked of a run.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Rounds; `None`: as many as fit, or as the experiment usually has.
    pub rounds: Option<u64>,
    /// Bound on it.
    pub duration: Option<Duration>,
    /// Seed of the order of what is measured.
    pub seed: u64,
    /// Folder for the documents.
    pub output: Option<PathBuf>,
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
