//! Data of the other lanes for the console: an ended sync, and graphs with waiting jobs.

use crate::bench_cluster::{ENVIRONMENT, PROJECT};
use crate::graph::{definition, settle};
use crate::sync_processes::{Running, SyncProcesses, supplier};
use anyhow::{Result, ensure};
use sqlx::PgConnection;
use tidemill_engine::Engine;
use tidemill_engine::graph::{GraphSettings, Graphs, SubmitGraph};
use tidemill_testkit::cluster::Database;

/// Stones of the feed, and the resulting partitions, which are the maximum of a sync.
const STONES: u32 = 150_000;
const PARTITIONS: i64 = 30;
/// Jobs of a graph that the console draws completely, and of one that it collapses.
const DRAWN: usize = 200;
const COLLAPSED: usize = 2_000;

/// Descriptions and paths of pages.
pub(crate) type Paths = Vec<(&'static str, String)>;

/// Starts a supplier, and adds its feed. Both end when they are dropped.
pub(crate) fn feed(database: Database) -> Result<(Running, SyncProcesses)> {
    let (supplier, endpoint) = supplier(STONES)?;
    Ok((supplier, SyncProcesses::new(database, &endpoint)?))
}

/// Syncs the feed, and returns the pages that show it.
pub(crate) async fn sync(processes: &SyncProcesses, conn: &mut PgConnection) -> Result<Paths> {
    let up = processes.start(&["up", "--no-server"])?;
    processes.sync(STONES)?;
    up.stop()?;
    let run: String =
        sqlx::query_scalar("SELECT ops_run_id FROM run_metadata LIMIT 1").fetch_one(&mut *conn).await?;
    let (partitions, queue): (i64, String) = sqlx::query_as(
        "SELECT (SELECT count(*) FROM partition_progress), (SELECT min(queue) FROM ops.queues)",
    )
    .fetch_one(conn)
    .await?;
    ensure!(partitions == PARTITIONS, "the sync has {partitions} partitions");
    Ok(vec![
        ("a sync of 30 partitions", format!("/runs/{run}")),
        ("a feed", "/feeds/bench".to_owned()),
        ("a queue", format!("/queues/{queue}")),
    ])
}

/// Submits graphs, runs the controller once, and returns the pages that show them.
pub(crate) async fn graphs(engine: &Engine, conn: &mut PgConnection) -> Result<Paths> {
    let graphs = Graphs::new(engine.clone(), GraphSettings::default());
    let mut paths = Vec::new();
    for (what, jobs) in [("a graph of 200 jobs", DRAWN), ("a graph of 2,000 jobs", COLLAPSED)] {
        let graph = SubmitGraph::new(PROJECT, ENVIRONMENT, definition(jobs), "bench");
        paths.push((what, format!("/runs/{}", graphs.submit(graph).await?.run_id)));
    }
    let mut controller = graphs.controller("pages");
    settle(&mut controller).await?;
    controller.release().await;
    let job: String = sqlx::query_scalar("SELECT job_id FROM ops.jobs ORDER BY position DESC LIMIT 1")
        .fetch_one(conn)
        .await?;
    paths.push(("a job", format!("/jobs/{job}")));
    Ok(paths)
}
