//! The verdicts as a report.

use results::document::Status;
use results::junit::Case;
use results::metric;
use results::stats::interval::Interval;
use results::table::layout::{dash, p, percent, plural, time};
use results::table::{Report, Table};
use results::verdict::Verdict;

use super::judge::{ALL, Row};
use super::run::{AbDocument, AbSide};
use super::turn::shown;

/// Returns the verdicts, the rules, and what was run, as they are shown.
pub fn report(document: &AbDocument) -> Report {
    let mut report = Report::new("vpmu ab");
    let judged: Vec<&Row> = document.rows.iter().filter(|row| row.judged).collect();
    let name =
        judged.first().map_or("no figures", |row| metric::find(row.metric).map_or(row.metric, |found| found.name));
    report.line(format!("NEW against BASE: {name}, {}", document.new.parameters.workload));
    if !judged.is_empty() {
        let mut table = Table::new(["arm", "ratio", "95 % interval", "verdict", "p"]);
        for row in &judged {
            table.add_row(cells(row));
        }
        report.table(table);
        report.suite(document.new.parameters.workload.clone(), judged.iter().map(|row| case(row)).collect());
    }
    report.notes(document.doubts.iter().map(|why| format!("doubt: {why}")));
    report.notes(document.left_out.iter().map(|why| format!("left out: {why}")));
    report.notes(legend(document, &judged));
    for (side, of) in [("BASE", &document.base), ("NEW", &document.new)] {
        report.note(format!("{side}: {}", describe(of)));
    }
    report.notes(differences(&document.base, &document.new));
    if document.same_build {
        report.line("A/A: both sides are the same build with the same options");
    }
    let stand_in = if document.base.stand_in || document.new.stand_in { ", a stand-in" } else { "" };
    report.line(format!("backend: {}{stand_in}", document.new.parameters.backend));
    report.line(format!("host: {}", document.host.class));
    let pairs = plural(usize::try_from(document.pairs).unwrap_or(usize::MAX), "pair");
    report.line(format!("{pairs} of turns, {}, seed {}", time(document.wall_ns as f64), document.seed));
    match document.status {
        Status::Interrupted => report.line("interrupted: whole pairs only"),
        Status::Incomplete => report.line("incomplete: a side failed"),
        Status::Running | Status::Complete => {}
    }
    report.verdict = Some((document.verdict.exit(), conclusion(document)));
    report
}

fn case(row: &Row) -> Case {
    let verdict = row.verdict.unwrap_or(Verdict::NotJudged);
    Case {
        name: format!("{} {}", row.arm, row.metric),
        class: format!("vpmu.ab.{}", row.arm),
        verdict,
        message: format!("{} {:.3} {}", verdict.word(), row.ratio.ratio, interval(row)),
    }
}

fn cells(row: &Row) -> Vec<String> {
    vec![
        row.arm.clone(),
        format!("{:.3}", row.ratio.ratio),
        interval(row),
        row.verdict.map_or_else(dash, |verdict| verdict.word().to_owned()),
        row.p.map_or_else(dash, p),
    ]
}

fn interval(row: &Row) -> String {
    row.ratio.interval.map_or_else(dash, |Interval { low, high }| format!("[{low:.3}, {high:.3}]"))
}

fn legend(document: &AbDocument, judged: &[&Row]) -> Vec<String> {
    let rules = &document.rules;
    let mut lines = vec![
        "ratio: NEW over BASE, centre of the pairs' ratios; a pair is a turn of both, one right after the other, and a \
         turn a process of six rounds, whose median counts. Interval: over pairs."
            .to_owned(),
    ];
    if judged.iter().any(|row| row.arm == ALL) {
        lines.push(format!("{ALL}: mean of the arms in each pair; what all have in common, such as the exit path."));
    }
    lines.push(format!(
        "slower, faster: p, adjusted over the rows, below {}, and a change of {} % or more; no change: neither, and the \
         interval excludes a slow-down of {} %.",
        rules.alpha,
        percent(rules.threshold),
        percent(rules.bound)
    ));
    lines
}

/// Lists the differences of the two sides beside their builds, a line each.
fn differences(base: &AbSide, new: &AbSide) -> Vec<String> {
    let (base, new) = (&base.parameters, &new.parameters);
    let all = [
        ("workload", base.workload.clone(), new.workload.clone()),
        ("backend", base.backend.clone(), new.backend.clone()),
    ];
    // Another build may not have them all.
    let of_both =
        base.others.iter().filter_map(|(key, base)| Some((key.as_str(), shown(base), shown(new.others.get(key)?))));
    let unlike = all.into_iter().chain(of_both).filter(|(_, base, new)| base != new);
    unlike.map(|(what, base, new)| format!("unlike: {what}: {base} / {new}")).collect()
}

fn describe(side: &AbSide) -> String {
    let tool = &side.tool;
    let args = if side.args.is_empty() { String::new() } else { format!(" {}", side.args.join(" ")) };
    format!("{}{args} ({}, {}, {})", side.binary, tool.version, tool.git_revision, tool.profile)
}

/// Returns the answer, in a line.
fn conclusion(document: &AbDocument) -> String {
    let names = |verdict: Verdict| {
        let rows = document.rows.iter().filter(|row| row.verdict == Some(verdict));
        rows.map(|row| format!("{} {:.3} {}", row.arm, row.ratio.ratio, interval(row))).collect::<Vec<_>>().join(", ")
    };
    let doubt = document.doubts.first().map_or_else(String::new, |doubt| format!("; {doubt}"));
    match document.verdict {
        Verdict::Slower => format!("NEW is slower: {}{doubt}", names(Verdict::Slower)),
        Verdict::Faster => format!("NEW is faster: {}", names(Verdict::Faster)),
        Verdict::NoChange => "no change".to_owned(),
        Verdict::Inconclusive | Verdict::NotJudged => {
            let open = || document.rows.iter().filter(|row| row.verdict == Some(Verdict::Inconclusive));
            let more = open().filter_map(|row| row.more_pairs).max().filter(|more| *more > 0);
            let more = more.map_or_else(String::new, |more| {
                let pairs = plural(usize::try_from(more).unwrap_or(usize::MAX), "more pair");
                if open().any(|row| row.ratio.log.is_none()) {
                    format!("; an interval needs {pairs}, and a verdict more yet")
                } else {
                    format!("; about {pairs} (--pairs, --duration) would decide")
                }
            });
            format!("inconclusive{doubt}{more}")
        }
    }
}
