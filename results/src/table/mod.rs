//! The result as a table for people.

pub mod column;
pub mod fold;
mod latency;
pub mod layout;
pub mod ranking;
mod report;
mod summary;

pub use fold::{Table, wrapped};
pub use latency::{report, warnings};
pub use report::{Part, Report};
pub use summary::{Against, against};
