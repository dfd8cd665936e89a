//! The events of a host: what may stand behind a guest's counters, by which a guest is recorded, what each stands for, whether it opens
//! here, and what creating one costs.

#![forbid(unsafe_code)]

pub mod backends;
pub mod guest;
pub mod pattern;
pub mod price;
pub mod recording;
pub mod tracepoints;
