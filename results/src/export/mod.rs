//! Exports of results for other tools, one file each. docs/report.md lists what each was checked with.

pub mod action;
pub mod bmf;
pub mod csv;
pub mod gobench;
pub mod hlog;
pub mod prometheus;
pub mod svg;

use crate::document::{Any, Arm, Record, Summary};
use crate::error::Error;

/// Another tool's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// HdrHistogram interval log, an interval per arm, tagged with it
    Hlog,
    /// Go benchmark text, a line per arm and round, for benchstat
    Benchstat,
    /// Comma-separated values: a row per arm, metric and round, and one for all rounds
    Csv,
    /// Bencher Summary Format
    Bmf,
    /// github-action-benchmark, tool customSmallerIsBetter
    GithubAction,
    /// Prometheus text, for node_exporter's textfile collector
    Prometheus,
    /// A picture, SVG: strategies against the floor
    Svg,
}

impl Format {
    /// Every one.
    pub const ALL: [Self; 7] =
        [Self::Hlog, Self::Benchstat, Self::Csv, Self::Bmf, Self::GithubAction, Self::Prometheus, Self::Svg];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hlog => "hlog",
            Self::Benchstat => "benchstat",
            Self::Csv => "csv",
            Self::Bmf => "bmf",
            Self::GithubAction => "github-action",
            Self::Prometheus => "prometheus",
            Self::Svg => "svg",
        }
    }

    /// What it is.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Hlog => "HdrHistogram interval log, an interval per arm, tagged with it",
            Self::Benchstat => "Go benchmark text, a line per arm and round, for benchstat",
            Self::Csv => "Comma-separated values: a row per arm, metric and round, and one for all rounds",
            Self::Bmf => "Bencher Summary Format",
            Self::GithubAction => "github-action-benchmark, tool customSmallerIsBetter",
            Self::Prometheus => "Prometheus text, for node_exporter's textfile collector",
            Self::Svg => "A picture, SVG: each strategy's ratio to the floor, with its interval",
        }
    }
}

/// `records` in that format.
///
/// # Errors
/// Exit 2 for what a format cannot say, such as two results under one name.
pub fn export(format: Format, records: &[Record]) -> Result<Vec<u8>, Error> {
    match format {
        Format::Hlog => hlog::of_records(records),
        Format::Benchstat => gobench::of_records(records).map(String::into_bytes),
        Format::Csv => csv::text(records).map_err(|why| Error::usage("cannot write CSV", why, "take another format")),
        Format::Bmf => bmf::text(records).map(String::into_bytes),
        Format::GithubAction => action::text(records).map(String::into_bytes),
        Format::Prometheus => prometheus::text(records).map(String::into_bytes),
        Format::Svg => svg::text(records).map(String::into_bytes),
    }
}

/// What was measured, in a few words and without white space: the experiment and the parameters that make it another one.
fn subject(record: &Record) -> String {
    let mut text = record.experiment.clone();
    for (name, unit) in [("workload", ""), ("events", "events"), ("cpus", "cpus"), ("vcpus", "vcpu")] {
        if let Some(value) = record.parameter(name).filter(|value| value.len() < 64 && !value.starts_with(['[', '{'])) {
            text.push('/');
            text.push_str(&value.replace('/', ":"));
            text.push_str(unit);
        }
    }
    text.split_whitespace().collect::<Vec<_>>().join("-")
}

/// A row of a format that has one figure under one name.
struct Named<'a> {
    name: String,
    record: &'a Record,
    arm: &'a Arm<Any>,
    metric: &'a Summary,
    /// Smallest and largest median of a round.
    spread: Option<(f64, f64)>,
}

/// Every figure under a name of its own.
///
/// # Errors
/// Exit 2 if two documents have the same name for one.
fn named(records: &[Record]) -> Result<Vec<Named<'_>>, Error> {
    let mut rows: Vec<Named<'_>> = Vec::new();
    for record in records {
        for arm in &record.arms {
            for (key, metric) in &arm.metrics {
                let rounds = || arm.rounds.iter().filter_map(|round| round.metrics.get(key)).map(Summary::median);
                let low = rounds().min_by(f64::total_cmp);
                rows.push(Named {
                    name: format!("{}/{}/{}/{key}", subject(record), arm.backend.replace('/', ":"), arm.name),
                    record,
                    arm,
                    metric,
                    spread: low.zip(rounds().max_by(f64::total_cmp)),
                });
            }
        }
    }
    let mut seen = std::collections::BTreeMap::new();
    for row in &rows {
        if let Some(first) = seen.insert(&row.name, &row.record.path) {
            return Err(Error::usage(
                format!("{} and {} both have {}", first.display(), row.record.path.display(), row.name),
                "this format has one figure under one name",
                "give one FILE, or take csv or benchstat",
            ));
        }
    }
    Ok(rows)
}

/// One line for each arm that a format without figures cannot name.
#[must_use]
pub fn left_out(records: &[Record]) -> Vec<String> {
    let arms = records.iter().flat_map(|record| record.arms.iter().map(move |arm| (record, arm)));
    arms.filter(|(_, arm)| arm.metrics.is_empty())
        .map(|(record, arm)| {
            let why = arm.not_available.as_deref().unwrap_or("none was measured");
            format!("{}: arm {} has no figures: {why}", record.path.display(), arm.name)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn one_name_for_two_figures_is_refused_where_the_format_has_one() {
        let (_dir, record) = fixture::written(&fixture::document(2));
        let twice = [record.clone(), record];
        for format in [Format::Bmf, Format::GithubAction, Format::Prometheus] {
            assert!(export(format, &twice[..1]).is_ok());
            let error = export(format, &twice).unwrap_err();
            assert_eq!(error.exit.code(), 2);
            assert!(error.remedy.contains("csv"), "{error}");
        }
        for format in [Format::Hlog, Format::Benchstat, Format::Csv] {
            assert!(export(format, &twice).is_ok());
        }
        let left = left_out(&twice[..1]);
        assert_eq!(left.len(), 1);
        assert!(left[0].contains("arm kvm has no figures: the mock has no vPMU"), "{left:?}");
    }
}
