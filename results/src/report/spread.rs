//! Shows how the rounds of a result are spread.

use super::figure::{Figure, Table, dash};
use super::latency::{ARMS, too_many};
use super::strategies::capital;
use super::subject;
use crate::document::Record;
use crate::metric;
use crate::paired::{self, Statistic};
use crate::plot::{self, Axis, Inks, Strip, duration};
use crate::stats::nearest_rank;
use crate::table::layout::{level, plural, time};

/// Most rounds of an arm that are drawn.
const DOTS: usize = 400;

/// Draws the p50 of every round that counts, by arm, in order of time; `None` if no arm has two of them.
pub(super) fn rounds(record: &Record, inks: &Inks) -> Option<Figure> {
    let key = subject::metric_of(record)?;
    let title = format!("{} over rounds", capital(&metric::name(key)));
    let mut table =
        Table::new(format!("{title}: p50 of each"), &["arm", "rounds", "lowest", "25 %", "p50", "75 %", "highest"]);
    let mut strips = Vec::new();
    let mut most = 0;
    for (arm, ..) in subject::measured(record) {
        let values: Vec<f64> = paired::counting(arm, key, Statistic::P50).map(|(_, value)| value).collect();
        let Some(found) = paired::level(arm, key, Statistic::P50).filter(|found| found.rounds > 1) else { continue };
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |q: f64| nearest_rank(&sorted, q);
        let cell = |value: Option<f64>| value.map_or_else(dash, time);
        table.rows.push(vec![
            arm.name.clone(),
            values.len().to_string(),
            cell(sorted.first().copied()),
            cell(at(0.25)),
            level(&found),
            cell(at(0.75)),
            cell(sorted.last().copied()),
        ]);
        most = most.max(values.len());
        strips.push(Strip {
            name: arm.name.clone(),
            ink: inks.of(&arm.name),
            quartiles: [at(0.25).unwrap_or(found.ns), found.ns, at(0.75).unwrap_or(found.ns)],
            values: values.into_iter().step_by(found.rounds.div_ceil(DOTS)).collect(),
            text: level(&found),
        });
    }
    if strips.is_empty() {
        return None;
    }
    let arms = strips.len();
    strips.truncate(ARMS);
    let drawn = if most > DOTS { format!(" One of {} is drawn.", most.div_ceil(DOTS)) } else { String::new() };
    let x =
        Axis::log("p50 of a round", strips.iter().flat_map(|strip| strip.values.iter().copied()), duration).of_cost();
    Some(Figure {
        note: format!(
            "A dot is a round, the first uppermost; the box has the middle half of them, the bar is p50, the \
             median of {}.{drawn}{}",
            plural(most, "round"),
            too_many(arms)
        ),
        plots: vec![plot::strips(&title, &x, &strips)],
        key: Vec::new(),
        title,
        table,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn every_whole_round_is_drawn() {
        let mut record = fixture::record(9, 5, |_, round| 1000 + round);
        record.arms[0].rounds.complete[2] = false;
        let figure = rounds(&record, &Inks::new([])).unwrap();
        assert_eq!(figure.plots[0].matches("h0").count(), 8 + 3 * 9);
        assert_eq!(figure.table.rows.len(), 4);
        assert_eq!(
            figure.table.rows[1],
            ["reuse", "9", "1.00 µs", "1.00 µs", "1.00 µs [1.00, 1.01]", "1.01 µs", "1.01 µs"]
        );
    }

    #[test]
    fn many_rounds_are_thinned_and_the_note_says_so() {
        let record = fixture::record(900, 5, |_, round| 1000 + round);
        let figure = rounds(&record, &Inks::new([])).unwrap();
        assert_eq!(figure.plots[0].matches("h0").count(), 4 * 300);
        assert!(figure.note.contains("One of 3 is drawn."), "{}", figure.note);
        assert!(rounds(&fixture::record(1, 5, |_, _| 7), &Inks::new([])).is_none());
    }
}
