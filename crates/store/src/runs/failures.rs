//! Open failures: failed runs without a successor and without a newer completed sync of their feed.

use super::list::Window;
use crate::codec::{Columns, SqlTime};
use crate::tx::{FromColumns, on};
use crate::{Error, Store, catalog};
use tidemill_core::limits::FAILURES_MAX;
use tidemill_core::run::{Run, RunCursor, RunFilter};

/// A page of open failures and its cursor. A page ends when it is full, or after a maximum number of failed runs was
/// read, so that one caller cannot block others.
#[derive(Debug, Clone, PartialEq)]
pub struct Failures {
    /// Sorted by age, newest first.
    pub items: Vec<Run>,
    /// The next page starts before this run.
    pub next: Option<String>,
}

struct Position(RunCursor);

impl FromColumns for Position {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self(RunCursor { created_at: Some(row.time("created_at")?), run_id: row.run_id("run_id")? }))
    }
}

impl Store {
    /// Lists open failures, newest first. Of the filter it uses the project, the times, the cursor and the limit.
    pub async fn failures(&self, filter: RunFilter) -> Result<Failures, Error> {
        let Window { since, end: (end_at, end_id), .. } = Window::of(&filter);
        let most = i64::try_from(FAILURES_MAX).unwrap_or(i64::MAX);
        let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
        self.read(move |mut tx| {
            Box::pin(async move {
                let (mut from_at, mut from_id, to) = (since, String::new(), end_id.as_str());
                let last: Option<Position> = on!(
                    tx,
                    catalog::RUN_FAILURES_END,
                    [from_at, from_id.as_str(), end_at, to, most - 1],
                    fetch_optional,
                    "list failures"
                )?
                .record("list failures")?;
                let last = last.map(|Position(cursor)| cursor);
                if let Some(RunCursor { created_at: Some(at), run_id }) = &last {
                    (from_at, from_id) = (Some(SqlTime(*at)), run_id.to_string());
                }
                let project = filter.project.as_deref();
                let items: Vec<Run> = on!(
                    tx,
                    catalog::RUN_FAILURES,
                    [from_at, from_id.as_str(), end_at, to, limit, project],
                    fetch_all,
                    "list failures"
                )?
                .readable("runs", "run_id");
                let full = items.last().filter(|_| items.len() == filter.limit);
                let next = full.map(RunCursor::at).or(last).map(|cursor| cursor.to_string());
                Ok(Failures { items, next })
            })
        })
        .await
    }
}
