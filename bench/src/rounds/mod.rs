//! Comparing arms round by round: the plan, the order of arms, the runs, and a document after each round.

pub mod experiment;
#[cfg(test)]
pub(crate) mod mock;
pub mod plan;
pub mod run;
pub mod schedule;
pub mod spec;
