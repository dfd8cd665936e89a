//! The answer and how sure it is: each arm's p50 and × floor with 95 % intervals, and a sentence for each pair worth comparing.

use std::fmt::Write as _;

use super::fold::{Cell, Table};
use super::layout::{self, name};
use super::report::Report;
use crate::answers;
use crate::document::warnings::UNIDENTIFIED;
use crate::document::{Arm, ArmKind, Document, Experiment, Warning};
use crate::metric::Metric;
use crate::paired::{self, Ratio, Statistic};

pub(super) const HEADER: [&str; 3] = ["arm", "p50 [95 %]", "× floor [95 %]"];
/// Two arms that seem closer than this are advised the number of rounds that this difference needs.
const LEAST: f64 = 0.01;
/// More rounds than this are no advice.
const MOST: u64 = 20_000;

/// Comparison of an arm with another one in one document.
#[derive(Clone, Debug, PartialEq)]
pub struct Against {
    /// The arm.
    pub arm: String,
    /// The other.
    pub base: String,
    /// Its ratio to the other.
    pub ratio: Ratio,
}

impl Against {
    /// Formats the comparison as a sentence without a full stop.
    pub fn sentence(&self) -> String {
        let Self { arm, base, ratio } = self;
        let figure = layout::ratio_with(ratio);
        let rounds = layout::plural(ratio.rounds, "round");
        let mut text = format!("{arm} against {base}: {figure}, {rounds}");
        if ratio.interval.is_none() {
            let _ = write!(text, ": too few for an interval");
            return text;
        }
        if !ratio.is_distinguishable() {
            text.push_str(",\n  not distinguishable");
            if ratio.constant {
                return text;
            }
            let seen = (ratio.ratio - 1.0).abs();
            match ratio.more_rounds(seen.max(LEAST)) {
                Some(0) => {}
                None => text.push_str("; more runs might help, rounds not"),
                Some(more) if more > MOST => text.push_str("; more rounds would hardly help"),
                Some(more) => {
                    let (rounds, of) = (layout::plural(more as usize, "more round"), layout::percent(seen.max(LEAST)));
                    let _ = write!(text, ";\n  about {rounds} (--rounds) would show a difference of {of} %");
                }
            }
        }
        text
    }
}

/// Returns the pairs of a document that are worth comparing by a metric: strategies with one another, and with the
/// floor those that it does not lie clearly below.
pub fn against<E: Experiment>(document: &Document<E>, metric: &Metric) -> Vec<Against> {
    let compared = |(arm, base): (&Arm, &Arm)| {
        let ratio = paired::over_runs(document, arm, base, metric.key, Statistic::P50)?;
        Some((base.kind, Against { arm: arm.name.clone(), base: base.name.clone(), ratio }))
    };
    let pairs = paired::in_plan_order(&document.arms, metric.key);
    let near = |ratio: &Ratio| ratio.interval.is_some_and(|interval| interval.low <= 1.0);
    let found = pairs.into_iter().filter_map(compared);
    found.filter(|(base, one)| *base != ArmKind::Floor || near(&one.ratio)).map(|(_, one)| one).collect()
}

/// The figures of an arm that its answer is: p50 and ratio to the floor, with intervals.
pub(super) fn answer(document: &Document, place: usize, metric: &Metric) -> [Cell; 2] {
    let arm = &document.arms[place];
    let level = paired::level(arm, metric.key, Statistic::P50);
    let over = match (arm.kind, level) {
        (ArmKind::Floor, Some(_)) => "1".into(),
        _ => Cell::ratio(answers::over_floor(document, place, metric).as_ref()),
    };
    [Cell::level(metric.key, level.as_ref()), over]
}

/// Says what the figures of the first table are not.
pub(super) fn caveats(document: &Document, metric: &Metric, report: &mut Report) {
    if document.arms.iter().any(|arm| arm.name.starts_with("mediated") && arm.kind == ArmKind::Strategy) {
        report.line("the floor bounds a PMU whose accesses exit: those of a mediated one do not");
    }
    let open = || document.warnings.iter().filter(|warning| warning.code == UNIDENTIFIED);
    for Warning { arm, message, .. } in open() {
        report.line(format!("{}: {message}", arm.as_deref().unwrap_or_default()));
    }
    if open().next().is_some() {
        report.line("form: published figures fit each (vpmu show models; vpmu sim MODEL:FORM)");
    }
    for arm in &document.arms {
        let short = paired::short(arm, metric.key);
        if short > 0 {
            let rounds = layout::plural(short, "round");
            report.line(format!("{}: {rounds} of few samples left out", arm.name));
        }
    }
}

/// Adds the first table of a document, its columns explained, and the sentences.
pub(super) fn report(document: &Document, metric: &Metric, report: &mut Report) {
    let mut table = Table::new(HEADER);
    let mut no_spread = false;
    let there = document.arms.iter().enumerate().filter(|(_, arm)| arm.not_available.is_none());
    for (place, arm) in there {
        let [level, over] = answer(document, place, metric);
        let row = [name(arm).into(), level, over];
        no_spread |= row.iter().any(|cell| cell.text().contains(layout::NO_SPREAD));
        table.add_row(row);
    }
    report.table(table);
    report.line("p50: median over rounds of each round's median");
    report.line("× floor: of paired rounds; floor: an estimated lower bound");
    caveats(document, metric, report);
    if no_spread {
        let what = if document.is_simulated() { "simulated guests do not differ" } else { "all rounds are the same" };
        report.line(format!("no spread: {what}"));
    }
    let pairs = against(document, metric);
    if !pairs.is_empty() {
        report.gap();
    }
    for pair in &pairs {
        report.line(pair.sentence());
    }
    let few = |pair: &&Against| pair.ratio.guests < paired::groups::MIN_GUESTS;
    let with_intervals = || pairs.iter().filter(|pair| pair.ratio.interval.is_some());
    if document.is_simulated() || with_intervals().next().is_none() {
        return;
    }
    let default = layout::percent(paired::BETWEEN_RUNS.error);
    report.line(format!("intervals of ratios allow for how runs differ: {default} %"));
    if let Some(guests) = with_intervals().filter(few).map(|pair| pair.ratio.guests).min() {
        let do_not = if guests == 1 { "does not" } else { "do not" };
        report.line(format!("{} an arm {do_not} show how guests differ", layout::plural(guests, "guest")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Record;
    use crate::fixture::record;
    use crate::metric::NMI_HANDLER;
    use crate::synthetic::{Host, Random};

    /// Returns a run of so many rounds with the floor at 1 and these strategies.
    fn run(rounds: u64, truth: [f64; 3]) -> Record {
        let host = Host { rounds: 400, rounds_per_guest: 1, ..Host::default() };
        let [a, b, c] = truth.map(f64::ln);
        let arms = host.run(&[a, b, c, 0.0], &mut Random::new(3));
        record(rounds, 5, |arm, round| {
            let place = ["recreate", "reuse", "reuse-lazy", "floor"].iter().position(|name| *name == arm).unwrap();
            #[expect(clippy::cast_sign_loss, reason = "an exponential is positive")]
            let ns = (arms[place][round as usize].log.exp() * 100_000.0) as u64;
            ns
        })
    }

    #[test]
    fn pairs_that_differ_are_distinguishable_and_others_get_the_rounds_that_would_do() {
        let found = against(&run(160, [1.3, 1.2, 1.204]), &NMI_HANDLER);
        let sentences: Vec<String> = found.iter().map(Against::sentence).collect();
        assert_eq!(found.len(), 3, "the floor is clearly below: {sentences:?}");
        assert!(sentences[0].starts_with("reuse against recreate: 0.91"), "{sentences:?}");
        assert!(sentences[0].ends_with("], 160 rounds"), "{sentences:?}");
        assert!(sentences[2].starts_with("reuse-lazy against reuse: ") && sentences[2].contains("not distinguishable"));
        let few = against(&run(20, [1.02, 1.0, 1.0]), &NMI_HANDLER);
        let text = few[0].sentence();
        assert!(
            text.contains("not distinguishable;\n  about ") && text.contains("0 more rounds (--rounds) would"),
            "{text}"
        );
        assert!(text.contains(" show a difference of ") && text.ends_with(" %"), "{text}");
        assert!(few.iter().any(|one| one.base == "floor"), "{few:?}");
    }
}
