//! Guest memory of any kind of guest.

use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

use super::error::BootError;
use super::linux::layout::{HOLE_END, split};

/// Allocates guest memory. What ends below the hole has none.
///
/// # Errors
/// The host has no memory.
pub fn allocate(memory: u64) -> Result<GuestMemoryMmap, BootError> {
    let (low, high) = split(memory);
    let ranges = [(GuestAddress(0), low as usize), (GuestAddress(HOLE_END), high as usize)];
    Ok(GuestMemoryMmap::<()>::from_ranges(if high == 0 { &ranges[..1] } else { &ranges })?)
}

/// Writes `words` at `address`.
pub(crate) fn write_words(memory: &GuestMemoryMmap, address: u64, words: &[u64]) -> Result<(), BootError> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    Ok(memory.write_slice(&bytes, GuestAddress(address))?)
}
