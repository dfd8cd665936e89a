//! A module's bytes, whatever packs them.

use std::io::{self, Read};
use std::path::Path;

use super::error::ModuleError;
use crate::open;

/// Most bytes of a module. The largest of Debian's, a graphics driver's, has 30 MB with its symbols.
const MOST_BYTES: u64 = 256 << 20;

/// Ends of modules' names.
pub(super) const ENDINGS: [&str; 4] = [".ko", ".ko.gz", ".ko.xz", ".ko.zst"];

/// Reads a module and unpacks it.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, ModuleError> {
    let error = |error| ModuleError::File { path: path.to_owned(), error };
    let file = io::BufReader::new(open::file(path).map_err(error)?);
    let name = path.to_string_lossy();
    if name.ends_with(".gz") {
        all(flate2::bufread::MultiGzDecoder::new(file)).map_err(error)
    } else if name.ends_with(".xz") {
        all(lzma_rust2::XzReader::new(file, true)).map_err(error)
    } else if name.ends_with(".zst") {
        zstd::Decoder::with_buffer(file).and_then(all).map_err(error)
    } else {
        all(file).map_err(error)
    }
}

fn all(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(io::Error::other(format!("unpacked it has more than {MOST_BYTES} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "vpmu\n" as `gzip -n`, `xz --check=crc32` and `zstd` pack it.
    const GZ: &str = "1f8b08000000000002032b2bc82de50200307e1d2905000000";
    const XZ: &str = "fd377a585a0000016922de360200210116000000742fe5a3\
        01000476706d750a00000000307e1d2900011905bce8eccb9042990d010000000001595a";
    const ZSTD: &str = "28b52ffd045829000076706d750a741a308c";

    fn unhex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }

    #[test]
    fn packed_and_plain_modules_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let packed = [("a.ko.gz", unhex(GZ)), ("a.ko.xz", unhex(XZ)), ("a.ko.zst", unhex(ZSTD))];
        for (name, bytes) in packed.into_iter().chain([("a.ko", b"vpmu\n".to_vec())]) {
            let path = folder.path().join(name);
            assert!(ENDINGS.iter().any(|ending| name == format!("a{ending}")), "{name}");
            std::fs::write(&path, &bytes).unwrap();
            assert_eq!(read(&path).unwrap(), b"vpmu\n", "{name}");
        }
    }

    #[test]
    fn damage_is_an_error_with_the_path() {
        let folder = tempfile::tempdir().unwrap();
        for (name, mut bytes) in [("b.ko.gz", unhex(GZ)), ("b.ko.xz", unhex(XZ)), ("b.ko.zst", unhex(ZSTD))] {
            let path = folder.path().join(name);
            bytes[0] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            assert!(read(&path).unwrap_err().to_string().contains(name));
            bytes[0] ^= 1;
            std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
            assert!(read(&path).is_err(), "half of {name}");
        }
        assert!(read(&folder.path().join("none.ko")).is_err());
    }
}
