//! The result as a table for people.

mod grid;
mod latency;
pub mod layout;
mod stat;

pub use latency::{text, warnings};
