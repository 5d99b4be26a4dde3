//! Floors: a minimal table, and plain SQL files for it that pgbench runs with as many connections as Tidemill uses.

use crate::bench_cluster::BenchCluster;
use crate::pgbench::{self, frozen};
use anyhow::Result;
use std::time::Duration;
use tidemill_testkit::cluster::Database;

/// Time for which a script runs before it is measured, on both sides of a comparison.
pub(crate) const WARM_UP: Duration = Duration::from_secs(1);

/// Runs that are queued before a script starts.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Backlog {
    /// A fixed number, for scripts that queue as many runs as they claim.
    Constant(u64),
    /// Runs per second of the script, more than the machine can complete.
    PerSecond(u64),
}

impl Backlog {
    /// Returns the number of runs for a measurement with its warm-up.
    pub(crate) fn runs(self, time: Duration) -> u64 {
        match self {
            Self::Constant(runs) => runs,
            Self::PerSecond(rate) => rate * (time + WARM_UP).as_secs(),
        }
    }
}

/// A script for the minimal table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Floor {
    pub(crate) script: &'static str,
    pub(crate) backlog: Backlog,
}

/// Claims 100 runs and finishes them, with two commits.
pub(crate) const BATCH: Floor = Floor { script: "floor_batch.sql", backlog: Backlog::PerSecond(120_000) };

impl Floor {
    /// Creates a database with the filled table.
    pub(crate) fn database(&self, cluster: &BenchCluster, time: Duration) -> Result<Database> {
        let database = cluster.empty_database()?;
        pgbench::psql(&database.url, &frozen("floor_fill.sql"), self.backlog.runs(time))?;
        Ok(database)
    }

    /// Measures transactions per second on a new table, after a warm-up.
    pub(crate) fn rate(&self, cluster: &BenchCluster, connections: u32, time: Duration) -> Result<f64> {
        let database = self.database(cluster, time)?;
        let script = frozen(self.script);
        pgbench::rate(&database.url, &script, connections, WARM_UP.as_secs())?;
        pgbench::rate(&database.url, &script, connections, time.as_secs().max(1))
    }
}
