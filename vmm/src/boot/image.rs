//! A third-party image: the boot protocol it speaks, what to copy where, and where to enter.
//!
//! Each protocol is recognized by its own mark, multiboot 1 before PVH if an image has both, and the ones that are not
//! spoken are refused by theirs. Nothing is copied or allocated by what the file claims: a plan refers to ranges of the
//! file and has been checked against the guest's memory.

use std::ops::Range;

use super::elf::{Elf, entry_outside};
use super::error::{BootError, refused};
use super::multiboot;
use super::segment::Segment;

/// Most guest memory: above it lie the LAPIC's, the IOAPIC's and KVM's own pages, and no memory follows them.
pub const MAX_MEMORY: u64 = 3 << 30;
/// Least guest memory: the first megabyte and room for an image.
pub const MIN_MEMORY: u64 = 2 << 20;

/// Mark of multiboot 2, at a multiple of 8 within the first 32 KiB, with the architecture of 32-bit x86.
const MULTIBOOT_2: [u8; 8] = [0xd6, 0x50, 0x52, 0xe8, 0, 0, 0, 0];
const MULTIBOOT_2_SEARCH: usize = 32 << 10;

/// EAX at a multiboot entry.
pub const BOOT_MAGIC: u64 = 0x2BAD_B002;

/// A boot protocol that is spoken. Both enter 32-bit protected mode: flat segments, paging and interrupts off, A20 open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Multiboot 1, section 3.2: EAX = [`BOOT_MAGIC`], EBX = address of the multiboot information.
    Multiboot,
    /// PVH (Xen's docs/misc/pvh.pandoc): EBX = address of hvm_start_info.
    Pvh,
}

impl Protocol {
    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Multiboot => "multiboot 1",
            Self::Pvh => "PVH",
        }
    }
}

/// An image that can be booted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The protocol by which it is entered.
    pub protocol: Protocol,
    /// Guest-physical address of the first instruction, in a segment.
    pub eip: u32,
    /// It asks for a video mode, which it does not get.
    pub asks_for_video: bool,
    /// Its segments.
    pub plan: LoadPlan,
}

impl Image {
    /// Takes `image` apart for a guest with `ram` bytes of memory from address 0 without a hole.
    ///
    /// # Errors
    /// [`BootError`], the first thing wrong with the image.
    pub fn of(image: &[u8], ram: u64) -> Result<Self, BootError> {
        let unknown =
            "the image is no kernel that is known; give one with a multiboot 1 header, or ELF with a PVH note";
        let elf = || if Elf::is_elf(image) { Elf::parse(image) } else { refused(unknown) };
        let (protocol, segments, entry, asks_for_video) = if let Some(header) = multiboot::Header::find(image)? {
            let (segments, entry) = match header.addresses {
                Some(addresses) => (vec![addresses.segment(header.offset, image.len())?], addresses.entry.into()),
                None if Elf::is_elf(image) => {
                    let elf = elf()?;
                    let entry = elf.physical_entry()?;
                    (elf.segments, entry)
                }
                None => {
                    return multiboot::refused(
                        "its header has no load addresses (flag bit 16), and it is not ELF either",
                    );
                }
            };
            (Protocol::Multiboot, segments, entry, header.asks_for_video)
        } else {
            match elf() {
                Ok(Elf { pvh_entry: Err(error), .. }) => return Err(error),
                Ok(Elf { pvh_entry: Ok(Some(entry)), segments, .. }) => (Protocol::Pvh, segments, entry, false),
                other => return Err(refusal(image, other.err())),
            }
        };
        let plan = LoadPlan::new(segments, ram)?;
        match u32::try_from(entry) {
            Ok(eip) if plan.covers(entry) => Ok(Self { protocol, eip, asks_for_video, plan }),
            _ => Err(entry_outside(entry)),
        }
    }
}

/// Returns why an image without a protocol that is spoken is refused; `elf` says why it is no ELF file that can be loaded.
fn refusal(image: &[u8], elf: Option<BootError>) -> BootError {
    let start = &image[..image.len().min(MULTIBOOT_2_SEARCH)];
    BootError(if image.starts_with(&[0x1f, 0x8b]) {
        "the image is compressed with gzip; unpack it first (gunzip)".to_owned()
    } else if image.get(0x202..0x206) == Some(b"HdrS") {
        "the image is a Linux bzImage; boot it with 'vpmu linux'".to_owned()
    } else if start.chunks_exact(8).any(|chunk| chunk == MULTIBOOT_2) {
        "the image speaks multiboot 2, which is not spoken here; build it for multiboot 1 or PVH".to_owned()
    } else if let Some(at) = multiboot::late_header(image) {
        format!(
            "the image's multiboot 1 header lies at {at:#x}, and a loader searches the first 8 KiB; link its section first"
        )
    } else if let Some(error) = elf {
        return error;
    } else {
        "the image is ELF without a boot protocol; give it a multiboot 1 header, or a PVH note (XEN_ELFNOTE_PHYS32_ENTRY)"
            .to_owned()
    })
}

/// Segments to copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadPlan {
    /// Ascending, without overlap, within guest memory.
    pub segments: Vec<Segment>,
    ram: u64,
}

/// Range for the loader's own additions: above the real-mode vectors and start-up code of other CPUs, below the EBDA.
const LOW: Range<u64> = 0x9000..0x9_f000;

impl LoadPlan {
    /// Checks `segments` against `ram` bytes of memory and each other.
    ///
    /// # Errors
    /// [`BootError`], the first thing wrong with them.
    pub fn new(mut segments: Vec<Segment>, ram: u64) -> Result<Self, BootError> {
        segments.sort_by_key(|segment| segment.address);
        let mut end = 0;
        for segment in &segments {
            let (address, size) = (segment.address, segment.memory_size);
            if address.checked_add(size).is_none_or(|end| end > ram) {
                return refused(format!(
                    "a segment of {size:#x} bytes at {address:#x} does not fit into {ram:#x} bytes of guest memory; \
                     give more with --memory"
                ));
            }
            if address < end {
                return refused(format!("two segments overlap at {address:#x}"));
            }
            end = segment.end();
        }
        Ok(Self { segments, ram })
    }

    /// Copies the segments' bytes through `write(address, bytes)`. Guest memory is zero when a guest starts, so the
    /// part that the file does not fill is not written.
    ///
    /// # Errors
    /// The first error of `write`.
    ///
    /// # Panics
    /// If `image` is shorter than the one that was planned.
    pub fn copy<E>(&self, image: &[u8], mut write: impl FnMut(u64, &[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut filled = self.segments.iter().filter(|segment| !segment.file.is_empty());
        filled.try_for_each(|segment| write(segment.address, &image[segment.file.clone()]))
    }

    /// Returns the page-aligned address of `size` bytes of memory below 4 GiB that no segment uses: low memory if it
    /// fits there, else the first gap above.
    ///
    /// # Errors
    /// [`BootError`] if there is none.
    pub fn free_range(&self, size: u64) -> Result<u64, BootError> {
        let above = self.ram.min(1 << 32);
        for area in [LOW.start..LOW.end.min(above), 0x10_0000..above] {
            let mut at = area.start;
            for segment in self.segments.iter().filter(|segment| segment.end() > area.start) {
                if at.checked_add(size).is_none_or(|end| end <= segment.address) {
                    break;
                }
                at = at.max(segment.end().next_multiple_of(0x1000));
            }
            if at.checked_add(size).is_some_and(|end| end <= area.end) {
                return Ok(at);
            }
        }
        refused(format!("no {size:#x} bytes of guest memory are left beside the image; give more with --memory"))
    }

    /// Returns whether a segment has `address`.
    pub fn covers(&self, address: u64) -> bool {
        let mut segments = self.segments.iter();
        segments.any(|segment| (segment.address..segment.end()).contains(&address))
    }
}
