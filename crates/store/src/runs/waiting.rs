//! The list of waiting runs, oldest first.

use crate::tx::on;
use crate::{Error, Store, catalog};
use tidemill_core::run::{Run, RunFilter};

impl Store {
    /// Lists waiting runs, oldest first. Of the filter it uses the project, the cursor and the limit. The cursor is the
    /// last run of the previous page, which is older here.
    pub async fn waiting_runs(&self, filter: RunFilter) -> Result<Vec<Run>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let after = filter.before.as_ref().map_or("", |run| run.as_str());
                let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
                Ok(on!(
                    tx,
                    catalog::RUN_WAITING,
                    [after, filter.project.as_deref(), limit],
                    fetch_all,
                    "list what waits"
                )?
                .readable("runs", "run_id"))
            })
        })
        .await
    }
}
