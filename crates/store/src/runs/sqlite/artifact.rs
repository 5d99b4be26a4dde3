//! Records artifacts of a run. The same type and URL are one artifact.

use super::{failed, run_by_id};
use crate::codec::SqlTime;
use crate::{Error, RefusalCode, catalog};
use sqlx::SqliteConnection;
use tidemill_core::artifact::NewArtifact;
use tidemill_core::limits::{KEY_BYTES_MAX, PAYLOAD_BYTES_MAX};
use tidemill_core::text::first_control;
use tidemill_core::{RunId, Timestamp};
use uuid::Uuid;

pub(in crate::runs) async fn add_artifact(
    conn: &mut SqliteConnection,
    run: &RunId,
    artifact: &NewArtifact,
    now: Timestamp,
) -> Result<String, Error> {
    let action = "record an artifact";
    run_by_id(conn, run, action).await?;
    put(conn, run, artifact, now, action).await
}

/// Records an artifact of an existing run.
pub(super) async fn put(
    conn: &mut SqliteConnection,
    run: &RunId,
    artifact: &NewArtifact,
    now: Timestamp,
    action: &'static str,
) -> Result<String, Error> {
    check(artifact)?;
    sqlx::query_scalar(catalog::sqlite(catalog::ARTIFACT_INSERT))
        .bind(format!("art-{}", Uuid::new_v4()))
        .bind(run.as_str())
        .bind(&artifact.artifact_type)
        .bind(&artifact.url)
        .bind(&artifact.digest)
        .bind(artifact.size_bytes)
        .bind(artifact.metadata.to_string())
        .bind(SqlTime(now))
        .fetch_one(conn)
        .await
        .map_err(failed(action))
}

fn check(artifact: &NewArtifact) -> Result<(), Error> {
    let NewArtifact { artifact_type, url, digest, size_bytes, metadata } = artifact;
    if artifact_type.is_empty() || url.is_empty() || size_bytes.is_some_and(|size| size < 0) {
        let problem = "artifact type and URL are required, and the size must not be negative";
        return Err(Error::refused(RefusalCode::BadValue, problem));
    }
    if artifact_type.len() > 64
        || url.len() > KEY_BYTES_MAX
        || digest.as_ref().is_some_and(|digest| digest.len() > 256)
        || metadata.to_string().len() > PAYLOAD_BYTES_MAX
    {
        let problem = format!(
            "the artifact is too large: type 64, URL {KEY_BYTES_MAX} and metadata {PAYLOAD_BYTES_MAX} \
             bytes at most"
        );
        return Err(Error::refused(RefusalCode::TooLarge, problem));
    }
    if [Some(artifact_type), Some(url), digest.as_ref()]
        .into_iter()
        .flatten()
        .any(|text| first_control(text).is_some())
    {
        let problem = "type, URL and digest of an artifact must not contain control characters";
        return Err(Error::refused(RefusalCode::BadValue, problem));
    }
    Ok(())
}
