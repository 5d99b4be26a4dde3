//! Locked rows, and rows that cannot be swept.

use crate::Kernel;
use sqlx::AssertSqlSafe;
use std::time::Duration;
use tokio::time::timeout;

/// Much longer than a statement takes on a busy machine. The open transaction lasts until the test ends it.
const TIMEOUT: Duration = Duration::from_mins(1);

async fn open_transaction(kernel: &Kernel, text: &str) -> sqlx::PgConnection {
    let mut session = kernel.session().await;
    let text = AssertSqlSafe(format!("BEGIN; {text}"));
    sqlx::raw_sql(text).execute(&mut session).await.unwrap();
    session
}

async fn commit(mut session: sqlx::PgConnection) {
    sqlx::raw_sql("COMMIT").execute(&mut session).await.unwrap();
}

#[tokio::test]
async fn sweep_does_not_wait_for_a_key_in_an_open_transaction() {
    let kernel = Kernel::open().await;
    let keyed = kernel.queue(", p_concurrency_key => 'deploy'").await;
    let other = kernel.queue("").await;
    let late = kernel
        .queue(", p_concurrency_key => 'fresh', p_available_at => clock_timestamp() + interval '1 s'")
        .await;
    for _ in 0..2 {
        kernel.claim("worker", ", p_lease_secs => 1").await.unwrap();
    }
    let key = ", p_concurrency_key => 'deploy'";
    let fresh = ", p_concurrency_key => 'fresh'";
    let session = open_transaction(
        &kernel,
        &format!(
            "SELECT ops.queue_run('shop', 'staging', NULL, NULL{key}); \
             SELECT ops.queue_run('shop', 'staging', NULL, NULL{fresh})"
        ),
    )
    .await;
    let sweep = "SELECT ops.sweep(100, 20, clock_timestamp() + interval '1 minute')";
    let claim = "SELECT ops.claim_next_run('worker', p_now => clock_timestamp() + interval '1 minute')";
    for text in [sweep, claim] {
        timeout(TIMEOUT, kernel.execute(text)).await.unwrap_or_else(|_| panic!("{text} waits for the key"));
    }
    assert_eq!(kernel.of_run("end_cause", &other).await.as_deref(), Some("stale"));
    assert_eq!(kernel.of_run("status", &keyed).await.as_deref(), Some("claimed"), "its key is not free");
    assert_eq!(kernel.of_run("gate", &late).await.as_deref(), Some("time"));
    commit(session).await;
    kernel.execute(sweep).await;
    assert_eq!(kernel.of_run("end_cause", &keyed).await.as_deref(), Some("stale"));
    assert_eq!(kernel.of_run("gate", &late).await.as_deref(), Some("key"), "the committed run was first");
}

#[tokio::test]
async fn unsweepable_run_does_not_stop_the_sweep() {
    let kernel = Kernel::open().await;
    let bad = kernel.queue("").await;
    kernel.claim("worker", ", p_lease_secs => 1").await.unwrap();
    let other = kernel.queue("").await;
    kernel.claim("worker", ", p_lease_secs => 1").await.unwrap();
    // An event inserted without triggers: the number of the run's next event is taken.
    kernel
        .execute(&format!(
            "BEGIN; SET LOCAL session_replication_role = replica; \
             INSERT INTO ops.run_log (run_id, seq, event_id, level, message) \
             VALUES ('{bad}', 3, 'evt-mine', 'info', 'mine'); COMMIT"
        ))
        .await;
    kernel.execute("SELECT ops.sweep(100, 20, clock_timestamp() + interval '1 minute')").await;
    assert_eq!(kernel.of_run("end_cause", &other).await.as_deref(), Some("stale"));
    assert_eq!(kernel.of_run("status", &bad).await.as_deref(), Some("claimed"));
    let noted =
        format!("SELECT message FROM ops.run_events WHERE run_id = '{bad}' ORDER BY seq DESC LIMIT 1");
    assert_eq!(kernel.value(&noted).await.as_deref(), Some("Sweep failed"));
    // Its event counter was repaired: the next sweep ends it.
    kernel.execute("SELECT ops.sweep(100, 20, clock_timestamp() + interval '10 minutes')").await;
    assert_eq!(kernel.of_run("end_cause", &bad).await.as_deref(), Some("stale"));
}

#[tokio::test]
async fn heartbeat_does_not_wait_for_a_locked_run() {
    let kernel = Kernel::open().await;
    let boot = "'00000000-0000-4000-8000-000000000001'";
    kernel.execute(&format!("SELECT ops.register_worker({boot}, 'worker', 'host', 1, '{{}}', '1')")).await;
    let mut runs = Vec::new();
    for _ in 0..2 {
        kernel.queue("").await;
        runs.push(kernel.claim("worker", &format!(", p_worker => {boot}")).await.unwrap());
    }
    let text = format!("SELECT ops.append_event('{}', 'info', 'in my own transaction')", runs[0]);
    let session = open_transaction(&kernel, &text).await;
    let ids = format!("ARRAY['{}', '{}']", runs[0], runs[1]);
    for minutes in [2, 6] {
        let at = format!("clock_timestamp() + interval '{minutes} minutes'");
        let beat = format!("SELECT ops.beat_worker({boot}, {ids}, {at})");
        timeout(TIMEOUT, kernel.execute(&beat)).await.expect("the beat waits for the locked run");
    }
    let left = format!(
        "SELECT lease_until > clock_timestamp() + interval '10 minutes' FROM ops.runs \
                        WHERE run_id = '{}'",
        runs[1]
    );
    assert_eq!(kernel.value(&left).await.as_deref(), Some("true"), "the lease of the other run is renewed");
    commit(session).await;
    // The lease of the locked run has expired, but its worker sent a heartbeat.
    kernel.execute("SELECT ops.sweep(100, 20, clock_timestamp() + interval '6 minutes 5 seconds')").await;
    for run in &runs {
        assert_eq!(kernel.of_run("finished_at", run).await, None, "run {run} was taken away");
    }
}
