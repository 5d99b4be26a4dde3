//! Something of the other lanes for the console to show: a sync that ended, and graphs whose jobs wait.

use crate::graph::{definition, settle};
use crate::ground::{ENVIRONMENT, PROJECT};
use crate::mill::{Mill, Running, supplier};
use anyhow::{Result, ensure};
use sqlx::PgConnection;
use tidemill_engine::Engine;
use tidemill_engine::graph::{GraphSettings, Graphs, SubmitGraph};
use tidemill_testkit::cluster::Database;

/// Stones of the feed, and the partitions that they are divided into: the most that a sync has.
const STONES: u32 = 150_000;
const PARTITIONS: i64 = 30;
/// Jobs of a graph that is drawn whole, and of one that is folded up.
const DRAWN: usize = 200;
const FOLDED: usize = 2_000;

/// Pages of the lanes, each with what it shows.
pub(crate) type Paths = Vec<(&'static str, String)>;

/// A supplier, and its feed on this database. Both are there for as long as they are held.
pub(crate) fn feed(database: Database) -> Result<(Running, Mill)> {
    let (supplier, endpoint) = supplier(STONES)?;
    Ok((supplier, Mill::new(database, &endpoint)?))
}

/// Syncs the feed with processes of its own; where to look at it.
pub(crate) async fn sync(mill: &Mill, conn: &mut PgConnection) -> Result<Paths> {
    let up = mill.start(&["up", "--no-server"])?;
    mill.sync(STONES)?;
    up.end()?;
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

/// Submits graphs and lets the controller look at them; where to look at them.
pub(crate) async fn graphs(engine: &Engine, conn: &mut PgConnection) -> Result<Paths> {
    let graphs = Graphs::new(engine.clone(), GraphSettings::default());
    let mut paths = Vec::new();
    for (what, jobs) in [("a graph of 200 jobs", DRAWN), ("a graph of 2,000 jobs", FOLDED)] {
        let asked = SubmitGraph::new(PROJECT, ENVIRONMENT, definition(jobs), "bench");
        paths.push((what, format!("/runs/{}", graphs.submit(asked).await?.run_id)));
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
