//! Something that a run made and that lives elsewhere.

use crate::{Json, RunId, Timestamp};

/// An artifact as it is kept.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Artifact {
    /// Its id.
    pub artifact_id: String,
    /// The run that made it.
    pub run_id: RunId,
    /// What it is: image, sbom, logs …
    pub artifact_type: String,
    /// Where it lives.
    pub url: String,
    /// The digest of its contents.
    pub digest: Option<String>,
    /// Its size.
    pub size_bytes: Option<i64>,
    /// Details.
    pub metadata: Json,
    /// When it was recorded.
    pub created_at: Timestamp,
}

/// An artifact that somebody wants to record.
#[derive(Debug, Clone, PartialEq)]
pub struct NewArtifact {
    /// What it is: image, sbom, logs …
    pub artifact_type: String,
    /// Where it lives.
    pub url: String,
    /// The digest of its contents.
    pub digest: Option<String>,
    /// Its size.
    pub size_bytes: Option<i64>,
    /// Details.
    pub metadata: Json,
}

impl NewArtifact {
    /// The artifacts that a worker names in the metadata it finishes with.
    ///
    /// An entry without a type or a URL is passed over: it stays readable in the metadata.
    pub fn named_in(metadata: &Json) -> Vec<Self> {
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
