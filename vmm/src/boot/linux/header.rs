//! The setup header of a bzImage (Documentation/arch/x86/boot.rst, "The Real-Mode Kernel Header").

use super::error::KernelError;

/// Offset of the header in the file and in the zero page.
pub(super) const START: usize = 0x1f1;
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
pub(super) struct Setup<'a> {
    /// The header's bytes, for the zero page.
    pub(super) bytes: &'a [u8],
    /// The packed kernel.
    pub(super) payload: &'a [u8],
    /// First word of the version string.
    pub(super) release: Option<String>,
    /// Longest command line, without its terminating zero.
    pub(super) command_line: u32,
    /// Highest address that the initrd's last byte may have.
    pub(super) initrd_max: u32,
    /// First address that the kernel does not use before it manages memory.
    pub(super) end: u64,
}

impl<'a> Setup<'a> {
    /// Returns whether a file has such a header.
    pub(super) fn is_present(file: &[u8]) -> bool {
        file.get(MAGIC..MAGIC + 4) == Some(b"HdrS")
    }

    /// Reads the header of a file that has one.
    pub(super) fn of(file: &'a [u8]) -> Result<Self, KernelError> {
        let version = half(file, 0x206)?;
        if version < PAYLOAD_SINCE {
            return Err(KernelError::OldProtocol { version });
        }
        if version >= XLOADFLAGS_SINCE && half(file, 0x236)? & KERNEL_64 == 0 {
            return Err(KernelError::Not64Bit);
        }
        let sectors = match usize::from(byte(file, START)?) {
            0 => 4,
            sectors => sectors,
        };
        let offset = word(file, 0x248)? as usize + (sectors + 1) * SECTOR;
        let length = word(file, 0x24c)? as usize;
        let payload = file.get(offset..).and_then(|rest| rest.get(..length));
        let payload = payload.ok_or(KernelError::CutShort { wanted: offset + length, length: file.len() })?;
        // The byte after the jump at 0x200 is the distance from 0x202 to the header's end.
        let end = (MAGIC + usize::from(byte(file, 0x201)?)).clamp(MAGIC, END_MAX);
        Ok(Self {
            bytes: file.get(START..end).ok_or(KernelError::CutShort { wanted: end, length: file.len() })?,
            payload,
            release: release(file),
            command_line: word(file, 0x238)?,
            initrd_max: word(file, 0x22c)?,
            end: long(file, 0x258)?.saturating_add(word(file, 0x260)?.into()),
        })
    }
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

fn bytes<const N: usize>(file: &[u8], at: usize) -> Result<[u8; N], KernelError> {
    let bytes = file.get(at..at + N).and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or(KernelError::CutShort { wanted: at + N, length: file.len() })
}

fn byte(file: &[u8], at: usize) -> Result<u8, KernelError> {
    bytes(file, at).map(u8::from_le_bytes)
}

fn half(file: &[u8], at: usize) -> Result<u16, KernelError> {
    bytes(file, at).map(u16::from_le_bytes)
}

fn word(file: &[u8], at: usize) -> Result<u32, KernelError> {
    bytes(file, at).map(u32::from_le_bytes)
}

fn long(file: &[u8], at: usize) -> Result<u64, KernelError> {
    bytes(file, at).map(u64::from_le_bytes)
}
