//! Exports of results for other tools, one file each, with a row of [`ALL`]. docs/report.md lists what each was checked with.

pub mod action;
pub mod bmf;
pub mod csv;
pub mod gobench;
pub mod hlog;
mod named;
pub mod prometheus;
pub mod svg;

use std::borrow::Cow;

use crate::document::Record;
use crate::error::Error;
use crate::shown;

/// Another tool's format.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    name: &'static str,
    about: &'static str,
    /// An arm without figures has a place in it.
    shows_empty_arms: bool,
    write: fn(&[Record]) -> Result<Vec<u8>, Error>,
}

/// Every format, one row each.
pub const ALL: [Format; 7] = [
    Format {
        name: "hlog",
        about: "HdrHistogram interval log, an interval per arm, tagged with it",
        shows_empty_arms: false,
        write: hlog::of_records,
    },
    Format {
        name: "benchstat",
        about: "Go benchmark text, a line per arm and round, for benchstat",
        shows_empty_arms: false,
        write: |records| gobench::of_records(records).map(String::into_bytes),
    },
    Format {
        name: "csv",
        about: "Comma-separated values: a row per arm, metric and round, and one for all rounds",
        shows_empty_arms: true,
        write: |records| csv::text(records).map_err(|why| Error::usage("cannot write CSV", why, "take another format")),
    },
    Format {
        name: "bmf",
        about: "Bencher Metric Format",
        shows_empty_arms: false,
        write: |records| bmf::text(records).map(String::into_bytes),
    },
    Format {
        name: "github-action",
        about: "github-action-benchmark, tool customSmallerIsBetter",
        shows_empty_arms: false,
        write: |records| action::text(records).map(String::into_bytes),
    },
    Format {
        name: "prometheus",
        about: "Prometheus text, for node_exporter's textfile collector",
        shows_empty_arms: false,
        write: |records| prometheus::text(records).map(String::into_bytes),
    },
    Format {
        name: "svg",
        about: "A picture, SVG: each strategy's ratio to the floor, with its interval",
        shows_empty_arms: false,
        write: |records| svg::text(records).map(String::into_bytes),
    },
];

impl Format {
    /// Returns its name.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Describes the format.
    pub const fn about(self) -> &'static str {
        self.about
    }

    /// Returns whether an arm without figures has a place in it.
    pub const fn shows_empty_arms(self) -> bool {
        self.shows_empty_arms
    }
}

/// Exports `records` in that format.
///
/// # Errors Exit 2 for results that a format cannot express, such as two under one name.
pub fn export(format: Format, records: &[Record]) -> Result<Vec<u8>, Error> {
    // All of these are text, and a file is shown by a terminal as well as stdout.
    (format.write)(records).map(|bytes| match shown::text(&String::from_utf8_lossy(&bytes)) {
        Cow::Borrowed(_) => bytes,
        Cow::Owned(shown) => shown.into_bytes(),
    })
}

/// Returns one line for each arm that a format without figures cannot name.
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
    fn no_text_of_a_document_steers_or_begins_a_line() {
        const HOSTILE: &str = "x\npkg: y\r\u{1b}[2J\u{9b}\u{202e}\u{200b}\u{7f}";
        let mut document = fixture::document(2);
        document.host.class = HOSTILE.to_owned();
        document.host.cpu_model = Some(HOSTILE.to_owned());
        document.tool.version = HOSTILE.to_owned();
        document.tool.git_revision = HOSTILE.to_owned();
        for arm in &mut document.arms {
            arm.backend = HOSTILE.to_owned();
            arm.not_available = arm.not_available.take().map(|_| HOSTILE.to_owned());
        }
        let (_dir, record) = fixture::written(&document);
        for format in ALL {
            let text = String::from_utf8(export(format, std::slice::from_ref(&record)).unwrap()).unwrap();
            let steers = |c: char| shown::steers(c) && c != '\n';
            assert!(!text.replace("\r\n", "\n").chars().any(steers), "{}: {text:?}", format.name);
            // A line of XML begins nothing.
            let begins = format.name != "svg" && text.lines().any(|line| line.starts_with("pkg: y"));
            assert!(!begins, "{}: {text}", format.name);
        }
    }

    #[test]
    fn one_name_for_two_figures_is_refused_where_the_format_has_one() {
        let (_dir, record) = fixture::written(&fixture::document(2));
        let twice = [record.clone(), record];
        let format = |name| ALL.into_iter().find(|format| format.name == name).unwrap();
        for format in ["bmf", "github-action", "prometheus"].map(format) {
            assert!(export(format, &twice[..1]).is_ok());
            let error = export(format, &twice).unwrap_err();
            assert_eq!(error.exit.code(), 2);
            assert!(error.remedy.contains("csv"), "{error}");
        }
        for format in ["hlog", "benchstat", "csv"].map(format) {
            assert!(export(format, &twice).is_ok());
        }
        let left = left_out(&twice[..1]);
        assert_eq!(left.len(), 1);
        assert!(left[0].contains("arm kvm has no figures: the mock has no vPMU"), "{left:?}");
    }
}
