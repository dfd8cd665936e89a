//! Putting a guest into memory and a vCPU at its first instruction.

pub mod layout;
pub mod long_mode;
pub mod payload;
