//! Open failures: failed runs without a successor and without a newer completed sync of their feed.

use crate::tx::on;
use crate::{Error, Store, catalog};
use tidemill_core::limits::FAILURES_MAX;
use tidemill_core::run::{Run, RunFilter};

/// A page of open failures and its cursor. A page ends when it is full, or after a maximum number of failed runs was
/// read, so that one caller cannot block others.
#[derive(Debug, Clone, PartialEq)]
pub struct Failures {
    /// Sorted by age, newest first.
    pub items: Vec<Run>,
    /// The next page starts before this run.
    pub next: Option<String>,
}

impl Store {
    /// Lists open failures, newest first. Of the filter it uses the project, the times, the cursor and the limit.
    pub async fn failures(&self, filter: RunFilter) -> Result<Failures, Error> {
        let mut ids = super::list::ids(&filter);
        let most = i64::try_from(FAILURES_MAX).unwrap_or(i64::MAX);
        let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
        self.read(move |mut tx| {
            Box::pin(async move {
                let (from, to) = (ids.from.as_str(), ids.to.as_str());
                let end: Option<String> = on!(
                    tx,
                    catalog::RUN_FAILURES_END,
                    [from, to, most - 1],
                    fetch_optional,
                    "list failures"
                )?
                .record("list failures")?;
                if let Some(end) = &end {
                    ids.from(end);
                }
                let binds = (ids.from.as_str(), ids.to.as_str(), filter.project.as_deref());
                let items: Vec<Run> = on!(
                    tx,
                    catalog::RUN_FAILURES,
                    [binds.0, binds.1, limit, binds.2],
                    fetch_all,
                    "list failures"
                )?
                .readable("runs", "run_id");
                let last = items.last().filter(|_| items.len() == filter.limit);
                let next = last.map(|run| run.run_id.to_string()).or(end);
                Ok(Failures { items, next })
            })
        })
        .await
    }
}
