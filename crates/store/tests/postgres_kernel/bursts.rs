//! Bursts: many claimers, and all operations at once, with concurrency keys.

use crate::{Kernel, sqlstate};
use sqlx::{AssertSqlSafe, PgConnection, Row as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const LONGEST: Duration = Duration::from_mins(1);

/// Queues 200 delayed runs of 30 keys that are all due.
async fn queue_due_runs(kernel: &Kernel) {
    kernel
        .execute(
            "SELECT ops.queue_run('shop', 'staging', NULL, NULL, p_concurrency_key => 'key-' || n % 30, \
                    p_available_at => clock_timestamp() - interval '1 second' * (n * 7 % 5), \
                    p_now => clock_timestamp() - interval '1 minute') \
               FROM generate_series(1, 200) n",
        )
        .await;
}

/// Claims and finishes until `left` runs are done.
async fn drain(mut session: PgConnection, worker: usize, left: Arc<AtomicUsize>) -> sqlx::Result<()> {
    let began = Instant::now();
    while left.load(Ordering::SeqCst) > 0 && began.elapsed() < LONGEST {
        let text = format!("SELECT run_id FROM ops.claim_next_run(p_worker_id => 'worker-{worker}')");
        let claimed = sqlx::query(AssertSqlSafe(text)).fetch_optional(&mut session).await?;
        let Some(run) = claimed.map(|row| row.get::<String, _>(0)) else {
            // A key may be left without a head while another transaction holds a lock; the maintenance of workers
            // repairs it.
            if worker == 0 {
                sqlx::query("SELECT ops.sweep(100, 20, clock_timestamp())").execute(&mut session).await?;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        let text = format!("SELECT ops.finish_run('{run}', 'success', '{{}}', 'worker-{worker}')");
        sqlx::query(AssertSqlSafe(text)).execute(&mut session).await?;
        left.fetch_sub(1, Ordering::SeqCst);
    }
    Ok(())
}

async fn drained_by(kernel: &Kernel, claimers: usize) -> Duration {
    queue_due_runs(kernel).await;
    let left = Arc::new(AtomicUsize::new(200));
    let mut tasks = Vec::new();
    let began = Instant::now();
    for worker in 0..claimers {
        let session = kernel.session().await;
        tasks.push(tokio::spawn(drain(session, worker, left.clone())));
    }
    for task in tasks {
        if let Err(error) = task.await.unwrap() {
            panic!("a claimer failed with {:?}: {error}", sqlstate(&error));
        }
    }
    assert_eq!(left.load(Ordering::SeqCst), 0, "runs are left after {LONGEST:?} with {claimers} claimers");
    began.elapsed()
}

#[tokio::test]
async fn concurrent_claimers_finish_a_burst_of_keyed_runs() {
    let kernel = Kernel::open().await;
    let alone = drained_by(&kernel, 1).await;
    let together = drained_by(&kernel, 8).await;
    // A generous limit for a busy machine. Before the fix, eight claimers finished one run in 40 s.
    let longest = alone * 3 + Duration::from_secs(30);
    assert!(together < longest, "one claimer took {alone:?}, eight took {together:?}");
}

/// Returns the statements of one caller in a burst of all operations.
fn verbs(caller: usize, round: usize) -> Vec<String> {
    let worker = format!("worker-{caller}");
    let key = |n: usize| format!("key-{}", (caller * 3 + round + n) % 6);
    let queue = |key: &str, more: &str| {
        format!(
            "SELECT ops.queue_run('shop', 'staging', NULL, NULL, p_concurrency_key => '{key}', \
             p_max_attempts => 2, p_backoff_secs => 0, p_priority => {}{more})",
            round % 3
        )
    };
    let mine = format!("SELECT run_id FROM ops.runs WHERE claimed_by = '{worker}' AND finished_at IS NULL");
    vec![
        queue(&key(0), ""),
        queue(&key(1), ", p_available_at => clock_timestamp() + interval '2 milliseconds'"),
        // All callers use the same keys, in different orders.
        format!(
            "SELECT FROM (SELECT jsonb_agg(jsonb_build_object('project', 'shop', 'env', 'staging', 'concurrency_key', \
             'key-' || n, 'idempotency_key', 'burst-{round}-' || n) ORDER BY (n * {} + {caller}) % 4) AS runs \
             FROM generate_series(0, 3) n) b, ops.queue_runs(b.runs)",
            [1, 3][caller % 2]
        ),
        format!("SELECT run_id FROM ops.claim_next_run('{worker}', 3, p_lease_secs => 1)"),
        format!("SELECT ops.append_event(run_id, 'info', 'step {round}') FROM ({mine}) m"),
        format!("SELECT ops.heartbeat(run_id) FROM ({mine}) m"),
        format!(
            "SELECT ops.finish_runs(array_agg(run_id), array_agg(CASE WHEN {round} % 2 = 0 THEN 'failed' \
             ELSE 'success' END), array_agg('{{}}'::jsonb)) FROM ({mine}) m HAVING count(*) > 0"
        ),
        "SELECT ops.cancel_run(run_id) FROM (SELECT run_id FROM ops.runs WHERE gate = 'key' LIMIT 1) m"
            .to_owned(),
        "SELECT ops.retry_run(run_id) FROM (SELECT run_id FROM ops.runs r WHERE status = 'cancelled' \
         AND NOT EXISTS (SELECT FROM ops.runs s WHERE s.retry_of = r.run_id) LIMIT 1) m"
            .to_owned(),
        "SELECT ops.sweep(50, 20, clock_timestamp() + interval '3 seconds')".to_owned(),
        "SELECT ops.repair_keys(10)".to_owned(),
    ]
}

/// Counts two held runs of one key, and keys with an open run but a wrong head.
const BROKEN: &str = "SELECT (SELECT count(*) FROM (SELECT FROM ops.runs WHERE concurrency_key IS NOT NULL \
    AND claimed_by IS NOT NULL AND finished_at IS NULL GROUP BY concurrency_key HAVING count(*) > 1) d) \
    + (SELECT count(*) FROM ops.runs r LEFT JOIN ops.concurrency_keys k USING (project_id, concurrency_key) \
        WHERE r.concurrency_key IS NOT NULL AND r.gate = 'open' AND k.head_run_id IS DISTINCT FROM r.run_id)";

#[tokio::test]
async fn burst_of_all_operations_meets_no_deadlock() {
    let kernel = Kernel::open().await;
    let mut tasks = Vec::new();
    for caller in 0..8 {
        let mut session = kernel.session().await;
        tasks.push(tokio::spawn(async move {
            for round in 0..25 {
                for text in verbs(caller, round) {
                    if let Err(error) = sqlx::raw_sql(AssertSqlSafe(text.clone())).execute(&mut session).await
                    {
                        let state = sqlstate(&error);
                        // Another caller retried or ended the run first.
                        assert_eq!(state.as_deref(), Some("TM009"), "{text}: {error}");
                    }
                }
            }
        }));
    }
    while tasks.iter().any(|task| !task.is_finished()) {
        assert_eq!(kernel.value(BROKEN).await.as_deref(), Some("0"));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for task in tasks {
        task.await.unwrap();
    }
    // Every queued run ends: none is stuck behind a key.
    for _ in 0..600 {
        kernel.execute("SELECT ops.sweep(500, 20, clock_timestamp() + interval '10 seconds')").await;
        match kernel.claim("last", "").await {
            Some(run) => kernel.execute(&format!("SELECT ops.finish_run('{run}', 'success')")).await,
            None if kernel
                .value("SELECT count(*) FROM ops.runs WHERE finished_at IS NULL")
                .await
                .as_deref()
                == Some("0") =>
            {
                return;
            }
            None => {}
        }
    }
    panic!(
        "runs are stuck: {:?}",
        kernel.value("SELECT count(*) FROM ops.runs WHERE finished_at IS NULL").await
    );
}
