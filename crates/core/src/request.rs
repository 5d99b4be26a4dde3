//! Validation of requests. A check reports every error at once.

use crate::artifact::NewArtifact;
use crate::event::NewEvent;
use crate::ids::is_name;
use crate::limits::{
    ATTEMPTS_MAX, BACKOFF_SECS_MAX, KEY_BYTES_MAX, KIND_BYTES_MAX, LABELS_MAX, MESSAGE_BYTES_MAX,
    METADATA_BYTES_MAX, PAYLOAD_BYTES_MAX, PRIORITY_MAX,
};
use crate::run::QueueRun;
use crate::text::first_control;
use crate::{Json, Timestamp};

/// One invalid field of a request.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[error("{field} {problem}")]
pub struct FieldError {
    /// Name of the field.
    pub field: &'static str,
    /// Problem, as the rest of a sentence that begins with the field's name.
    pub problem: String,
}

/// All errors of a request; never empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct ValidationError(pub Vec<FieldError>);

#[derive(Default)]
struct FieldErrors(Vec<FieldError>);

impl FieldErrors {
    fn add(&mut self, field: &'static str, problem: impl Into<String>) {
        self.0.push(FieldError { field, problem: problem.into() });
    }

    fn text(&mut self, field: &'static str, text: &str, bytes_max: usize) {
        if text.is_empty() {
            self.add(field, "must not be empty");
        }
        if text.len() > bytes_max {
            self.add(field, format!("is {} bytes long; at most {bytes_max} are allowed", text.len()));
        }
        if text.contains('\0') {
            self.add(field, "contains a NUL character, which PostgreSQL cannot store");
        }
    }

    /// Checks a short text that must stay on one line.
    fn line(&mut self, field: &'static str, text: &str, bytes_max: usize) {
        self.text(field, text, bytes_max);
        self.control(field, text);
    }

    fn control(&mut self, field: &'static str, text: &str) {
        if let Some(symbol) = first_control(text).filter(|symbol| *symbol != '\0') {
            let code = u32::from(symbol);
            self.add(field, format!("contains the control character U+{code:04X}; remove it"));
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
            self.add(field, "contains a NUL character, which PostgreSQL cannot store");
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

    fn finish(self) -> Result<(), ValidationError> {
        if self.0.is_empty() { Ok(()) } else { Err(ValidationError(self.0)) }
    }
}

/// Checks the name of a project, an environment or a schedule.
pub fn check_name(field: &'static str, name: &str) -> Result<(), ValidationError> {
    let mut errors = FieldErrors::default();
    if !is_name(name) {
        let shown: String = name.chars().take(40).collect();
        errors.add(field, format!("`{shown}` must be lower-case letters, digits and dashes, at most 128"));
    }
    errors.finish()
}

/// Checks the labels of a worker.
pub fn check_labels(labels: &[String]) -> Result<(), ValidationError> {
    let mut errors = FieldErrors::default();
    check_labels_into(&mut errors, labels);
    errors.finish()
}

/// Checks the name under which a worker claims runs.
pub fn check_worker_name(name: &str) -> Result<(), ValidationError> {
    let mut errors = FieldErrors::default();
    errors.line("worker name", name, crate::limits::NAME_BYTES_MAX);
    errors.finish()
}

/// Checks the metadata that a worker reports at the end of a run.
pub fn check_metadata(metadata: &Json) -> Result<(), ValidationError> {
    let mut errors = FieldErrors::default();
    errors.object("metadata", metadata, METADATA_BYTES_MAX);
    errors.finish()
}

/// Checks the id of a new run.
pub fn check_new_run_id(run: &crate::RunId) -> Result<(), ValidationError> {
    let mut errors = FieldErrors::default();
    if !run.is_well_formed() {
        let shown: String = run.as_str().chars().take(80).collect();
        let form = "must be `run-` and 1 to 60 lower-case letters, digits and dashes";
        errors.add("run id", format!("`{shown}` {form}"));
    }
    errors.finish()
}

/// Checks the name of the caller who cancels or retries a run, and the reason.
pub fn check_request_by(by: &str, reason: Option<&str>) -> Result<(), ValidationError> {
    let mut errors = FieldErrors::default();
    let texts = [("name", Some(by)), ("reason", reason)];
    for (field, text) in texts.into_iter().filter_map(|(field, text)| Some((field, text?))) {
        if text.len() > KEY_BYTES_MAX {
            let length = text.len();
            errors.add(field, format!("is {length} bytes long; at most {KEY_BYTES_MAX} are allowed"));
        }
        if text.contains('\0') {
            errors.add(field, "contains a NUL character, which PostgreSQL cannot store");
        }
    }
    // A reason is a free text, which may have several lines.
    errors.control("name", by);
    errors.finish()
}

/// Checks the level, message, payload and key of an event.
pub fn check_event(event: &NewEvent) -> Result<(), ValidationError> {
    let mut errors = FieldErrors::default();
    if event.message.len() > MESSAGE_BYTES_MAX {
        let length = event.message.len();
        errors.add("message", format!("is {length} bytes long; at most {MESSAGE_BYTES_MAX} are allowed"));
    }
    if event.message.contains('\0') {
        errors.add("message", "contains a NUL character, which PostgreSQL cannot store");
    }
    errors.json("payload", &event.payload, PAYLOAD_BYTES_MAX);
    if let Some(key) = &event.key {
        errors.text("event key", key, KEY_BYTES_MAX);
    }
    errors.finish()
}

/// Checks the type, URL, digest and metadata of an artifact.
pub fn check_artifact(artifact: &NewArtifact) -> Result<(), ValidationError> {
    let mut errors = FieldErrors::default();
    errors.line("artifact type", &artifact.artifact_type, 64);
    errors.line("artifact url", &artifact.url, KEY_BYTES_MAX);
    if let Some(digest) = &artifact.digest {
        errors.line("artifact digest", digest, 256);
    }
    if artifact.size_bytes.is_some_and(|size| size < 0) {
        errors.add("artifact size", "must not be negative");
    }
    errors.object("artifact metadata", &artifact.metadata, PAYLOAD_BYTES_MAX);
    errors.finish()
}

fn check_labels_into(errors: &mut FieldErrors, labels: &[String]) {
    if labels.len() > LABELS_MAX {
        errors.add("labels", format!("are {}; at most {LABELS_MAX} are allowed", labels.len()));
    }
    for label in labels {
        errors.line("label", label, KEY_BYTES_MAX);
        if label.contains(',') {
            let shown: String = label.chars().take(40).collect();
            errors.add("label", format!("`{shown}` must not contain a comma"));
        }
    }
}

impl QueueRun {
    /// Checks all fields. Times in the past are valid and mean *now*.
    pub fn check(&self) -> Result<(), ValidationError> {
        let mut errors = FieldErrors::default();
        errors.line("project", &self.project, crate::limits::NAME_BYTES_MAX);
        errors.line("environment", &self.env, crate::limits::NAME_BYTES_MAX);
        let texts = [
            ("git sha", &self.git_sha),
            ("git ref", &self.git_ref),
            ("idempotency key", &self.idempotency_key),
            ("concurrency key", &self.concurrency_key),
        ];
        for (field, text) in texts {
            if let Some(text) = text {
                errors.line(field, text, KEY_BYTES_MAX);
            }
        }
        // An empty kind is valid: it is the default.
        if !self.kind.is_empty() {
            errors.line("kind", &self.kind, KIND_BYTES_MAX);
        }
        errors.object("metadata", &self.metadata, METADATA_BYTES_MAX);
        errors.range("priority", self.priority, -PRIORITY_MAX, PRIORITY_MAX);
        errors.range("max attempts", self.max_attempts, 1, ATTEMPTS_MAX);
        errors.range("max losses", self.max_losses, 0, ATTEMPTS_MAX);
        errors.range("back-off seconds", self.backoff_secs, 0, BACKOFF_SECS_MAX);
        if let Some(timeout) = self.timeout_secs {
            errors.range("timeout seconds", timeout, 1, 365 * 24 * 3_600);
        }
        if let (Some(available), Some(expires)) = (self.available_at, self.expires_at)
            && expires <= available
        {
            errors.add("expires at", "must be later than available at");
        }
        errors.time("available at", self.available_at);
        errors.time("expires at", self.expires_at);
        check_labels_into(&mut errors, &self.labels);
        errors.finish()
    }

    /// Returns the form in which stores compare requests: labels sorted and unique, times in microseconds.
    #[must_use]
    pub fn normalized(mut self) -> Self {
        self.labels.sort();
        self.labels.dedup();
        self.available_at = self.available_at.map(micros);
        self.expires_at = self.expires_at.map(micros);
        self
    }
}

/// Truncates a time to microseconds, the precision of both databases.
pub fn micros(at: Timestamp) -> Timestamp {
    chrono::DateTime::from_timestamp_micros(at.timestamp_micros()).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_reports_every_error_at_once() {
        let mut request = QueueRun::new("shop", "");
        request.priority = i32::MAX;
        request.max_attempts = 0;
        request.metadata = Json::Null;
        request.labels = vec!["a,b".to_owned()];
        let ValidationError(errors) = request.check().unwrap_err();
        let fields: Vec<_> = errors.iter().map(|error| error.field).collect();
        assert_eq!(fields, ["environment", "metadata", "priority", "max attempts", "label"]);
    }

    #[test]
    fn request_with_defaults_is_valid() {
        assert_eq!(QueueRun::new("shop", "staging").check(), Ok(()));
    }

    #[test]
    fn kind_may_be_empty_and_is_bounded() {
        let of_kind = |kind: String| QueueRun { kind, ..QueueRun::new("shop", "staging") }.check();
        for kind in ["", "email", "e-mail: wöchentlich"] {
            assert_eq!(of_kind(kind.to_owned()), Ok(()), "{kind}");
        }
        assert_eq!(of_kind("k".repeat(KIND_BYTES_MAX)), Ok(()));
        let ValidationError(errors) = of_kind("k".repeat(KIND_BYTES_MAX + 1)).unwrap_err();
        assert_eq!(errors[0].to_string(), "kind is 101 bytes long; at most 100 are allowed");
    }

    #[test]
    fn values_that_cannot_be_read_back_are_rejected() {
        let mut request = QueueRun::new("shop", "staging");
        let deep = (0..65).fold(serde_json::json!(1), |inner, _| serde_json::json!([inner]));
        request.metadata = serde_json::json!({"a": deep, "b": 1.234_567_890_123_456_7e30});
        request.available_at = Some(Timestamp::MIN_UTC);
        request.expires_at = Some(Timestamp::MAX_UTC);
        request.labels = vec!["a".repeat(KEY_BYTES_MAX + 1)];
        let ValidationError(errors) = request.check().unwrap_err();
        let fields: Vec<_> = errors.iter().map(|error| error.field).collect();
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

    /// A line break in a git ref would start a line of the caller's choice in a log, a header or an environment file.
    #[test]
    fn control_characters_in_short_texts_are_rejected() {
        for symbol in ['\r', '\n', '\t', '\u{1b}', '\u{7f}', '\u{9b}'] {
            let text = format!("main{symbol}x");
            let request = QueueRun {
                git_sha: Some(text.clone()),
                git_ref: Some(text.clone()),
                idempotency_key: Some(text.clone()),
                concurrency_key: Some(text.clone()),
                labels: vec![text.clone()],
                kind: text.clone(),
                ..QueueRun::new(&*text, &*text)
            };
            let ValidationError(errors) = request.check().unwrap_err();
            assert_eq!(errors.len(), 8, "{errors:?}");
            let problem = format!("contains the control character U+{:04X}; remove it", u32::from(symbol));
            assert!(errors.iter().all(|error| error.problem == problem), "{errors:?}");
            assert!(check_worker_name(&text).is_err() && check_request_by(&text, None).is_err());
        }
        assert_eq!(check_request_by("ada", Some("first line\nsecond line")), Ok(()));
    }

    #[test]
    fn nul_characters_are_rejected_for_both_databases() {
        let mut request = QueueRun::new("shop", "staging");
        request.metadata = serde_json::json!({"text": "a\0b"});
        assert!(request.check().is_err());
    }
}
