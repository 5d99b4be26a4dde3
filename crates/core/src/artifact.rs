//! Artifacts: files that runs produced and that are stored elsewhere.

use crate::{Json, RunId, Timestamp};

/// An artifact of a run, stored outside the database.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Artifact {
    /// Id of the artifact.
    pub artifact_id: String,
    /// Run that produced it.
    pub run_id: RunId,
    /// Type: image, sbom, logs …
    pub artifact_type: String,
    /// Location of the file.
    pub url: String,
    /// Digest of the contents.
    pub digest: Option<String>,
    pub size_bytes: Option<i64>,
    pub metadata: Json,
    pub created_at: Timestamp,
}

/// An artifact that a worker records for its run.
#[derive(Debug, Clone, PartialEq)]
pub struct NewArtifact {
    /// Type: image, sbom, logs …
    pub artifact_type: String,
    pub url: String,
    pub digest: Option<String>,
    pub size_bytes: Option<i64>,
    pub metadata: Json,
}

impl NewArtifact {
    /// Returns the artifacts listed in the final metadata of a run.
    ///
    /// An entry without a type or a URL is skipped; it remains readable in the metadata.
    pub fn from_metadata(metadata: &Json) -> Vec<Self> {
        let text = |entry: &Json, key: &str| entry.get(key).and_then(Json::as_str).map(str::to_owned);
        let entries = metadata.get("artifacts").and_then(Json::as_array);
        entries
            .into_iter()
            .flatten()
            .filter_map(|entry| {
                Some(Self {
                    artifact_type: text(entry, "type").filter(|kind| !kind.is_empty())?,
                    url: text(entry, "url").filter(|url| !url.is_empty())?,
                    digest: text(entry, "digest"),
                    size_bytes: entry.get("size_bytes").and_then(Json::as_i64),
                    metadata: Json::Object(serde_json::Map::new()),
                })
            })
            .collect()
    }
}
