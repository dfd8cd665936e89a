//! Go benchmark text, for `benchstat`: one line per arm and round, with units of our own.
//!
//! The format (golang/proposal 14313): configuration lines `key: value`, then
//! `BenchmarkName iterations value unit ...`. benchstat takes the rounds as samples of one benchmark.

use std::fmt::Write;

use crate::document::{Document, GUEST_STAT, NMI_LATENCY, Record};
use crate::error::Error;
use crate::metric::{NMI_HANDLER, PMI_DELIVERY, ROTATION, SET_UP};
use crate::read;

/// Keeps to one line, and to text that benchstat does not take for structure.
fn clean(value: &str) -> String {
    crate::error::one_line(value)
}

/// Makes a name part: benchstat splits at '/', '=' and white space, and takes a final "-N" for GOMAXPROCS.
fn part(value: &str) -> String {
    value.chars().map(|c| if c == '/' || c == '=' || c.is_whitespace() { ':' } else { c }).collect()
}

/// Formats the document of a guest run.
fn of_guests(document: &Document) -> String {
    let mut out = String::new();
    let parameters = &document.parameters;
    let cpu = document.host.cpu_model.as_deref().unwrap_or("unknown");
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        other => other,
    };
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "goos: {}\ngoarch: {arch}\npkg: vpmu/{}\ncpu: {}\nhost: {}\nworkload: {}\nprocessor: {}\ntool: {} {}\n",
        std::env::consts::OS,
        clean(&document.experiment),
        clean(cpu),
        clean(&document.host.class),
        clean(&parameters.workload),
        clean(&parameters.cpu),
        clean(&document.tool.version),
        clean(&document.tool.git_revision),
    );
    let vcpus = parameters.vcpus;
    for arm in &document.arms {
        for at in 0..arm.rounds.len() {
            let units = [
                (&SET_UP, "StatSetup", "setup"),
                (&NMI_HANDLER, "NMIHandler", "nmi"),
                (&ROTATION, "Rotation", "rotation"),
            ];
            let Some((name, unit, latency)) =
                units.into_iter().find_map(|(metric, name, unit)| Some((name, unit, arm.rounds.metric(metric, at)?)))
            else {
                continue;
            };
            let _ = write!(
                out,
                "Benchmark{name}/strategy={}/backend={}-{vcpus} {} {} p50-ns/{unit} {} p99-ns/{unit} {:.1} mean-ns/{unit}",
                part(&arm.name),
                part(&arm.backend),
                latency.count,
                latency.p50,
                latency.p99.unwrap_or(latency.p50),
                latency.mean.unwrap_or_default(),
            );
            if let Some(delivery) = arm.rounds.metric(&PMI_DELIVERY, at) {
                let _ = write!(out, " {} p50-ns/delivery", delivery.p50);
            }
            let opens = arm.rounds.counts.opens.get(at).map_or(0.0, |opens| *opens as f64 / latency.count as f64);
            let _ = writeln!(out, " {opens:.4} opens/{unit}");
        }
    }
    out
}

/// Formats any experiments' documents, one after another; each has its own configuration lines.
///
/// # Errors
/// A document that cannot be read again.
pub(super) fn text(records: &[Record]) -> Result<String, Error> {
    let mut out = String::new();
    for record in records {
        // A guest's counts have units of their own, of which a record of any experiment knows nothing.
        if matches!(record.experiment.as_str(), NMI_LATENCY | GUEST_STAT) {
            out.push_str(&of_guests(&read::found(&record.path)?));
        } else {
            generic(&mut out, record);
        }
    }
    Ok(out)
}

/// Writes a line per arm, metric and round, in ns/op.
fn generic(out: &mut String, record: &Record) {
    // Writing to a String cannot fail.
    let _ = write!(out, "pkg: vpmu/{}\nhost: {}\n", clean(&record.experiment), clean(&record.host.class));
    for (arm, at) in record.arms.iter().flat_map(|arm| (0..arm.rounds.len()).map(move |at| (arm, at))) {
        for (key, column) in &arm.rounds.metrics {
            let Some(metric) = column.get(at) else { continue };
            let name = part(key.strip_suffix("_ns").unwrap_or(key));
            let (arm, backend, count, p50) = (part(&arm.name), part(&arm.backend), metric.count, metric.median());
            let _ = writeln!(out, "Benchmark{name}/arm={arm}/backend={backend} {count} {p50} p50-ns/op");
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture;

    #[test]
    fn lines_have_the_shape_benchstat_reads() {
        let finished = fixture::document(2);
        let text = super::of_guests(&finished);
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
                assert!(pair[0].parse::<f64>().unwrap().is_finite());
                assert!(pair[1].contains('/'), "{line}");
            }
        }
        // Two rounds of three strategies and the floor.
        assert_eq!(lines, 8);
        assert!(text.contains("BenchmarkNMIHandler/strategy=reuse/backend=cpu-clock-1 "));
    }

    #[test]
    fn a_document_read_back_gives_the_runs_own_lines_and_another_experiment_generic_ones() {
        let (_dir, mut record) = fixture::written(&fixture::document(2));
        let own = super::of_guests(&fixture::document(2));
        assert_eq!(super::text(&[record.clone()]).unwrap(), own);
        record.experiment = "stat-setup".to_owned();
        let text = super::text(&[record]).unwrap();
        assert!(text.contains("Benchmarknmi_handler/arm=recreate/backend=cpu-clock 40 "), "{text}");
    }
}
