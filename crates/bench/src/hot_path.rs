//! The hot path of runs on PostgreSQL, compared with a minimal table: the same commits, connections and payload.
//!
//! pgbench runs both sides, so that only the server differs. Each side of each pair starts with a new database and a
//! warm-up. WAL and processor time include a VACUUM and a CHECKPOINT after the measurement.

use crate::Plan;
use crate::bench_cluster::BenchCluster;
use crate::cpu_time::{server_secs, wait_until_idle};
use crate::floor::{self, Backlog, Floor, WARM_UP};
use crate::pgbench::{self, frozen};
use crate::report::{Cost, Pairs, Report, log};
use anyhow::Result;
use sqlx::{Connection as _, Executor as _, PgConnection};
use std::path::Path;
use std::time::Duration;
use tidemill_testkit::cluster::Database;

/// Work that both sides do.
struct Comparison {
    name: &'static str,
    what: &'static str,
    connections: u32,
    /// Runs per transaction of the scripts.
    runs: f64,
    floor: Floor,
    /// Script of Tidemill below `crates/bench`.
    script: &'static str,
    backlog: Backlog,
    target: Target,
}

/// The target of a comparison.
#[derive(Debug, Clone, Copy)]
enum Target {
    /// Percent of the floor.
    OfFloor(f64),
    /// Absolute rate in runs per second.
    Rate(f64),
}

/// Keeps concurrent claims from finding no run.
const FEW: Backlog = Backlog::Constant(1_000);

/// A floor in percent says little here: a table without ids and checks takes rows of any size in one call.
const QUEUE_RUNS_TARGET: Target = Target::Rate(40_000.0);

const COMPARISONS: [Comparison; 6] = [
    Comparison {
        name: "batch",
        what: "claim and finish in batches of 100, 8 connections",
        connections: 8,
        runs: 100.0,
        floor: floor::BATCH,
        script: "frozen/batch.sql",
        backlog: Backlog::PerSecond(60_000),
        target: Target::OfFloor(60.0),
    },
    Comparison {
        name: "claim",
        what: "claim and finish one, 8 connections",
        connections: 8,
        runs: 1.0,
        floor: Floor { script: "floor_claim_finish.sql", backlog: Backlog::PerSecond(12_000) },
        script: "frozen/claim_finish.sql",
        backlog: Backlog::PerSecond(8_000),
        target: Target::OfFloor(55.0),
    },
    Comparison {
        name: "lifecycle",
        what: "queue, claim, start, finish: four commits, 8 connections",
        connections: 8,
        runs: 1.0,
        floor: Floor { script: "floor_lifecycle.sql", backlog: FEW },
        script: "frozen/lifecycle.sql",
        backlog: FEW,
        target: Target::OfFloor(45.0),
    },
    Comparison {
        name: "queue",
        what: "queue one, 16 callers",
        connections: 16,
        runs: 1.0,
        floor: Floor { script: "floor_queue_one.sql", backlog: FEW },
        script: "frozen/queue_one.sql",
        backlog: FEW,
        target: Target::OfFloor(40.0),
    },
    Comparison {
        name: "many",
        what: "queue 1,000 in a call, 4 callers",
        connections: 4,
        runs: 1_000.0,
        floor: Floor { script: "floor_queue_many.sql", backlog: FEW },
        script: "sql/queue_many.sql",
        backlog: FEW,
        target: QUEUE_RUNS_TARGET,
    },
    Comparison {
        name: "keyed",
        what: "queue 1,000 in a call with labels and keys, 4 callers",
        connections: 4,
        runs: 1_000.0,
        floor: Floor { script: "floor_queue_many.sql", backlog: FEW },
        script: "sql/queue_many_keyed.sql",
        backlog: FEW,
        target: QUEUE_RUNS_TARGET,
    },
];

/// Measures each comparison that the plan names.
pub(crate) async fn all(plan: &Plan, report: &mut Report) -> Result<()> {
    if !COMPARISONS.iter().any(|comparison| plan.wants(comparison.name)) {
        return Ok(());
    }
    let cluster = BenchCluster::start_for_runs()?;
    let time = plan.time_or(10);
    for comparison in COMPARISONS.iter().filter(|comparison| plan.wants(comparison.name)) {
        log(comparison.what);
        let template = queue_runs(&cluster, comparison.backlog.runs(time)).await?;
        let (mut pairs, mut ours, mut bare) = (Pairs::default(), Side::default(), Side::default());
        for _ in 0..plan.pairs {
            let database = comparison.floor.database(&cluster, time)?;
            let script = frozen(comparison.floor.script);
            let floor = comparison.measure(&cluster, &database, &script, time, &mut bare).await?;
            drop(database);
            let database = cluster.copy(&template)?;
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(comparison.script);
            let rate = comparison.measure(&cluster, &database, &script, time, &mut ours).await?;
            pairs.add(floor, rate);
        }
        let mut line = match comparison.target {
            Target::OfFloor(percent) => pairs.line(comparison.what, percent, ours.per_run()),
            Target::Rate(rate) => {
                pairs.line(comparison.what, None, ours.per_run()).with_min_rate(&pairs, rate)
            }
        };
        line.floor_cost = bare.per_run();
        report.add(line);
    }
    Ok(())
}

/// Creates a database with this many queued runs, from which others are copied.
pub(crate) async fn queue_runs(cluster: &BenchCluster, runs: u64) -> Result<Database> {
    log(&format!("  queueing {runs} runs"));
    let template = cluster.migrated_database().await?;
    pgbench::psql(&template.url, &frozen("fill_runs.sql"), runs)?;
    Ok(template)
}

impl Comparison {
    /// Returns runs per second of a script, and adds its cost until the server is idle.
    async fn measure(
        &self,
        cluster: &BenchCluster,
        database: &Database,
        script: &Path,
        time: Duration,
        side: &mut Side,
    ) -> Result<f64> {
        let seconds = time.as_secs().max(1);
        pgbench::rate(&database.url, script, self.connections, WARM_UP.as_secs())?;
        let server = cluster.process_id()?;
        let mut conn = PgConnection::connect(&database.url).await?;
        let before = Position::read(&mut conn, server).await?;
        let result = pgbench::run_for(&database.url, script, self.connections, seconds)?;
        let measured = Position::read(&mut conn, server).await?;
        let after = Position::read_after_vacuum(&mut conn, server).await?;
        conn.close().await?;
        side.add(&before, &measured, &after, self.runs * result.transactions);
        Ok(self.runs * result.rate)
    }
}

/// Counters of the whole server.
pub(crate) struct Position {
    pub(crate) wal_bytes: f64,
    transactions: f64,
    pub(crate) cpu_secs: f64,
}

impl Position {
    /// Reads the counters after a VACUUM and a CHECKPOINT, when the server has become idle: work that a queue leaves to
    /// the vacuum is part of its cost.
    pub(crate) async fn read_after_vacuum(conn: &mut PgConnection, server: u32) -> Result<Self> {
        conn.execute("VACUUM").await?;
        conn.execute("CHECKPOINT").await?;
        let cpu_secs = wait_until_idle(server).await?;
        Ok(Self { cpu_secs, ..Self::read(conn, server).await? })
    }

    pub(crate) async fn read(conn: &mut PgConnection, server: u32) -> Result<Self> {
        // Assigns no transaction id, unlike pg_current_xact_id().
        let query = "SELECT (pg_current_wal_insert_lsn() - '0/0')::float8,
                            pg_snapshot_xmax(pg_current_snapshot())::text::float8";
        let (wal_bytes, transactions) = sqlx::query_as(query).fetch_one(conn).await?;
        Ok(Self { wal_bytes, transactions, cpu_secs: server_secs(server)? })
    }
}

/// Total cost of one side in all pairs.
#[derive(Debug, Default)]
struct Side {
    runs: f64,
    wal_bytes: f64,
    commits: f64,
    cpu_secs: f64,
}

impl Side {
    fn add(&mut self, before: &Position, measured: &Position, after: &Position, runs: f64) {
        self.runs += runs;
        self.commits += measured.transactions - before.transactions;
        self.wal_bytes += after.wal_bytes - before.wal_bytes;
        self.cpu_secs += after.cpu_secs - before.cpu_secs;
    }

    fn per_run(&self) -> Option<Cost> {
        (self.runs >= 1.0).then(|| Cost {
            wal_bytes: self.wal_bytes / self.runs,
            commits: self.commits / self.runs,
            cpu_micros: Some(1e6 * self.cpu_secs / self.runs),
        })
    }
}
