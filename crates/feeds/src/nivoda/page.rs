//! From an answer to records. A record is kept as the text that came; only its names are read here.

use super::client::{Fault, Nature};
use super::envelope;
use super::text::Text;
use serde::Deserialize;
use serde_json::value::RawValue;
use tidemill_core::feed::{BadItem, FeedPage, Item};
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

/// A record, as far as its names are concerned.
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

/// The page in an answer. Records beyond `limit` were not asked for, and the next page brings them.
pub(super) fn read(body: &[u8], limit: usize, item_bytes_max: usize) -> Result<FeedPage, Fault> {
    let data: Data<'_> = envelope::open(body)?;
    let items = data.account.and_then(|account| account.diamonds_by_query).and_then(|list| list.items);
    let Some(mut items) = items else {
        return Err(Fault::new(Nature::Garbled, "answered a page without a list of items"));
    };
    items.truncate(limit);
    let mut page = FeedPage { items: Vec::with_capacity(items.len()), bad: Vec::new(), is_last: false };
    for (place, item) in items.iter().enumerate() {
        match record(item.get(), place, item_bytes_max) {
            Ok(item) => page.items.push(item),
            Err(bad) => page.bad.push(bad),
        }
    }
    Ok(page)
}

/// One record, or why it is none.
fn record(payload: &str, place: usize, bytes_max: usize) -> Result<Item, BadItem> {
    let bad =
        |stone_id: Option<&str>, reason| BadItem::new(stone_id.map(str::to_owned), place, reason, payload);
    let offer: Offer<'_> = serde_json::from_str(payload)
        .map_err(|error| bad(None, format!("the record does not have the form of an offer ({error})")))?;
    // The id as it came: two that differ in a space are two stones, and the source finds them by nothing else.
    let stone_id = offer.diamond.as_ref().and_then(|stone| stone.id.verbatim());
    let Some(stone_id) = stone_id else { return Err(bad(None, "`diamond.id` is missing".to_owned())) };
    if stone_id.len() > KEY_BYTES_MAX {
        return Err(bad(None, format!("`diamond.id` has more than {KEY_BYTES_MAX} bytes")));
    }
    if payload.len() > bytes_max {
        let reason = format!("the record has {} bytes, which is more than {bytes_max}", payload.len());
        return Err(bad(Some(stone_id), reason));
    }
    if let Some(what) = unstorable(payload) {
        // An id with such a character cannot be kept either.
        let stone_id = (!stone_id.contains('\0')).then_some(stone_id);
        return Err(bad(stone_id, format!("the record has {what}, which a database cannot hold")));
    }
    Ok(Item::new(stone_id, offer.id.owned(), payload.to_owned()))
}

/// What is in a JSON text that no database holds: the character NUL, or half of a surrogate pair.
///
/// JSON forbids the plain character, so only escapes have to be looked at; `\\u0000` is a backslash and five
/// letters.
fn unstorable(json: &str) -> Option<&'static str> {
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        let escape = &rest.as_bytes()[at..];
        let skipped = match code_unit(escape) {
            None => 2,
            Some(0) => return Some("a NUL character"),
            Some(0xd800..=0xdbff) => match escape.get(6..).and_then(code_unit) {
                Some(0xdc00..=0xdfff) => 12,
                _ => return Some("half of a character"),
            },
            Some(0xdc00..=0xdfff) => return Some("half of a character"),
            Some(_) => 6,
        };
        rest = rest.get(at + skipped..)?;
    }
    None
}

/// The code unit of an escape such as `\u00e9` at the start of `bytes`.
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
    fn a_record_is_kept_as_the_text_that_came() {
        let page = page(
            r#"[{"id":"O-1", "price":  1.0,"diamond":{"x":[1],"id":"S-1"}},{"id":7,"diamond":{"id":8}}]"#,
        );
        assert_eq!(page.items[0].payload, r#"{"id":"O-1", "price":  1.0,"diamond":{"x":[1],"id":"S-1"}}"#);
        let names: Vec<_> =
            page.items.iter().map(|item| (item.stone_id.as_str(), item.offer_id.as_deref())).collect();
        assert_eq!(names, [("S-1", Some("O-1")), ("8", Some("7"))]);
        assert_eq!(
            page.items[0].payload_hash,
            tidemill_core::digest::sha256(page.items[0].payload.as_bytes())
        );
        assert_eq!((page.bad.len(), page.is_last), (0, false));
    }

    #[test]
    fn a_record_without_a_name_is_bad_and_the_page_goes_on() {
        let page =
            page(r#"[{"id":"O-1","diamond":{"id":"S-1"}},{"id":"O-2"},{"diamond":{"id":" "}},null,"x"]"#);
        assert_eq!((page.items.len(), page.bad.len()), (1, 4));
        assert_eq!(page.bad[0].reason, "`diamond.id` is missing");
        assert_eq!((page.bad[2].payload.as_str(), page.bad[3].payload.as_str()), ("null", "\"x\""));
        assert_eq!(page.bad.iter().map(|bad| bad.place).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }

    #[test]
    fn a_page_without_a_list_is_garbled_and_an_empty_one_is_not() {
        assert_eq!(read(&body("[]"), 50, KB).unwrap(), FeedPage::default());
        for odd in ["null", "7"] {
            assert_eq!(read(&body(odd), 50, KB).unwrap_err().nature, Nature::Garbled, "{odd}");
        }
    }

    #[test]
    fn an_id_is_kept_as_it_came() {
        let page =
            page(r#"[{"diamond":{"id":"S 1"}},{"diamond":{"id":" S 1 "}},{"diamond":{"id":"S\t/é"}}]"#);
        let names: Vec<_> = page.items.iter().map(|item| item.stone_id.as_str()).collect();
        assert_eq!(names, ["S 1", " S 1 ", "S\t/é"]);
    }

    #[test]
    fn a_record_that_is_too_large_is_bad_and_cut() {
        let large = format!(r#"[{{"diamond":{{"id":"S-1"}},"x":"{}"}}]"#, "é".repeat(8 * KB));
        let page = page(&large);
        assert_eq!(page.bad[0].stone_id.as_deref(), Some("S-1"));
        assert!(page.bad[0].reason.contains("more than 1024"), "{}", page.bad[0].reason);
        assert!(page.bad[0].payload.len() <= tidemill_core::limits::MESSAGE_BYTES_MAX);
    }

    #[test]
    fn a_nul_is_found_where_it_is_one() {
        for (text, expected) in [
            (r"a\u0000b", Some("a NUL character")),
            (r"\\\u0000", Some("a NUL character")),
            (r"\\u0000", None),
            (r"\\\\u0000", None),
            (r"\u00001", Some("a NUL character")),
            (r"\u0001", None),
            (r"\n\u0000", Some("a NUL character")),
            (r"\ud83d\ude00", None),
            (r"\ud83d", Some("half of a character")),
            (r"\ud83d\u0041", Some("half of a character")),
            (r"\uDE00", Some("half of a character")),
            ("plain", None),
        ] {
            assert_eq!(unstorable(&format!("\"{text}\"")), expected, "{text}");
        }
    }

    #[test]
    fn a_record_with_a_nul_is_bad_with_its_name() {
        let page = page(r#"[{"diamond":{"id":"S-1","x":"\u0000"}},{"diamond":{"id":"S-2","x":"\\u0000"}}]"#);
        assert_eq!(page.bad[0].stone_id.as_deref(), Some("S-1"));
        assert_eq!(page.bad[0].reason, "the record has a NUL character, which a database cannot hold");
        assert_eq!(page.items[0].stone_id, "S-2");
    }
}
