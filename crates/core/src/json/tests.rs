//! Tests of the limits and of the placeholder.

use super::*;
use proptest::prelude::*;

fn problem(text: &str) -> Option<String> {
    check_text(text).err().map(|problem| problem.with_advice())
}

#[test]
fn ordinary_documents_pass_the_check() {
    for text in [
        "{}",
        "null",
        r#"{"a": [1, -2.5, 1e30, 0.1, 9223372036854775807, 18446744073709551615, -9223372036854775808]}"#,
        // Numbers with few significant digits are exact at any magnitude.
        "1000000000000000000000000000000",
        "123456789012345000000000",
        "5e-324",
        "0e99999999999999999999",
        "-0",
        // The contents of strings do not count.
        r#"{"1e400": "1e400 [[[[ \" 123456789012345678901 \\"}"#,
    ] {
        assert_eq!(check_text(text), Ok(()), "{text}");
    }
}

#[test]
fn numbers_outside_the_f64_range_are_rejected() {
    for text in ["1e400", "[-1e400]", "1e-400", "1e99999999999999999999", &format!("1{}", "0".repeat(400))] {
        assert!(matches!(check_text(text), Err(JsonError::OutOfRange(_))), "{text}");
    }
    assert_eq!(
        problem(r#"{"a":1e400}"#).as_deref(),
        Some("holds the number 1e400, which is outside the range of 64-bit numbers; send it as a string")
    );
}

#[test]
fn integers_beyond_64_bits_are_rejected_unless_exact() {
    for text in
        ["123456789012345678901", "18446744073709551617", "-9223372036854775809", "1.2345678901234567e30"]
    {
        assert!(matches!(check_text(text), Err(JsonError::TooPrecise(_))), "{text}");
    }
    assert_eq!(
        problem(r#"{"id": 123456789012345678901}"#).as_deref(),
        Some("holds the number 123456789012345678901, which has more than 64 bits; send it as a string")
    );
}

#[test]
fn nesting_is_bounded() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert_eq!(check_text(nested(JSON_DEPTH_MAX)), Ok(()));
    assert_eq!(check_text(nested(JSON_DEPTH_MAX + 1)), Err(JsonError::TooDeep { max: JSON_DEPTH_MAX }));
    assert!(check_text("[".repeat(50_000_000)).is_err(), "no recursion");
    assert_eq!(check_text("[],".repeat(1_000)), Ok(()), "siblings do not count");
}

#[test]
fn unreadable_stored_documents_become_the_placeholder() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for text in [r#"{"a": 1e400}"#, "{broken", "", "123456789012345678901", deep.as_str()] {
        let read = read_stored(text.as_bytes());
        assert!(is_unreadable(&read), "{read}");
    }
    let read = read_stored(br#"{"a": 1e400}"#);
    let reason = "holds the number 1e400, which is outside the range of 64-bit numbers";
    assert_eq!(unreadable_reason(&read), Some(reason));
    assert!(is_unreadable(&read_stored(b"\"\xff\"")));
    assert!(!is_unreadable(&read_stored(br#"{"a": "1e400"}"#)));
}

#[test]
fn floats_that_tidemill_wrote_are_read_back() {
    // PostgreSQL writes a large number in jsonb as an integer with all its digits.
    let stored = "1234567890123456700000000000000";
    assert_eq!(read_stored(stored.as_bytes()), serde_json::json!(1.234_567_890_123_456_7e30));
}

proptest! {
    #[test]
    fn any_bytes_are_checked_and_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = check_text(&bytes);
        let _ = read_stored(&bytes);
    }

    #[test]
    fn jsonlike_text_is_checked_without_panic(text in "[-+0-9.eE\\[\\]{}\", :]{0,60}") {
        let _ = check_text(&text);
        let _ = read_stored(text.as_bytes());
    }

    /// An integer that passes the check is parsed without being rounded.
    #[test]
    fn accepted_integers_keep_their_value(text in "-?[1-9][0-9]{0,39}") {
        if check_text(&text).is_ok() {
            let parsed: Json = serde_json::from_str(&text).unwrap();
            let exact = parsed.as_i64().map(|n| n.to_string()).or_else(|| parsed.as_u64().map(|n| n.to_string()));
            // Beyond 64 bits, only numbers with few digits are accepted, and they print unchanged.
            let printed = exact.unwrap_or_else(|| format!("{}", parsed.as_f64().unwrap()));
            prop_assert_eq!(printed, text);
        }
    }

    #[test]
    fn every_float_that_tidemill_wrote_is_readable(number in any::<f64>()) {
        prop_assume!(number.is_finite());
        // Written by serde_json, and as PostgreSQL writes it in jsonb.
        for text in [serde_json::json!(number).to_string(), format!("{number}")] {
            prop_assert!(!is_unreadable(&read_stored(text.as_bytes())), "{}", text);
        }
    }
}
