//! Traces of vPMUs: a folder with `_trace.json` and numbered segments, CSV files packed by zstd, each whole once it has its name.
//!
//! DuckDB and pandas read the folder as it is; the time of a row is the sum of `step_ns` and `entry_ns` of its vCPU's rows in the segment
//! up to it.
//!
//! - [`meta`]: what the JSON says.
//! - [`mod@write`]: a trace on its way; [`read`]: its rows, segment by segment; [`mod@import`]: what a stock KVM told perf.

pub mod import;
mod lines;
pub mod meta;
pub mod read;
pub mod write;
