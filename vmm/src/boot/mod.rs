//! A guest's initial memory and registers.
//!
//! The project's own payloads: [`payload`] puts one into the memory that [`layout`] describes, with its vCPU, and looks
//! at the log of one that runs.
//!
//! A third-party image takes three steps, all of them pure functions of its bytes: [`rdpmc::rewrite`] makes its RDPMCs reach
//! a userspace vPMU, [`image::Image::of`] finds its boot protocol, its segments and its entry, and
//! [`information::Information::build`] lays out its boot information. [`vcpu`] has its first registers.
//!
//! [`linux`]: a distribution's kernel.

pub mod elf;
pub mod error;
pub mod image;
pub mod information;
pub mod layout;
pub mod linux;
pub mod memory;
mod multiboot;
pub mod payload;
pub mod rdpmc;
pub mod segment;
pub mod vcpu;

#[cfg(test)]
pub(crate) mod tests;
