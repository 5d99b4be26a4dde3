//! Counts for `/metrics`: one bounded query over everything that waits.

use crate::codec::{Columns, SqlTime};
use crate::store::Backend;
use crate::tx::{FromColumns, on};
use crate::{Error, Store, catalog};
use tidemill_core::Timestamp;

/// Time without progress after which an open partition counts as stuck.
const STUCK_AFTER: chrono::TimeDelta = chrono::TimeDelta::minutes(10);
/// Counts reported for every queue, also for an empty one.
const OF_A_QUEUE: [&str; 4] = ["queue_ready", "queue_delayed", "queue_in_flight", "queue_dead"];

/// Counts reported for every feed, also without a live sync.
const OF_A_FEED: [&str; 3] = ["partitions_stuck", "sync_fetched", "sync_consolidated"];

/// Counts of waiting and held work at one moment.
#[derive(Debug, Clone)]
pub struct Overview {
    pub at: Timestamp,
    pub lines: Vec<OverviewLine>,
}

/// A count of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverviewLine {
    /// Name of the count: `runs_queued`, `runs_held`, `queue_ready` and so on.
    pub name: String,
    /// Gate, state, queue or feed that the count is for.
    pub label: String,
    /// Capped at 100,000.
    pub count: i64,
    /// Time of the oldest counted row; the watermark for a feed.
    pub since: Option<Timestamp>,
}

impl Overview {
    /// Returns the age of the oldest counted row in seconds.
    pub fn age(&self, line: &OverviewLine) -> Option<f64> {
        let age = (self.at - line.since?).num_milliseconds();
        #[expect(clippy::cast_precision_loss, reason = "an age in milliseconds")]
        Some((age as f64 / 1e3).max(0.0))
    }

    /// Adds zeros for gates, queues and feeds without rows, because a missing series cannot be told from a failed
    /// scrape.
    fn fill(&mut self) {
        let mut known: Vec<(&str, String)> =
            ["open", "time", "key"].map(|gate| ("runs_queued", gate.into())).into();
        known.extend(["claimed", "running"].map(|state| ("runs_held", state.into())));
        for queue in self.lines.iter().filter(|line| line.name == "queue") {
            known.extend(OF_A_QUEUE.map(|name| (name, queue.label.clone())));
        }
        for feed in self.lines.iter().filter(|line| line.name == "feed_down") {
            known.extend(OF_A_FEED.map(|name| (name, feed.label.clone())));
        }
        for (name, label) in known {
            if !self.lines.iter().any(|line| line.name == name && line.label == label) {
                self.lines.push(OverviewLine { name: name.to_owned(), label, count: 0, since: None });
            }
        }
        self.lines.retain(|line| line.name != "queue");
    }
}

impl FromColumns for OverviewLine {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            name: row.text("name")?,
            label: row.text("label")?,
            count: row.long("value")?,
            since: row.time_or_null("since")?,
        })
    }
}

/// Use of the connection pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolUse {
    pub max: u32,
    pub open: u32,
    pub busy: u32,
}

impl Store {
    /// Reads all counts in one query.
    pub async fn overview(&self, now: Option<Timestamp>) -> Result<Overview, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let at = tx.database_now(now).await?;
                let stuck = SqlTime(at - STUCK_AFTER);
                let lines = on!(
                    tx,
                    catalog::STANDING_NOW,
                    [SqlTime(at), stuck],
                    fetch_all,
                    "read the counts for metrics"
                )?
                .readable("runs", "name");
                let mut standing = Overview { at, lines };
                standing.fill();
                Ok(standing)
            })
        })
        .await
    }

    /// Returns the use of the connection pool of this process.
    pub fn pool(&self) -> PoolUse {
        match &self.backend {
            Backend::Postgres(postgres) => postgres.pool_use(),
            Backend::Sqlite(sqlite) => {
                let readers = sqlite.readers();
                let idle = u32::try_from(readers.num_idle()).unwrap_or(u32::MAX);
                let open = readers.size();
                let max = readers.options().get_max_connections();
                PoolUse { max, open, busy: open.saturating_sub(idle) }
            }
        }
    }
}
