//! Reading what runs made.

use crate::codec::Columns;
use crate::tx::{FromColumns, on};
use crate::{Error, Store, catalog};
use tidemill_core::RunId;
use tidemill_core::artifact::Artifact;

impl FromColumns for Artifact {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            artifact_id: row.text("artifact_id")?,
            run_id: row.parsed("run_id")?,
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
    /// The artifacts of a run.
    pub async fn artifacts(&self, run: RunId) -> Result<Vec<Artifact>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                on!(tx, catalog::ARTIFACT_LIST, [run.as_str()], fetch_all, "list artifacts")?
                    .records("list artifacts")
            })
        })
        .await
    }
}
