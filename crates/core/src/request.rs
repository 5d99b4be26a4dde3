//! Whether what somebody asks for can be taken as it is: every fault at once, each as a sentence.

use crate::artifact::NewArtifact;
use crate::event::NewEvent;
use crate::ids::is_name;
use crate::limits::{
    ATTEMPTS_MAX, BACKOFF_SECS_MAX, KEY_BYTES_MAX, LABELS_MAX, MESSAGE_BYTES_MAX, METADATA_BYTES_MAX,
    PAYLOAD_BYTES_MAX, PRIORITY_MAX,
};
use crate::run::QueueRun;
use crate::{Json, Timestamp};

/// One thing that is wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[error("{field} {problem}")]
pub struct Fault {
    /// The part of the request.
    pub field: &'static str,
    /// What is wrong with it, as the rest of a sentence.
    pub problem: String,
}

/// Everything that is wrong with a request; never empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct Invalid(pub Vec<Fault>);

/// Collects faults.
#[derive(Default)]
struct Faults(Vec<Fault>);

impl Faults {
    fn add(&mut self, field: &'static str, problem: impl Into<String>) {
        self.0.push(Fault { field, problem: problem.into() });
    }

    fn text(&mut self, field: &'static str, text: &str, bytes_max: usize) {
        if text.is_empty() {
            self.add(field, "must not be empty");
        }
        if text.len() > bytes_max {
            self.add(field, format!("is {} bytes long; at most {bytes_max} are allowed", text.len()));
        }
        if text.contains('\0') {
            self.add(field, "contains a NUL character, which PostgreSQL cannot keep");
        }
    }

    fn range(&mut self, field: &'static str, value: i32, min: i32, max: i32) {
        if !(min..=max).contains(&value) {
            self.add(field, format!("is {value}; it must be between {min} and {max}"));
        }
    }

    fn object(&mut self, field: &'static str, json: &Json, bytes_max: usize) {
        if !json.is_object() {
            self.add(field, "must be a JSON object");
        }
        self.json(field, json, bytes_max);
    }

    fn json(&mut self, field: &'static str, json: &Json, bytes_max: usize) {
        let text = json.to_string();
        if text.len() > bytes_max {
            self.add(field, format!("is {} bytes long; at most {bytes_max} are allowed", text.len()));
        }
        if text.contains("\\u0000") {
            self.add(field, "contains a NUL character, which PostgreSQL cannot keep");
        }
        if let Err(problem) = crate::json::check_text(&text) {
            self.add(field, problem.with_advice());
        }
    }

    fn time(&mut self, field: &'static str, at: Option<Timestamp>) {
        if at.is_some_and(|at| !crate::time::is_in_range(at)) {
            self.add(field, "must be between the years 1 and 9999");
        }
    }

    fn finish(self) -> Result<(), Invalid> {
        if self.0.is_empty() { Ok(()) } else { Err(Invalid(self.0)) }
    }
}

/// Checks the name of a project, an environment or a schedule.
pub fn check_name(field: &'static str, name: &str) -> Result<(), Invalid> {
    let mut faults = Faults::default();
    if !is_name(name) {
        let shown: String = name.chars().take(40).collect();
        faults.add(field, format!("`{shown}` must be lower-case letters, digits and dashes, at most 128"));
    }
    faults.finish()
}

/// Checks what a worker offers.
pub fn check_labels(labels: &[String]) -> Result<(), Invalid> {
    let mut faults = Faults::default();
    labels_into(&mut faults, labels);
    faults.finish()
}

/// Checks the name by which a worker claims.
pub fn check_worker_name(name: &str) -> Result<(), Invalid> {
    let mut faults = Faults::default();
    faults.text("worker name", name, crate::limits::NAME_BYTES_MAX);
    faults.finish()
}

/// Checks what a worker finishes with.
pub fn check_metadata(metadata: &Json) -> Result<(), Invalid> {
    let mut faults = Faults::default();
    faults.object("metadata", metadata, METADATA_BYTES_MAX);
    faults.finish()
}

/// Checks the id of a new run.
pub fn check_new_run_id(run: &crate::RunId) -> Result<(), Invalid> {
    let mut faults = Faults::default();
    if !run.is_well_formed() {
        let shown: String = run.as_str().chars().take(80).collect();
        let form = "must be `run-` and 1 to 60 lower-case letters, digits and dashes";
        faults.add("run id", format!("`{shown}` {form}"));
    }
    faults.finish()
}

/// Checks the name of a person who cancels or retries a run, and the reason that they give.
pub fn check_request_by(by: &str, reason: Option<&str>) -> Result<(), Invalid> {
    let mut faults = Faults::default();
    let texts = [("name", Some(by)), ("reason", reason)];
    for (field, text) in texts.into_iter().filter_map(|(field, text)| Some((field, text?))) {
        if text.len() > KEY_BYTES_MAX {
            let length = text.len();
            faults.add(field, format!("is {length} bytes long; at most {KEY_BYTES_MAX} are allowed"));
        }
        if text.contains('\0') {
            faults.add(field, "contains a NUL character, which PostgreSQL cannot keep");
        }
    }
    faults.finish()
}

/// Checks an event.
pub fn check_event(event: &NewEvent) -> Result<(), Invalid> {
    let mut faults = Faults::default();
    if event.message.len() > MESSAGE_BYTES_MAX {
        let length = event.message.len();
        faults.add("message", format!("is {length} bytes long; at most {MESSAGE_BYTES_MAX} are allowed"));
    }
    if event.message.contains('\0') {
        faults.add("message", "contains a NUL character, which PostgreSQL cannot keep");
    }
    faults.json("payload", &event.payload, PAYLOAD_BYTES_MAX);
    if let Some(key) = &event.key {
        faults.text("event key", key, KEY_BYTES_MAX);
    }
    faults.finish()
}

/// Checks an artifact.
pub fn check_artifact(artifact: &NewArtifact) -> Result<(), Invalid> {
    let mut faults = Faults::default();
    faults.text("artifact type", &artifact.artifact_type, 64);
    faults.text("artifact url", &artifact.url, KEY_BYTES_MAX);
    if let Some(digest) = &artifact.digest {
        faults.text("artifact digest", digest, 256);
    }
    if artifact.size_bytes.is_some_and(|size| size < 0) {
        faults.add("artifact size", "must not be negative");
    }
    faults.object("artifact metadata", &artifact.metadata, PAYLOAD_BYTES_MAX);
    faults.finish()
}

fn labels_into(faults: &mut Faults, labels: &[String]) {
    if labels.len() > LABELS_MAX {
        faults.add("labels", format!("are {}; at most {LABELS_MAX} are allowed", labels.len()));
    }
    for label in labels {
        faults.text("label", label, KEY_BYTES_MAX);
        if label.contains(',') {
            let shown: String = label.chars().take(40).collect();
            faults.add("label", format!("`{shown}` must not contain a comma"));
        }
    }
}

impl QueueRun {
    /// Checks the whole request. Times in the past are taken as they are: they mean *at once*.
    pub fn check(&self) -> Result<(), Invalid> {
        let mut faults = Faults::default();
        faults.text("project", &self.project, crate::limits::NAME_BYTES_MAX);
        faults.text("environment", &self.env, crate::limits::NAME_BYTES_MAX);
        let texts = [
            ("git sha", &self.git_sha),
            ("git ref", &self.git_ref),
            ("idempotency key", &self.idempotency_key),
            ("concurrency key", &self.concurrency_key),
        ];
        for (field, text) in texts {
            if let Some(text) = text {
                faults.text(field, text, KEY_BYTES_MAX);
            }
        }
        faults.object("metadata", &self.metadata, METADATA_BYTES_MAX);
        faults.range("priority", self.priority, -PRIORITY_MAX, PRIORITY_MAX);
        faults.range("max attempts", self.max_attempts, 1, ATTEMPTS_MAX);
        faults.range("max losses", self.max_losses, 0, ATTEMPTS_MAX);
        faults.range("back-off seconds", self.backoff_secs, 0, BACKOFF_SECS_MAX);
        if let Some(timeout) = self.timeout_secs {
            faults.range("timeout seconds", timeout, 1, 365 * 24 * 3_600);
        }
        if let (Some(available), Some(expires)) = (self.available_at, self.expires_at)
            && expires <= available
        {
            faults.add("expires at", "must be later than available at");
        }
        faults.time("available at", self.available_at);
        faults.time("expires at", self.expires_at);
        labels_into(&mut faults, &self.labels);
        faults.finish()
    }

    /// The same request as every store compares it: labels sorted and unique, times in microseconds.
    #[must_use]
    pub fn normal(mut self) -> Self {
        self.labels.sort();
        self.labels.dedup();
        self.available_at = self.available_at.map(micros);
        self.expires_at = self.expires_at.map(micros);
        self
    }
}

/// Cuts a time to the precision that both databases keep.
pub fn micros(at: Timestamp) -> Timestamp {
    chrono::DateTime::from_timestamp_micros(at.timestamp_micros()).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_reported_at_once() {
        let mut request = QueueRun::new("shop", "");
        request.priority = i32::MAX;
        request.max_attempts = 0;
        request.metadata = Json::Null;
        request.labels = vec!["a,b".to_owned()];
        let Invalid(faults) = request.check().unwrap_err();
        let fields: Vec<_> = faults.iter().map(|fault| fault.field).collect();
        assert_eq!(fields, ["environment", "metadata", "priority", "max attempts", "label"]);
    }

    #[test]
    fn a_request_with_defaults_is_fine() {
        assert_eq!(QueueRun::new("shop", "staging").check(), Ok(()));
    }

    #[test]
    fn values_that_could_not_be_read_back_are_refused() {
        let mut request = QueueRun::new("shop", "staging");
        let deep = (0..65).fold(serde_json::json!(1), |inner, _| serde_json::json!([inner]));
        request.metadata = serde_json::json!({"a": deep, "b": 1.234_567_890_123_456_7e30});
        request.available_at = Some(Timestamp::MIN_UTC);
        request.expires_at = Some(Timestamp::MAX_UTC);
        request.labels = vec!["a".repeat(KEY_BYTES_MAX + 1)];
        let Invalid(faults) = request.check().unwrap_err();
        let fields: Vec<_> = faults.iter().map(|fault| fault.field).collect();
        assert_eq!(fields, ["metadata", "available at", "expires at", "label"]);
    }

    #[test]
    fn names_and_reasons_are_bounded() {
        let long = "x".repeat(KEY_BYTES_MAX + 1);
        assert_eq!(check_request_by("ada", Some("")), Ok(()));
        assert_eq!(check_request_by(&long, Some(&long)).unwrap_err().0.len(), 2);
        assert!(check_request_by("ada", Some("a\0b")).is_err());
        assert!(check_new_run_id(&crate::RunId::from_database("run-A".to_owned())).is_err());
    }

    #[test]
    fn what_postgresql_cannot_hold_is_refused_for_both_databases() {
        let mut request = QueueRun::new("shop", "staging");
        request.metadata = serde_json::json!({"text": "a\0b"});
        assert!(request.check().is_err());
    }
}
