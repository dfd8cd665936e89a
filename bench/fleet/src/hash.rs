//! SHA-256, in hexadecimal as `sha256sum` prints it.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// Hashes these bytes.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

#[cfg(test)]
mod tests {
    /// FIPS 180-4's example.
    #[test]
    fn hashes_are_those_of_the_standard() {
        assert_eq!(super::sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
