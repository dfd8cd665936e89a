//! The result as a table for people.

pub mod column;
pub mod fold;
mod guests;
pub mod layout;
mod plain;
pub mod ranking;
mod report;

pub use fold::{Cell, Table, wrapped};
pub use guests::{add_choice, of_record, report, warnings};
pub use plain::{plain, state};
pub use report::{Part, Report};
