//! A minimal KVM VMM that emulates the Intel architectural PMU in userspace.
//!
//! - [`vpmu`]: the PMU itself, free of KVM.
//! - [`kvm`]: the VM, the vCPU loop, the MSR filter, the LAPIC's LVTPC.
//! - [`boot`]: putting a guest into memory; [`devices`]: its few devices.
//! - [`machine`]: one run of a guest; [`outcome`]: what it leaves behind.

pub mod boot;
pub mod devices;
pub mod kvm;
pub mod machine;
pub mod outcome;
mod sys;
pub mod vpmu;
