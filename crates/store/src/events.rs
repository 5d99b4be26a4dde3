//! Reads the events of runs.

use crate::codec::Columns;
use crate::tx::{FromColumns, on};
use crate::{Error, Store, Tx, catalog};
use tidemill_core::RunId;
use tidemill_core::event::{Event, EventKind, Level};
use tidemill_core::limits::{MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX, TAIL_EVENTS_MAX};

/// Which events of a run to read.
#[derive(Debug, Clone, Copy)]
pub struct EventPage {
    /// Sequence number of the last event already read; 0 to start.
    pub after: i32,
    pub limit: usize,
}

/// Which events to read from the end.
#[derive(Debug, Clone, Default)]
pub struct EventTail {
    /// Returns only events before this sequence number.
    pub before: Option<i32>,
    pub level: Option<Level>,
    /// Text that the message must contain, ignoring case.
    pub contains: Option<String>,
    pub limit: usize,
}

/// Returns a LIKE pattern that finds the text anywhere, with its special characters escaped.
fn like_pattern(text: &str) -> String {
    let mut pattern = String::from("%");
    for letter in text.chars() {
        if matches!(letter, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern + "%"
}

/// Returns a level as a number, in order of severity.
const fn severity(level: Level) -> i32 {
    match level {
        Level::Debug => 0,
        Level::Info => 1,
        Level::Warn => 2,
        Level::Error => 3,
    }
}

/// Limit for reading a payload. PostgreSQL's text form adds spaces.
const PAYLOAD_READ_MAX: usize = 4 * PAYLOAD_BYTES_MAX;

impl FromColumns for Event {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            event_id: row.text("event_id")?,
            run_id: row.run_id("run_id")?,
            seq: row.int("seq")?,
            // Unknown values are replaced instead of failing: a reader of the stream would otherwise lose every later
            // event.
            kind: row.text("kind")?.parse().unwrap_or(EventKind::Log),
            level: row.text("level")?.parse().unwrap_or(Level::Warn),
            message: row.text_within("message", MESSAGE_BYTES_MAX)?,
            payload: row.json_within("payload", PAYLOAD_READ_MAX)?,
            event_key: row.text_or_null("event_key")?,
            created_at: row.time("created_at")?,
        })
    }
}

impl Tx<'_> {
    /// Returns events of a run, in order.
    pub async fn events(&mut self, run: &RunId, page: EventPage) -> Result<Vec<Event>, Error> {
        let limit = i64::try_from(page.limit).unwrap_or(i64::MAX);
        let binds = (run.as_str(), page.after, limit);
        Ok(on!(self, catalog::EVENT_LIST, [binds.0, binds.1, binds.2], fetch_all, "read events")?
            .readable("run_events", "event_id"))
    }

    /// Returns events from the end of a run, in order, and the sequence number to continue from towards the start.
    ///
    /// One call reads a bounded range of events, even if few of them match.
    pub async fn event_tail(
        &mut self,
        run: &RunId,
        wanted: &EventTail,
    ) -> Result<(Vec<Event>, Option<i32>), Error> {
        let last: Option<i64> =
            on!(self, catalog::EVENT_LAST, [run.as_str()], fetch_optional, "read events")?
                .record("read events")?;
        let end = i32::try_from(last.unwrap_or(0)).unwrap_or(i32::MAX).saturating_add(1);
        let before = wanted.before.map_or(end, |before| before.min(end));
        let from = before.saturating_sub(TAIL_EVENTS_MAX).max(1);
        let limit = i64::try_from(wanted.limit).unwrap_or(i64::MAX);
        let level = severity(wanted.level.unwrap_or(Level::Debug));
        let pattern = wanted.contains.as_deref().map(|text| like_pattern(&text.to_lowercase()));
        let binds = (run.as_str(), before, from, level, pattern.as_deref(), limit);
        let found = on!(
            self,
            catalog::EVENT_TAIL,
            [binds.0, binds.1, binds.2, binds.3, binds.4, binds.5],
            fetch_all,
            "read events"
        )?;
        let mut events: Vec<Event> = found.readable("run_events", "event_id");
        let reached = if events.len() == wanted.limit { events.last().map(|event| event.seq) } else { None };
        let reached = reached.unwrap_or(from);
        events.reverse();
        Ok((events, (reached > 1).then_some(reached)))
    }
}

impl Store {
    /// Returns events of a run, in order.
    pub async fn events(&self, run: RunId, page: EventPage) -> Result<Vec<Event>, Error> {
        self.read(move |mut tx| Box::pin(async move { tx.events(&run, page).await })).await
    }

    /// Returns events from the end of a run, in order, and the sequence number to continue from towards the start.
    pub async fn event_tail(
        &self,
        run: RunId,
        wanted: EventTail,
    ) -> Result<(Vec<Event>, Option<i32>), Error> {
        self.read(move |mut tx| Box::pin(async move { tx.event_tail(&run, &wanted).await })).await
    }
}
