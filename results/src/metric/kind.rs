//! What a metric is.

use serde::Serialize;

/// Which values are the better ones.
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
    /// What is measured, from where to where.
    pub about: &'static str,
    /// The experiments that measure it.
    pub experiments: &'static [&'static str],
    /// Which values are better.
    pub better: Better,
    /// Whether it stands for an arm where there is room for one metric only.
    pub headline: bool,
    /// Whether a comparison judges it unless asked otherwise. Otherwise it is only shown.
    pub judged: bool,
}
