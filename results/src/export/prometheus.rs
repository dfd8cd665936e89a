//! Prometheus text format 0.0.4, for node_exporter's textfile collector: a summary per metric, in seconds, and for each arm
//! whether it was available and how many NMIs it lost.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::named::{named, subject};
use crate::document::{Any, Arm, Record};
use crate::error::Error;
use crate::shown::line;

/// Escapes a label's value: one line in which backslash and quote are escaped.
fn escape(value: &str) -> String {
    line(value).replace('\\', "\\\\").replace('"', "\\\"")
}

/// Makes a metric's name: a character that is neither letter, digit nor underscore becomes an underscore.
fn name(key: &str) -> String {
    let key: String = key
        .strip_suffix("_ns")
        .unwrap_or(key)
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    format!("vpmu_{key}_seconds")
}

fn labels(record: &Record, arm: &Arm<Any>) -> String {
    let pairs = [
        ("subject", subject(record)),
        ("arm", arm.name.clone()),
        ("backend", arm.backend.clone()),
        ("stand_in", arm.stand_in.to_string()),
        ("host_class", record.host.class.clone()),
    ];
    pairs.map(|(label, value)| format!("{label}=\"{}\"", escape(&value))).join(",")
}

/// A sample that is a whole number, and its family's type and help.
type Gauge = (&'static str, &'static str, fn(&Record, &Arm<Any>) -> Option<i64>);

const GAUGES: [Gauge; 3] = [
    ("vpmu_arm_available", "Whether the arm could run on this host.", |_, arm| {
        Some(i64::from(arm.not_available.is_none()))
    }),
    ("vpmu_lost_nmis", "NMIs delivered to KVM and not taken, or taken and not delivered.", |_, arm| {
        arm.own.lost.and_then(|lost| lost.try_into().ok())
    }),
    ("vpmu_started_timestamp_seconds", "When the experiment began, seconds since 1970.", |record, _| {
        record.started_unix.try_into().ok().filter(|_| !record.is_simulated())
    }),
];

/// Formats the records as Prometheus text.
///
/// # Errors
/// Exit 2 for two figures under one name.
pub fn text(records: &[Record]) -> Result<String, Error> {
    // All samples of a family stand together.
    let mut families: BTreeMap<String, (String, String)> = BTreeMap::new();
    for row in named(records)? {
        let key = row.name.rsplit_once(&format!("/{}/", row.arm.name)).map_or("", |(_, key)| key);
        let family = name(key);
        let labels = labels(row.record, row.arm);
        let help = format!("{} of the result, as a summary in seconds.", line(key));
        let (_, out) = families.entry(family.clone()).or_insert_with(|| (help, String::new()));
        let metric = row.metric;
        let quantiles = [("0.5", Some(metric.p50)), ("0.9", metric.p90), ("0.99", metric.p99), ("0.999", metric.p99_9)];
        for (quantile, ns) in quantiles {
            if let Some(ns) = ns {
                // Writing to a String cannot fail, here and below.
                let _ = writeln!(out, "{family}{{{labels},quantile=\"{quantile}\"}} {}", ns as f64 / 1e9);
            }
        }
        if let Some(mean) = metric.mean {
            let _ = writeln!(out, "{family}_sum{{{labels}}} {}", mean * metric.count as f64 / 1e9);
        }
        let _ = writeln!(out, "{family}_count{{{labels}}} {}", metric.count);
    }
    let mut text = String::new();
    for (family, (help, samples)) in families {
        let _ = write!(text, "# HELP {family} {help}\n# TYPE {family} summary\n{samples}");
    }
    for (family, help, value) in GAUGES {
        let _ = write!(text, "# HELP {family} {help}\n# TYPE {family} gauge\n");
        for (record, arm) in records.iter().flat_map(|record| record.arms.iter().map(move |arm| (record, arm))) {
            if let Some(value) = value(record, arm) {
                let _ = writeln!(text, "{family}{{{}}} {value}", labels(record, arm));
            }
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn samples_follow_their_family_and_every_arm_is_there() {
        let (_dir, record) = fixture::written(&fixture::document(2));
        let text = text(&[record]).unwrap();
        let mut family = "";
        for line in text.lines() {
            if let Some(kind) = line.strip_prefix("# TYPE ") {
                family = kind.split(' ').next().unwrap();
            } else if !line.starts_with("# HELP ") {
                assert!(line.starts_with(family), "{line} is not of {family}");
                let (_, value) = line.rsplit_once(' ').unwrap();
                assert!(value.parse::<f64>().unwrap().is_finite(), "{line}");
            }
        }
        assert_eq!(text.matches("# TYPE vpmu_nmi_handler_seconds summary\n").count(), 1);
        assert!(text.contains("arm=\"recreate\",backend=\"cpu-clock\",stand_in=\"true\""), "{text}");
        assert!(text.contains("vpmu_arm_available{subject=\"nmi-latency/single:ftest/1vcpu\",arm=\"kvm\""));
        // 2 µs are 2e-6 s.
        assert!(text.contains("quantile=\"0.5\"} 0.000002") || text.contains("quantile=\"0.5\"} 0.00000200"), "{text}");
    }

    #[test]
    fn labels_and_names_cannot_break_the_format() {
        assert_eq!(escape("a\"b\\c\nd"), "a\\\"b\\\\c d");
        assert_eq!(name("phases/open_ns"), "vpmu_phases_open_seconds");
    }
}
