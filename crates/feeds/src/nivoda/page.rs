//! Reads the records of a page. The payload is stored verbatim; only the ids are parsed here.

use super::text::Text;
use crate::http::client::{ErrorKind, RequestError};
use crate::http::envelope;
use serde::Deserialize;
use serde_json::value::RawValue;
use tidemill_core::feed::{FeedPage, Item, RejectedItem};
use tidemill_core::limits::KEY_BYTES_MAX;

#[derive(Deserialize)]
struct Data<'a> {
    #[serde(borrow, rename = "as")]
    account: Option<Account<'a>>,
}

#[derive(Deserialize)]
struct Account<'a> {
    #[serde(borrow)]
    diamonds_by_query: Option<List<'a>>,
}

#[derive(Deserialize)]
struct List<'a> {
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

/// The ids of a record.
#[derive(Deserialize)]
struct Offer<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow)]
    diamond: Option<Stone<'a>>,
}

#[derive(Deserialize)]
struct Stone<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
}

/// Reads a page from a response body. Records beyond `limit` are dropped; the next page contains them.
pub(super) fn read(body: &[u8], limit: usize, item_bytes_max: usize) -> Result<FeedPage, RequestError> {
    let data: Data<'_> = envelope::read_data(body)?;
    let items = data.account.and_then(|account| account.diamonds_by_query).and_then(|list| list.items);
    let Some(mut items) = items else {
        return Err(RequestError::new(ErrorKind::Malformed, "answered a page without a list of items"));
    };
    items.truncate(limit);
    let mut page = FeedPage { items: Vec::with_capacity(items.len()), ..FeedPage::default() };
    for (position, item) in items.iter().enumerate() {
        match record(item.get(), position, item_bytes_max) {
            Ok(item) => page.items.push(item),
            Err(bad) => page.rejected.push(bad),
        }
    }
    Ok(page)
}

/// Reads one record, or reports why it is bad.
fn record(payload: &str, position: usize, bytes_max: usize) -> Result<Item, RejectedItem> {
    let bad = |stone_id: Option<&str>, reason| {
        RejectedItem::new(stone_id.map(str::to_owned), position, reason, payload)
    };
    let offer: Offer<'_> = serde_json::from_str(payload)
        .map_err(|error| bad(None, format!("the record is not an offer ({error})")))?;
    // The id is not trimmed: ids that differ only in a space are different stones, and the source matches them exactly.
    let stone_id = offer.diamond.as_ref().and_then(|stone| stone.id.verbatim());
    let Some(stone_id) = stone_id else { return Err(bad(None, "`diamond.id` is missing".to_owned())) };
    if stone_id.len() > KEY_BYTES_MAX {
        return Err(bad(None, format!("`diamond.id` is longer than {KEY_BYTES_MAX} bytes")));
    }
    if payload.len() > bytes_max {
        let reason = format!("the record has {} bytes, more than the limit of {bytes_max}", payload.len());
        return Err(bad(Some(stone_id), reason));
    }
    if let Some(what) = unstorable(payload) {
        // An id that contains NUL cannot be stored either.
        let stone_id = (!stone_id.contains('\0')).then_some(stone_id);
        return Err(bad(stone_id, format!("the record contains {what}, which databases cannot store")));
    }
    Ok(Item::new(stone_id, offer.id.owned(), payload.to_owned()))
}

/// Finds a character in a JSON text that databases cannot store: NUL, or an unpaired surrogate.
///
/// JSON forbids both as plain characters, so only escapes are checked. `\\u0000` is an escaped backslash and five plain
/// characters.
fn unstorable(json: &str) -> Option<&'static str> {
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        let escape = &rest.as_bytes()[at..];
        let skipped = match code_unit(escape) {
            None => 2,
            Some(0) => return Some("a NUL character"),
            Some(0xd800..=0xdbff) => match escape.get(6..).and_then(code_unit) {
                Some(0xdc00..=0xdfff) => 12,
                _ => return Some("an unpaired surrogate"),
            },
            Some(0xdc00..=0xdfff) => return Some("an unpaired surrogate"),
            Some(_) => 6,
        };
        rest = rest.get(at + skipped..)?;
    }
    None
}

/// Parses an escape such as `\u00e9` at the start of `bytes` to its UTF-16 code unit.
fn code_unit(bytes: &[u8]) -> Option<u16> {
    let digits = bytes.strip_prefix(br"\u")?.get(..4)?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KB: usize = 1024;

    fn body(items: &str) -> Vec<u8> {
        format!(r#"{{"data":{{"as":{{"diamonds_by_query":{{"total_count":13,"items":{items}}}}}}}}}"#)
            .into_bytes()
    }

    fn page(items: &str) -> FeedPage {
        read(&body(items), 50, KB).unwrap()
    }

    #[test]
    fn payload_is_stored_verbatim() {
        let page = page(
            r#"[{"id":"O-1", "price":  1.0,"diamond":{"x":[1],"id":"S-1"}},{"id":7,"diamond":{"id":8}}]"#,
        );
        assert_eq!(page.items[0].payload, r#"{"id":"O-1", "price":  1.0,"diamond":{"x":[1],"id":"S-1"}}"#);
        let names: Vec<_> =
            page.items.iter().map(|item| (item.record_id.as_str(), item.offer_id.as_deref())).collect();
        assert_eq!(names, [("S-1", Some("O-1")), ("8", Some("7"))]);
        assert_eq!(
            page.items[0].payload_hash,
            tidemill_core::digest::sha256(page.items[0].payload.as_bytes())
        );
        assert_eq!((page.rejected.len(), page.is_last), (0, false));
    }

    #[test]
    fn record_without_an_id_is_bad_and_the_rest_is_read() {
        let page =
            page(r#"[{"id":"O-1","diamond":{"id":"S-1"}},{"id":"O-2"},{"diamond":{"id":" "}},null,"x"]"#);
        assert_eq!((page.items.len(), page.rejected.len()), (1, 4));
        assert_eq!(page.rejected[0].reason, "`diamond.id` is missing");
        assert_eq!((page.rejected[2].payload.as_str(), page.rejected[3].payload.as_str()), ("null", "\"x\""));
        assert_eq!(page.rejected.iter().map(|bad| bad.place).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }

    #[test]
    fn page_without_a_list_is_malformed_but_an_empty_list_is_not() {
        assert_eq!(read(&body("[]"), 50, KB).unwrap(), FeedPage::default());
        for odd in ["null", "7"] {
            assert_eq!(read(&body(odd), 50, KB).unwrap_err().kind, ErrorKind::Malformed, "{odd}");
        }
    }

    #[test]
    fn stone_id_is_not_trimmed() {
        let page =
            page(r#"[{"diamond":{"id":"S 1"}},{"diamond":{"id":" S 1 "}},{"diamond":{"id":"S\t/é"}}]"#);
        let names: Vec<_> = page.items.iter().map(|item| item.record_id.as_str()).collect();
        assert_eq!(names, ["S 1", " S 1 ", "S\t/é"]);
    }

    #[test]
    fn oversized_record_is_bad_and_its_payload_is_truncated() {
        let large = format!(r#"[{{"diamond":{{"id":"S-1"}},"x":"{}"}}]"#, "é".repeat(8 * KB));
        let page = page(&large);
        assert_eq!(page.rejected[0].record_id.as_deref(), Some("S-1"));
        assert!(
            page.rejected[0].reason.contains("more than the limit of 1024"),
            "{}",
            page.rejected[0].reason
        );
        assert!(page.rejected[0].payload.len() <= tidemill_core::limits::MESSAGE_BYTES_MAX);
    }

    #[test]
    fn unstorable_characters_are_found_only_in_real_escapes() {
        for (text, expected) in [
            (r"a\u0000b", Some("a NUL character")),
            (r"\\\u0000", Some("a NUL character")),
            (r"\\u0000", None),
            (r"\\\\u0000", None),
            (r"\u00001", Some("a NUL character")),
            (r"\u0001", None),
            (r"\n\u0000", Some("a NUL character")),
            (r"\ud83d\ude00", None),
            (r"\ud83d", Some("an unpaired surrogate")),
            (r"\ud83d\u0041", Some("an unpaired surrogate")),
            (r"\uDE00", Some("an unpaired surrogate")),
            ("plain", None),
        ] {
            assert_eq!(unstorable(&format!("\"{text}\"")), expected, "{text}");
        }
    }

    #[test]
    fn record_with_nul_is_bad_and_keeps_its_id() {
        let page = page(r#"[{"diamond":{"id":"S-1","x":"\u0000"}},{"diamond":{"id":"S-2","x":"\\u0000"}}]"#);
        assert_eq!(page.rejected[0].record_id.as_deref(), Some("S-1"));
        assert_eq!(
            page.rejected[0].reason,
            "the record contains a NUL character, which databases cannot store"
        );
        assert_eq!(page.items[0].record_id, "S-2");
    }
}
