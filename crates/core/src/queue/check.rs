//! Validation of messages and queue settings. A check reports every error at once.

use super::{NewMessage, QueueSettings, WAIT_SECS_MAX};
use crate::limits::{ATTEMPTS_MAX, BATCH_MAX, BODY_BYTES_MAX, KEY_BYTES_MAX};
use crate::request::{FieldError, ValidationError};
use chrono::TimeDelta;

impl QueueSettings {
    /// Checks all settings and reports every invalid one.
    pub fn check(&self) -> Result<(), ValidationError> {
        let mut errors = Vec::new();
        if let Err(ValidationError(more)) = crate::request::check_name("queue", &self.queue) {
            errors.extend(more);
        }
        let times = [
            ("lock seconds", self.lock_secs),
            ("window seconds", self.window_secs.unwrap_or(1)),
            ("expiry seconds", self.expiry_secs),
        ];
        for (field, value) in times {
            check_range(&mut errors, field, value, WAIT_SECS_MAX);
        }
        check_range(&mut errors, "deliveries", self.deliveries_max, ATTEMPTS_MAX);
        finish(errors)
    }
}

impl NewMessage {
    fn check_into(&self, errors: &mut Vec<FieldError>) {
        let texts = [
            ("queue", Some(&self.queue)),
            ("message id", Some(&self.message_id)),
            ("message group", Some(&self.group)),
            ("message run", self.run_id.as_ref()),
            ("message trace", self.trace_id.as_ref()),
        ];
        for (field, text) in texts {
            if let Some(text) = text {
                check_text(errors, field, text);
            }
        }
        let body = self.body.to_string();
        if !self.body.is_object() {
            add(errors, "message body", "must be a JSON object");
        }
        if body.len() > BODY_BYTES_MAX {
            let problem = format!("is {} bytes long; at most {BODY_BYTES_MAX} are allowed", body.len());
            add(errors, "message body", problem);
        }
        if body.contains("\\u0000") {
            add(errors, "message body", "contains a NUL character, which PostgreSQL cannot store");
        }
        if self.generation < 0 {
            add(errors, "message generation", "must not be negative");
        }
        if self.delay < TimeDelta::zero() || self.delay > TimeDelta::seconds(i64::from(WAIT_SECS_MAX)) {
            add(errors, "message delay", "must be between 0 and 30 days");
        }
    }
}

/// Checks a batch of messages and reports all errors.
pub fn check_messages(messages: &[NewMessage]) -> Result<(), ValidationError> {
    check_batch("messages", messages.len())?;
    let mut errors = Vec::new();
    for message in messages {
        message.check_into(&mut errors);
    }
    finish(errors)
}

/// Checks the size of a batch.
pub fn check_batch(field: &'static str, count: usize) -> Result<(), ValidationError> {
    let mut errors = Vec::new();
    if count > BATCH_MAX {
        add(&mut errors, field, format!("are {count}; at most {BATCH_MAX} are allowed at once"));
    }
    finish(errors)
}

fn check_text(errors: &mut Vec<FieldError>, field: &'static str, text: &str) {
    if text.is_empty() {
        add(errors, field, "must not be empty");
    }
    if text.len() > KEY_BYTES_MAX {
        add(errors, field, format!("is {} bytes long; at most {KEY_BYTES_MAX} are allowed", text.len()));
    }
    if text.contains('\0') {
        add(errors, field, "contains a NUL character, which PostgreSQL cannot store");
    }
}

fn check_range(errors: &mut Vec<FieldError>, field: &'static str, value: i32, max: i32) {
    if !(1..=max).contains(&value) {
        add(errors, field, format!("is {value}; it must be between 1 and {max}"));
    }
}

fn add(errors: &mut Vec<FieldError>, field: &'static str, problem: impl Into<String>) {
    errors.push(FieldError { field, problem: problem.into() });
}

fn finish(errors: Vec<FieldError>) -> Result<(), ValidationError> {
    if errors.is_empty() { Ok(()) } else { Err(ValidationError(errors)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(checked: Result<(), ValidationError>) -> Vec<&'static str> {
        checked
            .err()
            .map(|ValidationError(errors)| errors.iter().map(|error| error.field).collect())
            .unwrap_or_default()
    }

    #[test]
    fn built_in_queues_are_valid() {
        for settings in QueueSettings::defaults() {
            assert_eq!(settings.check(), Ok(()));
        }
    }

    #[test]
    fn settings_check_reports_every_error() {
        let settings = QueueSettings {
            queue: "Work items".to_owned(),
            lock_secs: 0,
            deliveries_max: 0,
            window_secs: Some(0),
            expiry_secs: i32::MAX,
        };
        let expected = ["queue", "lock seconds", "window seconds", "expiry seconds", "deliveries"];
        assert_eq!(fields(settings.check()), expected);
    }

    #[test]
    fn message_check_reports_every_error() {
        let mut message = NewMessage::new("work-items", "", "nivoda", json!("no object"));
        message.generation = -1;
        message.delay = TimeDelta::seconds(-1);
        message.trace_id = Some("a\0b".to_owned());
        let expected = ["message id", "message trace", "message body", "message generation", "message delay"];
        assert_eq!(fields(check_messages(&[message])), expected);
    }

    #[test]
    fn body_and_batch_sizes_are_limited() {
        let text = "x".repeat(BODY_BYTES_MAX - r#"{"t":""}"#.len());
        let message = NewMessage::new("work-items", "1", "nivoda", json!({ "t": text }));
        assert_eq!(check_messages(std::slice::from_ref(&message)), Ok(()));
        let larger = NewMessage { body: json!({ "t": text + "x" }), ..message.clone() };
        assert_eq!(fields(check_messages(&[larger])), ["message body"]);
        assert_eq!(fields(check_messages(&vec![message; BATCH_MAX + 1])), ["messages"]);
    }
}
