//! The kernel module below KVM's vPMU: built for a kernel, loaded, described, unloaded.

pub mod build;
pub mod load;
mod relink;
