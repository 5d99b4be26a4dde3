//! The claims of runs: which worker holds a run, and which request claimed it.

use crate::codec::{Columns, SqlTextList};
use crate::tx::{FromColumns, on};
use crate::{Error, Store, catalog};
use tidemill_core::RunId;
use tidemill_core::limits::KIND_BYTES_MAX;
use tidemill_core::run::Lane;

/// The claim of a run. A run is claimed at most once, so a claim never changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunClaim {
    pub run_id: RunId,
    pub project_id: String,
    pub lane: Lane,
    /// Kind of the run, a label of metrics.
    pub kind: String,
    /// Name of the worker that claimed the run; `None` if it was not claimed.
    pub claimed_by: Option<String>,
    pub epoch: i32,
    /// Id of the request that claimed the run. The HTTP API begins it with the token of its caller.
    pub claim_request: Option<String>,
}

impl FromColumns for RunClaim {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            run_id: row.run_id("run_id")?,
            project_id: row.text("project_id")?,
            lane: row.parsed("lane")?,
            kind: row.text_within("kind", KIND_BYTES_MAX)?,
            claimed_by: row.text_or_null("claimed_by")?,
            epoch: row.int("epoch")?,
            claim_request: row.text_or_null("claim_request")?,
        })
    }
}

impl Store {
    /// Returns the claims of these runs, in any order. Unknown runs are left out.
    pub async fn run_claims(&self, runs: Vec<RunId>) -> Result<Vec<RunClaim>, Error> {
        let ids = SqlTextList(runs.into_iter().map(|run| run.as_str().to_owned()).collect());
        self.read_one(move |mut tx| {
            Box::pin(async move {
                on!(tx, catalog::RUN_CLAIMS, [ids.clone()], fetch_all, "read claims")?.records("read claims")
            })
        })
        .await
    }
}
