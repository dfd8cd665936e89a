//! What a run found, in few lines: the answer first, one table, and what must be known about it. [`report`](super::report) has the rest.

use super::column::{self, Figures, Place};
use super::fold::Table;
use super::latency::{course, heading, place};
use super::layout::{name, plural, ratio_with};
use super::ranking::{AS_GOOD, contenders, fastest, is_whole, listed, origin, with_figures};
use super::report::{Part, Report};
use super::summary::{HEADER, against, answer, caveats};
use crate::answers;
use crate::document::{Arm, ArmKind, Document};
use crate::metric::{Metric, NMI_HANDLER};
use crate::paired::{self, Ratio, Statistic};

/// The strategy that others are compared with: that of KVM before 5.5, the oldest.
const OLDEST: &str = "recreate";

/// Headings of the columns of host work that the table has.
const WORK: [&str; 3] = ["opens", "ops", "perf ops"];

/// Returns the results of one or several workloads as they are shown first; `more` says how to see the rest.
pub fn brief(documents: &[Document], more: &str) -> Report {
    let mut report = Report::default();
    let Some(first) = documents.first() else { return report };
    let several = documents.len() > 1;
    if let Some(found) = finding(documents) {
        report.note(found);
        report.gap();
    }
    report.heading(heading(first, !several));
    let set_up = first.parameters.set_up.is_some();
    let of_work = if set_up { Place::SetUpWork } else { Place::Work };
    let columns = || column::columns(of_work).filter(|column| WORK.contains(&column.heading));
    let head = several.then_some("workload").into_iter().chain(HEADER);
    let mut table = Table::new(head.chain(columns().map(|column| column.heading)));
    if several {
        table = table.keys(2).left(1);
    }
    for document in documents {
        let metric = metric(document);
        for (place, arm) in document.arms.iter().enumerate().filter(|(_, arm)| arm.not_available.is_none()) {
            let work = columns().map(|column| column.cell(&Figures::new(arm, arm.metric(metric))));
            let workload = several.then(|| events(document).into());
            let cells = workload.into_iter().chain([name(arm).into()]).chain(answer(document, place, metric));
            table.add_row(cells.chain(work));
        }
    }
    report.table(table);
    let per = if set_up { "set-up" } else { "PMI or rotation" };
    report.note(format!(
        "p50: median over rounds of each round's median; × floor: of paired rounds, floor: an estimated lower bound; opens, ops: host \
         events opened and operations on them, per {per}"
    ));
    for document in documents {
        let mut own = Report::default();
        known(document, &mut own);
        course(document, &mut own);
        for part in own.parts {
            let of = if several { format!("{}: ", events(document)) } else { String::new() };
            match part {
                Part::Line(text) | Part::Note(text) => report.note(of + text.trim_start()),
                other => report.parts.push(other),
            }
        }
    }
    place(first, &mut report);
    report.line(more);
    report
}

/// Says what must be known of a document's figures.
fn known(document: &Document, report: &mut Report) {
    caveats(document, metric(document), report);
    let pairs = against(document, metric(document));
    let open = pairs.iter().filter(|pair| pair.ratio.interval.is_some() && !pair.ratio.is_distinguishable());
    let open: Vec<String> = open.map(|pair| format!("{} and {}", pair.arm, pair.base)).collect();
    if !open.is_empty() {
        report.note(format!("not distinguishable: {}", open.join(", ")));
    }
    let doubtful = document.arms.iter().filter(|arm| arm.own.doubts().next().is_some());
    let doubtful: Vec<String> = doubtful.map(|arm| arm.name.clone()).collect();
    if !doubtful.is_empty() {
        report.note(format!("not whole: {} (the warnings say why)", listed(&doubtful)));
    }
    let floor = document.arms.iter().find(|arm| arm.kind == ArmKind::Floor);
    let below = |arm: &&Arm| {
        let over = floor.and_then(|floor| ratio(document, arm, floor)).and_then(|over| over.interval);
        arm.kind == ArmKind::Strategy && !arm.name.starts_with("mediated") && over.is_some_and(|over| over.high < 1.0)
    };
    if !document.is_replayed() && document.arms.iter().any(|arm| below(&arm)) {
        report.note("the floor is no lower bound here: its own timer took longer; compare strategies with one another");
    }
    // KVM's own vPMU is tried in every run, and no surprise where there is none.
    for arm in document.arms.iter().filter(|arm| arm.kind != ArmKind::Kvm) {
        report.notes(arm.not_available.iter().map(|why| format!("{}: not available because {why}", arm.name)));
    }
}

/// The answer: of one workload the order of its strategies, of several the strategy that is best in all of them.
pub fn finding(documents: &[Document]) -> Option<String> {
    match documents {
        [one] => fastest(one, metric(one)),
        several => choice(several),
    }
}

/// The name of a workload's events.
fn events(document: &Document) -> &str {
    let workload = &document.parameters.workload;
    workload.strip_suffix("/ftest").unwrap_or(workload)
}

/// Ratio of two arms of a document by its metric.
fn ratio(document: &Document, arm: &Arm, base: &Arm) -> Option<Ratio> {
    paired::over_runs(document, arm, base, metric(document).key, Statistic::P50)
}

/// Describes the strategy whose worst ratio to the fastest of a workload is the least, beside others in each workload. What is not
/// distinguishable from the fastest is as fast.
fn choice(documents: &[Document]) -> Option<String> {
    let (first, others) = documents.split_first()?;
    let in_all = |arm: &&Arm| others.iter().all(|other| ranked(other).iter().any(|one| one.name == arm.name));
    let worst = |name: &str| {
        let behind = |document| {
            fastest_other(document, name).map_or(1.0, |(_, ratio)| if is_behind(&ratio) { ratio.ratio } else { 1.0 })
        };
        documents.iter().map(behind).fold(1.0, f64::max)
    };
    let worsts: Vec<(&Arm, f64)> =
        ranked(first).into_iter().filter(in_all).map(|arm| (arm, worst(&arm.name))).collect();
    let (_, least) = *worsts.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let best: Vec<String> =
        worsts.iter().filter(|(_, worst)| *worst <= least).map(|(arm, _)| arm.name.clone()).collect();
    let name = best.first().filter(|_| worsts.len() > 1)?;
    let what = if metric(first).key == NMI_HANDLER.key { " handler time" } else { " time" };
    let nouns = std::iter::once(what).chain(std::iter::repeat(""));
    let parts: Vec<String> =
        documents.iter().zip(nouns).filter_map(|(document, what)| beside(document, name, what)).collect();
    let mut said = vec![format!("{name}: {}{}", parts.join(", "), origin(first))];
    if let [_, as_good @ ..] = &best[..]
        && !as_good.is_empty()
    {
        said.push(format!("as good: {}", listed(as_good)));
    }
    for document in documents {
        let out: Vec<String> =
            with_figures(document, metric(document)).filter(|arm| !is_whole(arm)).map(|arm| arm.name.clone()).collect();
        if !out.is_empty() {
            said.push(format!("not whole with {}, so not ranked: {}", number(document), listed(&out)));
        }
    }
    let rounds = documents.iter().filter_map(|document| fastest_other(document, name)).map(|(_, ratio)| ratio);
    if let Some(few) = rounds.filter(|ratio| ratio.interval.is_none()).map(|ratio| ratio.rounds).min() {
        said.push(format!("{}, no interval", plural(few, "round")));
    }
    Some(said.join("; "))
}

fn ranked(document: &Document) -> Vec<&Arm> {
    contenders(document, metric(document)).collect()
}

fn metric(document: &Document) -> &'static Metric {
    answers::metric(&document.parameters)
}

/// The events of a workload, as a number.
fn number(document: &Document) -> String {
    plural(document.parameters.events.len(), "event")
}

/// The strategy beside this one that is the fastest of a workload, and how this one stands to it.
fn fastest_other<'a>(document: &'a Document, name: &str) -> Option<(&'a Arm, Ratio)> {
    let own = document.arm(name)?;
    let others = ranked(document).into_iter().filter(|arm| arm.name != name);
    let ratios = others.filter_map(|arm| Some((arm, ratio(document, own, arm)?)));
    ratios.max_by(|a, b| a.1.ratio.total_cmp(&b.1.ratio))
}

fn is_behind(ratio: &Ratio) -> bool {
    ratio.ratio > 1.0 + AS_GOOD && ratio.is_distinguishable()
}

/// Places a strategy beside the fastest other one of a workload, or where it is faster than that beside the oldest.
fn beside(document: &Document, name: &str, what: &str) -> Option<String> {
    let own = document.arm(name)?;
    let (other, found) = fastest_other(document, name)?;
    let oldest = || {
        let oldest = ranked(document).into_iter().find(|arm| arm.name == OLDEST && arm.name != name)?;
        Some((oldest, ratio(document, own, oldest)?))
    };
    let is_first = found.ratio < 1.0 - AS_GOOD && found.interval.is_none_or(|interval| interval.excludes(1.0));
    let (base, found) = if is_first { oldest().unwrap_or((other, found)) } else { (other, found) };
    let figure = ratio_with(&found);
    let (value, interval) = figure.split_once(' ').unwrap_or((&figure, ""));
    Some(format!("{value} × {}'s{what} with {} {interval}", base.name, number(document)).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::timed;

    /// The first line of two workloads with these times, and the floor at 1000 ns.
    fn said(ten: &[(&str, u64)], one: &[(&str, u64)]) -> String {
        let documents = [ten, one].map(|times| timed(40, times).as_guests().expect("a document of guests"));
        brief(&documents, "").text(400).lines().next().expect("an answer").to_owned()
    }

    #[test]
    fn the_answer_is_the_least_worst_strategy_beside_the_fastest_or_the_oldest() {
        let text = said(
            &[("recreate", 3000), ("reuse", 2600), ("gate", 1500)],
            &[("recreate", 1200), ("reuse", 1100), ("gate", 1150)],
        );
        assert!(
            text.starts_with("gate: 0.500 × recreate's handler time with ") && text.contains(", 1.045 × reuse's"),
            "{text}"
        );
        let text = said(&[("recreate", 3000), ("reuse", 1500)], &[("recreate", 1200), ("gate", 1100)]);
        assert!(text.starts_with("Guest NMI"), "one strategy in each is no choice: {text}");
        let text = said(&[("recreate", 3000), ("reuse", 3000)], &[("recreate", 1200), ("reuse", 1200)]);
        assert!(text.starts_with("recreate: 1.000 × reuse's") && text.ends_with("; as good: reuse"), "{text}");
    }
}
