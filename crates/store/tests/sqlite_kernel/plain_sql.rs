//! Plain SQL on the file: allowed statements are completed and recorded, the others are refused.

use crate::fixture::{KernelFixture, at, code, shop};
use chrono::Duration;
use serde_json::json;
use tidemill_core::RunId;
use tidemill_core::run::{EndCause, FinalStatus};
use tidemill_store::RefusalCode;

#[tokio::test]
async fn plain_statement_is_completed_and_recorded() {
    let mut fixture = KernelFixture::new().await;
    let env = "INSERT INTO runs (run_id, project_id, env_id) VALUES ('run-1', 'shop', 'shop/staging')";
    fixture.sql(env).await.unwrap();
    let run: RunId = "run-1".parse().unwrap();
    assert_eq!(fixture.run(&run).await.labels, [""; 0]);
    let claim =
        "UPDATE runs SET status = 'claimed', claimed_by = 'me' WHERE run_id = 'run-1' AND status = 'queued'";
    assert_eq!(fixture.sql(claim).await.unwrap(), 1);
    assert_eq!(fixture.sql(claim).await.unwrap(), 0);
    let held = fixture.run(&run).await;
    assert_eq!((held.gate, held.epoch, held.started_at), (None, 1, Some(held.updated_at)));
    assert_eq!(held.lease_until, Some(held.updated_at + Duration::seconds(300)));
    fixture.sql("UPDATE runs SET status = 'running' WHERE run_id = 'run-1'").await.unwrap();
    fixture
        .sql("UPDATE runs SET status = 'failed', metadata = '{\"a\":1}' WHERE run_id = 'run-1'")
        .await
        .unwrap();
    let ended = fixture.run(&run).await;
    assert_eq!((ended.end_cause, ended.finished_at), (Some(EndCause::Statement), Some(ended.updated_at)));
    let last = fixture.events(&run).await.pop().unwrap();
    assert_eq!((last.1.as_str(), last.2.as_str()), ("error", "Run failed"));
    assert_eq!(last.3, json!({"from": "running", "to": "failed", "cause": "statement"}));
    // The successor starts with the requested metadata, not with the reported metadata.
    let next = fixture.store.retry_run(run, "ann".to_owned(), Some(at(1))).await.unwrap().run_id;
    assert_eq!(fixture.run(&next).await.metadata, json!({}));
}

#[tokio::test]
async fn forbidden_plain_statement_is_refused() {
    let mut fixture = KernelFixture::new().await;
    let ended = fixture.queue(shop(), 0).await;
    fixture.claim_one(1).await;
    fixture.finish(&ended, FinalStatus::Success, json!({}), 2).await;
    fixture.queue(shop(), 3).await;
    fixture.claim_one(4).await;
    fixture.queue(shop(), 5).await;
    for statement in [
        "UPDATE runs SET priority = 1 WHERE status = 'success'",
        "UPDATE runs SET status = 'queued', gate = 'open', finished_at = NULL WHERE status = 'success'",
        "UPDATE runs SET status = 'success' WHERE status = 'queued'",
        "UPDATE runs SET status = 'running', claimed_by = 'x' WHERE status = 'queued'",
        "DELETE FROM runs",
        "DELETE FROM run_events",
        "UPDATE run_events SET message = 'forged'",
        "REPLACE INTO run_events (run_id, seq, level, message) SELECT run_id, 1, 'info', 'forged' FROM runs",
        "REPLACE INTO runs (run_id, project_id, env_id) SELECT run_id, project_id, env_id FROM runs",
    ] {
        assert_eq!(code(fixture.sql(statement).await), RefusalCode::Frozen, "{statement}");
    }
    for statement in [
        "UPDATE runs SET status = 'claimed' WHERE status = 'queued'",
        "UPDATE runs SET gate = NULL WHERE status = 'queued'",
        "UPDATE runs SET finished_at = 1 WHERE status = 'queued'",
        "UPDATE runs SET gate = 'open' WHERE status = 'claimed'",
        "UPDATE runs SET metadata = '{' WHERE status = 'queued'",
        "UPDATE runs SET priority = 'high' WHERE status = 'queued'",
        "INSERT INTO runs (run_id, project_id, env_id, status) VALUES ('run-1', 'shop', 'shop/a', 'failed')",
    ] {
        let error = fixture.sql(statement).await.expect_err(statement);
        assert!(error.refusal_code().is_none(), "{error:?}");
    }
    let elsewhere = "INSERT INTO runs (run_id, project_id, env_id) VALUES ('run-1', 'shop', 'shop/live')";
    assert_eq!(code(fixture.sql(elsewhere).await), RefusalCode::UnknownEnvironment);
    // The events go with their run, and only after it.
    assert_eq!(fixture.sql("DELETE FROM runs WHERE status = 'success'").await.unwrap(), 1);
    let gone = format!("DELETE FROM run_events WHERE run_id = '{ended}'");
    assert_eq!(fixture.sql(&gone).await.unwrap(), 4);
}
