//! Segments of an image to copy, and the errors of loading it.

use std::ops::Range;

/// Reason why an image cannot be booted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// No format that is known.
    #[error("the image is no kernel that is known; give one with a multiboot 1 header, or ELF with a PVH note")]
    NotAnImage,
    /// A format or a boot protocol that is known and not spoken, and what to do.
    #[error("the image {0}")]
    NotSpoken(&'static str),
    /// A multiboot 1 header where no boot loader looks for it.
    #[error(
        "the image's multiboot 1 header lies at {at:#x}, and a loader searches the first 8 KiB; link its section first"
    )]
    LateHeader {
        /// File offset of the header.
        at: usize,
    },
    /// The ELF file is broken or not for us.
    #[error("the ELF image cannot be loaded: {0}")]
    Elf(&'static str),
    /// The multiboot header is broken or asks for something that is not there.
    #[error("the multiboot image cannot be loaded: {0}")]
    Multiboot(&'static str),
    /// A part lies outside of the file.
    #[error("the image is cut short: it has {length} bytes, but a part of {size:#x} bytes should start at {offset:#x}")]
    CutShort {
        /// File offset of the part.
        offset: u64,
        /// Its size in the file.
        size: u64,
        /// Length of the file.
        length: usize,
    },
    /// A segment lies outside of the guest's memory.
    #[error(
        "a segment of {size:#x} bytes at {address:#x} does not fit into {ram:#x} bytes of guest memory; \
         give more with --memory"
    )]
    OutsideMemory {
        /// Guest-physical address.
        address: u64,
        /// Size in memory.
        size: u64,
        /// Size of the guest's memory.
        ram: u64,
    },
    /// Two segments share memory.
    #[error("two segments overlap at {address:#x}")]
    Overlap {
        /// First shared guest-physical address.
        address: u64,
    },
    /// The entry point is not in a loaded segment.
    #[error("the entry point {entry:#x} is not in any loaded segment")]
    Entry {
        /// The entry point as the image has it.
        entry: u64,
    },
    /// No place is left for the loader's own additions.
    #[error("no {size:#x} bytes of guest memory are left beside the image; give more with --memory")]
    NoRoom {
        /// Size wanted.
        size: u64,
    },
    /// A command line or a module's name cannot be given to the kernel.
    #[error("a command line or module name holds a NUL byte, which would end it")]
    Nul,
}

/// One piece to copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Guest-physical address.
    pub address: u64,
    /// Address the code is linked for.
    pub virtual_address: u64,
    /// The file's bytes that go there.
    pub file: Range<usize>,
    /// Size in memory, at least the size in the file; the rest is zero.
    pub memory_size: u64,
    /// True if it may be executed.
    pub executable: bool,
}

impl Segment {
    /// Returns the first guest-physical address after it.
    pub const fn end(&self) -> u64 {
        // Cannot overflow: a plan's segments lie in memory.
        self.address + self.memory_size
    }
}

/// Returns `offset..offset + size` if it lies within a file of `length` bytes.
pub(super) fn file_range(offset: u64, size: u64, length: usize) -> Result<Range<usize>, LoadError> {
    match offset.checked_add(size) {
        Some(end) if size == 0 || end <= length as u64 => {
            Ok(if size == 0 { 0..0 } else { offset as usize..end as usize })
        }
        _ => Err(LoadError::CutShort { offset, size, length }),
    }
}
