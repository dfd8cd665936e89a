//! Defines a metric.

use serde::Serialize;

/// Direction in which values are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Smaller values.
    Lower,
    /// Larger values.
    Higher,
}

/// A quantity that experiments measure many times per round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Metric {
    /// Its key in documents. The suffix names the unit.
    pub key: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Its name in tables and plots.
    pub name: &'static str,
    /// Description of the measured interval, from start to end.
    pub about: &'static str,
    /// The experiments that measure it.
    pub experiments: &'static [&'static str],
    /// Direction in which values are better.
    pub better: Better,
    /// True if it represents an arm where there is room for one metric only.
    pub headline: bool,
    /// True if a comparison judges it unless asked otherwise. Otherwise it is only shown.
    pub judged: bool,
}
