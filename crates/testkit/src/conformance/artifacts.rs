//! Artifacts: stored once, by a call or with the final report.

use serde_json::json;
use tidemill_core::RunId;
use tidemill_core::artifact::NewArtifact;
use tidemill_core::run::{ChangeOutcome, FinalStatus};
use tidemill_store::RefusalCode;

use crate::interface::{Fixture, at, refused, request};

fn image(url: &str) -> NewArtifact {
    NewArtifact {
        artifact_type: "image".to_owned(),
        url: url.to_owned(),
        digest: None,
        size_bytes: None,
        metadata: json!({}),
    }
}

async fn stored(fixture: &Fixture, run: &RunId) -> Vec<(String, String, Option<String>, Option<i64>)> {
    let artifacts = fixture.store.artifacts(run.clone()).await.unwrap_or_default();
    artifacts.into_iter().map(|one| (one.artifact_type, one.url, one.digest, one.size_bytes)).collect()
}

/// The same type and URL identify an artifact; missing fields are added.
pub async fn artifact_recorded_twice_is_stored_once(fixture: Fixture) {
    let run = fixture.running(request(), "worker-001", at(0)).await.run_id;
    let first = fixture.interface.add_artifact(run.clone(), image("ghcr.io/a"), at(1)).await.ok();
    let known =
        NewArtifact { digest: Some("sha256:1".to_owned()), size_bytes: Some(42), ..image("ghcr.io/a") };
    assert!(first.is_some());
    assert_eq!(fixture.interface.add_artifact(run.clone(), known, at(2)).await.ok(), first);
    assert_eq!(fixture.interface.add_artifact(run.clone(), image("ghcr.io/a"), at(3)).await.ok(), first);
    let other = fixture.interface.add_artifact(run.clone(), image("ghcr.io/b"), at(4)).await.ok();
    assert_ne!(other, first);
    let line = |url: &str, digest: Option<&str>, size| {
        ("image".to_owned(), url.to_owned(), digest.map(str::to_owned), size)
    };
    let expected = [line("ghcr.io/a", Some("sha256:1"), Some(42)), line("ghcr.io/b", None, None)];
    assert_eq!(stored(&fixture, &run).await, expected);
}

/// Artifacts in a report become rows, next to those added by calls. Malformed entries stay in the metadata.
pub async fn artifacts_in_a_report_become_rows(fixture: Fixture) {
    let run = fixture.running(request(), "worker-001", at(0)).await.run_id;
    fixture.interface.add_artifact(run.clone(), image("ghcr.io/org/odoo-ce:abc123"), at(1)).await.ok();
    let report = json!({"artifacts": [
        {"type": "image", "url": "ghcr.io/org/odoo-ce:abc123", "digest": "sha256:9"},
        {"type": "sbom", "url": "s3://bucket/sbom.json", "size_bytes": 12},
        {"type": "", "url": "s3://bucket/x"}, {"url": "no type"}, {"type": "log"}, "text", 7,
    ]});
    assert_eq!(
        fixture.finish(&run, FinalStatus::Success, report.clone(), at(2)).await,
        ChangeOutcome::Applied
    );
    assert_eq!(
        fixture.finish(&run, FinalStatus::Success, report.clone(), at(3)).await,
        ChangeOutcome::Duplicate
    );
    let line = |kind: &str, url: &str, digest: Option<&str>, size| {
        (kind.to_owned(), url.to_owned(), digest.map(str::to_owned), size)
    };
    let expected = [
        line("image", "ghcr.io/org/odoo-ce:abc123", Some("sha256:9"), None),
        line("sbom", "s3://bucket/sbom.json", None, Some(12)),
    ];
    assert_eq!(stored(&fixture, &run).await, expected);
    assert_eq!(fixture.run(&run).await.metadata, report);
}

pub async fn artifacts_that_are_not_a_list_stay_metadata(fixture: Fixture) {
    for odd in [json!({"a": 1}), json!("none"), json!(null), json!([])] {
        let run = fixture.running(request(), "worker-001", at(0)).await.run_id;
        let answer = fixture.finish(&run, FinalStatus::Failed, json!({"artifacts": odd}), at(1)).await;
        assert_eq!(answer, ChangeOutcome::Applied);
        assert!(stored(&fixture, &run).await.is_empty());
    }
}

/// An upload may finish after the run has ended.
pub async fn artifact_is_accepted_after_the_run_ended(fixture: Fixture) {
    let run = fixture.running(request(), "worker-001", at(0)).await.run_id;
    fixture.succeed(&run, at(1)).await;
    assert!(fixture.interface.add_artifact(run.clone(), image("s3://late"), at(2)).await.is_ok());
    assert_eq!(stored(&fixture, &run).await.len(), 1);
}

/// Empty, negative or oversized values are refused, and nothing is written.
pub async fn invalid_artifact_is_refused(fixture: Fixture) {
    let run = fixture.running(request(), "worker-001", at(0)).await.run_id;
    let before = fixture.tables().await;
    let bad = [
        (NewArtifact { artifact_type: String::new(), ..image("u") }, RefusalCode::BadValue),
        (image(""), RefusalCode::BadValue),
        (NewArtifact { size_bytes: Some(-1), ..image("u") }, RefusalCode::BadValue),
        (NewArtifact { artifact_type: "t".repeat(65), ..image("u") }, RefusalCode::TooLarge),
        (image(&"u".repeat(1_025)), RefusalCode::TooLarge),
        (NewArtifact { digest: Some("d".repeat(257)), ..image("u") }, RefusalCode::TooLarge),
        (NewArtifact { metadata: json!({"t": "x".repeat(64 * 1024)}), ..image("u") }, RefusalCode::TooLarge),
    ];
    for (artifact, code) in bad {
        refused(fixture.interface.add_artifact(run.clone(), artifact, at(1)).await, code);
    }
    let report = json!({"artifacts": [{"type": "t".repeat(65), "url": "u"}]});
    refused(fixture.try_finish(&run, FinalStatus::Success, report, at(1)).await, RefusalCode::TooLarge);
    fixture.unchanged(&before).await;
}
