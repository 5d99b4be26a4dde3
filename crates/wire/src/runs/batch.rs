//! Requests and responses about several new runs.

use super::NewRun;
use serde::{Deserialize, Deserializer, Serialize};
use tidemill_core::run::{QueueOutcome, QueueRun};
use tidemill_core::{Json, RunId};

/// Request to queue several runs in one transaction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewRuns {
    /// Requests. A refused request refuses all of them.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 1000)))]
    pub runs: Vec<BatchRun>,
}

/// One of several requests: a new run, with its idempotency key as a field instead of a header.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BatchRun {
    #[serde(flatten)]
    pub run: NewRun,
    /// Idempotency key: a repeated request with the same key returns the first run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

const KEY_FIELD: &str = "idempotency_key";

/// `#[serde(flatten)]` would accept unknown fields.
impl<'de> Deserialize<'de> for BatchRun {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut fields = serde_json::Map::deserialize(deserializer)?;
        let key = fields.remove(KEY_FIELD).unwrap_or(Json::Null);
        let idempotency_key = Option::deserialize(key).map_err(serde::de::Error::custom)?;
        let run = NewRun::deserialize(Json::Object(fields)).map_err(serde::de::Error::custom)?;
        Ok(Self { run, idempotency_key })
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for BatchRun {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "BatchRun".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let mut schema = NewRun::json_schema(generator);
        let key = schemars::json_schema!({
            "description": "Idempotency key: a repeated request with the same key returns the first run.",
            "type": ["string", "null"], "minLength": 1, "maxLength": 1024, "default": null,
        });
        if let Some(fields) = schema.get_mut("properties").and_then(Json::as_object_mut) {
            fields.insert(KEY_FIELD.to_owned(), key.to_value());
        }
        let description = "One of several requests: a new run, with its idempotency key as a field.";
        schema.insert("description".to_owned(), description.into());
        schema
    }
}

impl BatchRun {
    /// Returns the request, and the id that the caller chose for its run.
    pub fn into_request(mut self) -> (QueueRun, Option<RunId>) {
        let run_id = self.run.run_id.take();
        (self.run.into_request(self.idempotency_key), run_id)
    }
}

impl From<QueueRun> for BatchRun {
    fn from(mut request: QueueRun) -> Self {
        let idempotency_key = request.idempotency_key.take();
        Self { run: NewRun::from(request), idempotency_key }
    }
}

/// The outcomes of several requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueuedRuns {
    /// One outcome for each request, in order.
    pub runs: Vec<QueueOutcome>,
}

/// Splits a path or message of a batch, such as `runs[2].priority` or `runs[2]: …`, into the position and the rest.
pub fn batch_position(text: &str) -> Option<(usize, &str)> {
    let (position, rest) = text.strip_prefix("runs[")?.split_once(']')?;
    let rest = rest.strip_prefix('.').or_else(|| rest.strip_prefix(": ")).unwrap_or(rest);
    Some((position.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_of_a_batch_has_the_fields_of_one_and_a_key() {
        let text = r#"{"project": "shop", "env": "staging", "idempotency_key": "k", "priority": 3}"#;
        let read: BatchRun = serde_json::from_str(text).unwrap();
        assert_eq!((read.idempotency_key.as_deref(), read.run.priority), (Some("k"), 3));
        let again: BatchRun = serde_json::from_value(serde_json::to_value(&read).unwrap()).unwrap();
        assert_eq!(again, read);
        let error = serde_json::from_str::<BatchRun>(r#"{"project": "shop", "env": "x", "priorty": 3}"#);
        assert!(error.unwrap_err().to_string().contains("priorty"));
    }

    #[test]
    fn position_is_read_from_paths_and_messages() {
        assert_eq!(batch_position("runs[2].priority"), Some((2, "priority")));
        assert_eq!(batch_position("runs[12]: run id run-a is taken"), Some((12, "run id run-a is taken")));
        assert_eq!(batch_position("runs has 0 items"), None);
    }
}
