//! Bad input: the same rule refuses it at every door, and nothing is written.

use serde_json::json;
use tidemill_core::artifact::NewArtifact;
use tidemill_core::limits::{
    ATTEMPTS_MAX, BACKOFF_SECS_MAX, KEY_BYTES_MAX, LABELS_MAX, METADATA_BYTES_MAX, PRIORITY_MAX,
};
use tidemill_core::run::{FinalStatus, QueueRun};
use tidemill_store::{Holder, RefusalCode};

use super::unknown_run;
use crate::door::{Stage, at, info, refused, request};

/// A project or an environment that does not exist: the hint creates the project, or names the environments.
pub async fn an_unknown_project_or_environment_is_refused(stage: Stage) {
    let before = stage.tables().await;
    let answer = stage.try_queue(QueueRun::new("nobody", "staging"), at(0)).await;
    let Err(error) = answer else { panic!("it was queued") };
    assert_eq!(error.refusal_code(), Some(RefusalCode::UnknownProject));
    assert_eq!(error.to_string(), "project `nobody` does not exist");
    assert_eq!(error.hint().as_deref(), Some("tidemill project create nobody --env staging"));
    let answer = stage.try_queue(QueueRun::new("shop", "test"), at(0)).await;
    let Err(error) = answer else { panic!("it was queued") };
    assert_eq!(error.refusal_code(), Some(RefusalCode::UnknownEnvironment));
    assert_eq!(error.to_string(), "project `shop` has no environment `test`");
    assert_eq!(error.hint().as_deref(), Some("It has: production, staging"));
    // The environment of another project is not this one's.
    refused(
        stage.try_queue(QueueRun::new("bank", "production"), at(0)).await,
        RefusalCode::UnknownEnvironment,
    );
    stage.unchanged(&before).await;
}

/// A run that does not exist, for every verb that names one.
pub async fn an_unknown_run_is_refused_by_every_verb(stage: Stage) {
    let before = stage.tables().await;
    let (run, code) = (unknown_run(), RefusalCode::UnknownRun);
    let door = &stage.door;
    refused(door.start(run.clone(), Holder::default(), at(0)).await, code);
    refused(door.append(run.clone(), vec![info("hello")], Holder::default(), at(0)).await, code);
    refused(door.append(run.clone(), vec![info("a"), info("b")], Holder::default(), at(0)).await, code);
    refused(door.heartbeat(run.clone(), Holder::default(), at(0)).await, code);
    for status in [FinalStatus::Success, FinalStatus::Failed, FinalStatus::Cancelled] {
        refused(stage.try_finish(&run, status, json!({}), at(0)).await, code);
    }
    refused(door.cancel(run.clone(), "ann".to_owned(), None, at(0)).await, code);
    refused(door.retry(run.clone(), "ann".to_owned(), at(0)).await, code);
    let artifact = NewArtifact {
        artifact_type: "image".to_owned(),
        url: "ghcr.io/x".to_owned(),
        digest: None,
        size_bytes: None,
        metadata: json!({}),
    };
    refused(door.add_artifact(run, artifact, at(0)).await, code);
    stage.unchanged(&before).await;
}

/// Values out of range, and metadata that is no object.
pub async fn a_request_out_of_range_is_refused(stage: Stage) {
    let before = stage.tables().await;
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
        let answer = stage.try_queue(request, at(0)).await;
        assert_eq!(answer.map_err(|error| error.refusal_code()), Err(Some(RefusalCode::BadValue)), "{shown}");
    }
    stage.unchanged(&before).await;
}

/// Texts and documents that are larger than they may be.
pub async fn a_request_that_is_too_large_is_refused(stage: Stage) {
    let before = stage.tables().await;
    let long = || Some("k".repeat(KEY_BYTES_MAX + 1));
    let bad = [
        QueueRun { metadata: json!({"text": "x".repeat(METADATA_BYTES_MAX)}), ..request() },
        QueueRun { git_sha: long(), ..request() },
        QueueRun { git_ref: long(), ..request() },
        QueueRun { idempotency_key: long(), ..request() },
        QueueRun { concurrency_key: long(), ..request() },
    ];
    for request in bad {
        refused(stage.try_queue(request, at(0)).await, RefusalCode::TooLarge);
    }
    stage.unchanged(&before).await;
}

/// The bounds themselves are allowed.
pub async fn a_request_at_its_bounds_is_taken(stage: Stage) {
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
    let run = stage.queue(largest.clone(), at(0)).await;
    assert_eq!(stage.run(&run).await.labels, largest.labels);
    let smallest = QueueRun {
        priority: -PRIORITY_MAX,
        max_losses: 0,
        backoff_secs: 0,
        timeout_secs: Some(1),
        ..request()
    };
    stage.queue(smallest, at(1)).await;
}
