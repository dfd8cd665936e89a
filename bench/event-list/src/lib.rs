//! The events of a host: those that may stand behind a guest's counters and those that record a guest, with their meaning, whether they
//! open here, and the cost of creating one.

#![forbid(unsafe_code)]

pub mod backends;
pub mod guest;
pub mod pattern;
pub mod price;
pub mod recording;
pub mod tracepoints;
