//! The list of waiting runs, oldest first.

use crate::codec::SqlTime;
use crate::tx::on;
use crate::{Error, Store, catalog};
use tidemill_core::run::{Run, RunFilter};
use tidemill_core::time;

impl Store {
    /// Lists waiting runs, oldest first. Of the filter it uses the project, the cursor and the limit. The cursor is the
    /// last run of the previous page, which is older here.
    pub async fn waiting_runs(&self, filter: RunFilter) -> Result<Vec<Run>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                // An unknown run without a time is no position, so the page is empty.
                let last = time::from_micros(i64::MAX);
                let at = filter.before.as_ref().map(|cursor| SqlTime(cursor.created_at.unwrap_or(last)));
                let after = filter.before.as_ref().map_or("", |cursor| cursor.run_id.as_str());
                let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
                Ok(on!(
                    tx,
                    catalog::RUN_WAITING,
                    [at, after, filter.project.as_deref(), limit],
                    fetch_all,
                    "list what waits"
                )?
                .readable("runs", "run_id"))
            })
        })
        .await
    }
}
