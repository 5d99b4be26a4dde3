//! Tests of the JSON parser and writer.

use super::*;

fn parse(text: &str) -> Result<JsonValue, ParseError> {
    JsonValue::parse(text.as_bytes(), 64)
}

#[test]
fn parsed_document_is_written_without_spaces() {
    for (text, written) in [
        ("null", "null"),
        (" [ ] ", "[]"),
        ("{ }", "{}"),
        (
            r#"{"b" : [1, -2.50 , 1E+3],"a":{"x":true,"y":false}}"#,
            r#"{"b":[1,-2.50,1E+3],"a":{"x":true,"y":false}}"#,
        ),
        (r#""a\/b\u00e9\n\ud83d\ude00\u0001""#, "\"a/bé\\n😀\\u0001\""),
        ("\u{feff}[0]", "[0]"),
    ] {
        assert_eq!(parse(text).unwrap().to_json(), written, "{text}");
    }
}

#[test]
fn number_beyond_64_bits_keeps_its_digits() {
    let digits = "123456789012345678901234567890.000000000000000000001";
    assert_eq!(parse(digits), Ok(JsonValue::Number(digits.to_owned())));
    assert_eq!(parse("1e400").unwrap().to_json(), "1e400");
}

#[test]
fn invalid_text_reports_its_position() {
    for (text, at) in [
        ("{]", 1),
        ("[1,]", 3),
        ("{\"a\" 1}", 5),
        ("01", 2),
        ("1.x", 2),
        ("nul!", 0),
        ("\"\\x\"", 2),
        ("\"\\u12g4\"", 3),
        ("[1] 2", 4),
        ("\"a\nb\"", 2),
        ("<html>", 0),
    ] {
        match parse(text) {
            Err(ParseError::Invalid { at: found, .. }) => assert_eq!(found, at, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
    assert!(JsonValue::parse(b"\xff", 64).is_err());
}

#[test]
fn truncated_text_is_distinguished_from_invalid_text() {
    for text in ["", "[", "[1", "[1,", "{\"a\"", "{\"a\":", "\"a", "\"\\", "\"\\u00", "-", "1.", "1e", "tru"]
    {
        assert_eq!(parse(text), Err(ParseError::Truncated), "{text}");
    }
}

#[test]
fn nesting_beyond_the_limit_is_an_error() {
    let deep = "[".repeat(10_000);
    assert_eq!(parse(&deep), Err(ParseError::TooDeep { max: 64 }));
    let allowed = format!("{}{}", "[".repeat(64), "]".repeat(64));
    assert!(parse(&allowed).is_ok());
}

#[test]
fn unstorable_texts_are_marked() {
    for (text, reason) in [
        (r#"{"a":["x\u0000y"]}"#, Some(Unstorable::Nul)),
        (r#"{"a\u0000":1}"#, Some(Unstorable::Nul)),
        (r#"["\ud83d"]"#, Some(Unstorable::Surrogate)),
        (r#"["\ud83dx"]"#, Some(Unstorable::Surrogate)),
        (r#"["\ude00"]"#, Some(Unstorable::Surrogate)),
        (r#"["\\u0000"]"#, None),
        (r#"["\u0001"]"#, None),
    ] {
        assert_eq!(parse(text).unwrap().unstorable(), reason, "{text}");
    }
}

#[test]
fn repeated_key_keeps_its_last_value() {
    assert_eq!(parse(r#"{"a":1,"b":2,"a":3}"#).unwrap().to_json(), r#"{"a":3,"b":2}"#);
    let many: Vec<String> = (0..40).map(|number| format!("\"k{}\":{number}", number % 20)).collect();
    let value = parse(&format!("{{{}}}", many.join(","))).unwrap();
    assert_eq!((value.entries().len(), value.get("k3").unwrap().count()), (20, Some(23)));
}

#[test]
fn counts_and_booleans_are_read_from_numbers_and_texts() {
    assert_eq!(
        parse("[7,\"7\",-7,7.5,null]")
            .unwrap()
            .items()
            .unwrap()
            .iter()
            .filter_map(JsonValue::count)
            .sum::<u64>(),
        14
    );
    let flags: Vec<_> = parse("[true,\"false\",1,0,\"yes\",null]")
        .unwrap()
        .items()
        .unwrap()
        .iter()
        .map(JsonValue::truth)
        .collect();
    assert_eq!(flags, [Some(true), Some(false), Some(true), Some(false), None, None]);
}
