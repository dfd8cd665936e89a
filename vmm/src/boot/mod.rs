//! A guest's initial memory and registers.
//!
//! The project's own payloads: [`payload`] puts one into the memory that [`layout`] describes, with the vCPU in [`long_mode`].
//!
//! A third-party image takes three steps, all of them pure functions of its bytes: [`rdpmc::rewrite`] makes its RDPMCs reach
//! a userspace vPMU, [`image::LoadPlan::of`] plans copies and entry, and [`multiboot::Information::build`] lays out the
//! boot information of a multiboot kernel.

pub mod elf;
pub mod image;
pub mod layout;
pub mod long64;
pub mod long_mode;
pub mod multiboot;
pub mod payload;
pub mod protected;
pub mod rdpmc;
pub mod segment;

#[cfg(test)]
mod test_elf;
