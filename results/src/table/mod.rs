//! The result as a table for people.

mod brief;
pub mod column;
pub mod fold;
mod latency;
pub mod layout;
mod plain;
pub mod ranking;
mod report;
mod summary;

pub use brief::{brief, finding};
pub use fold::{Cell, Table, wrapped};
pub use latency::{report, warnings};
pub use plain::{of_record, plain, state};
pub use report::{Part, Report};
pub use summary::{Against, against};
