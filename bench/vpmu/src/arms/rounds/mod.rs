//! Comparing arms round by round: the plan, the order of arms, the runs, and a document after each round.

mod estimate;
pub mod experiment;
#[cfg(test)]
#[path = "tests/mock.rs"]
pub(crate) mod mock;
pub mod options;
pub mod plan;
mod precision;
pub mod run;
pub mod schedule;
