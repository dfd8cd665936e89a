//! A distribution's Linux kernel, booted as it is.
//!
//! [`kernel::Kernel`] is the kernel's ELF image, unpacked from a bzImage (`zero_page`, `payload`) or taken from a vmlinux. The
//! guest does not unpack itself, so that its RDPMCs can be rewritten.
//!
//! The boot protocol is the 64-bit one of Documentation/arch/x86/boot.rst: [`layout`] has the addresses, `zero_page` the
//! boot parameters, [`acpi`] the tables that describe CPUs and devices.

pub mod acpi;
pub mod kernel;
pub mod layout;
mod payload;
pub mod zero_page;

pub use kernel::Kernel;
pub use payload::MAX_UNPACKED;
