//! Reads the artifacts of runs.

use crate::codec::Columns;
use crate::tx::{FromColumns, on};
use crate::{Error, Store, catalog};
use tidemill_core::RunId;
use tidemill_core::artifact::Artifact;
use tidemill_core::limits::BATCH_MAX;

impl FromColumns for Artifact {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            artifact_id: row.text("artifact_id")?,
            run_id: row.run_id("run_id")?,
            artifact_type: row.text("artifact_type")?,
            url: row.text("url")?,
            digest: row.text_or_null("digest")?,
            size_bytes: row.long_or_null("size_bytes")?,
            metadata: row.json("metadata")?,
            created_at: row.time("created_at")?,
        })
    }
}

impl Store {
    /// Returns the first artifacts of a run, up to one page.
    pub async fn artifacts(&self, run: RunId) -> Result<Vec<Artifact>, Error> {
        self.artifact_page(run, None, BATCH_MAX).await
    }

    /// Returns artifacts of a run after this one, oldest first.
    pub async fn artifact_page(
        &self,
        run: RunId,
        after: Option<String>,
        limit: usize,
    ) -> Result<Vec<Artifact>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.read(move |mut tx| {
            Box::pin(async move {
                let binds = (run.as_str(), limit, after.as_deref());
                Ok(on!(tx, catalog::ARTIFACT_LIST, [binds.0, binds.1, binds.2], fetch_all, "list artifacts")?
                    .readable("artifacts", "artifact_id"))
            })
        })
        .await
    }
}
