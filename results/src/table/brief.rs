//! What a run found, in few lines: the answer first, one table, and what must be known about it. [`report`](super::report) has the rest.

use super::column::{self, Figures, Place};
use super::fold::Table;
use super::latency::{course, heading, place};
use super::layout::{name, plural, ratio_with};
use super::ranking::{contenders, fastest, origin};
use super::report::Report;
use super::summary::{HEADER, against, answer, caveats};
use crate::advice::AS_GOOD;
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
    let found = if several { choice(documents) } else { fastest(first, metric(first)) };
    if let Some(found) = found {
        report.note(found);
        report.gap();
    }
    report.heading(heading(first, !several));
    let set_up = first.parameters.set_up.is_some();
    let of_work = if set_up { Place::SetUpWork } else { Place::Work };
    let columns = || column::columns(of_work).filter(|column| WORK.contains(&column.heading));
    let head = several.then_some("workload").into_iter().chain(HEADER);
    let mut table = Table::new(head.chain(columns().map(|column| column.heading))).left(usize::from(several));
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
        caveats(document, metric(document), &mut report);
        let open = against(document, metric(document));
        let open = open.iter().filter(|pair| pair.ratio.interval.is_some() && !pair.ratio.is_distinguishable());
        let open: Vec<String> = open.map(|pair| format!("{} and {}", pair.arm, pair.base)).collect();
        if !open.is_empty() {
            report.note(format!("{}not distinguishable: {}", of(document, several), open.join(", ")));
        }
        let lost = document.arms.iter().filter(|arm| arm.own.lost.is_some_and(|lost| lost > 0));
        report.notes(lost.map(|arm| format!("{}{}: NMIs were lost", of(document, several), arm.name)));
        // KVM's own vPMU is tried in every run, and no surprise where there is none.
        for arm in document.arms.iter().filter(|arm| arm.kind != ArmKind::Kvm) {
            report.notes(arm.not_available.iter().map(|why| format!("{}: not available because {why}", arm.name)));
        }
    }
    place(first, &mut report);
    for document in documents {
        course(document, &of(document, several), &mut report);
    }
    report.line(more);
    report
}

/// The name of a workload's events.
fn events(document: &Document) -> &str {
    let workload = &document.parameters.workload;
    workload.strip_suffix("/ftest").unwrap_or(workload)
}

fn of(document: &Document, several: bool) -> String {
    if several { format!("{}: ", events(document)) } else { String::new() }
}

/// Ratio of two arms of a document by its metric.
fn ratio(document: &Document, arm: &Arm, base: &Arm) -> Option<Ratio> {
    paired::over_runs(document, arm, base, metric(document).key, Statistic::P50)
}

/// Describes the strategy whose worst ratio to the fastest of a workload is the least, beside others in each workload.
fn choice(documents: &[Document]) -> Option<String> {
    let chosen = documents.first().map(|first| ranked(first))?;
    let worst = |name: &str| {
        let all = documents.iter().map(|document| {
            let own = document.arm(name).filter(|arm| ranked(document).iter().any(|one| one.name == arm.name))?;
            let ratios = ranked(document).into_iter().filter_map(|other| Some(ratio(document, own, other)?.ratio));
            ratios.reduce(f64::max)
        });
        all.reduce(|worst, one| Some(worst?.max(one?))).flatten()
    };
    let worsts = chosen.iter().filter_map(|arm| Some((&arm.name, worst(&arm.name)?)));
    let (name, _) = worsts.min_by(|a, b| a.1.total_cmp(&b.1))?;
    let what = if metric(&documents[0]).key == NMI_HANDLER.key { " handler time" } else { " time" };
    let nouns = std::iter::once(what).chain(std::iter::repeat(""));
    let parts = documents.iter().zip(nouns).filter_map(|(document, what)| beside(document, name, what));
    let parts: Vec<String> = parts.collect();
    Some(format!("{name}: {}{}", parts.join(", "), origin(&documents[0])))
}

fn ranked(document: &Document) -> Vec<&Arm> {
    contenders(document, metric(document)).collect()
}

fn metric(document: &Document) -> &'static Metric {
    answers::metric(&document.parameters)
}

/// Places a strategy beside the fastest other one of a workload, or where none is faster beside the oldest.
fn beside(document: &Document, name: &str, what: &str) -> Option<String> {
    let own = document.arm(name)?;
    let others = ranked(document).into_iter().filter(|arm| arm.name != name);
    let ratios: Vec<(&Arm, Ratio)> = others.filter_map(|arm| Some((arm, ratio(document, own, arm)?))).collect();
    let fastest = ratios.iter().max_by(|a, b| a.1.ratio.total_cmp(&b.1.ratio))?;
    let is_behind = fastest.1.ratio > 1.0 + AS_GOOD && fastest.1.is_distinguishable();
    let oldest = || ratios.iter().find(|(arm, _)| arm.name == OLDEST);
    let slowest = || ratios.iter().min_by(|a, b| a.1.ratio.total_cmp(&b.1.ratio));
    let (base, found) = if is_behind { fastest } else { oldest().or_else(slowest)? };
    let figure = ratio_with(found);
    let (value, interval) = figure.split_once(' ').unwrap_or((&figure, ""));
    let with = plural(document.parameters.events.len(), "event");
    Some(format!("{value} × {}'s{what} with {with} {interval}", base.name).trim_end().to_owned())
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
        assert!(text.starts_with("recreate: "), "it alone is in each: {text}");
    }
}
