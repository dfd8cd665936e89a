//! Did it get slower, and can it be believed? Two sets of results, arm by arm and metric by metric.
//!
//! Two questions, kept apart. *Did one arm change?* is asked of its ratio to the floor in paired rounds, which a host's drift does
//! not move. *Did all arms change together?* is asked of absolute times, which it does move: they are judged by how runs differ,
//! and that takes [`MIN_RUNS`] runs a side.
//!
//! An arm got slower only if the change is significant (adjusted by Holm's method for the number of rows) *and* strong. "No
//! change" is said only where a slow-down beyond a bound can be excluded.

mod change;
mod judge;
mod ratios;
mod row;
mod rules;
mod sample;
mod show;
mod spec;
mod unlike;
mod whole;
mod within;

pub use crate::paired::Statistic;
pub use change::{DRIFT, PROCESS};
pub use judge::{Comparison, Group, SCHEMA, Side, arms, compare};
pub use ratios::{Ratio, Ratios, ratios, ratios_report};
pub use row::{Question, Row, SideLevel};
pub use rules::Rules;
pub use sample::MIN_RUNS;
pub(crate) use sample::value;
pub use sample::{group_key, group_label};
pub use show::report;
pub use spec::CompareSpec;
pub(crate) use unlike::differences;
pub use unlike::facts;
pub use whole::of_record as doubt_of;

#[cfg(test)]
mod tests;
