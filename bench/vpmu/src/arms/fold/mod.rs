//! Reduces outcomes of runs to arms of the result.
//!
//! Logs and reports come from guest memory, so every figure in them may be anything: sums saturate, impossible entries are
//! counted and left out, and a delivery is matched to a handler entry only if the counts on both sides agree.

pub mod arm;
mod periods;
mod phases;
