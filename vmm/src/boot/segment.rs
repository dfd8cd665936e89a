//! Segments of an image to copy.

use std::ops::Range;

use super::error::{BootError, refused};

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
pub(super) fn file_range(offset: u64, size: u64, length: usize) -> Result<Range<usize>, BootError> {
    match offset.checked_add(size) {
        _ if size == 0 => Ok(0..0),
        Some(end) if end <= length as u64 => Ok(offset as usize..end as usize),
        _ => refused(format!(
            "the image is cut short: it has {length} bytes, but a part of {size:#x} bytes should start at {offset:#x}"
        )),
    }
}
