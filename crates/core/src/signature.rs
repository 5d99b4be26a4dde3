//! Signatures of webhooks: HMAC-SHA-256 in hexadecimal digits, compared in constant time.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use std::fmt::Write as _;

fn digest(secret: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
    // HMAC uses a key of one block: a longer secret is hashed, a shorter one is padded with zeros.
    let mut key = [0; 64];
    if secret.len() > key.len() {
        key[..32].copy_from_slice(&crate::digest::sha256(secret));
    } else {
        key[..secret.len()].copy_from_slice(secret);
    }
    let mut mac = Hmac::<Sha256>::new(&key.into());
    for part in parts {
        mac.update(part);
    }
    mac
}

/// Returns the signature of the concatenated parts.
pub fn sign(secret: &[u8], parts: &[&[u8]]) -> String {
    let mut text = String::with_capacity(64);
    for byte in digest(secret, parts).finalize().into_bytes() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Returns whether `signature` is valid for the parts, in constant time.
pub fn verify(secret: &[u8], parts: &[&[u8]], signature: &str) -> bool {
    // A malformed signature is compared as well, so that it takes the same time.
    let given = bytes(signature).unwrap_or([0; 32]);
    digest(secret, parts).verify_slice(&given).is_ok()
}

/// Decodes 64 hexadecimal digits.
fn bytes(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    let mut bytes = [0; 32];
    if digits.len() != 64 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = u8::try_from(high * 16 + low).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example in GitHub's own documentation.
    const SECRET: &[u8] = b"It's a Secret to Everybody";
    const PAYLOAD: &[u8] = b"Hello, World!";
    const SIGNED: &str = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";

    #[test]
    fn signature_matches_the_github_example() {
        assert_eq!(sign(SECRET, &[PAYLOAD]), SIGNED);
        assert_eq!(sign(SECRET, &[b"Hello, ", b"World!"]), SIGNED);
        assert!(verify(SECRET, &[PAYLOAD], SIGNED));
        assert!(verify(SECRET, &[PAYLOAD], &SIGNED.to_uppercase()));
    }

    /// The sixth case of RFC 4231: a secret of more than one block.
    #[test]
    fn long_secret_is_hashed_first() {
        let signed = sign(&[0xaa; 131], &[b"Test Using Larger Than Block-Size Key - Hash Key First"]);
        assert_eq!(signed, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    }

    #[test]
    fn any_changed_bit_invalidates_the_signature() {
        for index in 0..PAYLOAD.len() {
            for bit in 0..8 {
                let mut other = PAYLOAD.to_vec();
                other[index] ^= 1 << bit;
                assert!(!verify(SECRET, &[&other], SIGNED));
            }
        }
        assert!(!verify(b"It's a Secret to Everybodz", &[PAYLOAD], SIGNED));
        for index in 0..64 {
            let mut other = SIGNED.as_bytes().to_vec();
            other[index] = if other[index] == b'0' { b'1' } else { b'0' };
            assert!(!verify(SECRET, &[PAYLOAD], std::str::from_utf8(&other).unwrap()));
        }
    }

    #[test]
    fn malformed_signature_is_rejected() {
        let long = format!("{SIGNED}00");
        for bad in ["", "75", &SIGNED[1..], &long, "é", &"g".repeat(64)] {
            assert!(!verify(SECRET, &[PAYLOAD], bad), "{bad}");
        }
    }
}
