//! Invalid input: the same rule refuses it on every interface, and nothing is written.

use serde_json::json;
use tidemill_core::artifact::NewArtifact;
use tidemill_core::limits::{
    ATTEMPTS_MAX, BACKOFF_SECS_MAX, KEY_BYTES_MAX, LABELS_MAX, METADATA_BYTES_MAX, PRIORITY_MAX,
};
use tidemill_core::run::{ClaimRuns, FinalStatus, QueueRun};
use tidemill_store::{Holder, RefusalCode};

use super::unknown_run;
use crate::interface::{Fixture, at, info, new_worker, refused, request};

/// The hint creates the project, or names the existing environments.
pub async fn unknown_project_or_environment_is_refused(fixture: Fixture) {
    let before = fixture.tables().await;
    let answer = fixture.try_queue(QueueRun::new("nobody", "staging"), at(0)).await;
    let Err(error) = answer else { panic!("it was queued") };
    assert_eq!(error.refusal_code(), Some(RefusalCode::UnknownProject));
    assert_eq!(error.to_string(), "project `nobody` does not exist");
    assert_eq!(error.hint().as_deref(), Some("tidemill project create nobody --env staging"));
    let answer = fixture.try_queue(QueueRun::new("shop", "test"), at(0)).await;
    let Err(error) = answer else { panic!("it was queued") };
    assert_eq!(error.refusal_code(), Some(RefusalCode::UnknownEnvironment));
    assert_eq!(error.to_string(), "project `shop` has no environment `test`");
    assert_eq!(error.hint().as_deref(), Some("It has: production, staging"));
    // The environment of another project does not count.
    refused(
        fixture.try_queue(QueueRun::new("bank", "production"), at(0)).await,
        RefusalCode::UnknownEnvironment,
    );
    fixture.unchanged(&before).await;
}

pub async fn unknown_run_is_refused_by_every_operation(fixture: Fixture) {
    let before = fixture.tables().await;
    let (run, code) = (unknown_run(), RefusalCode::UnknownRun);
    let interface = &fixture.interface;
    refused(interface.start(run.clone(), Holder::default(), at(0)).await, code);
    refused(interface.append(run.clone(), vec![info("hello")], Holder::default(), at(0)).await, code);
    refused(interface.append(run.clone(), vec![info("a"), info("b")], Holder::default(), at(0)).await, code);
    refused(interface.heartbeat(run.clone(), Holder::default(), at(0)).await, code);
    for status in [FinalStatus::Success, FinalStatus::Failed, FinalStatus::Cancelled] {
        refused(fixture.try_finish(&run, status, json!({}), at(0)).await, code);
    }
    refused(interface.cancel(run.clone(), "ann".to_owned(), None, at(0)).await, code);
    refused(interface.retry(run.clone(), "ann".to_owned(), at(0)).await, code);
    let artifact = NewArtifact {
        artifact_type: "image".to_owned(),
        url: "ghcr.io/x".to_owned(),
        digest: None,
        size_bytes: None,
        metadata: json!({}),
    };
    refused(interface.add_artifact(run, artifact, at(0)).await, code);
    fixture.unchanged(&before).await;
}

/// Also metadata that is not an object.
pub async fn request_out_of_range_is_refused(fixture: Fixture) {
    let before = fixture.tables().await;
    let bad = [
        QueueRun { metadata: json!(null), ..request() },
        QueueRun { metadata: json!([1, 2]), ..request() },
        QueueRun { metadata: json!("text"), ..request() },
        QueueRun { priority: PRIORITY_MAX + 1, ..request() },
        QueueRun { priority: -PRIORITY_MAX - 1, ..request() },
        QueueRun { max_attempts: 0, ..request() },
        QueueRun { max_attempts: ATTEMPTS_MAX + 1, ..request() },
        QueueRun { max_losses: -1, ..request() },
        QueueRun { max_losses: ATTEMPTS_MAX + 1, ..request() },
        QueueRun { backoff_secs: -1, ..request() },
        QueueRun { backoff_secs: BACKOFF_SECS_MAX + 1, ..request() },
        QueueRun { timeout_secs: Some(0), ..request() },
        QueueRun { labels: (0..=LABELS_MAX).map(|n| format!("label-{n}")).collect(), ..request() },
    ];
    for request in bad {
        let shown = format!("{request:?}");
        let answer = fixture.try_queue(request, at(0)).await;
        assert_eq!(answer.map_err(|error| error.refusal_code()), Err(Some(RefusalCode::BadValue)), "{shown}");
    }
    fixture.unchanged(&before).await;
}

pub async fn request_over_a_size_limit_is_refused(fixture: Fixture) {
    let before = fixture.tables().await;
    let long = || Some("k".repeat(KEY_BYTES_MAX + 1));
    let bad = [
        QueueRun { metadata: json!({"text": "x".repeat(METADATA_BYTES_MAX)}), ..request() },
        QueueRun { git_sha: long(), ..request() },
        QueueRun { git_ref: long(), ..request() },
        QueueRun { idempotency_key: long(), ..request() },
        QueueRun { concurrency_key: long(), ..request() },
    ];
    for request in bad {
        refused(fixture.try_queue(request, at(0)).await, RefusalCode::TooLarge);
    }
    fixture.unchanged(&before).await;
}

/// A line break in a git ref would start a line of the caller's choice in logs and environment files.
pub async fn short_text_with_a_control_character_is_refused(fixture: Fixture) {
    let kept = fixture.queue(request(), at(0)).await;
    let before = fixture.tables().await;
    for symbol in ['\r', '\n', '\t', '\u{1b}', '\u{7f}', '\u{9b}'] {
        let text = || format!("main{symbol}x");
        let bad = [
            QueueRun { git_sha: Some(text()), ..request() },
            QueueRun { git_ref: Some(text()), ..request() },
            QueueRun { concurrency_key: Some(text()), ..request() },
            QueueRun { labels: vec![text()], ..request() },
        ];
        for request in bad {
            let shown = format!("{request:?}");
            let answer = fixture.try_queue(request, at(0)).await.map_err(|error| error.refusal_code());
            assert_eq!(answer, Err(Some(RefusalCode::BadValue)), "{shown}");
        }
        let claim = ClaimRuns::one(text());
        refused(fixture.interface.claim(claim, at(1)).await, RefusalCode::BadValue);
        refused(fixture.interface.register(new_worker(&text()), at(1)).await, RefusalCode::BadValue);
        let artifact = NewArtifact {
            artifact_type: "image".to_owned(),
            url: text(),
            digest: None,
            size_bytes: None,
            metadata: json!({}),
        };
        refused(fixture.interface.add_artifact(kept.clone(), artifact, at(1)).await, RefusalCode::BadValue);
        for column in ["git_sha", "git_ref"] {
            let update = format!("UPDATE {{ops}}.runs SET {column} = '{}' WHERE run_id = '{kept}'", text());
            let answer = fixture.plain.execute(&update).await;
            assert!(answer.is_err(), "{column} with {symbol:?}");
        }
    }
    fixture.unchanged(&before).await;
    // The HTTP API takes the name from the token.
    let cancelled = fixture.store.cancel_run(kept, "ann\nbob".to_owned(), None, Some(at(2))).await;
    assert!(cancelled.is_err(), "{cancelled:?}");
    fixture.unchanged(&before).await;
}

pub async fn request_at_its_limits_is_accepted(fixture: Fixture) {
    let largest = QueueRun {
        metadata: json!({"text": "x".repeat(METADATA_BYTES_MAX - 100)}),
        git_sha: Some("k".repeat(KEY_BYTES_MAX)),
        git_ref: Some("ä".repeat(KEY_BYTES_MAX / 2)),
        idempotency_key: Some("k".repeat(KEY_BYTES_MAX)),
        concurrency_key: Some("k".repeat(KEY_BYTES_MAX)),
        priority: PRIORITY_MAX,
        max_attempts: ATTEMPTS_MAX,
        max_losses: ATTEMPTS_MAX,
        backoff_secs: BACKOFF_SECS_MAX,
        labels: (0..LABELS_MAX).map(|n| format!("label-{n:02}")).collect(),
        ..request()
    };
    let run = fixture.queue(largest.clone(), at(0)).await;
    assert_eq!(fixture.run(&run).await.labels, largest.labels);
    let smallest = QueueRun {
        priority: -PRIORITY_MAX,
        max_losses: 0,
        backoff_secs: 0,
        timeout_secs: Some(1),
        ..request()
    };
    fixture.queue(smallest, at(1)).await;
}
