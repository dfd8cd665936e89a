//! The header of multiboot 1 in an image.
//!
//! Source: "The Multiboot Specification version 0.6.96", section 3.1.

use super::error::BootError;
use super::segment::{Segment, file_range};

const HEADER_MAGIC: u32 = 0x1BAD_B002;
/// The header lies wholly within this many bytes, at a multiple of 4.
const SEARCH: usize = 8192;
/// Header flag: the load addresses are in the header, not in an ELF header.
const ADDRESSES: u32 = 1 << 16;
/// Header flag: a video mode.
const VIDEO: u32 = 1 << 2;
/// Header flags of features an image cannot do without, and those of them that are known: aligned modules, memory sizes, video.
const REQUIRED: u32 = 0xffff;
const KNOWN: u32 = 0b11 | VIDEO;

/// A multiboot header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Its offset in the file.
    pub(super) offset: usize,
    /// It asks for a video mode. Kernels that do so run without one.
    pub(super) asks_for_video: bool,
    pub(super) addresses: Option<Addresses>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Addresses {
    header: u32,
    load: u32,
    load_end: u32,
    bss_end: u32,
    pub(super) entry: u32,
}

impl Header {
    /// Looks for a header with a right checksum.
    ///
    /// # Errors
    /// [`BootError`] if there is one that cannot be obeyed.
    pub(super) fn find(image: &[u8]) -> Result<Option<Self>, BootError> {
        let area = &image[..image.len().min(SEARCH)];
        let Some((offset, flags)) = search(area, 0) else { return Ok(None) };
        if flags & REQUIRED & !KNOWN != 0 {
            return refused("its header requires a feature that the specification does not know");
        }
        let addresses = if flags & ADDRESSES == 0 {
            None
        } else {
            let Some([header, load, load_end, bss_end, entry]) = words(area, offset + 12) else {
                return refused("its header is cut short");
            };
            Some(Addresses { header, load, load_end, bss_end, entry })
        };
        Ok(Some(Self { offset, asks_for_video: flags & VIDEO != 0, addresses }))
    }
}

/// Returns the error of an image with a header that cannot be obeyed.
pub(super) fn refused<T>(why: &str) -> Result<T, BootError> {
    Err(BootError(format!("the multiboot image cannot be loaded: {why}")))
}

/// Returns the offset of a header behind the area where it should lie.
pub(super) fn late_header(image: &[u8]) -> Option<usize> {
    search(image, SEARCH - 8).map(|(offset, _)| offset)
}

/// Finds the first header from offset `from` on: its offset and its flags.
fn search(area: &[u8], from: usize) -> Option<(usize, u32)> {
    (from..area.len()).step_by(4).find_map(|offset| {
        let [magic, flags, checksum] = words(area, offset)?;
        let is_header = magic == HEADER_MAGIC && magic.wrapping_add(flags).wrapping_add(checksum) == 0;
        is_header.then_some((offset, flags))
    })
}

/// Reads words at `offset`.
fn words<const N: usize>(area: &[u8], offset: usize) -> Option<[u32; N]> {
    let bytes = area.get(offset..offset + 4 * N)?;
    let mut words =
        bytes.chunks_exact(4).map(|word| word.iter().rev().fold(0, |all, &byte| all << 8 | u32::from(byte)));
    Some(std::array::from_fn(|_| words.next().unwrap_or(0)))
}

impl Addresses {
    /// Returns the one segment of an image whose header is at `offset` of `length` bytes.
    pub(super) fn segment(&self, offset: usize, length: usize) -> Result<Segment, BootError> {
        let Some(before) = self.header.checked_sub(self.load) else {
            return refused("its header_addr is below its load_addr");
        };
        let Some(start) = offset.checked_sub(before as usize) else {
            return refused("its load_addr lies before the start of the file");
        };
        let size = match self.load_end {
            // Zero means all of the file.
            0 => length - start,
            end if end < self.load => return refused("its load_end_addr is below its load_addr"),
            end => (end - self.load) as usize,
        };
        let memory_size = match self.bss_end {
            0 => size as u64,
            end if u64::from(end) < u64::from(self.load) + size as u64 => {
                return refused("its bss_end_addr is below the end of what is loaded");
            }
            end => u64::from(end - self.load),
        };
        Ok(Segment {
            address: self.load.into(),
            virtual_address: self.load.into(),
            file: file_range(start as u64, size as u64, length)?,
            memory_size,
            executable: true,
        })
    }
}
