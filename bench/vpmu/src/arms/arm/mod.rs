//! Arms: what an experiment compares, and what runs a guest for each.
//!
//! [`runner::ArmRunner`] is the interface. [`host`] runs a guest on this host's KVM with the userspace vPMU, [`kvm`] with
//! KVM's own vPMU, [`real`] picks one of these two by the arm, [`sim`] simulates host and guest, [`replay`] the host of a trace.
//! [`play`] makes a trace the guest.

pub mod host;
pub mod kvm;
pub(crate) mod launch;
pub mod play;
pub mod real;
pub mod replay;
pub mod runner;
pub mod sim;
