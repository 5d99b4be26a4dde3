//! Digests of texts.

use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

/// The SHA-256 of `bytes`, as hexadecimal digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The SHA-256 of `bytes`, as bytes.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}
