//! The result as a table for people.

pub mod fold;
mod latency;
pub mod layout;
mod report;
mod stat;
mod summary;

pub use fold::{Table, wrapped};
pub use latency::{text, warnings};
pub use report::{Part, Report};
pub use summary::{Against, against};
