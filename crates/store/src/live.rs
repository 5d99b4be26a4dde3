//! Reading everybody's events as they are committed: see [`tidemill_core::live`] for why this needs no sequence.

use crate::codec::Columns;
use crate::tx::{Conn, FromColumns, Of, on};
use crate::{Error, Store, Tx, catalog};
use tidemill_core::RunId;
use tidemill_core::event::Event;
use tidemill_core::live::Point;

/// An event, and whose it is.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveEvent {
    /// The event.
    pub event: Event,
    /// The project of its run; empty where the run is gone.
    pub project_id: String,
}

impl FromColumns for LiveEvent {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self { event: Event::read(row)?, project_id: row.text("project_id")? })
    }
}

/// Which events to read: those of transactions that ended between two points, in the order of runs and numbers.
#[derive(Debug, Clone)]
pub struct LivePage {
    /// Had not ended by this point.
    pub since: Point,
    /// Has ended by this one.
    pub until: Point,
    /// After this event.
    pub after: Option<(RunId, i32)>,
    /// Of this project, if not of all.
    pub project: Option<String>,
    /// At most so many.
    pub limit: usize,
}

impl Tx<'_> {
    async fn live_point(&mut self) -> Result<Point, Error> {
        let text: Option<String> = on!(self, catalog::LIVE_POINT, [], fetch_optional, "look for events")?
            .record("look for events")?;
        let bad = |bad| Error::database("look for events", sqlx::Error::Decode(Box::new(bad)));
        Point::of_snapshot(&text.unwrap_or_default()).map_err(bad)
    }

    async fn live_page(&mut self, page: &LivePage) -> Result<Vec<LiveEvent>, Error> {
        let (since, until) = (&page.since, &page.until);
        let (run, seq) = page.after.as_ref().map_or(("", 0), |(run, seq)| (run.as_str(), *seq));
        let limit = i64::try_from(page.limit).unwrap_or(i64::MAX);
        let sql = self.sql(catalog::LIVE_PAGE);
        let rows = match &mut self.conn {
            // Planned each time: a plan for any two points would read the whole table.
            Conn::Postgres(conn) => sqlx::query(sql)
                .bind(since.next())
                .bind(since.open())
                .bind(since.least())
                .bind(until.next())
                .bind(until.open())
                .bind(run)
                .bind(seq)
                .bind(&page.project)
                .bind(limit)
                .persistent(false)
                .fetch_all(&mut **conn)
                .await
                .map(Of::Postgres),
            Conn::Sqlite(conn) => sqlx::query(sql)
                .bind(since.next())
                .bind(list(since.open()))
                .bind(since.least())
                .bind(until.next())
                .bind(list(until.open()))
                .bind(run)
                .bind(seq)
                .bind(&page.project)
                .bind(limit)
                .fetch_all(&mut **conn)
                .await
                .map(Of::Sqlite),
        };
        let rows = rows.map_err(|source| Error::database("read events", source))?;
        Ok(rows.readable("run_events", "event_id"))
    }
}

fn list(numbers: &[i64]) -> String {
    serde_json::Value::from(numbers).to_string()
}

impl Store {
    /// Which transactions have ended by now.
    pub async fn live_point(&self) -> Result<Point, Error> {
        self.glance(move |mut tx| Box::pin(async move { tx.live_point().await })).await
    }

    /// Events of transactions that ended between two points.
    pub async fn live_page(&self, page: LivePage) -> Result<Vec<LiveEvent>, Error> {
        self.glance(move |mut tx| Box::pin(async move { tx.live_page(&page).await })).await
    }
}
