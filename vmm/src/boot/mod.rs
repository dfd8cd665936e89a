//! A guest's initial memory and registers.
//!
//! The project's own payloads: [`payload`] puts one into the memory that [`layout`] describes, with its vCPU, and looks
//! at the log of one that runs.
//!
//! A third-party image takes three steps, all of them pure functions of its bytes: [`rdpmc::rewrite`] makes its RDPMCs reach
//! a userspace vPMU, [`image::LoadPlan::of`] plans copies and entry, and [`multiboot::Information::build`] lays out the
//! boot information of a multiboot kernel. [`vcpu`] is the vCPU of an image.
//!
//! [`linux`]: a distribution's kernel.

pub mod elf;
pub mod image;
pub mod layout;
pub mod linux;
pub mod multiboot;
pub mod payload;
pub mod rdpmc;
pub mod segment;
pub mod vcpu;

#[cfg(test)]
pub(crate) mod tests;
