//! The binary from the outside, without guests and host events: what every host can run.

mod cli;
mod docs;
#[path = "../imported/mod.rs"]
mod imported;
mod results;
mod start;
mod sweep;
mod trace;
