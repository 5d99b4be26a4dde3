//! Reading a run's record.

use crate::codec::Columns;
use crate::tx::{FromColumns, on};
use crate::{Error, Store, Tx, catalog};
use tidemill_core::RunId;
use tidemill_core::event::{Event, EventKind, Level};
use tidemill_core::limits::{MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX, TAIL_EVENTS_MAX};

/// Which events to read.
#[derive(Debug, Clone, Copy)]
pub struct EventPage {
    /// After this sequence number; 0 for the first.
    pub after: i32,
    /// At most so many.
    pub limit: usize,
}

/// Which events to read from the end of a record.
#[derive(Debug, Clone, Default)]
pub struct EventTail {
    /// Before this sequence number; from the end without it.
    pub before: Option<i32>,
    /// Only those that matter so much, or more.
    pub level: Option<Level>,
    /// Only those whose message has this text in it, in any case of letters.
    pub contains: Option<String>,
    /// At most so many.
    pub limit: usize,
}

/// A text as a pattern that finds it anywhere: what means something in a pattern means itself.
fn anywhere(text: &str) -> String {
    let mut pattern = String::from("%");
    for letter in text.chars() {
        if matches!(letter, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern + "%"
}

/// Levels as numbers, in the order in which they matter.
const fn weight(level: Level) -> i32 {
    match level {
        Level::Debug => 0,
        Level::Info => 1,
        Level::Warn => 2,
        Level::Error => 3,
    }
}

/// Bytes of a payload that are read: PostgreSQL adds spaces.
const PAYLOAD_READ_MAX: usize = 4 * PAYLOAD_BYTES_MAX;

impl FromColumns for Event {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            event_id: row.text("event_id")?,
            run_id: row.run_id("run_id")?,
            seq: row.int("seq")?,
            // An event is delivered whatever it holds: a reader of the stream would otherwise lose what follows.
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
    /// Events of a run, in order.
    pub async fn events(&mut self, run: &RunId, page: EventPage) -> Result<Vec<Event>, Error> {
        let limit = i64::try_from(page.limit).unwrap_or(i64::MAX);
        let binds = (run.as_str(), page.after, limit);
        Ok(on!(self, catalog::EVENT_LIST, [binds.0, binds.1, binds.2], fetch_all, "read events")?
            .readable("run_events", "event_id"))
    }

    /// Events of a run from the end of its record, in their order, and where to read on towards its beginning.
    ///
    /// One call looks at a bounded part of the record, however little it finds there.
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
        let level = weight(wanted.level.unwrap_or(Level::Debug));
        let pattern = wanted.contains.as_deref().map(|text| anywhere(&text.to_lowercase()));
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
    /// Events of a run, in order.
    pub async fn events(&self, run: RunId, page: EventPage) -> Result<Vec<Event>, Error> {
        self.read(move |mut tx| Box::pin(async move { tx.events(&run, page).await })).await
    }

    /// Events of a run from the end of its record, in their order, and where to read on towards its beginning.
    pub async fn event_tail(
        &self,
        run: RunId,
        wanted: EventTail,
    ) -> Result<(Vec<Event>, Option<i32>), Error> {
        self.read(move |mut tx| Box::pin(async move { tx.event_tail(&run, &wanted).await })).await
    }
}
