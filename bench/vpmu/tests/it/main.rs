//! The binary from the outside, without guests and host events: what every host can run.
#![allow(clippy::unwrap_used, reason = "a helper that cannot do its work has failed its test")]

#[path = "../binary/mod.rs"]
mod binary;
mod docs;
mod golden;
#[path = "../imported/mod.rs"]
mod imported;
mod results;
mod sweep;
mod trace;
