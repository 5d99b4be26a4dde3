//! Lookups that answer wrongly: no record is deleted because of an error of the source.

use super::fixture::{TOTAL, TrustFixture, records};
use serde_json::json;
use tidemill_testkit::interface::Kind;
use tidemill_testkit::list_api::{ListAnswer, text_response};

/// Opens a fixture with 60 synced records, of which the source then removes two.
async fn removed(kind: Kind, lookup: &str) -> TrustFixture {
    let fixture = TrustFixture::open(kind, records(60)).await;
    fixture.apply(&format!("{TOTAL}\ndeletes: {{lookup: {lookup}}}")).await;
    fixture.sync(true).await;
    fixture.api.change(|all| drop(all.drain(20..22)));
    fixture
}

fn not_found() -> ListAnswer {
    let mut response = text_response("default backend");
    *response.status_mut() = 404.try_into().expect("a status");
    response
}

async fn open_alerts(fixture: &TrustFixture) -> i64 {
    let text = "SELECT count(*) FROM {ops}.alerts WHERE kind = 'delete_limit' AND resolved_at IS NULL";
    fixture.base.base.plain.number(text).await.expect("alerts are counted")
}

/// A gateway answers 404 to every path of a record, as during a deployment.
pub(crate) async fn status_404_for_every_record_deletes_nothing(kind: Kind) {
    let fixture = removed(kind, "{path: '/items/{id}'}").await;
    fixture.api.answer_with(|call| (call.path != "/items").then(not_found));
    let sync = fixture.sync(true).await;
    let note = sync.delete_note.expect("a note");
    assert!(note.contains("2 of 2 records as gone, and also `r0000`"), "{note}");
    assert_eq!((sync.deleted, fixture.rows("true").await), (0, 60));
    assert_eq!(open_alerts(&fixture).await, 1);
    // The source is honest again.
    let gone = ["/items/r0020", "/items/r0021"];
    fixture.api.answer_with(move |call| gone.contains(&call.path.as_str()).then(not_found));
    assert_eq!(fixture.sync(true).await.deleted, 2);
    assert_eq!((fixture.rows("true").await, open_alerts(&fixture).await), (58, 0));
    fixture.close().await;
}

/// The list of ids is always empty, as if the parameter had another meaning now.
pub(crate) async fn lookup_that_finds_nothing_deletes_nothing(kind: Kind) {
    let fixture = removed(kind, "{param: id_is, ids_max: 1}").await;
    let empty = || text_response(&json!({ "data": [], "total": 0 }).to_string());
    fixture.api.answer_with(move |call| call.query.contains_key("id_is").then(empty));
    let sync = fixture.sync(true).await;
    assert_eq!((sync.deleted, sync.delete_note.is_some(), fixture.rows("true").await), (0, true, 60));
    fixture.api.answer_normally();
    assert_eq!(fixture.sync(true).await.deleted, 2);
    fixture.close().await;
}

/// The source answers an error with status 200, or ignores the parameter.
pub(crate) async fn malformed_lookup_deletes_nothing(kind: Kind) {
    let error = json!({ "error": "try later" }).to_string();
    let list = json!({ "data": records(20), "total": 60 }).to_string();
    for (answer, words) in [(error, "answered no list of records"), (list, "for which it was not asked")] {
        let fixture = removed(kind, "{param: id_is, ids_max: 1}").await;
        fixture.api.answer_with(move |call| call.query.contains_key("id_is").then(|| text_response(&answer)));
        fixture.fail(&[words]).await;
        assert_eq!(fixture.rows("true").await, 60, "{words}");
        fixture.close().await;
    }
}
