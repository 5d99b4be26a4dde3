//! The statements of the usual calls: which calls use them, how many rows they read, and what concurrent changes do.

use crate::Kernel;
use sqlx::postgres::PgListener;
use sqlx::{AssertSqlSafe, PgConnection, Row as _};
use std::time::Duration;
use tidemill_engine::clock::host_now;
use tidemill_testkit::interface::new_run_id;
use tokio::time::timeout;

/// Much longer than a statement takes on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(1);

async fn execute(session: &mut PgConnection, text: &str) {
    sqlx::raw_sql(AssertSqlSafe(text.to_owned()))
        .execute(session)
        .await
        .unwrap_or_else(|bad| panic!("{text}: {bad}"));
}

/// Returns the first column of each row as text.
async fn texts(session: &mut PgConnection, text: &str) -> Vec<Option<String>> {
    let text = format!("SELECT (q.x)::text FROM ({text}) q (x)");
    let rows = sqlx::query(AssertSqlSafe(text.clone())).persistent(false).fetch_all(session).await;
    rows.unwrap_or_else(|bad| panic!("{text}: {bad}")).iter().map(|row| row.get(0)).collect()
}

/// Executes a statement in a transaction, and returns a counter of this transaction.
async fn counted(kernel: &Kernel, statement: &str, counter: &str) -> i64 {
    let mut session = kernel.session().await;
    execute(&mut session, &format!("SET track_functions = 'all'; BEGIN; {statement}")).await;
    let counts = texts(&mut session, counter).await;
    execute(&mut session, "COMMIT").await;
    counts.first().and_then(Option::as_ref).map_or(0, |count| count.parse().unwrap())
}

/// The rows of `runs` that a transaction has read.
const ROWS_READ: &str = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables \
                         WHERE relid = 'ops.runs'::regclass";

/// Inserts numbered runs with further columns, after one run of the usual kind.
async fn fill(kernel: &Kernel, runs: u32, columns: &str, values: &str) {
    kernel.queue("").await;
    kernel
        .execute(&format!(
            "INSERT INTO ops.runs (run_id, project_id, env_id, last_seq, label_set_id, {columns}) \
             SELECT 'run-018f3c5e-0000-7000-8000-' || lpad(n::text, 12, '0'), 'shop', 'shop/staging', 1, \
                    (SELECT min(label_set_id) FROM ops.label_sets), {values} \
               FROM generate_series(1, {runs}) n"
        ))
        .await;
}

#[tokio::test]
async fn request_with_a_new_id_takes_the_fast_path() {
    let kernel = Kernel::open().await;
    // The first request creates the label set.
    kernel.queue("").await;
    let id = || new_run_id(host_now());
    let old = new_run_id(host_now() - chrono::TimeDelta::hours(1));
    for (more, checks) in [
        (String::new(), 0),
        (format!(", p_run_id => '{}'", id()), 0),
        (format!(", p_run_id => '{}', p_labels => '{{a}}'", id()), 1),
        // The time in an id decides nothing.
        (format!(", p_run_id => '{old}'"), 0),
        (", p_run_id => 'run-mine'".to_owned(), 1),
    ] {
        let text = format!("SELECT ops.queue_run('shop', 'staging', NULL, NULL{more})");
        let calls = "SELECT calls FROM pg_stat_xact_user_functions WHERE funcname = 'check_request'";
        assert_eq!(counted(&kernel, &text, calls).await, checks, "{text}");
    }
    let queued = "SELECT count(*) FROM ops.run_events WHERE message = 'Run queued'";
    assert_eq!(kernel.value(queued).await.as_deref(), Some("6"));
}

#[tokio::test]
async fn only_the_first_of_two_requests_with_an_id_wakes_workers() {
    let kernel = Kernel::open().await;
    kernel.queue("").await;
    kernel
        .execute(
            "SELECT ops.register_worker('00000000-0000-4000-8000-000000000001', 'w', 'h', 1, '{}', '1'); \
             UPDATE ops.workers SET waiting = true",
        )
        .await;
    let mut listener = PgListener::connect_with(&kernel.pool).await.unwrap();
    listener.listen("tidemill_ops").await.unwrap();
    let id = new_run_id(host_now());
    for created in ["true", "false"] {
        let text =
            format!("SELECT created FROM ops.queue_run('shop', 'staging', NULL, NULL, p_run_id => '{id}')");
        assert_eq!(kernel.value(&text).await.as_deref(), Some(created));
    }
    kernel.execute("SELECT pg_notify('tidemill_ops', 'last')").await;
    let mut payloads = Vec::new();
    while payloads.last().is_none_or(|payload| payload != "last") {
        let notification = timeout(TIMEOUT, listener.recv()).await.expect("no notification").unwrap();
        payloads.push(notification.payload().to_owned());
    }
    assert_eq!(payloads, ["", "last"]);
}

/// A call of `queue_runs` for new ids.
fn queue_many(runs: usize, with_ids: bool) -> String {
    let run = |_| {
        let id =
            if with_ids { format!(r#", "run_id": "{}""#, new_run_id(host_now())) } else { String::new() };
        format!(r#"{{"project": "shop", "env": "staging"{id}}}"#)
    };
    let requests: Vec<String> = (0..runs).map(run).collect();
    format!("ops.queue_runs('[{}]')", requests.join(", "))
}

#[tokio::test]
async fn batch_with_new_ids_writes_no_more_than_one_without() {
    let kernel = Kernel::open().await;
    let mut session = kernel.session().await;
    execute(&mut session, &format!("SELECT {}", queue_many(1, true))).await;
    let mut records = Vec::new();
    for with_ids in [false, true] {
        let plan = format!("EXPLAIN (ANALYZE, WAL, FORMAT JSON) SELECT {}", queue_many(200, with_ids));
        let row = sqlx::query(AssertSqlSafe(plan)).persistent(false).fetch_one(&mut session).await.unwrap();
        let plan: serde_json::Value = row.get(0);
        records.push(plan[0]["Plan"]["WAL Records"].as_i64().unwrap());
    }
    // With ON CONFLICT there is one more record for each run.
    assert!(records[1] < records[0] + 100, "{records:?}");
}

#[tokio::test]
async fn batch_that_meets_itself_queues_each_run_once() {
    let kernel = Kernel::open().await;
    kernel.queue("").await;
    for end in ["COMMIT", "ROLLBACK"] {
        let call = queue_many(20, true);
        let count = format!("SELECT count(*) FILTER (WHERE created) FROM {call}");
        let mut first = kernel.session().await;
        execute(&mut first, &format!("BEGIN; {count}")).await;
        let mut second = kernel.session().await;
        let waiting = tokio::spawn(async move { texts(&mut second, &count).await });
        wait_for_lock(&kernel, "transactionid").await;
        execute(&mut first, end).await;
        let created = if end == "COMMIT" { "0" } else { "20" };
        assert_eq!(waiting.await.unwrap(), [Some(created.to_owned())], "after {end}");
    }
    let runs = "SELECT count(*) || ' ' || (SELECT count(*) FROM ops.run_events) FROM ops.runs";
    assert_eq!(kernel.value(runs).await.as_deref(), Some("41 41"));
}

/// Waits until a session waits for a lock of this type.
async fn wait_for_lock(kernel: &Kernel, lock: &str) {
    let waits = format!("SELECT count(*) > 0 FROM pg_locks WHERE locktype = '{lock}' AND NOT granted");
    let wait = async {
        while kernel.value(&waits).await.as_deref() != Some("true") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(TIMEOUT, wait).await.unwrap_or_else(|_| panic!("no session waits for a {lock} lock"));
}

/// A claim locks the new version of a run that changed after the claim began, but its statement does not see it.
#[tokio::test]
async fn claim_returns_a_run_that_changed_meanwhile() {
    let kernel = Kernel::open().await;
    let run = kernel.queue("").await;
    // Pauses the claim after its statement has taken its snapshot, and before it locks the run.
    kernel
        .execute(
            "CREATE FUNCTION ops.pause() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 IF current_setting('test.pause', true) = 'on' THEN \
                     PERFORM pg_advisory_xact_lock(1); \
                 END IF; \
                 RETURN NULL; \
             END $$; \
             CREATE TRIGGER pause BEFORE UPDATE ON ops.runs EXECUTE FUNCTION ops.pause()",
        )
        .await;
    let mut gate = kernel.session().await;
    execute(&mut gate, "SELECT pg_advisory_lock(1)").await;
    let mut claimer = kernel.session().await;
    execute(&mut claimer, "SET test.pause = 'on'").await;
    let claim =
        tokio::spawn(
            async move { texts(&mut claimer, "SELECT run_id FROM ops.claim_next_run('worker')").await },
        );
    wait_for_lock(&kernel, "advisory").await;
    kernel.execute(&format!("UPDATE ops.runs SET priority = 7 WHERE run_id = '{run}'")).await;
    execute(&mut gate, "SELECT pg_advisory_unlock(1)").await;
    assert_eq!(claim.await.unwrap(), [Some(run)]);
}

#[tokio::test]
async fn claim_reads_only_the_due_runs_that_it_opens() {
    let kernel = Kernel::open().await;
    let time = "now() - interval '1 hour' + n * interval '1 millisecond'";
    fill(&kernel, 20_000, "gate, available_at, attention_at", &format!("'time', {time}, {time}")).await;
    let read = counted(&kernel, "SELECT ops.claim_next_run('worker', 1)", ROWS_READ).await;
    // It opens 1,000 runs: each is read once to be found, and once to be changed.
    assert!((1_000..4_000).contains(&read), "{read} rows were read");
    let open = "SELECT count(*) FROM ops.runs WHERE gate = 'open'";
    assert_eq!(kernel.value(open).await.as_deref(), Some("1000"));
}

#[tokio::test]
async fn claim_does_not_read_expired_runs() {
    let kernel = Kernel::open().await;
    let gates = "CASE WHEN n <= 5000 THEN 'open' ELSE 'key' END, CASE WHEN n > 5000 THEN 'deploy' END";
    let time = "now() - interval '1 hour'";
    let columns = "gate, concurrency_key, expires_at, attention_at";
    fill(&kernel, 10_000, columns, &format!("{gates}, {time}, {time}")).await;
    let read = counted(&kernel, "SELECT ops.claim_next_run('worker', 1)", ROWS_READ).await;
    assert!(read < 100, "{read} rows were read");
}

/// Each batch begins where the last one ended.
#[tokio::test]
async fn due_runs_of_a_busy_key_are_read_once() {
    let kernel = Kernel::open().await;
    let time = "now() - interval '1 hour' + n * interval '1 millisecond'";
    let columns = "gate, concurrency_key, available_at, attention_at";
    let key = "CASE WHEN n <= 3000 THEN 'busy' WHEN n % 2 = 0 THEN 'also busy' END";
    fill(&kernel, 6_000, columns, &format!("'time', {key}, {time}, {time}")).await;
    let mut holder = kernel.session().await;
    execute(
        &mut holder,
        "BEGIN; SELECT ops.lock_key('shop', 'busy', true), ops.lock_key('shop', 'also busy', true)",
    )
    .await;
    let read = counted(&kernel, "SELECT ops.claim_next_run('worker', 1)", ROWS_READ).await;
    assert!(read < 9_000, "{read} rows were read");
    let open = "SELECT count(*) FROM ops.runs WHERE gate = 'open' AND available_at IS NOT NULL";
    assert_eq!(kernel.value(open).await.as_deref(), Some("1000"), "runs behind busy keys are opened");
}
