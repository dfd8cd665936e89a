//! A folder of results as a series in time: where did it change, and with which revision?

mod robust;
mod series;
mod show;

pub use series::{Change, History, HistorySpec, MIN_DOCUMENTS, Point, Series, history};
pub use show::report;

#[cfg(test)]
mod tests;
