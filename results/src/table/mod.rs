//! The result as a table for people.

pub mod fold;
mod latency;
pub mod layout;
mod stat;
mod summary;

pub use latency::{text, warnings};
pub use summary::{Against, against};
