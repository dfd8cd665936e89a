//! The result as a table for people.

pub mod fold;
mod grid;
mod latency;
pub mod layout;
mod stat;

pub use latency::{text, warnings};
