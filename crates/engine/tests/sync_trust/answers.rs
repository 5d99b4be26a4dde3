//! Answers that no source should give, within a sync: a clear error, and the table stays as it was.

use super::fixture::{COLUMNS, TOTAL, TrustFixture, records};
use serde_json::json;
use std::time::Duration;
use tidemill_core::run::RunState;
use tidemill_testkit::interface::Kind;
use tidemill_testkit::list_api::{endless_response, text_response};

/// Damages the second page of a sync; then the source is honest again.
async fn check(
    kind: Kind,
    answer: impl Fn() -> tidemill_testkit::list_api::ListAnswer + Send + 'static,
    word: &str,
) {
    let fixture = TrustFixture::open(kind, records(60)).await;
    fixture.apply(TOTAL).await;
    fixture.sync(true).await;
    fixture.api.change(|all| {
        for record in all.iter_mut() {
            record["n"] = json!(5);
        }
        drop(all.drain(50..));
    });
    fixture.api.answer_with(move |call| {
        let offset = call.query.get("offset").and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
        (offset > 0).then(&answer)
    });
    for _ in 0..2 {
        fixture.fail(&[word]).await;
        assert_eq!(fixture.rows("true").await, 60, "{word}");
    }
    fixture.api.answer_normally();
    fixture.sync(true).await;
    assert_eq!(fixture.rows("n = 5").await, 50, "{word}");
    fixture.close().await;
}

pub(crate) async fn html_fails_the_sync_and_loses_nothing(kind: Kind) {
    check(kind, || text_response("<html>maintenance</html>"), "HTML instead of JSON").await;
}

pub(crate) async fn invalid_json_fails_the_sync_and_loses_nothing(kind: Kind) {
    check(kind, || text_response("{\"data\": [{]}"), "answered text that").await;
}

pub(crate) async fn deep_json_fails_the_sync_and_loses_nothing(kind: Kind) {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    check(kind, move || text_response(&deep), "answered JSON that").await;
}

pub(crate) async fn endless_answer_fails_the_sync_and_loses_nothing(kind: Kind) {
    check(kind, endless_response, "answered more than").await;
}

/// Answers come later than the time limit of the definition; then the source is quick again.
pub(crate) async fn slow_answers_delay_the_sync_alone(kind: Kind) {
    let fixture = TrustFixture::open(kind, records(60)).await;
    let text = fixture.definition(TOTAL, "", COLUMNS).replace("rate: 0}", "rate: 0, timeout: 1s}");
    fixture.apply_text(&text).await;
    fixture.api.hold();
    let run = fixture.queue(true).await;
    let mut calls = 0;
    let repeated = async {
        while calls < 3 {
            calls += fixture.api.take_calls().len();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), repeated).await.expect("the first request is repeated");
    fixture.api.release();
    let ended = fixture.base.settle(&run).await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
    assert_eq!(fixture.rows("true").await, 60);
    fixture.close().await;
}
