//! A minimal KVM VMM that emulates the Intel architectural PMU in userspace.
//!
//! - [`kvm`]: the VM, the vCPU loop, the MSR filter, the LAPIC's LVTPC.
//! - [`boot`]: putting a guest into memory; [`devices`]: its few devices.
//! - [`machine`]: one run of a payload; [`image_machine`]: one of somebody else's image; [`outcome`]: what they leave behind.
//! - [`seccomp`]: what a vCPU thread may ask of the kernel.

pub mod boot;
mod crew;
pub mod devices;
pub mod image_machine;
pub mod kvm;
pub mod machine;
pub mod outcome;
pub mod seccomp;
mod sys;
