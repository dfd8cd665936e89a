//! Go benchmark text, for `benchstat`: one line per arm, metric and round, with units of our own.
//!
//! The format (golang/proposal 14313): configuration lines `key: value`, then
//! `BenchmarkName iterations value unit ...`. benchstat takes the rounds as samples of one benchmark. The backend is a
//! configuration key: the floor has none, and in a name of its own it would have no cell beside the strategies.

use std::fmt::Write;

use crate::document::{Arm, Record};
use crate::error::one_line;

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
            ("goarch", "amd64".to_owned()),
            ("pkg", format!("vpmu/{}", record.experiment)),
            ("cpu", record.host.cpu_model.clone().unwrap_or_else(|| "unknown".to_owned())),
            ("host", record.host.class.clone()),
            ("workload", parameter("workload")),
            ("processor", parameter("cpu")),
            ("backend", parameter("backend") + stand_in),
            ("tool", format!("{} {}", record.tool.version, record.tool.git_revision)),
        ];
        out.extend(keys.iter().map(|(key, value)| format!("{key}: {}\n", one_line(value))));
        let vcpus = record.size("vcpus").map_or_else(String::new, |vcpus| format!("-{vcpus}"));
        let measured = || record.arms.iter().filter(|arm| !arm.rounds.is_empty());
        // What an arm lacks, as the floor does signals, would be a cell without a value.
        let all_have = |key: &str| measured().all(|arm| arm.rounds.metrics.contains_key(key));
        for arm in measured() {
            (0..arm.rounds.len()).for_each(|at| round(&mut out, arm, at, (&vcpus, &all_have)));
        }
    }
    out
}

/// Writes the round of an arm, a line a metric.
fn round(out: &mut String, arm: &Arm, at: usize, (vcpus, has): (&str, &dyn Fn(&str) -> bool)) {
    let of = |key| arm.rounds.metrics[key].get(at);
    for (key, metric) in arm.rounds.metrics.keys().filter(|key| has(key)).filter_map(|key| Some((key, of(key)?))) {
        let units = [("_ns", "ns"), ("_bytes", "B")];
        let found = units.into_iter().find_map(|(end, unit)| Some((key.strip_suffix(end)?, unit)));
        let (benchmark, unit) = found.unwrap_or((key, "n"));
        let (benchmark, name, count) = (part(benchmark), part(&arm.name), metric.count);
        // Writing to a String cannot fail.
        let _ = write!(out, "Benchmark{benchmark}/strategy={name}{vcpus} {count} {} p50-{unit}/op", metric.p50);
        let _ = metric.mean.map_or(Ok(()), |mean| write!(out, " {mean:.1} mean-{unit}/op"));
        out.push('\n');
    }
}
