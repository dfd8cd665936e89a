//! Selects the number of a round that is compared.

use serde::Serialize;

use crate::document::{Column, Summary};

/// Number of a round that is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Statistic {
    /// Smallest.
    Min,
    /// 10th percentile.
    P10,
    /// Median.
    #[default]
    P50,
    /// 90th percentile.
    P90,
    /// 99th percentile.
    P99,
    /// Largest.
    Max,
    /// Arithmetic mean.
    Mean,
}

impl Statistic {
    /// Every one.
    pub const ALL: [Self; 7] = [Self::Min, Self::P10, Self::P50, Self::P90, Self::P99, Self::Max, Self::Mean];

    /// Returns the number; `None` if the round has it not.
    #[must_use]
    pub fn of(self, metric: &Summary) -> Option<f64> {
        match self {
            Self::Min => metric.min.map(|ns| ns as f64),
            Self::P10 => metric.p10.map(|ns| ns as f64),
            Self::P50 => Some(metric.median()),
            Self::P90 => metric.p90.map(|ns| ns as f64),
            Self::P99 => metric.p99.map(|ns| ns as f64),
            Self::Max => metric.max.map(|ns| ns as f64),
            Self::Mean => metric.mean,
        }
    }

    /// Returns the value of a round at a place of a column that has the metric there.
    #[must_use]
    pub fn of_round(self, column: &Column, at: usize) -> Option<f64> {
        let ns = |column: &[Option<u64>]| column.get(at).copied().flatten().map(|ns| ns as f64);
        match self {
            Self::Min => ns(&column.min),
            Self::P10 => ns(&column.p10),
            Self::P50 => column.p50.get(at).map(|ns| *ns as f64),
            Self::P90 => ns(&column.p90),
            Self::P99 => ns(&column.p99),
            Self::Max => ns(&column.max),
            Self::Mean => column.mean.get(at).copied().flatten(),
        }
    }

    /// Describes it.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Min => "Smallest",
            Self::P10 => "10th percentile",
            Self::P50 => "Median",
            Self::P90 => "90th percentile",
            Self::P99 => "99th percentile",
            Self::Max => "Largest",
            Self::Mean => "Arithmetic mean",
        }
    }

    /// Returns its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Min => "min",
            Self::P10 => "p10",
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P99 => "p99",
            Self::Max => "max",
            Self::Mean => "mean",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_without_it_has_none() {
        let brief = Summary { count: 1, p50: 7, ..Summary::default() };
        assert_eq!((Statistic::P50.of(&brief), Statistic::P99.of(&brief)), (Some(7.0), None));
        let mut column = Column::default();
        let summary = Summary { p10: Some(5), mean: Some(9.0), max: Some(12), ..brief };
        column.push(Some(&summary));
        assert!(Statistic::ALL.iter().all(|one| one.of_round(&column, 0) == one.of(&summary)));
        assert!(Statistic::ALL.iter().all(|one| !one.name().is_empty() && !one.about().is_empty()));
    }
}
