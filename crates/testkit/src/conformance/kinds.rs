//! The kind of a run: stored, returned by claims, kept by successors, and a filter of lists.
#![expect(clippy::expect_used, reason = "a failed step must end the test")]

use serde_json::json;
use tidemill_core::RunId;
use tidemill_core::limits::KIND_BYTES_MAX;
use tidemill_core::run::{FinalStatus, QueueRun, RunFilter, RunState};
use tidemill_store::{ClaimRuns, RefusalCode};

use crate::interface::{Fixture, at, new_run_id, refused, request};

fn of_kind(kind: &str) -> QueueRun {
    QueueRun { kind: kind.to_owned(), ..request() }
}

/// Lists the runs with this kind and state, newest first.
async fn listed(fixture: &Fixture, kind: &str, status: Option<RunState>) -> Vec<RunId> {
    let filter = RunFilter { kind: Some(kind.to_owned()), status, limit: 10, ..RunFilter::default() };
    let runs = fixture.store.runs(filter).await.expect("runs are listed");
    runs.into_iter().map(|run| run.run_id).collect()
}

async fn marks(fixture: &Fixture) -> i64 {
    let count = "SELECT count(*) FROM {ops}.run_lookup WHERE kind = 'kind'";
    fixture.plain.number(count).await.expect("the rows are counted")
}

pub async fn kind_is_claimed_listed_and_kept_by_successors(fixture: Fixture) {
    let plain = fixture.queue(request(), at(0)).await;
    assert_eq!((fixture.run(&plain).await.kind.as_str(), marks(&fixture).await), ("", 0));
    fixture.cancel(&plain, at(0)).await;

    let wanted = QueueRun { max_attempts: 2, backoff_secs: 0, ..of_kind("e-mail: wöchentlich") };
    let first = fixture.queue(wanted, at(1)).await;
    assert_eq!(fixture.run(&first).await.kind, "e-mail: wöchentlich");
    let ask = ClaimRuns { request_id: Some("once".to_owned()), ..ClaimRuns::one("worker-001") };
    for _ in 0..2 {
        // The second call is a repeated request, which another statement answers.
        let claims = fixture.claim_as(ask.clone(), at(2)).await;
        let found: Vec<_> = claims.iter().map(|claim| (&claim.run_id, claim.kind.as_str())).collect();
        assert_eq!(found, [(&first, "e-mail: wöchentlich")]);
    }
    fixture.finish(&first, FinalStatus::Failed, json!({}), at(3)).await;
    let second = fixture.successor(&first).await.expect("there is a successor").run_id;
    assert_eq!(fixture.run(&second).await.kind, "e-mail: wöchentlich");
    fixture.cancel(&second, at(4)).await;
    let third = fixture.retry(&second, at(5)).await.run_id;
    assert_eq!(fixture.run(&third).await.kind, "e-mail: wöchentlich");

    let kind = "e-mail: wöchentlich";
    assert_eq!(listed(&fixture, kind, None).await, [third.clone(), second.clone(), first.clone()]);
    assert_eq!(listed(&fixture, kind, Some(RunState::Failed)).await, [first]);
    assert_eq!(listed(&fixture, kind, Some(RunState::Cancelled)).await, [second]);
    assert_eq!(listed(&fixture, kind, Some(RunState::Queued)).await, [third]);
    for other in ["e-mail", "E-MAIL: WÖCHENTLICH", "report"] {
        assert!(listed(&fixture, other, None).await.is_empty(), "{other}");
    }
}

pub async fn runs_of_a_batch_have_their_own_kinds(fixture: Fixture) {
    let requests = ["email", "", "report", "email"].map(of_kind);
    let batch = requests.map(|request| (request, new_run_id(at(0)))).to_vec();
    let queued = fixture.interface.queue_many(batch, at(0)).await.expect("the batch is queued");
    let ids: Vec<RunId> = queued.into_iter().map(|outcome| outcome.run_id).collect();
    for (id, kind) in ids.iter().zip(["email", "", "report", "email"]) {
        assert_eq!(fixture.run(id).await.kind, kind);
    }
    let mut emails = vec![ids[0].clone(), ids[3].clone()];
    emails.sort_by(|one, other| other.cmp(one));
    assert_eq!((listed(&fixture, "email", None).await, marks(&fixture).await), (emails, 3));
    let ask = ClaimRuns { limit: 4, ..ClaimRuns::one("worker-001") };
    let claims = fixture.claim_as(ask, at(1)).await;
    let mut kinds: Vec<_> = claims.iter().map(|claim| claim.kind.as_str()).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["", "email", "email", "report"]);
}

pub async fn invalid_kind_is_refused(fixture: Fixture) {
    let kept = fixture.queue(of_kind(&"k".repeat(KIND_BYTES_MAX)), at(0)).await;
    let before = fixture.tables().await;
    let long = "ä".repeat(KIND_BYTES_MAX / 2 + 1);
    for (kind, code) in [
        (long.as_str(), RefusalCode::TooLarge),
        ("a\nb", RefusalCode::BadValue),
        ("\u{9b}", RefusalCode::BadValue),
    ] {
        // The HTTP API and the engine report every invalid field as one code.
        let is_refused =
            |found: Option<RefusalCode>| found == Some(code) || found == Some(RefusalCode::BadValue);
        let one = fixture.try_queue(of_kind(kind), at(1)).await.map_err(|error| error.refusal_code());
        assert!(one.as_ref().is_err_and(|found| is_refused(*found)), "{kind:?}: {one:?}");
        let batch = vec![(request(), new_run_id(at(1))), (of_kind(kind), new_run_id(at(1)))];
        let many = fixture.interface.queue_many(batch, at(1)).await.map_err(|error| error.refusal_code());
        assert!(many.as_ref().is_err_and(|found| is_refused(*found)), "{kind:?}: {many:?}");
    }
    let update = format!("UPDATE {{ops}}.runs SET kind = 'a\nb' WHERE run_id = '{kept}'");
    assert!(fixture.plain.execute(&update).await.is_err(), "a plain statement sets a line break");
    fixture.unchanged(&before).await;
}

pub async fn idempotency_key_with_another_kind_is_refused(fixture: Fixture) {
    let keyed = |kind: &str| QueueRun { idempotency_key: Some("same".to_owned()), ..of_kind(kind) };
    let first = fixture.queue(keyed("email"), at(0)).await;
    let before = fixture.tables().await;
    for kind in ["report", ""] {
        refused(fixture.try_queue(keyed(kind), at(1)).await, RefusalCode::KeyConflict);
        let batch = vec![(keyed(kind), new_run_id(at(1))), (request(), new_run_id(at(1)))];
        refused(fixture.interface.queue_many(batch, at(1)).await, RefusalCode::KeyConflict);
    }
    let again = fixture.try_queue(keyed("email"), at(2)).await.expect("it is repeated");
    assert_eq!((again.run_id, again.created), (first, false));
    fixture.unchanged(&before).await;
}

pub async fn kind_changed_by_plain_sql_is_listed_by_its_new_value(fixture: Fixture) {
    let run = fixture.queue(of_kind("email"), at(0)).await;
    for (kind, rows) in [("report", 1), ("", 0), ("email", 1)] {
        let update = format!("UPDATE {{ops}}.runs SET kind = '{kind}' WHERE run_id = '{run}'");
        assert_eq!(fixture.plain.execute(&update).await.ok(), Some(1));
        assert_eq!((fixture.run(&run).await.kind.as_str(), marks(&fixture).await), (kind, rows));
        if !kind.is_empty() {
            assert_eq!(listed(&fixture, kind, None).await, std::slice::from_ref(&run));
        }
    }
    fixture.cancel(&run, at(1)).await;
    let delete = format!("DELETE FROM {{ops}}.runs WHERE run_id = '{run}'");
    assert_eq!(fixture.plain.execute(&delete).await.ok(), Some(1));
    assert_eq!(marks(&fixture).await, 0);
}
