//! The bare-metal payload and the ABI it shares with the VMM.
//!
//! [`PMU_PAYLOAD`] is freestanding C and assembly (`guest/payload/c/`), linked by this crate's build script. Its ring 0 is short
//! and uses general registers only, since some hosts run it in KVM's instruction emulator; its workloads run in ring 3.
//!
//! The payload expects at its entry point `_start`, in 64-bit mode:
//!
//! - RDI and GS base: this vCPU's [`abi::BootPage`]; RSP: the top of its kernel stack; interrupts off.
//! - Identity-mapped pages with the permissions of the ELF's segments. `user_start`..`user_end`, the
//!   [`abi::UserPage`] and the ring-3 stack also with the user bit; SMAP off (ring 0 reads the user page).
//! - A GDT with kernel code 0x08, kernel data 0x10, user code 0x18 and user data 0x20, a TSS with RSP0, IST1 and
//!   an I/O bitmap that allows [`abi::PORT_WORKLOAD`], and an IDT whose gates
//!   0..[`abi::ISR_COUNT`] are interrupt gates to the addresses in the symbol `isr_table`, vector 2 with IST1.
//! - An APIC that can be switched to x2APIC mode.
#![no_std]

extern crate alloc;

pub mod abi;
pub mod cases;
pub mod phases;

/// The linked payload: a static ELF64 at 1 MiB, with its symbols.
pub const PMU_PAYLOAD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/payload.elf"));

/// The workload ftest as a program for Linux: a static ELF64. `ftest NMIS MS [PROCESSES]`; see `guest/payload/c/ftest.c`.
pub const FTEST: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ftest.elf"));

/// The linked conformance payload, of the same shape: it leaves an [`abi::ConformanceReport`] where the other leaves its
/// [`abi::Report`], and keeps no log. It runs on one vCPU.
pub const CONFORMANCE_PAYLOAD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/conformance.elf"));
