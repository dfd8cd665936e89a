//! The reasons for which a kernel cannot be booted.

use thiserror::Error;

use super::layout::{MAX_MEMORY, MIN_MEMORY};
use crate::boot::segment::LoadError;

/// Largest unpacked kernel.
pub const MAX_UNPACKED: usize = 512 << 20;

/// Reason why a file is no kernel that can be booted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KernelError {
    /// Neither a bzImage nor a vmlinux.
    #[error("it is not a Linux kernel: neither a bzImage (boot/vmlinuz-*) nor a vmlinux")]
    NotAKernel,
    /// An ELF file without Linux's version string.
    #[error("it is an ELF file, but not a Linux kernel: it has no \"Linux version\"")]
    NotLinux,
    /// A kernel for 32 bits.
    #[error("it is a 32-bit kernel; give an amd64 one")]
    Not64Bit,
    /// The kernel is older than Linux 2.6.26.
    #[error("its boot protocol {}.{:02} does not say where the kernel is; Linux 2.6.26 and later do", .version >> 8, .version & 0xff)]
    OldProtocol {
        /// Version of the protocol.
        version: u16,
    },
    /// The file ends too early.
    #[error("it is cut short: it has {length} bytes and should have {wanted}; copy it again")]
    CutShort {
        /// Bytes it should have.
        wanted: usize,
        /// Bytes it has.
        length: usize,
    },
    /// A compression that this loader does not know.
    #[error(
        "its compression is not known (first bytes {first:02x?}); gzip, XZ, LZ4 and zstd can be unpacked: give its vmlinux \
         (linux/scripts/extract-vmlinux)"
    )]
    Compression {
        /// First bytes of the payload.
        first: Vec<u8>,
    },
    /// The packed kernel cannot be unpacked.
    #[error("its {format} payload cannot be unpacked: {why}; copy it again")]
    Unpack {
        /// Compression.
        format: &'static str,
        /// The decoder's reason.
        why: String,
    },
    /// The packed kernel makes no sense.
    #[error("its payload is damaged: {0}")]
    Damaged(&'static str),
    /// More than a kernel can be.
    #[error("it unpacks to {size} bytes; at most {MAX_UNPACKED} are accepted")]
    TooLarge {
        /// Bytes that it claims.
        size: usize,
    },
    /// The unpacked kernel cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// Reason why a kernel cannot be started in this guest.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BootError {
    /// The size of guest memory is out of range.
    #[error(
        "{0:#x} bytes of guest memory are not between {MIN_MEMORY:#x} and {MAX_MEMORY:#x}; give another size with --memory"
    )]
    Memory(u64),
    /// The kernel does not fit into memory.
    #[error("the kernel needs memory to {end:#x}, and the guest has {memory:#x}; give more with --memory")]
    KernelTooLarge {
        /// First address that the kernel does not use.
        end: u64,
        /// Bytes of guest memory below the hole.
        memory: u64,
    },
    /// The initrd does not fit beside the kernel.
    #[error(
        "an initrd of {size:#x} bytes has no place beside the kernel: {room:#x} bytes are left; give more with --memory"
    )]
    InitrdTooLarge {
        /// Bytes of the initrd.
        size: usize,
        /// Bytes that it can have.
        room: u64,
    },
    /// The command line is too long.
    #[error("the command line has {length} bytes; this kernel takes {max}")]
    CommandLineTooLong {
        /// Its length.
        length: usize,
        /// Most that the kernel takes.
        max: usize,
    },
    /// The command line holds a zero byte.
    #[error("the command line holds a zero byte, which would end it")]
    CommandLineZero,
}
