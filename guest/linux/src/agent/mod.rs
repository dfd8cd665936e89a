//! The client of the agent in a guest.
//!
//! The guest is distrusted: sizes are bounded, a path never leaves the folder it is for, and a guest that falls
//! silent is given up after a while.

mod client;
mod error;
mod extract;
mod files;
mod run;
#[cfg(test)]
pub(crate) mod tests;
mod wire;

pub use client::Agent;
pub use error::AgentError;
pub use run::{Cut, Ended};
