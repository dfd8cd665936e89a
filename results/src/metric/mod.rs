//! The metrics that documents hold, one file each.
//!
//! A new metric is a file with a [`Metric`] and a row of [`ALL`]. Reading, comparison, history, exports and the report take
//! every metric of a document, those that this table lacks included.

mod exit_path;
mod kind;
mod nmi_handler;
mod pmi_delivery;
mod rotation;
mod set_up;
mod signal;
mod to_counts;
mod total;

pub use exit_path::EXIT_PATH;
pub use kind::{Better, Metric};
pub use nmi_handler::NMI_HANDLER;
pub use pmi_delivery::PMI_DELIVERY;
pub use rotation::ROTATION;
pub use set_up::SET_UP;
pub use signal::SIGNAL;
pub use to_counts::TO_COUNTS;
pub use total::TOTAL;

/// Every metric. The first headline metric that an arm has represents it.
pub const ALL: [&Metric; 8] =
    [&NMI_HANDLER, &SET_UP, &ROTATION, &TOTAL, &TO_COUNTS, &SIGNAL, &PMI_DELIVERY, &EXIT_PATH];

/// Returns the metric of that key.
#[must_use]
pub fn find(key: &str) -> Option<&'static Metric> {
    ALL.into_iter().find(|metric| metric.key == key)
}

/// Returns the name of a metric in tables and plots: that of [`ALL`], else made from its key.
#[must_use]
pub fn name(key: &str) -> String {
    find(key).map_or_else(
        || key.strip_suffix("_ns").unwrap_or(key).replace(['_', '/'], " ") + " time",
        |metric| metric.name.to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_unique_and_end_in_their_unit() {
        for metric in ALL {
            assert!(metric.key.ends_with(&format!("_{}", metric.unit)), "{metric:?}");
            assert!(!metric.about.is_empty() && !metric.experiments.is_empty(), "{metric:?}");
            assert_eq!(find(metric.key), Some(metric));
        }
    }

    #[test]
    fn a_metric_outside_the_table_has_a_name_too() {
        assert_eq!(
            (name("nmi_handler_ns"), name("my_own_ns")),
            ("guest NMI handler latency".to_owned(), "my own time".to_owned())
        );
    }
}
