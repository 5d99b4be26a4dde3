//! Every SELECT and UPDATE of seeds 000, 002 and 004, with ids filled in: each answers correctly on PostgreSQL, during
//! a sync and after it. Everything in the seeds' DDL exists.
//!
//! The statements are those of the seeds, except for the ids.

#[path = "sync/fixture.rs"]
#[expect(dead_code, clippy::expect_used, reason = "shared with the other tests of syncs")]
mod fixture;

use std::collections::BTreeSet;

use sqlx::postgres::{PgPool, PgRow};
use sqlx::{AssertSqlSafe, Row as _};
use tidemill_core::Timestamp;
use tidemill_core::records::Sync;
use tidemill_core::sync::SyncState;
use tidemill_testkit::interface::{Kind, PlainSql};
use tidemill_testkit::sync_fixture::SyncFixture;

use fixture::{consolidate, failed, open, partitions, plan, planned, reload, with_one_failed, work};

const STATUS: &str = "SELECT
  run_id,
  run_type,
  completed_workers || '/' || expected_workers AS progress,
  failed_workers,
  CASE
    WHEN completed_at IS NOT NULL THEN 'completed'
    WHEN failed_workers > 0 THEN 'failed'
    WHEN completed_workers < expected_workers THEN 'in_progress'
    ELSE 'consolidating'
  END AS status,
  started_at,
  completed_at,
  EXTRACT(EPOCH FROM (COALESCE(completed_at, NOW()) - started_at)) / 60 AS duration_minutes
FROM run_metadata
WHERE run_id = 'abc123';";

const WORKERS: &str = "SELECT
  partition_id,
  status,
  records_processed,
  error_message,
  started_at,
  completed_at
FROM worker_runs
WHERE run_id = 'abc123'
ORDER BY partition_id;";

const PROGRESS: &str = "SELECT
  partition_id,
  next_offset,
  completed,
  updated_at
FROM partition_progress
WHERE run_id = 'abc123'
ORDER BY partition_id;";

const ACTIVE: &str = "SELECT
  run_id,
  run_type,
  completed_workers,
  expected_workers,
  failed_workers,
  started_at,
  NOW() - started_at AS elapsed
FROM run_metadata
WHERE completed_at IS NULL
ORDER BY started_at DESC;";

const RECENT: &str = "SELECT
  run_id,
  run_type,
  completed_workers || '/' || expected_workers AS progress,
  CASE
    WHEN completed_at IS NOT NULL THEN 'completed'
    WHEN failed_workers > 0 THEN 'failed'
    ELSE 'in_progress'
  END AS status,
  started_at,
  completed_at,
  EXTRACT(EPOCH FROM (COALESCE(completed_at, NOW()) - started_at)) / 60 AS duration_minutes
FROM run_metadata
WHERE started_at > NOW() - INTERVAL '24 hours'
ORDER BY started_at DESC;";

const FAILED_WORKERS: &str = "SELECT
  wr.partition_id,
  wr.records_processed,
  wr.error_message,
  wr.started_at,
  wr.completed_at
FROM worker_runs wr
JOIN run_metadata rm ON wr.run_id = rm.run_id
WHERE rm.run_id = 'abc123'
  AND wr.status = 'failed'
ORDER BY wr.started_at;";

const PROGRESS_AT_FAILURE: &str = "SELECT
  partition_id,
  next_offset,
  completed
FROM partition_progress
WHERE run_id = 'abc123'
  AND NOT completed;";

const CAS: &str = "UPDATE partition_progress
SET next_offset = $1,
    updated_at = NOW()
WHERE run_id = 'abc123'
  AND partition_id = $2
  AND next_offset = $3  -- CAS: only update if matches
  AND NOT completed;";

const COUNT_COMPLETED: &str = "UPDATE run_metadata
SET completed_workers = completed_workers + 1
WHERE run_id = 'abc123'
RETURNING completed_workers, expected_workers, failed_workers;";

const COUNT_FAILED: &str = "UPDATE run_metadata
SET failed_workers = failed_workers + 1
WHERE run_id = 'abc123'
RETURNING completed_workers, expected_workers, failed_workers;";

const ACTIVE_PARTITIONS: &str = "SELECT * FROM partition_progress
WHERE completed = false
ORDER BY updated_at DESC;";

const PARTITIONS: &str = "SELECT * FROM partition_progress WHERE run_id = 'abc123';";

const COMPLETED_PARTITIONS: &str =
    "SELECT * FROM partition_progress WHERE run_id = 'abc123' AND completed = true;";

const ONE_PARTITION: &str = "SELECT * FROM partition_progress WHERE partition_id = 'partition-1';";

const STUCK_PARTITIONS: &str = "SELECT * FROM partition_progress
WHERE completed = false
  AND updated_at < NOW() - INTERVAL '10 minutes';";

const COMPLETION: &str = "SELECT
  rm.run_id,
  rm.completed_workers,
  rm.expected_workers,
  rm.failed_workers
FROM run_metadata rm
WHERE rm.completed_at IS NULL;";

/// A sync fixture on PostgreSQL, and the sync that the statements name.
struct Seed {
    fixture: SyncFixture,
    pool: PgPool,
    sync: Sync,
}

impl Seed {
    fn on(fixture: SyncFixture, sync: Sync) -> Self {
        let PlainSql::Postgres(pool) = fixture.base.plain.clone() else {
            panic!("the seeds need PostgreSQL")
        };
        Self { fixture, pool, sync }
    }

    /// Returns the rows of a statement, with the id of the sync filled in.
    async fn rows(&self, text: &str) -> Vec<PgRow> {
        let text = AssertSqlSafe(text.replace("abc123", &self.sync.run_id.to_string()));
        sqlx::query(text).persistent(false).fetch_all(&self.pool).await.unwrap_or_else(|bad| panic!("{bad}"))
    }

    async fn row(&self, text: &str) -> PgRow {
        let mut rows = self.rows(text).await;
        assert_eq!(rows.len(), 1, "{text}");
        rows.remove(0)
    }

    /// Returns the seeds' status, progress and failed workers.
    async fn status(&self) -> (String, String, i32) {
        let row = self.row(STATUS).await;
        assert_eq!(row.get::<uuid::Uuid, _>("run_id"), self.sync.run_id);
        assert_eq!(row.get::<String, _>("run_type"), self.sync.run_type.as_str());
        let minutes = format!("SELECT duration_minutes::float8 FROM ({}) s", STATUS.trim_end_matches(';'));
        assert!(self.row(&minutes).await.get::<f64, _>(0) >= 0.0);
        (row.get("status"), row.get("progress"), row.get("failed_workers"))
    }

    /// Reads the sync again.
    async fn reload(&self) -> Sync {
        reload(&self.fixture, &self.sync).await
    }
}

fn status_row(status: &str, progress: String, failed: i32) -> (String, String, i32) {
    (status.to_owned(), progress, failed)
}

/// From planned to completed: each statement is correct at every point.
#[tokio::test(flavor = "multi_thread")]
async fn seed_statements_are_correct_during_a_sync() {
    let fixture = open(Kind::Postgres, 900).await;
    let sync = planned(&fixture, false).await;
    let seed = Seed::on(fixture, sync);
    let all = seed.sync.expected_workers;

    // Planned.
    assert_eq!(seed.status().await, status_row("in_progress", format!("0/{all}"), 0));
    assert_eq!(seed.rows(ACTIVE).await.len(), 1);
    assert_eq!(seed.rows(COMPLETION).await.len(), 1);
    assert_eq!(seed.rows(WORKERS).await.len(), 0, "no worker has received a partition");
    let progress = seed.rows(PROGRESS).await;
    assert_eq!(progress.len(), usize::try_from(all).unwrap());
    assert!(
        progress.iter().all(|row| row.get::<i32, _>("next_offset") == 0 && !row.get::<bool, _>("completed"))
    );
    assert_eq!(seed.rows(PROGRESS_AT_FAILURE).await.len(), progress.len());
    assert_eq!(seed.rows(ACTIVE_PARTITIONS).await.len(), progress.len());
    assert_eq!(seed.rows(PARTITIONS).await.len(), progress.len());
    assert_eq!(seed.rows(COMPLETED_PARTITIONS).await.len(), 0);
    assert_eq!(seed.row(ONE_PARTITION).await.get::<i32, _>("next_offset"), 0);
    assert_eq!(seed.rows(STUCK_PARTITIONS).await.len(), 0);
    let old = "UPDATE partition_progress SET updated_at = NOW() - INTERVAL '11 minutes' WHERE partition_id = \
               'partition-1' RETURNING partition_id";
    seed.row(old).await;
    let stuck = seed.row(STUCK_PARTITIONS).await;
    assert_eq!(stuck.get::<String, _>("partition_id"), "partition-1");

    // Read, and not yet consolidated.
    work(&seed.fixture).await;
    assert_eq!(seed.rows(COMPLETED_PARTITIONS).await.len(), progress.len());
    assert!(seed.row(ONE_PARTITION).await.get::<bool, _>("completed"));
    assert_eq!(seed.status().await, status_row("consolidating", format!("{all}/{all}"), 0));
    let workers = seed.rows(WORKERS).await;
    assert_eq!(workers.len(), usize::try_from(all).unwrap());
    assert!(workers.iter().all(|row| row.get::<String, _>("status") == "completed"));
    assert!(workers.iter().all(|row| row.get::<Option<String>, _>("error_message").is_none()));
    assert!(workers.iter().all(|row| row.get::<Option<Timestamp>, _>("completed_at").is_some()));
    let read: i64 = workers.iter().map(|row| i64::from(row.get::<i32, _>("records_processed"))).sum();
    assert_eq!(read, 900);
    let ends = seed.rows(PROGRESS).await;
    let ended: i64 = ends.iter().map(|row| i64::from(row.get::<i32, _>("next_offset"))).sum();
    assert_eq!(ended, 900);
    assert_eq!(seed.rows(FAILED_WORKERS).await.len(), 0);
    assert_eq!(seed.rows(PROGRESS_AT_FAILURE).await.len(), 0);
    assert_eq!(seed.rows(ACTIVE).await.len(), 1);

    // Completed.
    consolidate(&seed.fixture).await;
    assert_eq!(seed.status().await, status_row("completed", format!("{all}/{all}"), 0));
    assert_eq!(seed.rows(ACTIVE).await.len(), 0);
    assert_eq!(seed.rows(COMPLETION).await.len(), 0);
    let recent = seed.row(RECENT).await;
    assert_eq!(recent.get::<String, _>("status"), "completed");
    let row =
        seed.row("SELECT watermark_before, watermark_after FROM run_metadata WHERE run_id = 'abc123'").await;
    assert_eq!(row.get::<Option<Timestamp>, _>("watermark_before"), None);
    assert_eq!(row.get::<Option<Timestamp>, _>("watermark_after"), Some(seed.sync.updated_to));
    seed.fixture.check_equal().await;
}

/// The seeds' analysis names a failed partition and its reason.
#[tokio::test(flavor = "multi_thread")]
async fn seed_analysis_names_the_failed_partition() {
    let fixture = open(Kind::Postgres, 900).await;
    let sync = with_one_failed(&fixture, false).await;
    let seed = Seed::on(fixture, sync);
    let all = seed.sync.expected_workers;
    assert_eq!(seed.status().await, status_row("failed", format!("{}/{all}", all - 1), 1));
    assert_eq!(seed.row(RECENT).await.get::<String, _>("status"), "failed");
    let broken = failed(&seed.fixture, &seed.sync).await.remove(0);
    let worker = seed.row(FAILED_WORKERS).await;
    assert_eq!(worker.get::<String, _>("partition_id"), broken.partition_id);
    assert!(worker.get::<String, _>("error_message").contains("none has an id"));
    assert!(worker.get::<Option<Timestamp>, _>("completed_at").is_some());
    let progress = seed.row(PROGRESS_AT_FAILURE).await;
    assert_eq!(progress.get::<String, _>("partition_id"), broken.partition_id);
    assert_eq!(progress.get::<i32, _>("next_offset"), broken.next_offset);
    assert_eq!(seed.row(ACTIVE).await.get::<i32, _>("failed_workers"), 1, "completed_at stays empty");
    seed.fixture.syncs.retry_sync(&seed.sync.run_id.to_string(), false, None, "ann").await.unwrap();
    plan(&seed.fixture).await;
    assert_eq!(seed.status().await, status_row("in_progress", format!("{}/{all}", all - 1), 0));
    work(&seed.fixture).await;
    consolidate(&seed.fixture).await;
    assert_eq!(seed.status().await, status_row("completed", format!("{all}/{all}"), 0));
    assert_eq!(seed.rows(FAILED_WORKERS).await.len(), 0);
}

/// The seeds' counters are plain SQL that every user can run. Their values are ignored: the counts are derived from the
/// partitions again.
#[tokio::test(flavor = "multi_thread")]
async fn manually_changed_counters_are_derived_again() {
    let fixture = open(Kind::Postgres, 900).await;
    let sync = planned(&fixture, false).await;
    let seed = Seed::on(fixture, sync);
    let all = seed.sync.expected_workers;
    for raised in 1..=all {
        let row = seed.row(COUNT_COMPLETED).await;
        assert_eq!(
            (row.get::<i32, _>("completed_workers"), row.get::<i32, _>("expected_workers")),
            (raised, all)
        );
    }
    let row = seed.row(COUNT_FAILED).await;
    assert_eq!(row.get::<i32, _>("failed_workers"), 1);
    let judged = seed.fixture.syncs.evaluate(seed.sync.run_id).await.unwrap();
    assert_eq!(judged, tidemill_core::sync::ConsolidationDecision::Wait);
    let after = seed.reload().await;
    assert_eq!((after.completed_workers, after.failed_workers), (0, 0));
    assert_eq!(after.state, SyncState::Created, "nothing was triggered");
    work(&seed.fixture).await;
    seed.row(COUNT_COMPLETED).await;
    seed.row(COUNT_FAILED).await;
    consolidate(&seed.fixture).await;
    let done = seed.reload().await;
    assert_eq!(done.state, SyncState::Completed);
    seed.fixture.syncs.evaluate(seed.sync.run_id).await.unwrap();
    assert_eq!(seed.status().await, status_row("completed", format!("{all}/{all}"), 0));
    seed.fixture.check_equal().await;
}

/// The seeds' compare-and-swap by plain SQL: a matching offset moves, another one is unchanged, and a message for a
/// skipped page is a duplicate. The operator is responsible for the skipped page.
#[tokio::test(flavor = "multi_thread")]
async fn seed_compare_and_swap_works_by_plain_sql() {
    let fixture = open(Kind::Postgres, 900).await;
    let sync = planned(&fixture, false).await;
    let seed = Seed::on(fixture, sync);
    let cas = |to: i32, expected: i32| {
        let text = CAS.replace("abc123", &seed.sync.run_id.to_string());
        let query =
            sqlx::query(AssertSqlSafe(text)).bind(to).bind("partition-0").bind(expected).persistent(false);
        async { query.execute(&seed.pool).await.unwrap().rows_affected() }
    };
    assert_eq!(cas(30, 7).await, 0, "an offset that is not there");
    assert_eq!(cas(30, 0).await, 1);
    assert_eq!(cas(30, 0).await, 0, "a duplicate");
    assert_eq!(cas(0, 30).await, 1, "and back");
    work(&seed.fixture).await;
    let part = partitions(&seed.fixture, &seed.sync).await.remove(0);
    assert!(part.state.completed());
    assert_eq!(cas(0, part.next_offset).await, 0, "what is completed stays");
    consolidate(&seed.fixture).await;
    seed.fixture.check_equal().await;
}

/// The seeds' DDL: table, column, type, nullability, and the start of the default.
const COLUMNS: [(&str, &str, &str, bool, &str); 25] = [
    ("run_metadata", "run_id", "uuid", false, ""),
    ("run_metadata", "run_type", "text", false, ""),
    ("run_metadata", "expected_workers", "integer", false, ""),
    ("run_metadata", "completed_workers", "integer", true, "0"),
    ("run_metadata", "failed_workers", "integer", true, "0"),
    ("run_metadata", "watermark_before", "timestamp with time zone", true, ""),
    ("run_metadata", "watermark_after", "timestamp with time zone", true, ""),
    ("run_metadata", "started_at", "timestamp with time zone", true, "now()"),
    ("run_metadata", "completed_at", "timestamp with time zone", true, ""),
    ("worker_runs", "id", "uuid", false, ""),
    ("worker_runs", "run_id", "uuid", false, ""),
    ("worker_runs", "partition_id", "text", false, ""),
    ("worker_runs", "worker_id", "text", false, ""),
    ("worker_runs", "status", "text", false, ""),
    ("worker_runs", "records_processed", "integer", true, "0"),
    ("worker_runs", "error_message", "text", true, ""),
    ("worker_runs", "work_item_payload", "jsonb", true, ""),
    ("worker_runs", "started_at", "timestamp with time zone", true, "now()"),
    ("worker_runs", "completed_at", "timestamp with time zone", true, ""),
    ("partition_progress", "run_id", "uuid", false, ""),
    ("partition_progress", "partition_id", "text", false, ""),
    ("partition_progress", "next_offset", "integer", false, "0"),
    ("partition_progress", "completed", "boolean", false, "false"),
    ("partition_progress", "created_at", "timestamp with time zone", true, "now()"),
    ("partition_progress", "updated_at", "timestamp with time zone", true, "now()"),
];

/// Its keys: table, kind, columns.
const KEYS: [(&str, &str, &str); 5] = [
    ("run_metadata", "PRIMARY KEY", "run_id"),
    ("worker_runs", "PRIMARY KEY", "id"),
    ("worker_runs", "UNIQUE", "run_id,partition_id"),
    ("worker_runs", "FOREIGN KEY", "run_id"),
    ("partition_progress", "PRIMARY KEY", "run_id,partition_id"),
];

#[tokio::test(flavor = "multi_thread")]
async fn seed_ddl_objects_exist() {
    let fixture = open(Kind::Postgres, 10).await;
    let PlainSql::Postgres(pool) = fixture.base.plain.clone() else { panic!("the seeds need PostgreSQL") };
    for (table, column, kind, may_be_empty, default) in COLUMNS {
        let found: Option<(String, String, Option<String>)> = sqlx::query_as(
            "SELECT data_type::text, is_nullable::text, column_default::text FROM information_schema.columns \
             WHERE table_name = $1 AND column_name = $2 AND table_schema = ANY (current_schemas(false))",
        )
        .bind(table)
        .bind(column)
        .fetch_optional(&pool)
        .await
        .unwrap();
        let (found_kind, nullable, found_default) =
            found.unwrap_or_else(|| panic!("{table}.{column} is missing"));
        assert_eq!((found_kind.as_str(), nullable == "YES"), (kind, may_be_empty), "{table}.{column}");
        assert_eq!(found_default.unwrap_or_default(), default, "{table}.{column}");
    }
    let keys: Vec<(String, String, String)> = sqlx::query_as(
        "SELECT c.table_name::text, c.constraint_type::text, \
                string_agg(k.column_name::text, ',' ORDER BY k.ordinal_position) \
           FROM information_schema.table_constraints c JOIN information_schema.key_column_usage k \
             ON k.constraint_name = c.constraint_name AND k.table_schema = c.table_schema \
                AND k.table_name = c.table_name \
          WHERE c.table_schema = ANY (current_schemas(false)) GROUP BY 1, 2, c.constraint_name",
    )
    .fetch_all(&pool)
    .await
    .unwrap();
    let keys: BTreeSet<(&str, &str, &str)> =
        keys.iter().map(|(table, kind, columns)| (table.as_str(), kind.as_str(), columns.as_str())).collect();
    for key in KEYS {
        assert!(keys.contains(&key), "{key:?} is missing from {keys:?}");
    }
    // The names of seed 004's bulk upsert, and its conflict on the supplier's id.
    let raw =
        "SELECT column_name::text FROM information_schema.columns WHERE table_name = 'raw_diamonds_nivoda'";
    let raw: Vec<String> = sqlx::query_scalar(raw).fetch_all(&pool).await.unwrap();
    for column in ["run_id", "supplier_stone_id", "offer_id", "payload"] {
        assert!(raw.iter().any(|name| name == column), "{column} is missing from {raw:?}");
    }
}
