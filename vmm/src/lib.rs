//! A minimal KVM VMM that emulates the Intel architectural PMU in userspace.
//!
//! - [`vpmu`]: the PMU itself, free of KVM.
//! - [`outcome`]: what a run leaves behind.

pub mod outcome;
pub mod vpmu;
