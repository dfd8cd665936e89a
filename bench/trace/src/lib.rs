//! Traces of vPMUs: a folder with `_trace.json` and numbered Parquet segments, each whole once it has its name.
//!
//! A segment has a row group for each vCPU that has rows in it. DuckDB and pandas read the folder as it is; the time of a row is the sum
//! of `step_ns` of its vCPU's rows in the segment up to it.
//!
//! - [`meta`]: what the JSON says; [`mod@column`]: the columns of a row.
//! - [`mod@write`]: a trace on its way; [`read`]: its rows, segment by segment; [`mod@import`]: what a stock KVM told perf.

pub mod column;
pub mod import;
pub mod meta;
pub mod read;
mod segment;
pub mod write;
