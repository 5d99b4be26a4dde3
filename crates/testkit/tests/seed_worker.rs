//! The worker script of seed 003, as the seed writes it: bash and psql, without heartbeats.
//!
//! The script calls `execute_workflow`, which the seed does not define. Here it waits for a file, so that the script is
//! really running while the sweep is called with a later time. Only the sweep's clock is moved.
#![expect(clippy::unwrap_used, reason = "a set-up that fails ends the test")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use sqlx::Row as _;
use sqlx::postgres::PgPool;
use tempfile::TempDir;
use tidemill_core::RunId;
use tidemill_core::run::{EndCause, Run, RunState};
use tidemill_testkit::door::{Kind, Plain, Stage};

/// The script as it stands in the seed.
const SCRIPT: &str = include_str!("fixtures/seed_003_worker_execute.sh");
/// Time limit for the script's own steps.
const PATIENCE: Duration = Duration::from_mins(1);

/// One execution leaves a line in `executions`, says that it began, and ends when `go` is there.
const WITH_EVENT: &str = r#"
execute_workflow() {
    echo "$1" >> "$FOLDER/executions"
    psql "$SUPABASE_DB_URL" -q -c "SELECT ops.append_event('$1', 'info', 'Starting deploy');" > /dev/null
    touch "$FOLDER/began"
    until [ -e "$FOLDER/go" ]; do sleep 0.05; done
}
export -f execute_workflow
"#;
const WITHOUT_EVENT: &str = r#"
execute_workflow() {
    echo "$1" >> "$FOLDER/executions"
    touch "$FOLDER/began"
    until [ -e "$FOLDER/go" ]; do sleep 0.05; done
}
export -f execute_workflow
"#;

/// A database with the seed's project, and a folder for the script.
struct Bench {
    stage: Stage,
    pool: PgPool,
    folder: TempDir,
}

impl Bench {
    async fn open(workflow: &str) -> Self {
        let stage = Stage::open_bare(Kind::Postgres).await;
        stage.store.create_project("proj-123", vec!["staging".to_owned()], None).await.unwrap();
        let Plain::Postgres(pool) = stage.plain.clone() else { panic!("the seed speaks PostgreSQL") };
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("worker_execute.sh"), SCRIPT).unwrap();
        std::fs::write(folder.path().join("workflow.sh"), workflow).unwrap();
        Self { stage, pool, folder }
    }

    async fn queue(&self) -> RunId {
        let text = "SELECT run_id FROM ops.queue_run('proj-123', 'staging', 'abc123def456', 'main')";
        let row = sqlx::query(text).fetch_one(&self.pool).await.unwrap();
        row.get::<String, _>("run_id").parse().unwrap()
    }

    /// Starts the script. Its `execute_workflow` comes from the environment.
    fn start(&self) -> Script {
        let folder = self.folder.path();
        let child = Command::new("bash")
            .args(["-c", "source \"$FOLDER/workflow.sh\"; exec bash \"$FOLDER/worker_execute.sh\""])
            .env("FOLDER", folder)
            .env("SUPABASE_DB_URL", &self.stage.url)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Script(child)
    }

    /// Waits until the script's workflow has begun.
    async fn until_begun(&self, script: &mut Script) {
        let until = Instant::now() + PATIENCE;
        while !self.folder.path().join("began").exists() {
            assert_eq!(script.0.try_wait().unwrap(), None, "the script ended before its workflow began");
            assert!(Instant::now() < until, "the workflow does not begin");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Sweeps as if six minutes had passed.
    async fn sweep_six_minutes_later(&self) {
        let now = self.stage.store.now(None).await.unwrap() + TimeDelta::minutes(6);
        self.stage.store.sweep(100, 20.0, Some(now)).await.unwrap();
    }

    /// Lets the workflow end, and waits for the script; its exit code.
    async fn finish(&self, mut script: Script) -> Option<i32> {
        std::fs::write(self.folder.path().join("go"), "").unwrap();
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = script.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < until, "the script does not end");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn executions(&self) -> Vec<String> {
        let path: &Path = &self.folder.path().join("executions");
        std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    async fn run(&self, run: &RunId) -> Run {
        self.stage.run(run).await
    }

    /// Whether another worker, which is the same script on another host, would get something now.
    async fn next_claim(&self) -> Option<String> {
        let text = "SELECT run_id FROM ops.claim_next_run('worker-of-another-host')";
        sqlx::query_scalar(text).fetch_optional(&self.pool).await.unwrap()
    }
}

/// The running script. It is killed if the test fails.
struct Script(Child);

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_silent_script_that_appended_an_event_keeps_its_run() {
    let bench = Bench::open(WITH_EVENT).await;
    let run = bench.queue().await;
    let mut script = bench.start();
    bench.until_begun(&mut script).await;
    assert_eq!(bench.run(&run).await.status, RunState::Running);

    bench.sweep_six_minutes_later().await;
    let found = bench.run(&run).await;
    assert_eq!((found.status, found.end_cause), (RunState::Running, None), "it was taken away for silence");
    assert!(found.stalled_at.is_some(), "nobody is told that it is silent");
    assert_eq!(bench.next_claim().await, None, "a second execution would start beside the first");

    assert_eq!(bench.finish(script).await, Some(0));
    let found = bench.run(&run).await;
    assert_eq!((found.status, found.end_cause), (RunState::Success, Some(EndCause::Reported)));
    assert_eq!(bench.stage.successor(&run).await, None);
    assert_eq!(bench.executions(), [run.to_string()]);
}

#[tokio::test]
async fn a_silent_script_without_an_event_is_cancelled_and_not_followed() {
    let bench = Bench::open(WITHOUT_EVENT).await;
    let run = bench.queue().await;
    let mut script = bench.start();
    bench.until_begun(&mut script).await;
    let claimed = bench.run(&run).await;
    assert_eq!(claimed.status, RunState::Claimed);

    bench.sweep_six_minutes_later().await;
    let found = bench.run(&run).await;
    assert_eq!((found.status, found.end_cause), (RunState::Cancelled, Some(EndCause::Stale)));
    assert_eq!(found.metadata["cancelled_by"], "system");
    assert_eq!(found.metadata["reason"], "Stale run (claimed for >5 minutes without events)");
    assert_eq!(found.metadata["original_worker"].as_str(), claimed.claimed_by.as_deref());
    assert_eq!(bench.stage.successor(&run).await, None, "a successor would be a second execution");
    assert_eq!(bench.next_claim().await, None);

    // The seed's script does not look at what psql answers: it ends as if it had reported.
    assert_eq!(bench.finish(script).await, Some(0));
    assert_eq!(bench.run(&run).await.status, RunState::Cancelled);
    assert_eq!(bench.executions(), [run.to_string()]);
}
