//! The packed kernel within a bzImage: the formats that Linux's build makes (scripts/Makefile.lib).
//!
//! Every format but gzip is followed by the size of the unpacked kernel, 32 bits, little-endian; gzip has it in its own
//! last word. A kernel that unpacks to another size is refused.

use std::io::{self, Read};

use crate::boot::error::{BootError, refused};

/// Largest unpacked kernel.
pub const MAX_UNPACKED: usize = 512 << 20;

/// Most memory for the dictionary of XZ; Linux's build uses 32 or 128 MiB.
const XZ_MEMORY_KIB: u32 = 256 << 10;

/// A block of LZ4's legacy frame unpacks to so much at most.
const LZ4_BLOCK: usize = 8 << 20;
const GZIP: &[u8] = &[0x1f, 0x8b];
const XZ: &[u8] = &[0xfd, b'7', b'z', b'X', b'Z', 0];
const LZ4: &[u8] = &[0x02, 0x21, 0x4c, 0x18];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const ELF: &[u8] = b"\x7fELF";

/// Unpacks a payload.
pub(super) fn unpack(payload: &[u8]) -> Result<Vec<u8>, BootError> {
    let Some((stream, size)) = payload.split_last_chunk::<4>() else {
        return refused("its payload is damaged: it is empty");
    };
    let size = u32::from_le_bytes(*size) as usize;
    if payload.starts_with(ELF) {
        return Ok(payload.to_vec());
    }
    if ![GZIP, XZ, LZ4, ZSTD].iter().any(|magic| payload.starts_with(magic)) {
        return refused(format!(
            "its compression is not known (first bytes {:02x?}); gzip, XZ, LZ4 and zstd can be unpacked: give its vmlinux \
             (linux/scripts/extract-vmlinux)",
            &payload[..payload.len().min(6)]
        ));
    }
    if size > MAX_UNPACKED {
        return refused(format!("it unpacks to {size} bytes; at most {MAX_UNPACKED} are accepted"));
    }
    if payload.starts_with(GZIP) {
        read("gzip", flate2::read::GzDecoder::new(payload), size)
    } else if payload.starts_with(XZ) {
        read("XZ", lzma_rust2::XzReader::new_mem_limit(stream, false, XZ_MEMORY_KIB), size)
    } else if payload.starts_with(LZ4) {
        lz4(&stream[LZ4.len()..], size)
    } else {
        read("zstd", zstd::Decoder::with_buffer(stream).map_err(|error| damaged("zstd", error))?, size)
    }
}

fn damaged(format: &'static str, error: impl std::fmt::Display) -> BootError {
    BootError(format!("its {format} payload cannot be unpacked: {error}; copy it again"))
}

fn wrong_size(format: &'static str, size: usize) -> BootError {
    damaged(format, format_args!("it does not unpack to the {size} bytes that it promises"))
}

fn read(format: &'static str, decoder: impl Read, size: usize) -> Result<Vec<u8>, BootError> {
    let mut unpacked = Vec::with_capacity(size + 1);
    // One byte more than promised shows that there is more.
    match decoder.take(size as u64 + 1).read_to_end(&mut unpacked) {
        Ok(length) if length == size => Ok(unpacked),
        Ok(_) => Err(wrong_size(format, size)),
        Err(error) if error.kind() == io::ErrorKind::OutOfMemory => Err(damaged(format, "its dictionary is too large")),
        Err(error) => Err(damaged(format, error)),
    }
}

/// Unpacks LZ4's legacy frame behind its magic: blocks, each after its packed size.
fn lz4(mut stream: &[u8], size: usize) -> Result<Vec<u8>, BootError> {
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

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn text() -> Vec<u8> {
        [&b"\x7fELF"[..], &b"kernel ".repeat(20)].concat()
    }

    /// `xz --check=crc32 --x86 --lzma2=dict=64KiB`.
    const XZ_TEXT: &[u8] = b"\xfd7zXZ\x00\x00\x01i\"\xde6\x02\x01\x04\x00!\x01\x08\x00\xd2\xb9t\xcb\xe0\x00\x8f\x00\x12]\x00\
?\x91E\x84l0\xd2\xef&\xe2:\xd6C\xaa\xac\xac\x00\x00\x00\x00\x00\xc5\xe8\xce\xd4\x00\x01*\x90\x01\x00\x00\x00\xf8\xb2\xd8\x0c\
>0\r\x8b\x02\x00\x00\x00\x00\x01YZ";
    /// `zstd`.
    const ZSTD_TEXT: &[u8] = b"(\xb5/\xfd\x04X\x95\x00\x00X\x7fELFkernel \x01\x00\x02Q\xc5\x0b\x07Pdo";
    /// `lz4 -l`.
    const LZ4_TEXT: &[u8] = b"\x02!L\x18\x15\x00\x00\x00\xbf\x7fELFkernel\x20\x07\x00mPrnel\x20";

    pub(in crate::boot::linux) fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn sized(stream: &[u8], size: usize) -> Vec<u8> {
        [stream, &(size as u32).to_le_bytes()].concat()
    }

    fn payloads() -> [(&'static str, Vec<u8>); 4] {
        let size = text().len();
        [
            ("gzip", gzip(&text())),
            ("XZ", sized(XZ_TEXT, size)),
            ("LZ4", sized(LZ4_TEXT, size)),
            ("zstd", sized(ZSTD_TEXT, size)),
        ]
    }

    #[test]
    fn each_format_is_unpacked() {
        for (name, payload) in payloads() {
            assert_eq!(unpack(&payload), Ok(text()), "{name}");
        }
        assert_eq!(unpack(&text()), Ok(text()), "not compressed");
    }

    #[test]
    fn another_size_than_the_promised_one_is_refused() {
        for (name, payload) in payloads().into_iter().skip(1) {
            for size in [0, text().len() - 1, text().len() + 1] {
                let mut payload = payload.clone();
                let at = payload.len() - 4;
                payload[at..].copy_from_slice(&(size as u32).to_le_bytes());
                let refused = unpack(&payload).unwrap_err();
                assert!(refused.0.contains(name), "{refused}, {size}");
            }
            let bomb = sized(&payload[..payload.len() - 4], MAX_UNPACKED + 1);
            assert!(unpack(&bomb).unwrap_err().0.contains("at most"), "{name}");
        }
    }

    #[test]
    fn what_is_cut_short_is_refused() {
        for (name, payload) in payloads() {
            for length in 0..payload.len() - 5 {
                let cut = sized(&payload[..length], text().len());
                assert!(unpack(&cut).is_err(), "{name}, {length} bytes");
            }
        }
    }

    #[test]
    fn an_unknown_compression_is_shown() {
        assert!(unpack(b"BZh91AY&SY....").unwrap_err().0.contains("[42, 5a, 68, 39, 31, 41]"));
        assert!(unpack(&[]).is_err());
    }
}
