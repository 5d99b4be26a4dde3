//! Records that cannot be stored: each is rejected alone with its reason, and the rest of the table equals the source.

use super::fixture::TrustFixture;
use tidemill_core::sync::SyncState;
use tidemill_testkit::interface::Kind;
use tidemill_testkit::list_api::text_response;
use tidemill_testkit::rest_fixture::ITEMS;

const COLUMNS: &str = "    id: {nullable: false}\n    n: {type: integer}\n    day: {type: date}\n    note: {}\n    \
     equal: {cel: 'has(record.l) ? record.l.all(a, record.l.all(b, a == b)) : true', type: boolean}\n";

/// Answers with these records, which are JSON texts.
fn answer(fixture: &TrustFixture, records: Vec<String>) {
    fixture.api.answer_with(move |call| {
        let number =
            |name: &str, default| call.query.get(name).map_or(default, |text| text.parse().unwrap_or(0));
        let page = records.iter().skip(number("offset", 0)).take(number("limit", usize::MAX));
        let page: Vec<&str> = page.map(String::as_str).collect();
        Some(text_response(&format!(r#"{{"data":[{}],"total":{}}}"#, page.join(","), records.len())))
    });
}

/// Good records, of which one stands before and one after each bad one.
fn good() -> Vec<String> {
    (0..9).map(|n| format!(r#"{{"id":"g{n}","n":{n},"day":"2026-01-3{}","note":"x"}}"#, n % 2)).collect()
}

pub(crate) async fn each_bad_record_is_rejected_alone(kind: Kind) {
    let fixture = TrustFixture::open(kind, Vec::new()).await;
    let long = vec!["0"; 20_000].join(",");
    let bad = [
        ("integer", r#""n":12345678901234567890123"#.to_owned(), "12345678901234567890123"),
        ("date", r#""day":"2026-13-45""#.to_owned(), "`2026-13-45` is not a date"),
        ("nul", r#""note":"a\u0000b""#.to_owned(), "databases cannot store"),
        ("loops", format!(r#""l":[{long}]"#), "steps over this record"),
    ];
    let mut records = good();
    for (place, (id, fields, _)) in bad.iter().enumerate() {
        records.insert(2 * place + 1, format!(r#"{{"id":"{id}",{fields}}}"#));
    }
    fixture.apply_text(&fixture.definition("", "", COLUMNS)).await;
    answer(&fixture, records);
    let sync = fixture.sync(true).await;
    assert_eq!(sync.state, SyncState::Completed);
    let rejects =
        fixture.base.base.store.rejects(Some(ITEMS.to_owned()), 100).await.expect("rejects are read");
    for (id, _, words) in &bad {
        let found: Vec<_> = rejects.iter().filter(|reject| reject.record_id == *id).collect();
        assert!(found.len() == 1 && found[0].reason.contains(words), "{id}: {found:?}");
    }
    assert_eq!((rejects.len(), fixture.rows("true").await), (4, 9));
    assert_eq!(fixture.rows("id LIKE 'g%' AND note = 'x' AND day IS NOT NULL").await, 9);
    fixture.close().await;
}

/// A list that contains an id twice has one row of it, and all other records.
pub(crate) async fn duplicate_id_is_one_row(kind: Kind) {
    let fixture = TrustFixture::open(kind, Vec::new()).await;
    let mut records = good();
    records.insert(5, r#"{"id":"g3","n":77,"day":"2026-01-31","note":"x"}"#.to_owned());
    fixture.apply_text(&fixture.definition("", "", COLUMNS)).await;
    answer(&fixture, records);
    let sync = fixture.sync(true).await;
    assert_eq!((sync.state, sync.consolidation_errors), (SyncState::Completed, 0));
    assert_eq!((fixture.rows("true").await, fixture.rows("id = 'g3' AND n IN (3, 77)").await), (9, 1));
    fixture.close().await;
}
