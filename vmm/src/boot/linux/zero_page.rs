//! The boot parameters ("zero page", Documentation/arch/x86/zero-page.rst).

use super::layout::{ACPI, COMMAND_LINE, HIGH_START, HOLE_END, LOW_END, split};
use crate::boot::error::{BootError, refused};

const USABLE: u32 = 1;
const RESERVED: u32 = 2;
/// A boot loader without a number of its own.
const LOADER_UNDEFINED: u8 = 0xff;
const LOADED_HIGH: u8 = 1;

/// Builds the boot parameters of a kernel with this setup header, in a guest with `memory` bytes and an initrd at `initrd`.
pub fn build(setup_header: &[u8], memory: u64, initrd: Option<(u32, u32)>) -> Vec<u8> {
    let mut page = vec![0; 0x1000];
    let header_end = (START + setup_header.len()).min(0x290);
    page[START..header_end].copy_from_slice(&setup_header[..header_end - START]);
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    put(0x70, &ACPI.to_le_bytes());
    put(0x210, &[LOADER_UNDEFINED]);
    put(0x218, &initrd.map_or(0, |(at, _)| at).to_le_bytes());
    put(0x21c, &initrd.map_or(0, |(_, size)| size).to_le_bytes());
    put(0x228, &(COMMAND_LINE as u32).to_le_bytes());
    // There is no setup data.
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

/// Offset of the header in the file and in the zero page.
const START: usize = 0x1f1;
const MAGIC: usize = 0x202;
/// Version of the protocol from which a header has the payload's place.
const PAYLOAD_SINCE: u16 = 0x208;
/// Version from which it has flags for 64 bits.
const XLOADFLAGS_SINCE: u16 = 0x20c;
const KERNEL_64: u16 = 1;
/// Longest header: it ends before the zero page's next field.
const END_MAX: usize = 0x290;
const SECTOR: usize = 512;

/// The fields of the header that a loader needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setup {
    /// The header's bytes, for the zero page.
    pub(crate) bytes: Vec<u8>,
    /// Longest command line, without its terminating zero.
    pub(crate) command_line: u32,
    /// Highest address that the initrd's last byte may have.
    pub(crate) initrd_max: u32,
    /// First address that the kernel does not use before it manages memory.
    pub(crate) end: u64,
}

impl Setup {
    /// Returns whether a file has such a header.
    pub(super) fn is_present(file: &[u8]) -> bool {
        file.get(MAGIC..MAGIC + 4) == Some(b"HdrS")
    }

    /// Makes the header of a vmlinux, which has none: version 2.15, loaded high, alignment 16 MiB, the limits of
    /// arch/x86/boot/header.S.
    pub(super) fn of_vmlinux() -> Self {
        let mut bytes = vec![0; 0x49];
        let mut put = |at: usize, field: &[u8]| bytes[at - START..][..field.len()].copy_from_slice(field);
        put(0x1fe, &[0x55, 0xaa]);
        put(MAGIC, b"HdrS");
        put(0x206, &[0x0f, 0x02]);
        put(0x211, &[LOADED_HIGH]);
        put(0x230, &[0, 0, 0, 1]);
        Self { bytes, command_line: 2047, initrd_max: 0x7fff_ffff, end: 0 }
    }

    /// Reads the header of a file that has one. Returns it, the first word of the version string, and the packed kernel.
    pub(super) fn of(file: &[u8]) -> Result<(Self, Option<String>, &[u8]), BootError> {
        let version = half(file, 0x206)?;
        if version < PAYLOAD_SINCE {
            let (major, minor) = (version >> 8, version & 0xff);
            return refused(format!(
                "its boot protocol {major}.{minor:02} does not say where the kernel is; Linux 2.6.26 and later do"
            ));
        }
        if version >= XLOADFLAGS_SINCE && half(file, 0x236)? & KERNEL_64 == 0 {
            return refused(NOT_64_BIT);
        }
        let sectors = match bytes::<1>(file, START)? {
            [0] => 4,
            [sectors] => usize::from(sectors),
        };
        let offset = word(file, 0x248)? as usize + (sectors + 1) * SECTOR;
        let length = word(file, 0x24c)? as usize;
        let payload = file.get(offset..).and_then(|rest| rest.get(..length));
        let payload = payload.ok_or_else(|| cut_short(offset + length, file))?;
        // The byte after the jump at 0x200 is the distance from 0x202 to the header's end.
        let [distance] = bytes(file, 0x201)?;
        let end = (MAGIC + usize::from(distance)).clamp(MAGIC, END_MAX);
        let header = file.get(START..end).ok_or_else(|| cut_short(end, file))?;
        let setup = Self {
            bytes: header.to_vec(),
            command_line: word(file, 0x238)?,
            initrd_max: word(file, 0x22c)?,
            end: u64::from_le_bytes(bytes(file, 0x258)?).saturating_add(word(file, 0x260)?.into()),
        };
        Ok((setup, release(file), payload))
    }
}

/// Why a kernel for 32 bits is refused.
pub(super) const NOT_64_BIT: &str = "it is a 32-bit kernel; give an amd64 one";

fn cut_short(wanted: usize, file: &[u8]) -> BootError {
    let length = file.len();
    BootError(format!("it is cut short: it has {length} bytes and should have {wanted}; copy it again"))
}

/// Reads the first word of the version string, which lies 0x200 bytes behind the place that the header names.
fn release(file: &[u8]) -> Option<String> {
    let at = match half(file, 0x20e).ok()? {
        0 => return None,
        at => usize::from(at) + 0x200,
    };
    let text = file.get(at..)?.split(|byte| !byte.is_ascii_graphic()).next()?;
    (!text.is_empty() && text.len() <= 128).then(|| String::from_utf8_lossy(text).into_owned())
}

fn bytes<const N: usize>(file: &[u8], at: usize) -> Result<[u8; N], BootError> {
    let bytes = file.get(at..at + N).and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| cut_short(at + N, file))
}

fn half(file: &[u8], at: usize) -> Result<u16, BootError> {
    bytes(file, at).map(u16::from_le_bytes)
}

fn word(file: &[u8], at: usize) -> Result<u32, BootError> {
    bytes(file, at).map(u32::from_le_bytes)
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
}
