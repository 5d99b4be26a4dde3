//! Every SELECT, UPDATE and function call of seed 003, with ids filled in: each runs, and gives the right answer.
//!
//! The statements stand as the seed writes them; `{run}` is where a run's id goes. Times are the database's own. The
//! seed's DDL is not run: what it names must exist.
#![expect(clippy::unwrap_used, reason = "a set-up that fails ends the test")]

#[path = "seed/contract.rs"]
mod contract;

use sqlx::postgres::{PgPool, PgRow};
use sqlx::{AssertSqlSafe, Row as _};
use tidemill_core::run::RunState;
use tidemill_core::{Json, RunId, Timestamp};
use tidemill_testkit::interface::{Fixture, Kind, PlainSql};

/// The seed's project and environment, and plain SQL on them.
struct Seed {
    stage: Fixture,
    pool: PgPool,
}

impl Seed {
    async fn open() -> Self {
        let stage = Fixture::open_bare(Kind::Postgres).await;
        stage.store.create_project("proj-123", vec!["staging".to_owned()], None).await.unwrap();
        let PlainSql::Postgres(pool) = stage.plain.clone() else { panic!("the seed speaks PostgreSQL") };
        Self { stage, pool }
    }

    async fn rows(&self, text: &str) -> Vec<PgRow> {
        let text = AssertSqlSafe(text.to_owned());
        sqlx::query(text).persistent(false).fetch_all(&self.pool).await.unwrap_or_else(|bad| panic!("{bad}"))
    }

    async fn row(&self, text: &str) -> PgRow {
        let mut rows = self.rows(text).await;
        assert_eq!(rows.len(), 1, "{text}");
        rows.remove(0)
    }

    async fn execute(&self, text: &str) -> u64 {
        let text = AssertSqlSafe(text.to_owned());
        sqlx::query(text).persistent(false).execute(&self.pool).await.unwrap().rows_affected()
    }

    /// Queues a run as the seed does; its id.
    async fn queue(&self) -> String {
        let row =
            self.row("SELECT * FROM ops.queue_run('proj-123', 'staging', 'abc123def456', 'main')").await;
        row.get("run_id")
    }

    /// Queues a run and claims it; its id.
    async fn claimed(&self) -> String {
        let run = self.queue().await;
        let row = self.row("SELECT * FROM ops.claim_next_run(p_worker_id := 'worker-001');").await;
        assert_eq!(row.get::<String, _>("run_id"), run);
        run
    }

    async fn status(&self, run: &str) -> String {
        self.row(&format!("SELECT run_id, status FROM ops.runs WHERE run_id = '{run}';")).await.get("status")
    }
}

fn names(row: &PgRow) -> Vec<&str> {
    row.columns().iter().map(sqlx::Column::name).collect()
}

#[tokio::test]
async fn a_run_is_queued_as_in_the_seed() {
    let seed = Seed::open().await;
    let row = seed
        .row(
            r#"SELECT * FROM ops.queue_run(
                p_project_id := 'proj-123',
                p_env := 'staging',
                p_git_sha := 'abc123def456',
                p_git_ref := 'main',
                p_metadata := '{"trigger": "webhook", "author": "john@example.com"}'::jsonb
            );"#,
        )
        .await;
    assert_eq!(names(&row)[..3], ["run_id", "status", "queued_at"], "new columns come last");
    assert_eq!(row.get::<String, _>("status"), "queued");
    let run: String = row.get("run_id");
    assert!(run.starts_with("run-") && run.parse::<RunId>().is_ok());
    let kept = seed
        .row(&format!(
            "SELECT claimed_by, started_at, finished_at, status FROM ops.runs WHERE run_id = '{run}'"
        ))
        .await;
    assert_eq!(kept.get::<Option<String>, _>("claimed_by"), None);
    assert_eq!(kept.get::<Option<Timestamp>, _>("started_at"), None);
    assert_eq!(kept.get::<Option<Timestamp>, _>("finished_at"), None);
}

#[tokio::test]
async fn a_run_is_claimed_as_in_the_seed() {
    let seed = Seed::open().await;
    let run = seed.queue().await;
    let row = seed.row("SELECT * FROM ops.claim_next_run(p_worker_id := 'worker-001');").await;
    assert_eq!(names(&row)[..6], ["run_id", "project_id", "env_id", "git_sha", "git_ref", "metadata"]);
    assert_eq!(row.get::<String, _>("git_sha"), "abc123def456");
    let row = seed
        .row(&format!("SELECT run_id, status, claimed_by, started_at FROM ops.runs WHERE run_id = '{run}';"))
        .await;
    assert_eq!(
        (row.get::<String, _>("status"), row.get::<String, _>("claimed_by")),
        ("claimed".into(), "worker-001".into())
    );
    assert!(row.get::<Option<Timestamp>, _>("started_at").is_some());
    assert!(
        seed.rows("SELECT * FROM ops.claim_next_run('worker-001')").await.is_empty(),
        "no row when there is none"
    );
}

/// The seed's simplified claim, statement by statement, in one transaction.
#[tokio::test]
async fn the_seeds_simplified_claim_works_by_hand() {
    let seed = Seed::open().await;
    let first = seed.queue().await;
    seed.queue().await;
    let mut transaction = seed.pool.begin().await.unwrap();
    let found: String = sqlx::query_scalar(
        "SELECT run_id FROM ops.runs WHERE status = 'queued' ORDER BY queued_at LIMIT 1 FOR UPDATE SKIP LOCKED",
    )
    .fetch_one(&mut *transaction)
    .await
    .unwrap();
    assert_eq!(found, first);
    sqlx::query(
        "UPDATE ops.runs SET status = 'claimed', claimed_by = $2, started_at = NOW(), updated_at = NOW() \
         WHERE ops.runs.run_id = $1",
    )
    .bind(&found)
    .bind("worker-007")
    .execute(&mut *transaction)
    .await
    .unwrap();
    sqlx::query(
        "INSERT INTO ops.run_events (run_id, seq, level, message, payload) \
         VALUES ($1, 3, 'info', 'Run claimed by worker', jsonb_build_object('worker_id', 'worker-007'))",
    )
    .bind(&found)
    .execute(&mut *transaction)
    .await
    .unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(seed.status(&first).await, "claimed");
    let done = seed.row(&format!("SELECT ops.finish_run('{first}', 'success')")).await;
    assert!(done.get::<bool, _>(0));
}

#[tokio::test]
async fn the_first_event_starts_the_run_as_in_the_seed() {
    let seed = Seed::open().await;
    let run = seed.claimed().await;
    let text = format!(
        r#"SELECT ops.append_event(
            p_run_id := '{run}',
            p_level := 'info',
            p_message := 'Starting build process',
            p_payload := '{{"step": "build", "docker_image": "odoo-ce:19.0"}}'::jsonb
        );"#
    );
    let event: String = seed.row(&text).await.get(0);
    assert_eq!(seed.status(&run).await, "running");
    let again: String = seed.row(&text).await.get(0);
    assert_eq!(again, event, "a retry within ten seconds is the same event");
    let row = seed
        .row(&format!(
            "SELECT COUNT(*) AS count FROM ops.run_events WHERE run_id = '{run}' AND level = 'info' \
             AND message = 'Starting build process' AND created_at > NOW() - INTERVAL '10 seconds'"
        ))
        .await;
    assert_eq!(row.get::<i64, _>("count"), 1);
    let row = seed
        .row(&format!(
            "SELECT event_id FROM ops.run_events WHERE run_id = '{run}' AND level = 'info' \
             AND message = 'Starting build process' ORDER BY created_at DESC LIMIT 1"
        ))
        .await;
    assert_eq!(row.get::<String, _>("event_id"), event);
}

/// The seed's automatic transition, by hand.
#[tokio::test]
async fn the_seeds_transition_to_running_works_by_hand() {
    let seed = Seed::open().await;
    let run = seed.claimed().await;
    let text = format!(
        "UPDATE ops.runs SET status = 'running', updated_at = NOW() WHERE run_id = '{run}' AND status = 'claimed'"
    );
    assert_eq!(seed.execute(&text).await, 1);
    assert_eq!(seed.execute(&text).await, 0, "only if it is not running already");
    assert_eq!(seed.status(&run).await, "running");
}

#[tokio::test]
async fn runs_are_finished_as_in_the_seed() {
    let seed = Seed::open().await;
    let run = seed.claimed().await;
    let done = seed
        .row(&format!(
            r#"SELECT ops.finish_run(
                p_run_id := '{run}',
                p_status := 'success',
                p_metadata := '{{
                    "exit_code": 0,
                    "artifacts": [
                        {{"type": "image", "url": "ghcr.io/org/odoo-ce:abc123"}},
                        {{"type": "sbom", "url": "s3://bucket/run-uuid-1234/sbom.json"}}
                    ],
                    "deploy_url": "https://staging.example.com",
                    "health_check": "passed"
                }}'::jsonb
            );"#
        ))
        .await;
    assert!(done.get::<bool, _>(0));
    let row = seed
        .row(&format!(
            "SELECT run_id, status, finished_at, metadata->'exit_code' FROM ops.runs WHERE run_id = '{run}';"
        ))
        .await;
    assert_eq!(
        (row.get::<String, _>("status"), row.get::<Json, _>(3)),
        ("success".to_owned(), Json::from(0))
    );
    assert!(row.get::<Option<Timestamp>, _>("finished_at").is_some());
    let artifacts = seed.rows("SELECT artifact_type, url FROM ops.artifacts ORDER BY artifact_type").await;
    assert_eq!(artifacts.len(), 2);

    let run = seed.claimed().await;
    let done = seed
        .row(&format!(
            r#"SELECT ops.finish_run(p_run_id := '{run}', p_status := 'failed', p_metadata := '{{
                "exit_code": 1, "error": "Docker build failed", "step": "build",
                "stderr": "ERROR: Cannot find Dockerfile", "retry_count": 0 }}'::jsonb);"#
        ))
        .await;
    assert!(done.get::<bool, _>(0));
    let row = seed
        .row(&format!(
            "SELECT run_id, status, metadata->>'error' AS error_message FROM ops.runs WHERE run_id = '{run}';"
        ))
        .await;
    assert_eq!(row.get::<String, _>("error_message"), "Docker build failed");

    let run = seed.queue().await;
    let done = seed
        .row(&format!(
            r#"SELECT ops.finish_run(p_run_id := '{run}', p_status := 'cancelled', p_metadata := '{{
                "cancelled_by": "user-456", "reason": "Manual stop via console",
                "timestamp": "2026-02-14T10:35:00Z" }}'::jsonb);"#
        ))
        .await;
    assert!(done.get::<bool, _>(0));
    assert_eq!(seed.status(&run).await, "cancelled");
    let late = seed.row(&format!("SELECT ops.finish_run('{run}', 'success');")).await;
    assert!(!late.get::<bool, _>(0), "false when stale");
    let late = seed.row(&format!("SELECT ops.append_event('{run}', 'info', 'late')")).await;
    assert_eq!(late.get::<Option<String>, _>(0), None, "NULL when stale");
}

#[tokio::test]
async fn the_seeds_statement_for_stale_runs_works_as_written() {
    let seed = Seed::open().await;
    let stale = seed.queue().await;
    seed.row("SELECT * FROM ops.claim_next_run('worker-001', p_now := now() - interval '6 minutes')").await;
    let fresh = seed.claimed().await;
    let text = r#"UPDATE ops.runs
        SET status = 'cancelled',
            finished_at = NOW(),
            metadata = metadata || '{
                "cancelled_by": "system",
                "reason": "Stale run (claimed for >5 minutes without events)"
            }'::jsonb
        WHERE status = 'claimed'
          AND started_at < NOW() - INTERVAL '5 minutes';"#;
    assert_eq!(seed.execute(text).await, 1);
    assert_eq!(
        (seed.status(&stale).await, seed.status(&fresh).await),
        ("cancelled".into(), "claimed".into())
    );
    let row = seed
        .row(&format!(
            "SELECT message, payload FROM ops.run_events WHERE run_id = '{stale}' ORDER BY seq DESC LIMIT 1"
        ))
        .await;
    assert_eq!(row.get::<String, _>("message"), "Run cancelled");
    assert_eq!(row.get::<Json, _>("payload")["from"], "claimed");
}

/// The Edge Function: finds stale runs by a SELECT, and finishes each by a call.
#[tokio::test]
async fn the_seeds_stale_run_monitor_works() {
    let seed = Seed::open().await;
    let run = seed.queue().await;
    seed.row("SELECT * FROM ops.claim_next_run('worker-001', p_now := now() - interval '6 minutes')").await;
    let stale = seed
        .rows(
            "SELECT run_id, claimed_by, started_at FROM ops.runs WHERE status = 'claimed' \
             AND started_at < now() - interval '5 minutes'",
        )
        .await;
    assert_eq!(stale.len(), 1);
    let text = "SELECT ops.finish_run(p_run_id := $1, p_status := 'cancelled', p_metadata := jsonb_build_object( \
                'cancelled_by', 'system', 'reason', 'Stale run (claimed for >5 minutes without events)', \
                'original_worker', $2, 'claimed_at', $3::text))";
    let call = sqlx::query(text).bind(&run).bind(stale[0].get::<String, _>("claimed_by"));
    let done = call.bind(stale[0].get::<Timestamp, _>("started_at").to_rfc3339()).fetch_one(&seed.pool).await;
    assert!(done.unwrap().get::<bool, _>(0));
    let row = seed.row(&format!("SELECT metadata FROM ops.runs WHERE run_id = '{run}'")).await;
    assert_eq!(row.get::<Json, _>("metadata")["original_worker"], "worker-001");
}

/// Five runs, three workers at once: the picture that the seed draws.
#[tokio::test]
async fn the_seeds_concurrency_example_comes_out_as_drawn() {
    let seed = Seed::open().await;
    for minute in 0..5 {
        let text = format!(
            "SELECT ops.queue_run('proj-123', 'staging', 'abc', 'main', p_run_id := 'run-00{}', \
             p_now := '2026-02-14 10:0{minute}:00+00')",
            minute + 1
        );
        seed.row(&text).await;
    }
    let listed = seed
        .rows("SELECT run_id, status, queued_at FROM ops.runs WHERE status = 'queued' ORDER BY queued_at;")
        .await;
    assert_eq!(listed.len(), 5);
    let claim = |worker: &'static str| {
        let pool = seed.pool.clone();
        async move {
            sqlx::query("SELECT * FROM ops.claim_next_run($1)").bind(worker).fetch_one(&pool).await.unwrap();
        }
    };
    tokio::join!(claim("worker-001"), claim("worker-002"), claim("worker-003"));
    let rows = seed.rows("SELECT run_id, status, claimed_by FROM ops.runs ORDER BY queued_at;").await;
    let drawn: Vec<(String, String)> =
        rows.iter().map(|row| (row.get("run_id"), row.get("status"))).collect();
    let expected = ["claimed", "claimed", "claimed", "queued", "queued"];
    for ((run, status), (place, expected)) in drawn.into_iter().zip((1..).zip(expected)) {
        assert_eq!((run.as_str(), status.as_str()), (format!("run-00{place}").as_str(), expected));
    }
    let mut workers: Vec<String> = rows.iter().filter_map(|row| row.get("claimed_by")).collect();
    workers.sort();
    assert_eq!(workers, ["worker-001", "worker-002", "worker-003"]);
}

#[tokio::test]
async fn the_seeds_idempotent_call_gives_the_run_that_exists() {
    let seed = Seed::open().await;
    let text =
        "SELECT * FROM ops.queue_run('proj-123', 'staging', 'abc', 'main', '{}'::jsonb, 'deploy-abc-1');";
    let first: String = seed.row(text).await.get("run_id");
    let second = seed.row(text).await;
    assert_eq!(
        (second.get::<String, _>("run_id"), names(&second)[..3].to_vec()),
        (first.clone(), vec!["run_id", "status", "queued_at"])
    );
    let row = seed.row("SELECT * FROM ops.runs WHERE idempotency_key = 'deploy-abc-1'").await;
    assert_eq!(row.get::<String, _>("run_id"), first);
}

/// The worker script: the claim as JSON, which jq reads, and the two ways to finish.
#[tokio::test]
async fn the_seeds_worker_script_works() {
    let seed = Seed::open().await;
    let claim = "SELECT row_to_json(r) FROM ( SELECT * FROM ops.claim_next_run('worker-host') ) r;";
    assert!(seed.rows(claim).await.is_empty(), "nothing to do is an empty answer");
    for (finish, status) in [
        ("SELECT ops.finish_run('{run}', 'success');", "success"),
        (
            r#"SELECT ops.finish_run('{run}', 'failed', '{
                "error": "Max retries exceeded", "retry_count": 3 }'::jsonb);"#,
            "failed",
        ),
    ] {
        let queued = seed.queue().await;
        let json: Json = seed.row(claim).await.get(0);
        assert_eq!(
            (json["run_id"].as_str(), json["git_sha"].as_str()),
            (Some(queued.as_str()), Some("abc123def456"))
        );
        assert!(seed.row(&finish.replace("{run}", &queued)).await.get::<bool, _>(0));
        assert_eq!(seed.status(&queued).await, status);
    }
}

/// The metrics, as the seed asks for them and as the store tells them.
#[tokio::test]
async fn the_seeds_metrics_are_those_of_the_store() {
    let seed = Seed::open().await;
    for finish in ["success", "success", "failed", "cancelled"] {
        let run = seed.claimed().await;
        seed.row(&format!(
            "SELECT ops.finish_run('{run}', '{finish}', p_now := now() + interval '7 seconds')"
        ))
        .await;
    }
    seed.claimed().await;
    seed.queue().await;
    seed.queue().await;
    let stats = seed.stage.store.stats(None).await.unwrap();

    let row = seed.row("SELECT COUNT(*) AS queued_count FROM ops.runs WHERE status = 'queued';").await;
    assert_eq!((row.get::<i64, _>("queued_count"), stats.queued_count), (2, 2));

    let row = seed
        .row(
            "SELECT claimed_by, COUNT(*) AS active_runs FROM ops.runs WHERE status IN ('claimed', 'running') \
             GROUP BY claimed_by;",
        )
        .await;
    assert_eq!(row.get::<String, _>("claimed_by"), stats.active[0].claimed_by);
    assert_eq!((row.get::<i64, _>("active_runs"), stats.active[0].active_runs), (1, 1));

    let row = seed
        .row(
            "SELECT COUNT(*) FILTER (WHERE status = 'success') AS success_count, \
                 COUNT(*) FILTER (WHERE status = 'failed') AS failed_count, \
                 ROUND(100.0 * COUNT(*) FILTER (WHERE status = 'success') / NULLIF(COUNT(*), 0), 2)::float8 \
                     AS success_rate \
             FROM ops.runs WHERE created_at > NOW() - INTERVAL '24 hours' AND status IN ('success', 'failed');",
        )
        .await;
    assert_eq!((row.get::<i64, _>("success_count"), stats.success_count), (2, 2));
    assert_eq!((row.get::<i64, _>("failed_count"), stats.failed_count), (1, 1));
    assert_eq!((row.get::<Option<f64>, _>("success_rate"), stats.success_rate), (Some(66.67), Some(66.67)));

    let rows = seed
        .rows(
            "SELECT status, AVG(EXTRACT(EPOCH FROM (finished_at - started_at)))::float8 AS avg_duration_seconds \
             FROM ops.runs WHERE finished_at IS NOT NULL AND created_at > NOW() - INTERVAL '7 days' GROUP BY status;",
        )
        .await;
    let mut asked: Vec<(RunState, f64)> = rows
        .iter()
        .map(|row| {
            (row.get::<String, _>("status").parse().unwrap(), row.get::<f64, _>("avg_duration_seconds"))
        })
        .collect();
    asked.sort_by_key(|(status, _)| status.as_str());
    let told: Vec<(RunState, f64)> =
        stats.durations.iter().map(|one| (one.status, one.avg_duration_seconds)).collect();
    assert_eq!(asked.len(), 3);
    for ((status, seconds), (told_status, told_seconds)) in asked.iter().zip(&told) {
        assert_eq!(status, told_status);
        assert!((seconds - told_seconds).abs() < 1e-6, "{status}: {seconds} and {told_seconds}");
    }
}
