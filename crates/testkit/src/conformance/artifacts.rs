//! What runs made: recorded once, by call or with the end.

use serde_json::json;
use tidemill_core::RunId;
use tidemill_core::artifact::NewArtifact;
use tidemill_core::run::{Applied, FinalStatus};
use tidemill_store::RefusalCode;

use crate::door::{Stage, at, refused, request};

fn image(url: &str) -> NewArtifact {
    NewArtifact {
        artifact_type: "image".to_owned(),
        url: url.to_owned(),
        digest: None,
        size_bytes: None,
        metadata: json!({}),
    }
}

async fn kept(stage: &Stage, run: &RunId) -> Vec<(String, String, Option<String>, Option<i64>)> {
    let artifacts = stage.store.artifacts(run.clone()).await.unwrap_or_default();
    artifacts.into_iter().map(|one| (one.artifact_type, one.url, one.digest, one.size_bytes)).collect()
}

/// The same type and URL is the same artifact; what was not known before is added.
pub async fn an_artifact_recorded_twice_is_one(stage: Stage) {
    let run = stage.running(request(), "worker-001", at(0)).await.run_id;
    let first = stage.door.add_artifact(run.clone(), image("ghcr.io/a"), at(1)).await.ok();
    let known =
        NewArtifact { digest: Some("sha256:1".to_owned()), size_bytes: Some(42), ..image("ghcr.io/a") };
    assert!(first.is_some());
    assert_eq!(stage.door.add_artifact(run.clone(), known, at(2)).await.ok(), first);
    assert_eq!(stage.door.add_artifact(run.clone(), image("ghcr.io/a"), at(3)).await.ok(), first);
    let other = stage.door.add_artifact(run.clone(), image("ghcr.io/b"), at(4)).await.ok();
    assert_ne!(other, first);
    let line = |url: &str, digest: Option<&str>, size| {
        ("image".to_owned(), url.to_owned(), digest.map(str::to_owned), size)
    };
    let expected = [line("ghcr.io/a", Some("sha256:1"), Some(42)), line("ghcr.io/b", None, None)];
    assert_eq!(kept(&stage, &run).await, expected);
}

/// The artifacts that a report names become rows, beside those of calls; what is no artifact stays in the metadata.
pub async fn the_artifacts_of_a_report_become_rows(stage: Stage) {
    let run = stage.running(request(), "worker-001", at(0)).await.run_id;
    stage.door.add_artifact(run.clone(), image("ghcr.io/org/odoo-ce:abc123"), at(1)).await.ok();
    let report = json!({"artifacts": [
        {"type": "image", "url": "ghcr.io/org/odoo-ce:abc123", "digest": "sha256:9"},
        {"type": "sbom", "url": "s3://bucket/sbom.json", "size_bytes": 12},
        {"type": "", "url": "s3://bucket/x"}, {"url": "no type"}, {"type": "log"}, "text", 7,
    ]});
    assert_eq!(stage.finish(&run, FinalStatus::Success, report.clone(), at(2)).await, Applied::Applied);
    assert_eq!(stage.finish(&run, FinalStatus::Success, report.clone(), at(3)).await, Applied::Duplicate);
    let line = |kind: &str, url: &str, digest: Option<&str>, size| {
        (kind.to_owned(), url.to_owned(), digest.map(str::to_owned), size)
    };
    let expected = [
        line("image", "ghcr.io/org/odoo-ce:abc123", Some("sha256:9"), None),
        line("sbom", "s3://bucket/sbom.json", None, Some(12)),
    ];
    assert_eq!(kept(&stage, &run).await, expected);
    assert_eq!(stage.run(&run).await.metadata, report);
}

/// A report whose `artifacts` is no list is a report all the same.
pub async fn artifacts_that_are_no_list_are_only_metadata(stage: Stage) {
    for odd in [json!({"a": 1}), json!("none"), json!(null), json!([])] {
        let run = stage.running(request(), "worker-001", at(0)).await.run_id;
        let answer = stage.finish(&run, FinalStatus::Failed, json!({"artifacts": odd}), at(1)).await;
        assert_eq!(answer, Applied::Applied);
        assert!(kept(&stage, &run).await.is_empty());
    }
}

/// What a run made can still be recorded after its end: an upload may be slow.
pub async fn an_artifact_can_be_recorded_after_the_end(stage: Stage) {
    let run = stage.running(request(), "worker-001", at(0)).await.run_id;
    stage.succeed(&run, at(1)).await;
    assert!(stage.door.add_artifact(run.clone(), image("s3://late"), at(2)).await.is_ok());
    assert_eq!(kept(&stage, &run).await.len(), 1);
}

/// Empty, negative or too large: refused, with nothing written.
pub async fn a_bad_artifact_is_refused(stage: Stage) {
    let run = stage.running(request(), "worker-001", at(0)).await.run_id;
    let before = stage.tables().await;
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
        refused(stage.door.add_artifact(run.clone(), artifact, at(1)).await, code);
    }
    let report = json!({"artifacts": [{"type": "t".repeat(65), "url": "u"}]});
    refused(stage.try_finish(&run, FinalStatus::Success, report, at(1)).await, RefusalCode::TooLarge);
    stage.unchanged(&before).await;
}
