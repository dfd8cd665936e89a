//! KVM: the VM, the vCPU loop, MSR exits, the LAPIC's LVTPC, single-stepping.
//!
//! One entry of a vCPU: `vcpu` does what comes before it and enters; [`exit`] turns KVM's exit into an owned value;
//! `handle` decides what the exit asks for, without a descriptor; `run_loop` repeats this until the vCPU ends.

mod cpuid;
mod deferred;
pub mod exit;
pub(crate) mod handle;
mod host;
pub mod lapic;
pub mod msr_filter;
pub(crate) mod nested;
pub mod other_msrs;
pub(crate) mod run_loop;
pub(crate) mod stats;
mod step;
pub(crate) mod tsc;
pub(crate) mod vcpu;

pub use cpuid::Cpu;
pub use host::{API_VERSION, CAPABILITIES, Capability, Host, KvmError, PMU_CAPABILITY, linux_refusal};

pub(crate) use host::{GuestPmu, ioctl_failed};
