//! Tables of a sweep: points before, comparison after.

use std::fmt::Write;

use super::pareto::{Front, Pareto, StrategySummary};
use super::point::GridPoint;
use results::shown;
use results::table::fold::{Table, wrapped};
use results::table::layout::{dash, ratio, time};

const LEGEND: &str =
    "front: ● on the Pareto front of latency and events held; ○ on that of latency, events held and creates";

fn columns(pareto: &Pareto) -> [String; 8] {
    let latency = format!("latency {}", pareto.by.key());
    ["strategy", &latency, "range", "× floor", "held mean", "held max", "creates", "front"].map(str::to_owned)
}

fn cells(row: &StrategySummary) -> [String; 8] {
    let star = if row.doubtful > 0 { "*" } else { "" };
    [
        format!("{}{star}", row.strategy),
        row.latency_ns.map_or_else(dash, time),
        match row.latency_range_ns {
            Some([low, high]) if low < high => format!("{} … {}", time(low), time(high)),
            _ => dash(),
        },
        row.x_floor.map_or_else(dash, ratio),
        ratio(row.held_mean),
        row.held_max.to_string(),
        ratio(row.creates),
        match row.front {
            Front::LatencyAndHeld => "●".to_owned(),
            Front::WithCreates => "○".to_owned(),
            Front::Beaten => String::new(),
            Front::Unknown => dash(),
        },
    ]
}

fn notes(pareto: &Pareto) -> String {
    let mut notes =
        "latency: NMI handler (rotation, where the guest only counts); held: host events of a vCPU, over time; \
                     creates: per NMI (rotation)\n"
            .to_owned();
    notes += LEGEND;
    notes.push('\n');
    if pareto.scenarios.iter().flat_map(|scenario| &scenario.rows).any(|row| row.doubtful > 0) {
        notes +=
            "*: lost NMIs or overflows, failed opens, or a guest ended by the hard limit; sweep.jsonl has the counts\n";
    }
    notes
}

/// Returns the comparison as tables of so many columns.
#[must_use]
pub fn text(pareto: &Pareto, width: usize) -> String {
    let mut text = String::new();
    for scenario in &pareto.scenarios {
        let mut table = Table::new(columns(pareto));
        for row in &scenario.rows {
            table.add_row(cells(row));
        }
        let _ = writeln!(text, "{}\n{}\n", shown::line(&scenario.name), table.text(width));
    }
    notes(pareto).lines().fold(text, |text, line| text + &wrapped(line, width, "  ") + "\n")
}

/// Returns the comparison as Markdown.
#[must_use]
pub fn markdown(pareto: &Pareto) -> String {
    let mut text = String::new();
    for scenario in &pareto.scenarios {
        let columns = columns(pareto);
        let _ = writeln!(
            text,
            "### {}\n\n| {} |\n|---|{}",
            shown::markdown(&scenario.name),
            columns.join(" | "),
            "---:|".repeat(7)
        );
        for row in &scenario.rows {
            let _ = writeln!(text, "| {} |", cells(row).map(|text| shown::markdown(&text)).join(" | "));
        }
        text.push('\n');
    }
    for line in notes(pareto).lines() {
        let _ = writeln!(text, "- {}", line.replace('*', "\\*"));
    }
    text
}

/// Returns one line per point; `+` marks points already in the store.
#[must_use]
pub fn dry_run(points: &[GridPoint], done: impl Fn(usize) -> bool) -> String {
    let mut text = String::new();
    for (at, point) in points.iter().enumerate() {
        let mark = if done(at) { '+' } else { ' ' };
        let _ = write!(
            text,
            "{mark} {} model={} workload={} vcpus={} cpus={} slice={} seed={}",
            point.key(),
            point.model,
            point.workload,
            point.vcpus,
            point.cpus,
            time(point.slice_ns as f64).replace(' ', ""),
            point.seed
        );
        for (cost, factor) in &point.costs {
            let _ = write!(text, " {cost}={factor}");
        }
        let _ = writeln!(text, " strategy={}", point.arm().replace(' ', ","));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::pareto::{By, Scenario};
    use super::super::point::tests::point;
    use super::*;

    fn pareto(doubtful: u64) -> Pareto {
        let row = |strategy: &str, latency_ns, front| StrategySummary {
            strategy: strategy.to_owned(),
            seeds: 2,
            latency_ns,
            latency_range_ns: latency_ns.map(|n| [n, n + 1000.0]),
            x_floor: Some(1.25),
            held_mean: 6.9,
            held_max: 7,
            creates: 0.21,
            doubtful,
            front,
        };
        let rows = vec![row("reuse", Some(119_000.0), Front::LatencyAndHeld), row("none", None, Front::Unknown)];
        Pareto { by: By::P90, scenarios: vec![Scenario { name: "model m, workload w".to_owned(), rows }] }
    }

    #[test]
    fn tables_show_the_front_and_what_is_doubtful() {
        let shown = text(&pareto(0), 60);
        assert!(shown.starts_with("model m, workload w\nstrategy"), "{shown}");
        for needle in ["latency p90", "119 µs … 120 µs", "1.25", "6.90", "●", "–"] {
            assert!(shown.contains(needle), "{shown:?} lacks {needle}");
        }
        assert!(shown.lines().all(|line| line.chars().count() <= 60), "{shown}");
        assert!(!shown.contains("reuse*") && text(&pareto(3), 60).contains("reuse*"));
        let shown = markdown(&pareto(1));
        assert!(shown.contains("| reuse* | 119 µs | 119 µs … 120 µs | 1.25 | 6.90 | 7 | 0.21 | ● |"), "{shown}");
        assert!(shown.contains("- \\*: lost NMIs"));
    }

    #[test]
    fn a_dry_run_is_a_line_per_point() {
        let shown = dry_run(&[point(), point()], |at| at == 1);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("  ") && lines[1].starts_with("+ "));
        assert!(lines[0].ends_with("slice=3.00ms seed=1 strategy=reuse"), "{shown}");
    }
}
