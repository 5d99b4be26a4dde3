//! Whether messages and the settings of a queue can be taken as they are: every fault at once, each as a sentence.

use super::{NewMessage, QueueSettings, WAIT_SECS_MAX};
use crate::limits::{ATTEMPTS_MAX, BATCH_MAX, BODY_BYTES_MAX, KEY_BYTES_MAX};
use crate::request::{Fault, Invalid};
use chrono::TimeDelta;

impl QueueSettings {
    /// Checks the settings.
    pub fn check(&self) -> Result<(), Invalid> {
        let mut faults = Vec::new();
        if let Err(Invalid(more)) = crate::request::check_name("queue", &self.queue) {
            faults.extend(more);
        }
        let times = [
            ("lock seconds", self.lock_secs),
            ("window seconds", self.window_secs.unwrap_or(1)),
            ("expiry seconds", self.expiry_secs),
        ];
        for (field, value) in times {
            range(&mut faults, field, value, WAIT_SECS_MAX);
        }
        range(&mut faults, "deliveries", self.deliveries_max, ATTEMPTS_MAX);
        whole(faults)
    }
}

impl NewMessage {
    fn faults(&self, faults: &mut Vec<Fault>) {
        let texts = [
            ("queue", Some(&self.queue)),
            ("message id", Some(&self.message_id)),
            ("message group", Some(&self.group)),
            ("message run", self.run_id.as_ref()),
            ("message trace", self.trace_id.as_ref()),
        ];
        for (field, text) in texts {
            if let Some(text) = text {
                text_faults(faults, field, text);
            }
        }
        let body = self.body.to_string();
        if !self.body.is_object() {
            add(faults, "message body", "must be a JSON object");
        }
        if body.len() > BODY_BYTES_MAX {
            let problem = format!("is {} bytes long; at most {BODY_BYTES_MAX} are allowed", body.len());
            add(faults, "message body", problem);
        }
        if body.contains("\\u0000") {
            add(faults, "message body", "contains a NUL character, which PostgreSQL cannot keep");
        }
        if self.generation < 0 {
            add(faults, "message generation", "must not be negative");
        }
        if self.delay < TimeDelta::zero() || self.delay > TimeDelta::seconds(i64::from(WAIT_SECS_MAX)) {
            add(faults, "message delay", "must be between nothing and thirty days");
        }
    }
}

/// Checks a batch of messages. Every fault is reported at once.
pub fn check_messages(messages: &[NewMessage]) -> Result<(), Invalid> {
    check_batch("messages", messages.len())?;
    let mut faults = Vec::new();
    for message in messages {
        message.faults(&mut faults);
    }
    whole(faults)
}

/// Checks the size of a batch.
pub fn check_batch(field: &'static str, count: usize) -> Result<(), Invalid> {
    let mut faults = Vec::new();
    if count > BATCH_MAX {
        add(&mut faults, field, format!("are {count}; at most {BATCH_MAX} are allowed at once"));
    }
    whole(faults)
}

fn text_faults(faults: &mut Vec<Fault>, field: &'static str, text: &str) {
    if text.is_empty() {
        add(faults, field, "must not be empty");
    }
    if text.len() > KEY_BYTES_MAX {
        add(faults, field, format!("is {} bytes long; at most {KEY_BYTES_MAX} are allowed", text.len()));
    }
    if text.contains('\0') {
        add(faults, field, "contains a NUL character, which PostgreSQL cannot keep");
    }
}

fn range(faults: &mut Vec<Fault>, field: &'static str, value: i32, max: i32) {
    if !(1..=max).contains(&value) {
        add(faults, field, format!("is {value}; it must be between 1 and {max}"));
    }
}

fn add(faults: &mut Vec<Fault>, field: &'static str, problem: impl Into<String>) {
    faults.push(Fault { field, problem: problem.into() });
}

fn whole(faults: Vec<Fault>) -> Result<(), Invalid> {
    if faults.is_empty() { Ok(()) } else { Err(Invalid(faults)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(checked: Result<(), Invalid>) -> Vec<&'static str> {
        checked
            .err()
            .map(|Invalid(faults)| faults.iter().map(|fault| fault.field).collect())
            .unwrap_or_default()
    }

    #[test]
    fn the_queues_that_exist_from_the_start_are_well_formed() {
        for settings in QueueSettings::defaults() {
            assert_eq!(settings.check(), Ok(()));
        }
    }

    #[test]
    fn every_fault_of_the_settings_is_reported_at_once() {
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
    fn every_fault_of_a_message_is_reported_at_once() {
        let mut message = NewMessage::new("work-items", "", "nivoda", json!("no object"));
        message.generation = -1;
        message.delay = TimeDelta::seconds(-1);
        message.trace_id = Some("a\0b".to_owned());
        let expected = ["message id", "message trace", "message body", "message generation", "message delay"];
        assert_eq!(fields(check_messages(&[message])), expected);
    }

    #[test]
    fn a_body_and_a_batch_have_a_largest_size() {
        let text = "x".repeat(BODY_BYTES_MAX - r#"{"t":""}"#.len());
        let message = NewMessage::new("work-items", "1", "nivoda", json!({ "t": text }));
        assert_eq!(check_messages(std::slice::from_ref(&message)), Ok(()));
        let larger = NewMessage { body: json!({ "t": text + "x" }), ..message.clone() };
        assert_eq!(fields(check_messages(&[larger])), ["message body"]);
        assert_eq!(fields(check_messages(&vec![message; BATCH_MAX + 1])), ["messages"]);
    }
}
