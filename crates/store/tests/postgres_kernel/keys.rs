//! Concurrency keys and plain statements.

use crate::Kernel;

const INSERT: &str = "INSERT INTO ops.runs (run_id, project_id, env_id, concurrency_key) VALUES";

#[tokio::test]
async fn plain_inserts_with_one_key_run_one_at_a_time() {
    let kernel = Kernel::open().await;
    for run in ["run-a", "run-b"] {
        kernel.execute(&format!("{INSERT} ('{run}', 'shop', 'shop/staging', 'deploy')")).await;
    }
    // A conflict leaves nothing behind.
    kernel
        .execute(&format!("{INSERT} ('run-a', 'shop', 'shop/staging', 'another') ON CONFLICT DO NOTHING"))
        .await;
    assert_eq!(kernel.claim("worker", "").await.as_deref(), Some("run-a"));
    assert_eq!(kernel.claim("worker", "").await, None, "the key is held");
    kernel.execute("SELECT ops.finish_run('run-a', 'success')").await;
    assert_eq!(kernel.claim("worker", "").await.as_deref(), Some("run-b"));
    let another = kernel.queue(", p_concurrency_key => 'another'").await;
    assert_eq!(kernel.claim("worker", "").await, Some(another));
}

#[tokio::test]
async fn key_of_a_held_run_cannot_be_changed() {
    let kernel = Kernel::open().await;
    let held = kernel.queue(", p_concurrency_key => 'deploy'").await;
    let next = kernel.queue(", p_concurrency_key => 'deploy'").await;
    kernel.claim("worker", "").await.unwrap();
    for value in ["NULL", "'other'"] {
        let text = format!("UPDATE ops.runs SET concurrency_key = {value} WHERE run_id = '{held}'");
        assert_eq!(kernel.refusal(&text).await, "TM008");
    }
    assert_eq!(
        kernel.refusal(&format!("UPDATE ops.runs SET gate = 'open' WHERE run_id = '{next}'")).await,
        "TM008"
    );
    kernel.execute(&format!("SELECT ops.finish_run('{held}', 'success')")).await;
    // PostgreSQL reports an error before it releases the row, so the key can be without a head until the sweep.
    kernel.execute("SELECT ops.sweep()").await;
    assert_eq!(kernel.claim("worker", "").await, Some(next));
}

#[tokio::test]
async fn queued_run_that_changes_its_key_passes_the_old_one_on() {
    let kernel = Kernel::open().await;
    let first = kernel.queue(", p_concurrency_key => 'deploy'").await;
    let second = kernel.queue(", p_concurrency_key => 'deploy'").await;
    kernel.execute(&format!("UPDATE ops.runs SET concurrency_key = NULL WHERE run_id = '{first}'")).await;
    assert_eq!(kernel.claim("worker", "").await, Some(first));
    assert_eq!(kernel.claim("worker", "").await, Some(second.clone()));
    let third = kernel.queue("").await;
    kernel.execute(&format!("UPDATE ops.runs SET concurrency_key = 'deploy' WHERE run_id = '{third}'")).await;
    assert_eq!(kernel.claim("worker", "").await, None, "it waits for its new key");
    kernel.execute(&format!("SELECT ops.finish_run('{second}', 'success')")).await;
    assert_eq!(kernel.claim("worker", "").await, Some(third));
}

#[tokio::test]
async fn keys_written_without_triggers_are_repaired() {
    let kernel = Kernel::open().await;
    let held = kernel.queue(", p_concurrency_key => 'deploy'").await;
    let next = kernel.queue(", p_concurrency_key => 'deploy'").await;
    let line = kernel.queue(", p_concurrency_key => 'lost'").await;
    kernel.claim("worker", "").await.unwrap();
    kernel
        .execute(&format!(
            "BEGIN; SET LOCAL session_replication_role = replica; \
             UPDATE ops.runs SET concurrency_key = NULL WHERE run_id = '{held}'; \
             UPDATE ops.runs SET gate = 'key' WHERE run_id = '{line}'; \
             DELETE FROM ops.concurrency_keys WHERE concurrency_key = 'lost'; COMMIT"
        ))
        .await;
    assert_eq!(kernel.claim("worker", "").await, None);
    assert_eq!(kernel.value("SELECT ops.repair_keys(100)").await.as_deref(), Some("2"));
    let mut claimed = [kernel.claim("worker", "").await, kernel.claim("worker", "").await];
    claimed.sort();
    let mut expected = [Some(next), Some(line)];
    expected.sort();
    assert_eq!(claimed, expected);
}

#[tokio::test]
async fn sqlite_keys_without_a_head_are_repaired() {
    use tidemill_testkit::interface::{Fixture, Kind, at, request};
    let fixture = Fixture::open(Kind::Sqlite).await;
    let keyed = || tidemill_core::run::QueueRun { concurrency_key: Some("deploy".to_owned()), ..request() };
    let first = fixture.queue(keyed(), at(0)).await;
    let second = fixture.queue(keyed(), at(1)).await;
    let text = "UPDATE concurrency_keys SET head_run_id = 'run-gone'";
    assert_eq!(fixture.plain.execute(text).await.ok(), Some(1));
    let text = format!("UPDATE runs SET gate = 'key' WHERE run_id = '{first}'");
    assert_eq!(fixture.plain.execute(&text).await.ok(), Some(1));
    assert_eq!(fixture.claim("worker-001", at(2)).await, None);
    assert_eq!(fixture.store.repair_keys(10).await.unwrap(), 1);
    assert_eq!(fixture.claim_id("worker-001", at(3)).await, Some(first.clone()));
    assert_eq!(fixture.claim("worker-002", at(3)).await, None);
    fixture.succeed(&first, at(4)).await;
    assert_eq!(fixture.claim_id("worker-002", at(5)).await, Some(second));
}
