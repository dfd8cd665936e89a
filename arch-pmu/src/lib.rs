#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! Free of KVM, clocks, file descriptors and perf. The guest's accesses come in as [`Vpmu::rdmsr`] and [`Vpmu::wrmsr`],
//! the host's overflow signals through [`Vpmu::kick`]; requests to count go out to a [`HostCounters`].
//!
//! - [`Vpmu`]: the PMU itself; [`caps`]: which PMU the guest has.
//! - [`intel`], [`amd`]: a vendor's registers, a file per kind of register, and the table of them; [`msr`]: the MSRs of
//!   both, and exits counted by register.
//! - [`spec`]: counters and the events that they count; [`host`]: the interface to the host side.
//! - [`pmi`]: LVTPC and the fate of PMIs; [`journal`]: what the host side told the counters.
//!
//! Below the registers lies a counting core that knows counters and no register (`counters.rs`); it is the same for
//! every vendor. One file, `register_file.rs`, chooses the vendor.

pub mod amd;
pub mod caps;
mod counters;
pub mod host;
pub mod intel;
pub mod journal;
pub mod msr;
pub mod pmi;
mod register;
mod register_file;
pub mod spec;
#[cfg(test)]
mod tests;
mod vpmu;

pub use host::HostCounters;
pub use msr::PmuMsr;
pub use register::{GeneralProtection, canonical};
pub use vpmu::Vpmu;
