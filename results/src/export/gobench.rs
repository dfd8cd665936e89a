//! Go benchmark text, for `benchstat`: one line per arm and round, with units of our own.
//!
//! The format (golang/proposal 14313): configuration lines `key: value`, then
//! `BenchmarkName iterations value unit ...`. benchstat takes the rounds as samples of one benchmark. The backend is a
//! configuration key: the floor has none, and in a name of its own it would have no cell beside the strategies.

use std::fmt::Write;

use crate::document::{Arm, Record};
use crate::error::one_line;
use crate::metric::{Metric, NMI_HANDLER, PMI_DELIVERY, ROTATION, SET_UP};

/// The benchmarks of guests, and what their units are per.
const OF_GUESTS: [(&Metric, &str, &str); 3] =
    [(&SET_UP, "StatSetup", "setup"), (&NMI_HANDLER, "NMIHandler", "nmi"), (&ROTATION, "Rotation", "rotation")];

/// Makes a name part: benchstat splits at '/', '=' and white space, and takes a final "-N" for GOMAXPROCS.
fn part(value: &str) -> String {
    value.chars().map(|c| if c == '/' || c == '=' || c.is_whitespace() { ':' } else { c }).collect()
}

/// Formats any experiments' documents, one after another; each has its own configuration lines.
pub(super) fn text(records: &[Record]) -> String {
    let mut out = String::new();
    for record in records {
        let parameter = |name| record.parameter(name).unwrap_or_else(|| "none".to_owned());
        let stand_in = if record.arms.iter().any(|arm| arm.stand_in) { " (stand-in)" } else { "" };
        let keys = [
            ("goos", std::env::consts::OS.to_owned()),
            ("goarch", if cfg!(target_arch = "x86_64") { "amd64" } else { std::env::consts::ARCH }.to_owned()),
            ("pkg", format!("vpmu/{}", record.experiment)),
            ("cpu", record.host.cpu_model.clone().unwrap_or_else(|| "unknown".to_owned())),
            ("host", record.host.class.clone()),
            ("workload", parameter("workload")),
            ("processor", parameter("cpu")),
            ("backend", parameter("backend") + stand_in),
            ("tool", format!("{} {}", record.tool.version, record.tool.git_revision)),
        ];
        // Writing to a String cannot fail.
        for (key, value) in keys {
            let _ = writeln!(out, "{key}: {}", one_line(&value));
        }
        let vcpus = record.size("vcpus").map_or_else(String::new, |vcpus| format!("-{vcpus}"));
        for arm in &record.arms {
            (0..arm.rounds.len()).for_each(|at| round(&mut out, arm, at, &vcpus));
        }
    }
    out
}

/// Writes the round of an arm: of a guest in a line, of another experiment a line a metric.
fn round(out: &mut String, arm: &Arm, at: usize, vcpus: &str) {
    let (rounds, name) = (&arm.rounds, part(&arm.name));
    let found = OF_GUESTS.iter().find_map(|(metric, name, unit)| Some((*name, *unit, rounds.metric(metric, at)?)));
    if let Some((benchmark, unit, latency)) = found {
        let (count, p50, mean) = (latency.count, latency.p50, latency.mean.unwrap_or_default());
        let p99 = latency.p99.unwrap_or(p50);
        let _ =
            write!(out, "Benchmark{benchmark}/strategy={name}{vcpus} {count} {p50} p50-ns/{unit} {p99} p99-ns/{unit}");
        let _ = write!(out, " {mean:.1} mean-ns/{unit}");
        if let Some(delivery) = rounds.metric(&PMI_DELIVERY, at) {
            let _ = write!(out, " {} p50-ns/delivery", delivery.p50);
        }
        let opens = rounds.counts.opens.get(at).map_or(0.0, |opens| *opens as f64 / count as f64);
        let _ = writeln!(out, " {opens:.4} opens/{unit}");
        return;
    }
    for (key, metric) in rounds.metrics.iter().filter_map(|(key, column)| Some((key, column.get(at)?))) {
        let units = [("_ns", "ns"), ("_bytes", "B")];
        let found = units.into_iter().find_map(|(end, unit)| Some((key.strip_suffix(end)?, unit)));
        let (benchmark, unit) = found.unwrap_or((key, "n"));
        let (benchmark, count, p50) = (part(benchmark), metric.count, metric.p50);
        let _ = writeln!(out, "Benchmark{benchmark}/strategy={name}{vcpus} {count} {p50} p50-{unit}/op");
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture;

    #[test]
    fn lines_have_the_shape_benchstat_reads() {
        let (_dir, mut record) = fixture::written(&fixture::document(2));
        let text = super::text(std::slice::from_ref(&record));
        let mut lines = 0;
        for line in text.lines() {
            let Some(line) = line.strip_prefix("Benchmark") else {
                // Configuration: a key that begins with a lower-case letter and has no white space.
                let (key, value) = line.split_once(": ").unwrap();
                assert!(key.bytes().all(|b| b.is_ascii_lowercase()) && !value.is_empty());
                continue;
            };
            lines += 1;
            let words: Vec<&str> = line.split(' ').collect();
            assert!(words[0].ends_with("-1") && words[0].contains("/strategy="), "{line}");
            assert!(words[1].parse::<u64>().unwrap() > 0);
            for pair in words[2..].chunks(2) {
                assert!(pair[0].parse::<f64>().unwrap().is_finite() && pair[1].contains('/'), "{line}");
            }
        }
        // Two rounds of three strategies and the floor, which have one name but for the strategy.
        assert_eq!(lines, 8);
        assert!(
            text.contains("\nbackend: cpu-clock (stand-in)\n")
                && text.contains("BenchmarkNMIHandler/strategy=reuse-1 ")
        );
        for arm in &mut record.arms {
            arm.rounds.metrics.retain(|key, _| key == "exit_path_ns");
        }
        assert!(super::text(&[record]).contains("Benchmarkexit_path/strategy=recreate-1 "));
    }
}
