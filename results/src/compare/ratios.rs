//! Strategies against the floor, on any host: the one comparison that unlike hosts allow.
//!
//! A handler's latency belongs to its host, its ratio to the floor's much less. This check takes no statistics: it asks
//! whether a ratio is off by more than a factor, as a gate for machines whose times mean nothing.

use serde::Serialize;

use super::rules::CompareSpec;
use super::sample;
use crate::document::Record;
use crate::error::{Error, Exit};
use crate::stats::median;
use crate::table::layout::ratio;
use crate::table::{Report, Table};

/// The arm every other one is divided by.
const FLOOR: &str = "floor";

/// One arm's ratio to the floor, of one metric.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// The arm.
    pub arm: String,
    /// The metric.
    pub metric: String,
    /// BASE's ratio.
    pub base: f64,
    /// NEW's ratio.
    pub new: f64,
    /// NEW's is at most `factor` times BASE's.
    pub within: bool,
}

/// Every arm's ratio against a bound.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratios {
    /// The bound.
    pub factor: f64,
    /// The ratios.
    pub rows: Vec<Ratio>,
    /// Missing arms and figures.
    pub notes: Vec<String>,
}

impl Ratios {
    /// Done, a regression, or inconclusive where one side lacks something.
    pub fn exit(&self) -> Exit {
        if self.rows.iter().any(|row| !row.within) {
            Exit::Regression
        } else if self.rows.is_empty() || self.notes.iter().any(|note| note.starts_with(sample::ONLY_IN)) {
            Exit::Inconclusive
        } else {
            Exit::Done
        }
    }
}

/// Compares ratios to the floor within `factor`.
///
/// # Errors
/// Returns the errors of [`super::compare`], and sides without a floor.
pub fn ratios(
    base: (&str, &[Record]),
    new: (&str, &[Record]),
    factor: f64,
    request: &CompareSpec,
) -> Result<Ratios, Error> {
    let mut notes = Vec::new();
    let mut rows = Vec::new();
    let (bases, news): (Vec<&Record>, Vec<&Record>) = (base.1.iter().collect(), new.1.iter().collect());
    for pair in sample::pairs((base.0, &bases), (new.0, &news), &mut notes)? {
        let with_floor = CompareSpec { arms: Vec::new(), ..request.clone() };
        let samples = sample::samples(&pair, &with_floor, &mut notes);
        for sample in samples.iter().filter(|sample| sample.arm != FLOOR) {
            if !request.arms.is_empty() && !request.arms.contains(&sample.arm) {
                continue;
            }
            let floor = samples.iter().find(|other| other.arm == FLOOR && other.metric == sample.metric);
            let over = |own: &[f64], floor: Option<&[f64]>| {
                let (own, floor) = median(own).zip(floor.and_then(median))?;
                (floor > 0.0).then(|| own / floor)
            };
            let all = |runs: &[sample::Run]| runs.iter().flat_map(|run| run.values.clone()).collect::<Vec<f64>>();
            let before = over(&all(&sample.base), floor.map(|floor| all(&floor.base)).as_deref());
            let now = over(&all(&sample.new), floor.map(|floor| all(&floor.new)).as_deref());
            match before.zip(now) {
                Some((base, new)) => {
                    let (arm, metric) = (sample.arm.clone(), sample.metric.clone());
                    rows.push(Ratio { arm, metric, base, new, within: new <= base * factor });
                }
                None => {
                    notes.push(format!("{}one side: {} {} over the floor", sample::ONLY_IN, sample.arm, sample.metric));
                }
            }
        }
    }
    Ok(Ratios { factor, rows, notes })
}

/// Returns the ratios as they are shown.
pub fn ratios_report(found: &Ratios) -> Report {
    let mut table = Table::new(["arm", "metric", "BASE × floor", "NEW × floor", "verdict"]).keys(2).left(4);
    for row in &found.rows {
        let word = if row.within { "within" } else { "TOO HIGH" };
        table.add_row([row.arm.clone(), row.metric.clone(), ratio(row.base), ratio(row.new), word.to_owned()]);
    }
    let mut report = Report::new("vpmu compare --ratios");
    report.table(table);
    report.notes(found.notes.iter().map(|note| format!("note: {note}")));
    let bad = found.rows.iter().filter(|row| !row.within).count();
    report.line(format!("{bad} of {} ratios above {} × BASE's", found.rows.len(), ratio(found.factor)));
    report
}
