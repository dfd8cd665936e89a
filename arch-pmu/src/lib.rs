//! The architectural PMU of one vCPU: registers, counting rules, PMIs.
//!
//! Free of KVM, clocks, file descriptors and perf. The guest's accesses come in as [`Vpmu::rdmsr`] and [`Vpmu::wrmsr`],
//! the host's overflow signals through [`Vpmu::kick`]; requests to count go out to a [`HostCounters`].
//!
//! - [`vpmu`]: the PMU itself; [`caps`]: which PMU the guest has; [`filter`]: which events it may count.
//! - [`regs`]: register layouts and indices; [`exits`]: MSR exits counted by register.
//! - [`spec`]: counters and the events that they count; [`host`]: the interface to the host side.
//! - [`pmi`]: LVTPC and the fate of PMIs.

pub mod caps;
pub mod exits;
#[cfg(test)]
mod fake;
pub mod filter;
pub mod host;
pub mod pmi;
pub mod regs;
pub mod spec;
pub mod vpmu;

pub use host::HostCounters;
pub use vpmu::{GeneralProtection, PmuMsr, Vpmu, VpmuStats, canonical};
