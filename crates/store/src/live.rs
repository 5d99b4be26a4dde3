//! Reads the events of all runs as they are committed. See [`tidemill_core::live`] for why this needs no global
//! sequence number.

use crate::codec::Columns;
use crate::tx::{Conn, EitherDatabase, FromColumns, on};
use crate::{Error, Store, Tx, catalog};
use tidemill_core::RunId;
use tidemill_core::event::Event;
use tidemill_core::live::Point;

/// An event with the project of its run.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveEvent {
    pub event: Event,
    /// Empty if the run was deleted.
    pub project_id: String,
}

impl FromColumns for LiveEvent {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self { event: Event::read(row)?, project_id: row.text("project_id")? })
    }
}

/// Which events to read: those of transactions that ended between two points, ordered by run and sequence number.
#[derive(Debug, Clone)]
pub struct LivePage {
    /// Excludes transactions that had ended by this point.
    pub since: Point,
    /// Includes transactions that have ended by this point.
    pub until: Point,
    /// Returns only events after this one.
    pub after: Option<(RunId, i32)>,
    /// Restricts the events to this project.
    pub project: Option<String>,
    pub limit: usize,
}

impl Tx<'_> {
    async fn live_point(&mut self) -> Result<Point, Error> {
        let text: Option<String> =
            on!(self, catalog::LIVE_POINT, [], fetch_optional, "find events")?.record("find events")?;
        let bad = |bad| Error::database("find events", sqlx::Error::Decode(Box::new(bad)));
        Point::of_snapshot(&text.unwrap_or_default()).map_err(bad)
    }

    async fn live_page(&mut self, page: &LivePage) -> Result<Vec<LiveEvent>, Error> {
        let (since, until) = (&page.since, &page.until);
        let (run, seq) = page.after.as_ref().map_or(("", 0), |(run, seq)| (run.as_str(), *seq));
        let limit = i64::try_from(page.limit).unwrap_or(i64::MAX);
        let sql = self.sql(catalog::LIVE_PAGE);
        let rows = match &mut self.conn {
            // Planned for every call: a generic plan for any two points would scan the whole table.
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
                .map(EitherDatabase::Postgres),
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
                .map(EitherDatabase::Sqlite),
        };
        let rows = rows.map_err(|source| Error::database("read events", source))?;
        Ok(rows.readable("run_events", "event_id"))
    }
}

fn list(numbers: &[i64]) -> String {
    serde_json::Value::from(numbers).to_string()
}

impl Store {
    /// Returns the set of transactions that have ended by now.
    pub async fn live_point(&self) -> Result<Point, Error> {
        self.read_one(move |mut tx| Box::pin(async move { tx.live_point().await })).await
    }

    /// Returns events of transactions that ended between two points.
    pub async fn live_page(&self, page: LivePage) -> Result<Vec<LiveEvent>, Error> {
        self.read_one(move |mut tx| Box::pin(async move { tx.live_page(&page).await })).await
    }
}
