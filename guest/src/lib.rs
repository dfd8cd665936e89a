//! Bare-metal payloads and the ABI they share with the VMM.
#![no_std]

pub mod abi;
