//! How things stand, for `/metrics`: one bounded look at everything that waits.

use crate::codec::{At, Columns};
use crate::store::Backend;
use crate::tx::{FromColumns, on};
use crate::{Error, Store, catalog};
use tidemill_core::Timestamp;

/// Time without progress after which an open partition counts as stuck.
const STUCK_AFTER: chrono::TimeDelta = chrono::TimeDelta::minutes(10);
/// What is said of every queue, even where there is nothing in it.
const OF_A_QUEUE: [&str; 4] = ["queue_ready", "queue_delayed", "queue_in_flight", "queue_dead"];

/// What is said of every feed, even where it has no sync at the moment.
const OF_A_FEED: [&str; 3] = ["partitions_stuck", "sync_fetched", "sync_consolidated"];

/// How things stood at one moment.
#[derive(Debug, Clone)]
pub struct Standing {
    /// The moment.
    pub at: Timestamp,
    /// One count each.
    pub lines: Vec<StandingLine>,
}

/// How many there are of something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandingLine {
    /// Of what: `runs_queued`, `runs_held`, `queue_ready` and so on.
    pub name: String,
    /// Of which gate, state, queue or feed.
    pub label: String,
    /// How many, at most a hundred thousand.
    pub count: i64,
    /// Since when the oldest of them is there; the watermark of a feed.
    pub since: Option<Timestamp>,
}

impl Standing {
    /// How old the oldest is, in seconds.
    pub fn age(&self, line: &StandingLine) -> Option<f64> {
        let age = (self.at - line.since?).num_milliseconds();
        #[expect(clippy::cast_precision_loss, reason = "an age in milliseconds")]
        Some((age as f64 / 1e3).max(0.0))
    }

    /// Every gate and queue, with nothing where nothing is: a figure that goes away cannot be told from one that is
    /// not read.
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
                self.lines.push(StandingLine { name: name.to_owned(), label, count: 0, since: None });
            }
        }
        self.lines.retain(|line| line.name != "queue");
    }
}

impl FromColumns for StandingLine {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            name: row.text("name")?,
            label: row.text("label")?,
            count: row.long("value")?,
            since: row.time_or_null("since")?,
        })
    }
}

/// Connections to the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolUse {
    /// How many there may be.
    pub most: u32,
    /// How many are open.
    pub open: u32,
    /// How many are being used.
    pub busy: u32,
}

impl Store {
    /// How things stand.
    pub async fn standing(&self, now: Option<Timestamp>) -> Result<Standing, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let at = tx.database_now(now).await?;
                let stuck = At(at - STUCK_AFTER);
                let lines =
                    on!(tx, catalog::STANDING_NOW, [At(at), stuck], fetch_all, "say how things stand")?
                        .readable("runs", "name");
                let mut standing = Standing { at, lines };
                standing.fill();
                Ok(standing)
            })
        })
        .await
    }

    /// How the connections of this process are used.
    pub fn pool(&self) -> PoolUse {
        match &self.backend {
            Backend::Postgres(postgres) => postgres.pool_use(),
            Backend::Sqlite(sqlite) => {
                let readers = sqlite.readers();
                let idle = u32::try_from(readers.num_idle()).unwrap_or(u32::MAX);
                let open = readers.size();
                let most = readers.options().get_max_connections();
                PoolUse { most, open, busy: open.saturating_sub(idle) }
            }
        }
    }
}
