//! SHA-256 digests in hexadecimal form.

use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

/// Returns the SHA-256 of `bytes` in hexadecimal digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Returns the SHA-256 of `bytes`.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}
