//! Samples of a process and everything it starts, by one event, with what call chains are made from.
//!
//! The kernel walks its own part of a chain. For the user's part it copies the registers and the top of the stack, from which
//! [`unwind`](crate::unwind) finds the callers afterwards.

mod chain;
mod record;
mod sampler;

pub use chain::{Chain, Ended, chains};
pub use record::{Losses, Records, Sample};
pub use sampler::{STACK, Sampled, Sampler};
