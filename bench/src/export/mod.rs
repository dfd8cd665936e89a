//! Exports of a result for other tools, one file each.

pub mod gobench;
pub mod hlog;
