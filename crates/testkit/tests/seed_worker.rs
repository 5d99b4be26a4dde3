//! The worker script of seed 003 as written there: bash and psql, without heartbeats.
//!
//! The script calls `execute_workflow`, which the seed does not define. Here it waits for a file, so that the script is
//! really running while the sweep is called with a later time. Only the clock of the sweep is moved.
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
use tidemill_testkit::interface::{Fixture, Kind, PlainSql};

/// The script as in the seed.
const SCRIPT: &str = include_str!("fixtures/seed_003_worker_execute.sh");
/// Time limit for the script's own steps.
const TIMEOUT: Duration = Duration::from_mins(1);

/// An execution writes a line to `executions`, reports its start, and ends when the file `go` exists.
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

/// A database with the seed's project, and a directory for the script.
struct ScriptFixture {
    base: Fixture,
    pool: PgPool,
    folder: TempDir,
}

impl ScriptFixture {
    async fn open(workflow: &str) -> Self {
        let base = Fixture::open_bare(Kind::Postgres).await;
        base.store.create_project("proj-123", vec!["staging".to_owned()], None).await.unwrap();
        let PlainSql::Postgres(pool) = base.plain.clone() else { panic!("the seed speaks PostgreSQL") };
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("worker_execute.sh"), SCRIPT).unwrap();
        std::fs::write(folder.path().join("workflow.sh"), workflow).unwrap();
        Self { base, pool, folder }
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
            .env("SUPABASE_DB_URL", &self.base.url)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Script(child)
    }

    /// Waits until the script's workflow has started.
    async fn until_begun(&self, script: &mut Script) {
        let until = Instant::now() + TIMEOUT;
        while !self.folder.path().join("began").exists() {
            assert_eq!(script.0.try_wait().unwrap(), None, "the script ended before its workflow began");
            assert!(Instant::now() < until, "the workflow does not begin");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Sweeps with a time six minutes later.
    async fn sweep_six_minutes_later(&self) {
        let now = self.base.store.now(None).await.unwrap() + TimeDelta::minutes(6);
        self.base.store.sweep(100, 20.0, Some(now)).await.unwrap();
    }

    /// Lets the workflow end, and waits for the script; returns its exit code.
    async fn finish(&self, mut script: Script) -> Option<i32> {
        std::fs::write(self.folder.path().join("go"), "").unwrap();
        let until = Instant::now() + TIMEOUT;
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
        self.base.run(run).await
    }

    /// Returns the run that another worker, the same script on another host, would claim now.
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
async fn silent_script_with_an_event_keeps_its_run() {
    let fixture = ScriptFixture::open(WITH_EVENT).await;
    let run = fixture.queue().await;
    let mut script = fixture.start();
    fixture.until_begun(&mut script).await;
    assert_eq!(fixture.run(&run).await.status, RunState::Running);

    fixture.sweep_six_minutes_later().await;
    let found = fixture.run(&run).await;
    assert_eq!((found.status, found.end_cause), (RunState::Running, None), "it was lost because of silence");
    assert!(found.stalled_at.is_some(), "no alert about the silence is sent");
    assert_eq!(fixture.next_claim().await, None, "a second execution would start beside the first");

    assert_eq!(fixture.finish(script).await, Some(0));
    let found = fixture.run(&run).await;
    assert_eq!((found.status, found.end_cause), (RunState::Success, Some(EndCause::Reported)));
    assert_eq!(fixture.base.successor(&run).await, None);
    assert_eq!(fixture.executions(), [run.to_string()]);
}

#[tokio::test]
async fn silent_script_without_event_is_cancelled_without_retry() {
    let fixture = ScriptFixture::open(WITHOUT_EVENT).await;
    let run = fixture.queue().await;
    let mut script = fixture.start();
    fixture.until_begun(&mut script).await;
    let claimed = fixture.run(&run).await;
    assert_eq!(claimed.status, RunState::Claimed);

    fixture.sweep_six_minutes_later().await;
    let found = fixture.run(&run).await;
    assert_eq!((found.status, found.end_cause), (RunState::Cancelled, Some(EndCause::Stale)));
    assert_eq!(found.metadata["cancelled_by"], "system");
    assert_eq!(found.metadata["reason"], "Stale run (claimed for >5 minutes without events)");
    assert_eq!(found.metadata["original_worker"].as_str(), claimed.claimed_by.as_deref());
    assert_eq!(fixture.base.successor(&run).await, None, "a successor would be a second execution");
    assert_eq!(fixture.next_claim().await, None);

    // The seed's script ignores the answers of psql, so it ends as if its report counted.
    assert_eq!(fixture.finish(script).await, Some(0));
    assert_eq!(fixture.run(&run).await.status, RunState::Cancelled);
    assert_eq!(fixture.executions(), [run.to_string()]);
}
