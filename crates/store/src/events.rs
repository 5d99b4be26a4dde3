//! Reading a run's record.

use crate::codec::Columns;
use crate::tx::{FromColumns, on};
use crate::{Error, Store, Tx, catalog};
use tidemill_core::RunId;
use tidemill_core::event::Event;

/// Which events to read.
#[derive(Debug, Clone, Copy)]
pub struct EventPage {
    /// After this sequence number; 0 for the first.
    pub after: i32,
    /// At most so many.
    pub limit: usize,
}

impl FromColumns for Event {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            event_id: row.text("event_id")?,
            run_id: row.parsed("run_id")?,
            seq: row.int("seq")?,
            kind: row.parsed("kind")?,
            level: row.parsed("level")?,
            message: row.text("message")?,
            payload: row.json("payload")?,
            event_key: row.text_or_null("event_key")?,
            created_at: row.time("created_at")?,
        })
    }
}

impl Tx<'_> {
    /// Events of a run, in order.
    pub async fn events(&mut self, run: &RunId, page: EventPage) -> Result<Vec<Event>, Error> {
        let limit = i64::try_from(page.limit).unwrap_or(i64::MAX);
        let binds = (run.as_str(), page.after, limit);
        on!(self, catalog::EVENT_LIST, [binds.0, binds.1, binds.2], fetch_all, "read events")?
            .records("read events")
    }
}

impl Store {
    /// Events of a run, in order.
    pub async fn events(&self, run: RunId, page: EventPage) -> Result<Vec<Event>, Error> {
        self.read(move |mut tx| Box::pin(async move { tx.events(&run, page).await })).await
    }
}
