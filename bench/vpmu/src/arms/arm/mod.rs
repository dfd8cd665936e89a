//! Arms: what an experiment compares, and what runs a guest for each.
//!
//! [`runner`] has the arm and the interface. [`real`] runs a guest on this host's KVM, [`sim`] simulates host and guest, [`replay`]
//! the host of a trace. [`play`] makes a trace the guest.

pub mod play;
pub mod real;
pub mod replay;
pub mod runner;
pub mod sim;
