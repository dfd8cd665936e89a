//! Contents of a Linux guest, and the protocol to talk to it; nothing here knows of VMMs.
//!
//! - [`initramfs`]: the archive that a kernel unpacks as its first file system: the init, programs with the shared
//!   libraries they need, files, kernel modules.
//! - [`modules`]: the kernel modules that a guest needs, from a distribution's folder of them.
//! - [`agent`]: runs programs and moves files in the guest, over a byte stream to the init.
//!
//! The init (`init/`) is freestanding C, linked by this crate's build script. As process 1 it mounts, loads the modules, and starts
//! the agent on the virtio port named [`PORT`]. Without it the guest switches itself off, and its console says why.
//! `init --agent` is the agent alone on descriptor 0: so it is tested without a guest.

pub mod agent;
pub mod initramfs;
pub mod modules;
mod protocol;

/// The program at `/init`: a static ELF64 that needs nothing else.
pub const INIT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/init.elf"));

/// The name of the agent's virtio port.
pub const PORT: &str = "vpmu";
