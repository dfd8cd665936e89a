//! Getting a guest into memory and a vCPU to its first instruction.
//!
//! The project's own payloads: [`payload`] puts one into the memory [`layout`] describes and a vCPU into [`long_mode`].
//!
//! Somebody else's image goes through three steps, all of them pure functions of its bytes: [`rdpmc::rewrite`] makes its
//! RDPMCs reach a userspace vPMU, [`image::LoadPlan::of`] says what to copy where and how to enter, and
//! [`multiboot::Information::build`] lays out what a multiboot kernel is told.

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
