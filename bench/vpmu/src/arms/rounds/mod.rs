//! Comparing arms round by round: the plan, the order of arms, the runs, and a document after each round.

pub(crate) mod guest_arm;
#[cfg(test)]
#[path = "tests/mock.rs"]
pub(crate) mod mock;
pub mod options;
pub mod plan;
mod precision;
pub mod run;
