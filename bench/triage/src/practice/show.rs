//! The numbers as a report.

use results::table::layout::dash;
use results::table::{Report, Table};

use super::document::{Line, Practice};

const COLUMNS: [&str; 4] = ["figure", "published", "here", "95 %"];

fn value(line: &Line, value: f64) -> String {
    match line.unit {
        "percent" => format!("{value:.1} %"),
        "s" => format!("{value:.3} s"),
        _ => format!("{value:.2} x"),
    }
}

fn cells(line: &Line) -> Vec<String> {
    let shown = |number: Option<f64>| number.map_or_else(dash, |number| value(line, number));
    let interval =
        line.interval.map_or_else(dash, |[low, high]| format!("{} to {}", value(line, low), value(line, high)));
    vec![line.what.clone(), shown(line.published), shown(line.measured), interval]
}

fn lines(found: &Practice) -> Vec<String> {
    let mut lines = vec![format!("Published, {} [{}]: {}.", found.figure, found.source, found.what)];
    for line in &found.lines {
        lines.push(format!("Here, {}: {}.", line.what, if line.by.is_empty() { "not measured" } else { &line.by }));
    }
    for account in &found.accounts {
        let subject = &account.subject;
        lines.push(format!(
            "{}: {} threads on {} CPUs, Linux {}, {}, {} rounds of {} ms turns{}.",
            subject.workload,
            subject.threads,
            subject.cpus,
            subject.kernel,
            account.host.class,
            account.rounds,
            subject.turn_ms,
            account.host.loadavg_1m.map_or_else(String::new, |load| format!(", load {load:.2} before")),
        ));
    }
    lines.extend(found.reasons.iter().map(|reason| format!("Why they differ: {reason}.")));
    lines
}

/// Returns the figures as they are shown.
pub fn report(found: &Practice) -> Report {
    let mut table = Table::new(COLUMNS);
    found.lines.iter().for_each(|line| table.add_row(cells(line)));
    let mut report = Report::new("vpmu reproduce");
    report.table(table);
    report.gap();
    report.notes(lines(found));
    report
}

#[cfg(test)]
mod tests {
    use super::super::document::tests::account;
    use super::super::document::{Figure, Practice};
    use super::*;

    #[test]
    fn published_and_measured_numbers_are_beside_each_other_with_the_reasons() {
        let of = |figure, accounts| report(&Practice::of(figure, accounts).unwrap());
        let rand = of(Figure::Rand, vec![account(8e6, 32e6, 0)]);
        let share = of(Figure::SpinlockShare, vec![account(1.0, 1.0, 50), account(1.0, 1.0, 0)]);
        let probing = of(Figure::ParallelProbing, vec![account(400.0, 2000.0, 0), account(500.0, 2100.0, 0)]);
        let none = of(Figure::SpinlockShare, Vec::new());
        let shown = rand.markdown() + "\n" + &[share, probing, none].map(|report| report.text(100)).join("\n");
        trials::golden(
            std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/published.txt")),
            &shown,
        );
    }
}
