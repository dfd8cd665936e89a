//! Limits of a regression, by default and by metric.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::error::Error;
use crate::metric;
use crate::open;
use crate::paired::Statistic;
use crate::verdict::Limits;

/// Largest file of rules.
const MAX_FILE: u64 = 64 << 10;

/// Limits by metric.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// Rules for metrics without their own.
    pub default: Limits,
    own: BTreeMap<String, Limits>,
}

#[derive(Deserialize, Clone, Copy, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Given {
    alpha: Option<f64>,
    threshold: Option<f64>,
    bound: Option<f64>,
    #[serde(default)]
    report_only: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    alpha: Option<f64>,
    threshold: Option<f64>,
    bound: Option<f64>,
    #[serde(default)]
    metric: BTreeMap<String, Given>,
}

/// These limits, changed by what is given.
fn changed(own: Limits, given: Given) -> Result<Limits, String> {
    let limits = Limits {
        alpha: given.alpha.unwrap_or(own.alpha),
        threshold: given.threshold.unwrap_or(own.threshold),
        // A threshold above the bound moves it along.
        bound: given.bound.unwrap_or_else(|| own.bound.max(given.threshold.unwrap_or(0.0))),
        report_only: given.report_only,
    };
    for (name, value, most) in
        [("alpha", limits.alpha, 0.5), ("threshold", limits.threshold, 100.0), ("bound", limits.bound, 100.0)]
    {
        let fits = if name == "alpha" { value > 0.0 && value <= most } else { (0.0..=most).contains(&value) };
        if !fits {
            return Err(format!("{name} = {value} is not between 0 and {most}"));
        }
    }
    Ok(limits)
}

impl Rules {
    /// The default limits, changed by the command line.
    ///
    /// # Errors
    /// Exit 2 for values out of range.
    pub fn new(alpha: Option<f64>, threshold: Option<f64>) -> Result<Self, Error> {
        let given = Given { alpha, threshold, ..Given::default() };
        let wrong = |why| {
            Error::usage("cannot compare by these thresholds", why, "--alpha 0.01 --threshold 0.03 are the defaults")
        };
        Ok(Self { default: changed(Limits::default(), given).map_err(wrong)?, own: BTreeMap::new() })
    }

    /// Reads the rules of a TOML file; the command line goes before the file's defaults.
    ///
    /// # Errors
    /// Exit 2: unreadable, or a key or value that makes no sense.
    pub fn read(path: &Path, alpha: Option<f64>, threshold: Option<f64>) -> Result<Self, Error> {
        let wrong = |why: String| {
            Error::usage(format!("cannot use rules {}", path.display()), why, "docs/regression-gate.md has an example")
        };
        let text = open::named_text(path, MAX_FILE).map_err(|error| wrong(error.to_string()))?;
        let file: File = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let of_file = Given {
            alpha: alpha.or(file.alpha),
            threshold: threshold.or(file.threshold),
            bound: file.bound,
            report_only: false,
        };
        let default = changed(Limits::default(), of_file).map_err(wrong)?;
        let own = file
            .metric
            .into_iter()
            .map(|(name, given)| {
                let limits = changed(default, given).map_err(|why| wrong(format!("metric {name}: {why}")))?;
                Ok((name, limits))
            })
            .collect::<Result<_, Error>>()?;
        Ok(Self { default, own })
    }

    /// Returns the rules of a metric. Only main metrics are judged, unless the rules say otherwise or the comparison is of this metric by
    /// name: `asked`.
    pub fn limits(&self, metric: &str, asked: bool) -> Limits {
        let shown = !asked && !metric::is_main(metric);
        self.own
            .get(metric)
            .copied()
            .unwrap_or(Limits { report_only: self.default.report_only || shown, ..self.default })
    }

    /// Metrics with limits of their own.
    pub(super) fn named(&self) -> impl Iterator<Item = &String> {
        self.own.keys()
    }
}

/// Request of a caller beside [`Rules`]; by default all arms and metrics by their medians, with the default thresholds.
#[derive(Clone, Debug, Default)]
pub struct CompareSpec {
    /// Thresholds.
    pub rules: Rules,
    /// The quantile of a round that is compared.
    pub statistic: Statistic,
    /// Only these arms; empty: all.
    pub arms: Vec<String>,
    /// Only these metrics; empty: all.
    pub metrics: Vec<String>,
    /// Hosts may differ.
    pub unlike_hosts_allowed: bool,
}

impl CompareSpec {
    /// The limits of a metric.
    pub fn limits(&self, metric: &str) -> Limits {
        self.rules.limits(metric, self.metrics.iter().any(|asked| asked == metric))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Rules, Error> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.toml");
        std::fs::write(&path, text).unwrap();
        Rules::read(&path, None, Some(0.2))
    }

    #[test]
    fn a_file_changes_what_it_names() {
        let rules = read("alpha = 0.05\nthreshold = 0.1\n[metric.exit_path_ns]\nthreshold = 0.3\nreport-only = true\n")
            .unwrap();
        // The command line's threshold goes before the file's default, not before a metric's own.
        assert_eq!(rules.default, Limits { alpha: 0.05, threshold: 0.2, bound: 0.2, ..Limits::default() });
        let own = Limits { alpha: 0.05, threshold: 0.3, bound: 0.3, report_only: true };
        assert_eq!((rules.limits("exit_path_ns", true), rules.limits("nmi_handler_ns", false)), (own, rules.default));
    }

    #[test]
    fn a_metric_that_is_not_judged_is_judged_if_asked_for() {
        let report_only = |text: &str, asked| read(text).unwrap().limits("signal_ns", asked).report_only;
        assert!(report_only("", false) && !report_only("", true));
        assert!(!report_only("[metric.signal_ns]\nthreshold = 0.1\n", false));
        assert!(report_only("[metric.signal_ns]\nreport-only = true\n", true));
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_one_line() {
        for (text, needle) in [
            ("alpha = 0", "alpha = 0 is not"),
            ("alpha = nan", "alpha = NaN"),
            ("p = 0.01", "expected one of `alpha`, `threshold`"),
            ("treshold = 1", "treshold"),
            ("[metric.x]\nthreshold = -1", "metric x"),
            ("alpha = ", "t.toml"),
        ] {
            let error = read(text).unwrap_err();
            assert_eq!(error.exit.code(), 2);
            assert!(error.to_string().contains(needle) && !error.to_string().contains('\n'), "{error}");
        }
        assert!(Rules::new(Some(0.9), None).is_err());
        assert!(Rules::read(Path::new("/nonexistent.toml"), None, None).is_err());
    }
}
