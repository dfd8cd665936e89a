//! Getting a guest's image into memory and the guest to its first instruction.
//!
//! An image goes through three steps, all of them pure functions of its bytes: [`rdpmc::rewrite`] makes its RDPMCs
//! reach a userspace vPMU, [`image::LoadPlan::of`] says what to copy where and how to enter, and
//! [`multiboot::Information::build`] lays out what a multiboot kernel is told.

pub mod elf;
pub mod image;
pub mod multiboot;
pub mod rdpmc;

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "the files are small")]
mod test_elf;
