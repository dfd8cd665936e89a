//! `conformance`: a guest checks its PMU from inside, once per PMU version and strategy. Its result is TAP, no document.

pub mod run;
pub mod tap;
