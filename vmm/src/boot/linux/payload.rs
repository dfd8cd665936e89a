//! The packed kernel within a bzImage: the formats that Linux's build makes (scripts/Makefile.lib).
//!
//! Every format but gzip is followed by the size of the unpacked kernel, 32 bits, little-endian; gzip has it in its own last
//! word. What unpacks to another size is refused.

use std::io::{self, Read};

use ruzstd::decoding::errors::FrameDecoderError;

use super::error::{KernelError, MAX_UNPACKED};

/// Most memory for the dictionary of XZ; Linux's build uses 32 or 128 MiB.
const XZ_MEMORY_KIB: u32 = 256 << 10;

/// A block of LZ4's legacy frame unpacks to so much at most.
const LZ4_BLOCK: usize = 8 << 20;
const GZIP: &[u8] = &[0x1f, 0x8b];
const XZ: &[u8] = &[0xfd, b'7', b'z', b'X', b'Z', 0];
const LZ4: &[u8] = &[0x02, 0x21, 0x4c, 0x18];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const ELF: &[u8] = b"\x7fELF";
/// Formats that Linux knows and this loader does not.
const OTHERS: [(&[u8], &str); 3] = [(b"BZh", "bzip2"), (&[0x5d, 0, 0], "LZMA"), (&[0x89, b'L', b'Z', b'O'], "LZO")];

/// Unpacks a payload.
pub(super) fn unpack(payload: &[u8]) -> Result<Vec<u8>, KernelError> {
    let Some((stream, size)) = payload.split_last_chunk::<4>() else { return Err(KernelError::Damaged("it is empty")) };
    let size = u32::from_le_bytes(*size) as usize;
    if payload.starts_with(ELF) {
        return Ok(payload.to_vec());
    }
    if size > MAX_UNPACKED {
        return Err(KernelError::TooLarge { size });
    }
    if payload.starts_with(GZIP) {
        read("gzip", flate2::read::GzDecoder::new(payload), size)
    } else if payload.starts_with(XZ) {
        read("XZ", lzma_rust2::XzReader::new_mem_limit(stream, false, XZ_MEMORY_KIB), size)
    } else if payload.starts_with(LZ4) {
        lz4(&stream[LZ4.len()..], size)
    } else if payload.starts_with(ZSTD) {
        zstd(stream, size)
    } else {
        let name = OTHERS.iter().find(|(magic, _)| payload.starts_with(magic)).map(|(_, name)| *name);
        let first = payload.iter().take(6).copied().collect();
        Err(name.map_or(KernelError::UnknownCompression { first }, KernelError::Compression))
    }
}

fn damaged(format: &'static str, error: impl std::fmt::Display) -> KernelError {
    KernelError::Unpack { format, why: error.to_string() }
}

fn wrong_size(format: &'static str, size: usize) -> KernelError {
    damaged(format, format_args!("it does not unpack to the {size} bytes that it promises"))
}

fn read(format: &'static str, decoder: impl Read, size: usize) -> Result<Vec<u8>, KernelError> {
    let mut unpacked = Vec::with_capacity(size + 1);
    // One byte more than promised shows that there is more.
    match decoder.take(size as u64 + 1).read_to_end(&mut unpacked) {
        Ok(length) if length == size => Ok(unpacked),
        Ok(_) => Err(wrong_size(format, size)),
        Err(error) if error.kind() == io::ErrorKind::OutOfMemory => Err(damaged(format, "its dictionary is too large")),
        Err(error) => Err(damaged(format, error)),
    }
}

fn zstd(stream: &[u8], size: usize) -> Result<Vec<u8>, KernelError> {
    let mut unpacked = vec![0; size];
    match ruzstd::decoding::FrameDecoder::new().decode_all(stream, &mut unpacked) {
        Ok(length) if length == size => Ok(unpacked),
        Ok(_) | Err(FrameDecoderError::TargetTooSmall) => Err(wrong_size("zstd", size)),
        Err(error) => Err(damaged("zstd", error)),
    }
}

/// LZ4's legacy frame behind its magic: blocks, each after its packed size.
fn lz4(mut stream: &[u8], size: usize) -> Result<Vec<u8>, KernelError> {
    let cut = || damaged("LZ4", "a block is cut short");
    let mut unpacked = vec![0; size];
    let mut filled = 0;
    while let Some((length, rest)) = stream.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        let block = rest.get(..length).ok_or_else(cut)?;
        let end = size.min(filled + LZ4_BLOCK);
        let written = lz4_flex::block::decompress_into(block, &mut unpacked[filled..end]);
        filled += written.map_err(|error| damaged("LZ4", error))?;
        stream = &rest[length..];
    }
    if !stream.is_empty() {
        return Err(cut());
    }
    if filled != size {
        return Err(wrong_size("LZ4", size));
    }
    Ok(unpacked)
}
