//! Results of many hosts. Rounds and histograms of thousands of documents do not fit in memory, and statistics by host do not need
//! them: a document is reduced to a [`Run`], with one [`Figure`] for each arm and metric.

mod run;
#[cfg(any(test, feature = "testing"))]
pub mod synthetic;

pub use run::{Figure, Labels, Level, Run};
