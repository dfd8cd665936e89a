//! A comparison of guests: its options, its plan, its arms for the engine, and when its figures are sure.

pub(crate) mod guest_arm;
#[cfg(test)]
#[path = "tests/mock.rs"]
pub(crate) mod mock;
pub mod options;
pub mod plan;
mod precision;
pub mod run;
