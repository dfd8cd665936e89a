//! Latency and host work of each arm.

use std::fmt::Write;

use super::fold::{Table, wrapped};
use super::layout::{dash, name, ns, plural, ratio, time};
use super::{stat, summary};
use crate::answers;
use crate::document::{Arm, Counts, Document, Status, Summary, Warning};
use crate::metric::{NMI_HANDLER, PMI_DELIVERY, SIGNAL};

/// Columns of the latencies that a guest user feels, beside the p50.
const LATENCY: [&str; 7] = ["arm", "p90", "p99", "max", "mean", "signal", "delivery"];

/// Columns of the cost per PMI (per rotation, where the workload only counts).
const COST: [&str; 7] = ["arm", "opens", "ops", "exits", "held", "NMIs", "lost"];

const LATENCY_LEGEND: &str = "signal: median from the host's record of an overflow (floor: its timer's due time) to the VMM \
                              seeing it; delivery: from there to the handler's entry";
const COST_LEGEND: &str = "opens: host events opened; ops: perf calls of every kind; exits: MSR exits; held: most host \
                           events at once; lost: NMIs delivered to KVM and not taken, or taken and not delivered";

fn latency_row(arm: &Arm, latency: Option<&Summary>) -> [String; 7] {
    [
        name(arm),
        ns(latency.and_then(|s| s.p90)),
        ns(latency.and_then(|s| s.p99)),
        ns(latency.and_then(|s| s.max)),
        latency.and_then(|s| s.mean).map_or_else(dash, time),
        // An arm without NMIs had no overflow that asks for one: the signals are those of others, such as the floor's timer.
        ns(arm.metric(&SIGNAL).filter(|_| arm.own.counts.nmis > 0).map(|s| s.p50)),
        ns(arm.metric(&PMI_DELIVERY).map(|s| s.p50)),
    ]
}

fn cost_row(arm: &Arm, latency: Option<&Summary>) -> [String; 7] {
    let per = |n: u64| {
        let samples = latency.map_or(0, |s| s.count).max(arm.own.counts.nmis);
        if samples == 0 { dash() } else { ratio(n as f64 / samples as f64) }
    };
    [
        name(arm),
        per(arm.own.op_count("open")),
        per(arm.own.all_ops()),
        per(arm.own.all_exits()),
        arm.own.events_held.max.to_string(),
        arm.own.counts.nmis.to_string(),
        arm.own.lost.map_or_else(|| "unknown".to_owned(), |n| n.to_string()),
    ]
}

/// Returns a document's warnings, one line each; the host's settings together in one, since `doctor` describes them.
pub fn warnings(warnings: &[Warning]) -> impl Iterator<Item = String> {
    let settings: Vec<&str> =
        warnings.iter().filter(|warning| warning.remedy.is_some()).map(|warning| warning.code.as_str()).collect();
    let settings = (!settings.is_empty())
        .then(|| format!("noise sources on this host: {}; see `vpmu doctor`", settings.join(", ")));
    let own = warnings.iter().filter(|warning| warning.remedy.is_none());
    let own = own.map(|warning| match &warning.arm {
        Some(arm) => format!("{arm}: {}", warning.message),
        None => warning.message.clone(),
    });
    own.chain(settings)
}

/// Returns the table, its circumstances and what is incomplete, for so many columns.
#[must_use]
pub fn text(document: &Document, width: usize) -> String {
    if document.parameters.set_up.is_some() {
        return stat::text(document, width) + &surroundings(document);
    }
    let metric = answers::metric(&document.parameters);
    let sampling = metric == &NMI_HANDLER;
    let mut latencies = Table::new(LATENCY);
    let mut costs = Table::new(COST);
    let mut absent = String::new();
    for arm in &document.arms {
        if let Some(why) = &arm.not_available {
            // Writing to a String cannot fail, here and below.
            let line = format!("{}: not available because {why}", arm.name);
            let _ = writeln!(absent, "{}", wrapped(&line, width, "  "));
            continue;
        }
        let latency = arm.metric(metric);
        latencies.add_row(latency_row(arm, latency));
        costs.add_row(cost_row(arm, latency));
    }
    let mut out = String::new();
    let what = if sampling { "Guest NMI handler latency" } else { "Guest rotation latency (all events, at a tick)" };
    let parameters = &document.parameters;
    let cpu = parameters.other_cpu().map(|cpu| format!(", {cpu}")).unwrap_or_default();
    let _ = writeln!(out, "{what}, {}, {} vCPU{cpu}", parameters.workload, parameters.vcpus);
    out.push_str(&summary::text(document, metric, width));
    let _ = writeln!(out, "\nAll samples of all rounds together");
    let _ = writeln!(out, "{}", latencies.text(width));
    let _ = writeln!(out, "{}", wrapped(LATENCY_LEGEND, width, "  "));
    let per = if sampling { "PMI" } else { "rotation" };
    let _ = writeln!(out, "\nHost work per {per}");
    let _ = writeln!(out, "{}", costs.text(width));
    let _ = writeln!(out, "{}", wrapped(COST_LEGEND, width, "  "));
    out.push_str(&absent);
    out + &surroundings(document)
}

/// Describes the circumstances of the measurement, and what is incomplete.
fn surroundings(document: &Document) -> String {
    let mut out = String::new();
    let parameters = &document.parameters;
    let stand_in = if document.arms.iter().any(|arm| arm.stand_in) {
        ", a stand-in for hardware events\n  (compare arms only)"
    } else {
        ""
    };
    let _ = writeln!(out, "backend: {}{stand_in}", parameters.backend);
    let _ = writeln!(out, "host: {}", document.host.class);
    if let Some(linux) = &parameters.linux {
        let release = linux.release.as_deref().unwrap_or("of an unknown release");
        let _ = writeln!(out, "guest: Linux {release}, CPU {}, {}", linux.cpu, linux.perf);
    }
    for arm in document.arms.iter().filter(|arm| arm.own.counts.deferred_delivered > 0) {
        let Counts { deferred: held, deferred_delivered: late, deferred_dropped: settled, .. } = arm.own.counts;
        let _ = writeln!(out, "  {}: {held} PMIs met LVTPC's mask: {late} delivered late, {settled} settled", arm.name);
    }
    for arm in document.arms.iter().filter(|arm| arm.own.counts.merged > 0) {
        let _ = writeln!(out, "  {}: {} PMIs merged with an NMI that was pending", arm.name, arm.own.counts.merged);
    }
    let rounds = document.arms.iter().map(|arm| arm.rounds.len()).max().unwrap_or(0);
    let wall = time(document.wall_ns as f64);
    let asked = plural(usize::try_from(parameters.rounds).unwrap_or(usize::MAX), "round");
    let clock = if document.is_simulated() { " of simulated time" } else { "" };
    let _ = write!(out, "{rounds} of {asked} in {wall}{clock}, seed {}", document.seed);
    if document.status == Status::Complete && (rounds as u64) < parameters.rounds {
        let given = document.command_line.iter().any(|word| word.starts_with("--duration"));
        let bound = parameters.duration_ns.map_or_else(String::new, |ns| format!(" {}", time(ns as f64)));
        let sure = parameters.until_ci.is_some() && parameters.duration_ns.is_none_or(|ns| document.wall_ns < ns);
        let _ = match (sure, given) {
            (true, _) => write!(out, "; ended as every interval was narrow enough"),
            (false, true) => write!(out, "; ended by --duration of{bound}"),
            (false, false) => write!(out, "; ended after its{bound}"),
        };
    }
    out.push('\n');
    match document.status {
        Status::Complete => {}
        Status::Running => out.push_str("the experiment was still running\n"),
        Status::Interrupted => out.push_str("interrupted: finished rounds only\n"),
        Status::Incomplete => out.push_str("* incomplete:\n"),
    }
    for arm in &document.arms {
        for why in &arm.incomplete {
            let _ = writeln!(out, "  {}: {why}", arm.name);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use crate::document::Status;
    use crate::fixture;

    #[test]
    fn the_table_has_every_arm_the_backend_and_the_host_class() {
        let finished = fixture::document(10);
        let text = super::text(&finished, 60);
        for needle in ["recreate", "reuse-lazy", "floor", "× floor", "cpu-clock, a stand-in", "development host"] {
            assert!(text.contains(needle), "no {needle} in\n{text}");
        }
        assert!(text.contains("kvm: not available because the mock has no vPMU of its own"), "{text}");
        assert!(!text.contains('\x1b'));
        let floor = text.lines().find(|line| line.trim_start().starts_with("floor")).unwrap();
        assert!(floor.ends_with(" 1"), "{floor}");
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.join(" ").contains("recreate 2.00 µs [no spread] 2.000 [no spread] reuse"), "{text}");
        assert!(text.contains("estimated lower bound"), "{text}");
        assert!(text.contains("reuse against recreate: 0.500 [no spread], 10 rounds"), "{text}");
    }

    #[test]
    fn an_arm_without_nmis_has_dashes() {
        let mut finished = fixture::document(10);
        finished.arms[0].metrics.remove("nmi_handler_ns");
        finished.arms[0].rounds.metrics.remove("nmi_handler_ns");
        let text = super::text(&finished, 60);
        let row: Vec<&str> =
            text.lines().find(|line| line.starts_with("recreate")).unwrap().split_whitespace().collect();
        assert_eq!(row, ["recreate", "–", "–"], "{text}");
        assert!(!text.contains("against recreate"), "{text}");
    }

    #[test]
    fn tables_fit_60_columns_even_with_large_figures() {
        let mut finished = fixture::document(10);
        for arm in &mut finished.arms {
            arm.own.counts.nmis = 1_000_000;
            arm.own.lost = Some(100);
            if let Some(delivery) = arm.metrics.get("pmi_delivery_ns").cloned() {
                arm.metrics.insert("signal_ns".to_owned(), delivery);
            }
            for (metric, summary) in &mut arm.metrics {
                summary.max = Some(43_163_000);
                if metric != "nmi_handler_ns" {
                    summary.p50 = 43_163;
                }
            }
        }
        let text = super::text(&finished, 60);
        let tables = text.split("kvm: not available").next().unwrap();
        let widest = tables.lines().map(|line| line.chars().count()).max();
        assert!(widest.unwrap() <= 60, "{text}");
    }

    #[test]
    fn the_signal_latency_is_a_column_and_a_dash_where_there_is_none() {
        let mut finished = fixture::document(3);
        let mut signal = finished.arms[0].metrics["pmi_delivery_ns"].clone();
        signal.p50 = 4_560;
        finished.arms[0].metrics.insert("signal_ns".to_owned(), signal);
        let text = super::text(&finished, 100);
        let (_, samples) = text.split_once("All samples").unwrap();
        let row = |arm: &str| samples.lines().find(|line| line.starts_with(arm)).unwrap().trim_end();
        let delivery = |arm: &str| row(arm).rsplit_once("500 ns").unwrap().0.trim_end();
        assert!(delivery("recreate").ends_with(" 4.56 µs") && delivery("floor").ends_with(" –"), "{text}");
    }

    #[test]
    fn a_linux_guest_is_named_and_its_late_pmis_are_counted() {
        let mut document = fixture::document(3);
        document.parameters.linux = Some(crate::document::LinuxParameters {
            release: Some("6.1.0-50".to_owned()),
            cpu: "clx".to_owned(),
            perf: "perf version 6.1".to_owned(),
            memory: 1 << 29,
            command: "perf record".to_owned(),
        });
        let own = &mut document.arms[0].own;
        (own.counts.deferred, own.counts.deferred_delivered, own.counts.deferred_dropped) = (5, 2, 3);
        let text = super::text(&document, 100);
        assert!(text.contains("guest: Linux 6.1.0-50, CPU clx, perf version 6.1\n"), "{text}");
        assert!(text.contains("recreate: 5 PMIs met LVTPC's mask: 2 delivered late, 3 settled"), "{text}");
        assert_eq!(text.matches("LVTPC").count(), 1);
    }

    #[test]
    fn a_run_that_its_duration_ended_says_so() {
        let mut document = fixture::document(3);
        document.parameters.rounds = 9;
        document.parameters.duration_ns = Some(2_000_000_000);
        assert!(super::text(&document, 60).contains("3 of 9 rounds"));
        assert!(super::text(&document, 60).contains("; ended after its 2.00 s\n"), "{}", super::text(&document, 60));
        document.parameters.until_ci = Some(0.02);
        document.wall_ns = 1_000_000_000;
        assert!(super::text(&document, 60).contains("; ended as every interval was narrow enough\n"));
        document.parameters.until_ci = None;
        document.command_line.push("--duration=2s".to_owned());
        assert!(
            super::text(&document, 60).contains("; ended by --duration of 2.00 s\n"),
            "{}",
            super::text(&document, 60)
        );
    }

    #[test]
    fn incomplete_rounds_and_warnings_stand_below() {
        let mut finished = fixture::document(10);
        finished.status = Status::Incomplete;
        finished.arms[0].incomplete.push("round 2, vCPU 0: the time limit passed".into());
        finished.arms[1].own.lost = Some(3);
        finished.warnings = crate::document::warnings::collect(&finished);
        let text = super::text(&finished, 60);
        assert!(text.contains("recreate*"), "{text}");
        assert!(text.contains("recreate: round 2, vCPU 0"), "{text}");
        assert!(
            super::warnings(&finished.warnings)
                .any(|line| { line == "reuse: 3 NMIs were delivered but not taken by the guest" })
        );
    }
}
