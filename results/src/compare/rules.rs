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

/// What a file says of all metrics, and of one.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Given {
    alpha: Option<f64>,
    threshold: Option<f64>,
    bound: Option<f64>,
    report_only: Option<bool>,
    metric: BTreeMap<String, Self>,
}

impl Given {
    /// Changes these limits by what is given.
    fn over(&self, own: Limits) -> Result<Limits, String> {
        let limits = Limits {
            alpha: self.alpha.unwrap_or(own.alpha),
            threshold: self.threshold.unwrap_or(own.threshold),
            // A threshold above the bound moves it along.
            bound: self.bound.unwrap_or_else(|| own.bound.max(self.threshold.unwrap_or(0.0))),
            report_only: self.report_only.unwrap_or_default(),
        };
        let Limits { alpha, threshold, bound, .. } = limits;
        for (name, value, most) in [("alpha", alpha, 0.5), ("threshold", threshold, 100.0), ("bound", bound, 100.0)] {
            if !(0.0..=most).contains(&value) || name == "alpha" && value <= 0.0 {
                return Err(format!("{name} = {value} is not between 0 and {most}"));
            }
        }
        Ok(limits)
    }
}

impl Rules {
    /// Returns the default limits, changed by a TOML file and, before its defaults, by the command line.
    ///
    /// # Errors
    /// Exit 2: unreadable, a key or value that makes no sense, or a value out of range.
    pub fn read(file: Option<&Path>, alpha: Option<f64>, threshold: Option<f64>) -> Result<Self, Error> {
        let (what, remedy) = match file {
            Some(path) => (format!("cannot use rules {}", path.display()), "docs/regression-gate.md has an example"),
            None => ("cannot compare by these thresholds".to_owned(), "--alpha 0.01 --threshold 0.03 are the defaults"),
        };
        let wrong = |why: String| Error::usage(&what, why, remedy);
        let text = file.map_or(Ok(String::new()), |path| open::named_text(path, MAX_FILE));
        let text = text.map_err(|error| wrong(error.to_string()))?;
        let mut given: Given = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if given.report_only.is_some() {
            return Err(wrong("report-only is a key of a metric: [metric.NAME]".to_owned()));
        }
        (given.alpha, given.threshold) = (alpha.or(given.alpha), threshold.or(given.threshold));
        let default = given.over(Limits::default()).map_err(wrong)?;
        let of_metric = |(name, one): (&String, &Given)| {
            let within =
                one.metric.keys().next().map_or(Ok(()), |name| Err(format!("it has a metric {name} of its own")));
            let limits = within.and_then(|()| one.over(default));
            limits.map(|limits| (name.clone(), limits)).map_err(|why| wrong(format!("metric {name}: {why}")))
        };
        Ok(Self { default, own: given.metric.iter().map(of_metric).collect::<Result<_, Error>>()? })
    }

    /// Returns the rules of a metric. Only main metrics are judged, unless the rules say otherwise or the comparison is of this metric by
    /// name: `asked`.
    pub fn limits(&self, metric: &str, asked: bool) -> Limits {
        let shown = !asked && !metric::is_main(metric);
        let default = Limits { report_only: self.default.report_only || shown, ..self.default };
        self.own.get(metric).copied().unwrap_or(default)
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
        Rules::read(Some(&path), None, Some(0.2))
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
            ("[metric.x.metric.y]\nalpha = 0.1", "metric x: it has a metric y"),
            ("report-only = true", "a key of a metric"),
            ("alpha = ", "t.toml"),
        ] {
            let error = read(text).unwrap_err();
            assert_eq!(error.exit.code(), 2);
            assert!(error.to_string().contains(needle) && !error.to_string().contains('\n'), "{error}");
        }
        assert!(Rules::read(None, Some(0.9), None).is_err());
        assert!(Rules::read(Some(Path::new("/nonexistent.toml")), None, None).is_err());
    }
}
