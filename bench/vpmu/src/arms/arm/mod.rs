//! Arms: what an experiment compares, and what runs a guest for each.
//!
//! [`runner::ArmRunner`] is the interface. [`real`] runs a guest on this host's KVM with what [`counters`] finds behind its counters,
//! [`sim`] simulates host and guest, [`replay`] the host of a trace. [`play`] makes a trace the guest.

pub mod counters;
pub mod play;
pub mod real;
pub mod replay;
pub mod runner;
pub mod sim;
