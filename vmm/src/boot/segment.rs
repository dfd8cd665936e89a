//! Segments of an image to copy, its entry point, and the errors of loading it.

use std::ops::Range;

/// More loadable segments or executable sections than any real kernel has.
pub const MAX_PARTS: usize = 1024;

/// Reason why an image cannot be booted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// Neither a multiboot header nor ELF.
    #[error("the image is neither multiboot 1 nor ELF; give a multiboot or a statically linked ELF kernel")]
    NotAnImage,
    /// The ELF file is broken or not for us.
    #[error("the ELF image cannot be loaded: {0}")]
    Elf(&'static str),
    /// The multiboot header is broken or asks for something that is not there.
    #[error("the multiboot image cannot be loaded: {0}")]
    Multiboot(&'static str),
    /// The file has too many segments or sections.
    #[error("the image has more than {} loadable segments or executable sections", MAX_PARTS)]
    TooManyParts,
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
    /// The information for the kernel cannot be expressed.
    #[error("the multiboot information cannot be made: {0}")]
    Information(&'static str),
}

/// One piece to copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Guest-physical address.
    pub address: u64,
    /// Address the code is linked for; matters for [`Entry::Long64`] only, which is entered with paging on.
    pub virtual_address: u64,
    /// The file's bytes that go there.
    pub file: Range<usize>,
    /// Size in memory; bytes beyond the file's are zero.
    pub memory_size: u64,
}

impl Segment {
    /// Returns the first guest-physical address after it.
    pub const fn end(&self) -> u64 {
        // Cannot overflow: a plan's segments lie in memory.
        self.address + self.memory_size
    }
}

/// The state of the first vCPU at the first instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Multiboot 1, section 3.2: 32-bit protected mode, flat segments, paging and interrupts off, A20 open,
    /// EAX = [`super::multiboot::BOOT_MAGIC`], EBX = address of the multiboot information.
    Multiboot {
        /// Guest-physical address.
        eip: u32,
    },
    /// An ELF32 file without a multiboot header: the same, with nothing in EAX and EBX.
    Protected32 {
        /// Guest-physical address.
        eip: u32,
    },
    /// An ELF64 file without a multiboot header: 64-bit mode, with each segment mapped at its physical and at its
    /// virtual address.
    Long64 {
        /// The entry point as the file has it, which may be either.
        rip: u64,
    },
}
