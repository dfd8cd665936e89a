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
