//! Key metrics of runs.

use crate::codec::{Columns, SqlTime};
use crate::tx::{FromColumns, on};
use crate::{Error, Store, catalog};
use tidemill_core::Timestamp;
use tidemill_core::stats::{ActiveRuns, MeanDuration, Stats};

struct Queue(Stats);

impl FromColumns for Queue {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self(Stats {
            queued_count: row.long("queued")?,
            ready_count: row.long("ready")?,
            oldest_ready_secs: row.number_or_null("oldest_secs")?,
            ..Stats::default()
        }))
    }
}

struct Outcomes(i64, i64);

impl FromColumns for Outcomes {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self(row.long("success_count")?, row.long("failed_count")?))
    }
}

impl FromColumns for ActiveRuns {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self { claimed_by: row.text("claimed_by")?, active_runs: row.long("active_runs")? })
    }
}

impl FromColumns for MeanDuration {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            status: row.parsed("status")?,
            avg_duration_seconds: row.number_or_null("mean_secs")?.unwrap_or_default(),
            runs: row.long("runs")?,
        })
    }
}

impl Store {
    /// Returns the key metrics: the queue now, the last 24 hours, the last 7 days.
    pub async fn stats(&self, now: Option<Timestamp>) -> Result<Stats, Error> {
        self.stats_of(None, now).await
    }

    /// Returns the key metrics of one project, or of all.
    pub async fn stats_of(&self, project: Option<String>, now: Option<Timestamp>) -> Result<Stats, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let now = tx.database_now(now).await?;
                let queue: Option<Queue> = on!(
                    tx,
                    catalog::STATS_QUEUE,
                    [SqlTime(now), project.as_deref()],
                    fetch_optional,
                    "count runs"
                )?
                .record("count runs")?;
                let mut stats = queue.map(|queue| queue.0).unwrap_or_default();
                stats.active = on!(tx, catalog::STATS_ACTIVE, [project.as_deref()], fetch_all, "count runs")?
                    .readable("runs", "claimed_by");
                let day = SqlTime(now - chrono::Duration::hours(24));
                let outcomes: Option<Outcomes> = on!(
                    tx,
                    catalog::STATS_OUTCOMES,
                    [day, project.as_deref()],
                    fetch_optional,
                    "count runs"
                )?
                .record("count runs")?;
                if let Some(Outcomes(success, failed)) = outcomes {
                    stats.success_count = success;
                    stats.failed_count = failed;
                }
                let week = SqlTime(now - chrono::Duration::days(7));
                for (since, durations) in [(week, &mut stats.durations), (day, &mut stats.durations_day)] {
                    *durations = on!(
                        tx,
                        catalog::STATS_DURATIONS,
                        [since, project.as_deref()],
                        fetch_all,
                        "count runs"
                    )?
                    .readable("runs", "status");
                }
                Ok(stats.with_rate())
            })
        })
        .await
    }
}
