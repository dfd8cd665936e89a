//! The result as a table for people.

pub mod layout;

use std::fmt::Write;

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};

use crate::result::arm::{ArmKind, ArmResult};
use crate::result::summary::Summary;
use crate::result::{Document, Status};
use layout::{ratio, time};

const HEADER: [&str; 15] = [
    "arm",
    "p50",
    "p90",
    "p99",
    "max",
    "mean",
    "× floor",
    "delivery p50",
    "opens/PMI",
    "perf ops/PMI",
    "exits/PMI",
    "slow-down",
    "held max",
    "NMIs",
    "lost",
];

fn row(arm: &ArmResult, latency: Option<&Summary>, floor: Option<u64>) -> Vec<String> {
    let dash = || "–".to_owned();
    let ns = |get: fn(&Summary) -> u64| latency.map_or_else(dash, |s| time(get(s) as f64));
    // Per sample where nothing raises PMIs: a rotation is what a counting workload measures.
    let per = |n: u64| {
        let samples = latency.map_or(0, |s| s.count).max(arm.nmis);
        if samples == 0 {
            dash()
        } else {
            ratio(n as f64 / samples as f64)
        }
    };
    vec![
        arm.strategy.clone(),
        ns(|s| s.p50),
        ns(|s| s.p90),
        ns(|s| s.p99),
        ns(|s| s.max),
        latency.map_or_else(dash, |s| time(s.mean)),
        match (latency, floor) {
            (Some(s), Some(floor)) if floor > 0 => ratio(s.p50 as f64 / floor as f64),
            _ => dash(),
        },
        arm.pmi_delivery_ns
            .as_ref()
            .map_or_else(dash, |s| time(s.p50 as f64)),
        per(arm.op_count("open")),
        per(arm.all_ops()),
        per(arm.all_exits()),
        arm.workload.map_or_else(dash, |w| ratio(w.slowdown)),
        arm.events_held.max.to_string(),
        arm.nmis.to_string(),
        arm.lost
            .map_or_else(|| "unknown".to_owned(), |n| n.to_string()),
    ]
}

/// Table, what it was measured with, and warnings. `width` is the terminal's; `None` wraps nothing.
#[must_use]
pub fn text(document: &Document, width: Option<u16>) -> String {
    let sampling = document
        .parameters
        .events
        .iter()
        .any(|event| event.period > 0);
    let latency = |arm: &'_ ArmResult| -> Option<Summary> {
        if sampling {
            arm.nmi_handler_ns.clone()
        } else {
            arm.rotation_ns.clone()
        }
    };
    let floor = document
        .arms
        .iter()
        .find(|arm| arm.kind == ArmKind::Floor)
        .and_then(|arm| latency(arm).map(|s| s.p50));
    let mut table = Table::new();
    table
        .load_style(layout::STYLE)
        .set_content_arrangement(ContentArrangement::Dynamic);
    if let Some(width) = width {
        table.set_width(width);
    }
    table.set_header(HEADER);
    let mut absent = String::new();
    for arm in &document.arms {
        if let Some(why) = &arm.not_available {
            // Writing to a String cannot fail, here and below.
            let _ = writeln!(absent, "{}: not available because {why}", arm.strategy);
            continue;
        }
        let mut name = row(arm, latency(arm).as_ref(), floor);
        if !arm.incomplete.is_empty() {
            name[0].push('*');
        }
        table.add_row(name.into_iter().enumerate().map(|(i, text)| {
            let side = if i == 0 {
                CellAlignment::Left
            } else {
                CellAlignment::Right
            };
            Cell::new(text).set_alignment(side)
        }));
    }
    let mut out = String::new();
    let what = if sampling {
        "Guest NMI handler latency"
    } else {
        "Guest rotation latency (stop and restart of all events at a tick)"
    };
    let parameters = &document.parameters;
    let _ = writeln!(
        out,
        "{what}, {}, {} vCPU",
        parameters.workload, parameters.vcpus
    );
    let _ = writeln!(out, "{}", table.trim_fmt());
    out.push_str(&absent);
    let stand_in = if document.arms.iter().any(|arm| arm.stand_in) {
        ", a stand-in for hardware events: compare arms, not absolute figures"
    } else {
        ""
    };
    let _ = writeln!(out, "backend: {}{stand_in}", parameters.backend);
    let _ = writeln!(out, "host: {}", document.host.class);
    let rounds = document
        .arms
        .iter()
        .map(|arm| arm.rounds.len())
        .max()
        .unwrap_or(0);
    let wall = time(document.wall_ns as f64);
    let _ = writeln!(
        out,
        "{rounds} of {} rounds in {wall}, seed {}",
        parameters.rounds, document.seed
    );
    match document.status {
        Status::Complete => {}
        Status::Running => out.push_str("the experiment was still running\n"),
        Status::Interrupted => out.push_str("interrupted: finished rounds only\n"),
        Status::Incomplete => out.push_str("* incomplete:\n"),
    }
    for arm in &document.arms {
        for why in &arm.incomplete {
            let _ = writeln!(out, "  {}: {why}", arm.strategy);
        }
    }
    for warning in &document.warnings {
        let arm = warning
            .arm
            .as_ref()
            .map_or_else(String::new, |arm| format!("{arm}: "));
        let _ = writeln!(out, "warning: {arm}{}", warning.message);
    }
    out
}

#[cfg(test)]
mod tests {
    use crate::experiment::mock;
    use crate::result::Status;

    #[test]
    fn the_table_has_every_arm_the_backend_and_the_host_class() {
        let finished = mock::finished(&[]);
        let text = super::text(&finished.document, None);
        for needle in [
            "recreate",
            "reuse-lazy",
            "floor",
            "× floor",
            "cpu-clock, a stand-in",
            "development host",
        ] {
            assert!(text.contains(needle), "no {needle} in\n{text}");
        }
        assert!(
            text.contains("kvm: not available because the mock has no vPMU of its own"),
            "{text}"
        );
        assert!(!text.contains('\x1b'));
        let floor = text
            .lines()
            .find(|line| line.trim_start().starts_with("floor"))
            .unwrap();
        assert!(floor.contains("1.00"), "{floor}");
    }

    #[test]
    fn a_narrow_terminal_wraps_and_loses_nothing() {
        let finished = mock::finished(&[]);
        let text = super::text(&finished.document, Some(60));
        let table = text
            .lines()
            .filter(|line| line.contains('─'))
            .map(|line| line.chars().count());
        assert!(table.max().unwrap() <= 60);
    }

    #[test]
    fn incomplete_rounds_and_warnings_stand_below() {
        let mut finished = mock::finished(&[]);
        finished.document.status = Status::Incomplete;
        finished.document.arms[0]
            .incomplete
            .push("round 2, vCPU 0: the time limit passed".into());
        finished.document.arms[1].lost = Some(3);
        finished.document.warnings = crate::result::warnings::collect(&finished.document);
        let text = super::text(&finished.document, None);
        assert!(text.contains("recreate*"), "{text}");
        assert!(text.contains("recreate: round 2, vCPU 0"), "{text}");
        assert!(
            text.contains("warning: reuse: 3 NMIs were delivered but not taken"),
            "{text}"
        );
    }
}
