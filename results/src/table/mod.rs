//! The result as a table for people.

pub mod fold;
mod latency;
pub mod layout;
mod stat;
mod sure;

pub use latency::{text, warnings};
pub use sure::{Against, against};
