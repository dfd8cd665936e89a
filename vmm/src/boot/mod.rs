//! A guest's initial memory and registers.
//!
//! The project's own payloads: [`payload`] puts one into the memory that [`layout`] describes, with the vCPU in [`payload_vcpu`].
//! [`payload_log`] looks at the log of one that runs.
//!
//! A third-party image takes three steps, all of them pure functions of its bytes: [`rdpmc::rewrite`] makes its RDPMCs reach
//! a userspace vPMU, [`image::LoadPlan::of`] plans copies and entry, and [`multiboot::Information::build`] lays out the
//! boot information of a multiboot kernel.
//!
//! [`linux`]: a distribution's kernel.

pub mod elf;
pub mod elf64_vcpu;
mod flat;
pub mod image;
pub mod layout;
pub mod linux;
pub mod multiboot;
pub mod multiboot_vcpu;
pub mod payload;
pub mod payload_log;
pub mod payload_vcpu;
pub mod rdpmc;
pub mod segment;

#[cfg(test)]
pub(crate) mod test_elf;
