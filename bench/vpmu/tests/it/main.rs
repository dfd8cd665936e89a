//! The binary from the outside, without guests and host events: what every host can run.

#[path = "../binary/mod.rs"]
mod binary;
mod cli;
mod docs;
mod golden;
#[path = "../imported/mod.rs"]
mod imported;
mod results;
mod start;
mod sweep;
mod trace;
