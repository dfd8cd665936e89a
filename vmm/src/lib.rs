//! A minimal KVM VMM that emulates the Intel architectural PMU in userspace.

pub mod boot;
pub mod devices;
pub mod outcome;
