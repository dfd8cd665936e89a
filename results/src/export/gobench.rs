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
