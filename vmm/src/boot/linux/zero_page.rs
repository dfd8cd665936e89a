//! The boot parameters ("zero page", Documentation/arch/x86/zero-page.rst).

use super::header;
use super::layout::{ACPI, COMMAND_LINE, HIGH_START, HOLE_END, LOW_END, split};

const USABLE: u32 = 1;
const RESERVED: u32 = 2;
/// A boot loader without a number of its own.
const LOADER_UNDEFINED: u8 = 0xff;
const LOADED_HIGH: u8 = 1;

/// Builds the boot parameters of a kernel with this setup header, in a guest with `memory` bytes and an initrd at `initrd`.
#[must_use]
pub fn build(setup_header: &[u8], memory: u64, initrd: Option<(u32, u32)>) -> Vec<u8> {
    let mut page = vec![0; 0x1000];
    let header_end = (header::START + setup_header.len()).min(0x290);
    page[header::START..header_end].copy_from_slice(&setup_header[..header_end - header::START]);
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    put(0x70, &ACPI.to_le_bytes());
    put(0x210, &[LOADER_UNDEFINED]);
    put(0x218, &initrd.map_or(0, |(at, _)| at).to_le_bytes());
    put(0x21c, &initrd.map_or(0, |(_, size)| size).to_le_bytes());
    put(0x228, &(COMMAND_LINE as u32).to_le_bytes());
    // No setup data.
    put(0x250, &[0; 8]);
    let map = memory_map(memory);
    put(0x1e8, &[map.len() as u8]);
    for (i, (start, end, kind)) in map.iter().enumerate() {
        let at = 0x2d0 + 20 * i;
        put(at, &start.to_le_bytes());
        put(at + 8, &(end - start).to_le_bytes());
        put(at + 16, &kind.to_le_bytes());
    }
    page[0x211] |= LOADED_HIGH;
    page
}

/// Returns start, end and kind of each range of physical addresses.
fn memory_map(memory: u64) -> Vec<(u64, u64, u32)> {
    let (low, high) = split(memory);
    let mut map = vec![(0, LOW_END, USABLE), (LOW_END, HIGH_START, RESERVED), (HIGH_START, low, USABLE)];
    if high > 0 {
        map.push((HOLE_END, HOLE_END + high, USABLE));
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(page: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(page[at..at + 8].try_into().unwrap())
    }

    #[test]
    fn memory_is_split_around_the_hole() {
        let page = build(&[0; 0x49], 5 << 30, None);
        assert_eq!(page[0x1e8], 4);
        let entries: Vec<_> = (0..4).map(|i| (word(&page, 0x2d0 + 20 * i), word(&page, 0x2d8 + 20 * i))).collect();
        assert_eq!(entries[2..], [(0x10_0000, (3 << 30) - 0x10_0000), (4 << 30, 2 << 30)]);
        assert_eq!(build(&[0; 0x49], 256 << 20, None)[0x1e8], 3);
    }

    #[test]
    fn the_header_is_kept_and_completed() {
        let mut header = vec![0x11; 0x7b];
        header[0x202 - header::START..0x206 - header::START].copy_from_slice(b"HdrS");
        let page = build(&header, 256 << 20, Some((0x123_4000, 77)));
        assert_eq!((&page[0x202..0x206], page[0x210]), (&b"HdrS"[..], LOADER_UNDEFINED));
        assert_eq!((word(&page, 0x218), word(&page, 0x250)), (77 << 32 | 0x123_4000, 0));
        assert_eq!((word(&page, 0x70), word(&page, 0x228) as u32), (ACPI, COMMAND_LINE as u32));
        assert_eq!((page[0x1ef], page[0x211]), (0, 0x11), "the sentinel; loaded high already");
        assert_eq!(page.len(), 0x1000);
    }
}
