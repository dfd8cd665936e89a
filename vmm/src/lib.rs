//! A minimal KVM VMM that emulates a PMU, Intel's or AMD's, in userspace.
//!
//! - [`machine`]: one run of a guest, whatever the guest is; its guests are the project's payloads, third-party
//!   images and Linux kernels.
//! - [`kvm`]: the VM, the vCPU loop, the MSR filter, the LAPIC's LVTPC, single-stepping.
//! - [`boot`]: a guest's initial memory and registers; [`devices`]: its few devices.
//! - [`outcome`]: the results of a run.
//! - [`sample`]: samples of a guest, with call chains.
//! - [`seccomp`]: the system calls of a process that runs a guest.

pub mod boot;
pub mod devices;
pub mod kvm;
mod linear;
pub mod machine;
pub mod outcome;
pub mod sample;
pub mod seccomp;
mod sys;
