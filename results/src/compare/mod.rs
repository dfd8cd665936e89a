//! Did it get slower, and can it be believed? Two sets of results, arm by arm and metric by metric.
//!
//! The unit is the *round*: one guest. Rounds of one host fall into modes of their own (where a guest's memory lies, what
//! else ran), so the thousands of samples within a round are one observation, not thousands. Where both sides hold at
//! least [`MIN_RUNS`] documents the unit is the run, so that what differs from run to run counts as noise, too.
//!
//! A metric got slower only if the difference is significant (a permutation test, adjusted by Holm's method for the
//! number of rows) *and* strong. "No change" is said only where a slow-down of the strength asked for can be excluded.

mod judge;
mod junit;
mod ratios;
mod rules;
mod sample;
mod show;
mod spec;
mod unlike;

pub use crate::paired::Statistic;
pub use judge::{Comparison, Group, Level, Row, SCHEMA, Side, Verdict, compare};
pub use junit::junit;
pub use ratios::{Ratio, Ratios, ratios, ratios_text};
pub use rules::{Limits, Rules};
pub use sample::MIN_RUNS;
pub(crate) use sample::{group_key, group_label, value};
pub(crate) use show::percent;
pub use show::{markdown, text};
pub use spec::CompareSpec;
pub(crate) use unlike::differences;

#[cfg(test)]
mod tests;
