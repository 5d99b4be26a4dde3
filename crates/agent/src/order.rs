//! Parses task orders of the server, and names the fields that this version does not know.

use crate::executor::TaskError;
use crate::panics::PanicError;
use serde_json::Value;
use tidemill_core::limits;
use tidemill_core::task::TaskKind;
use tidemill_wire::agents::{TaskOrder, Work};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Maximum number of unknown fields that are reported.
const UNKNOWN_MAX: usize = 50;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Request {
    Run(Box<Work>),
    /// Stop the task with this id.
    Cancel(String),
    /// An order that this agent cannot execute.
    Invalid(TaskError),
}

/// A task order in parsed form.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Order {
    pub(crate) job_id: String,
    pub(crate) request: Request,
    /// Names of fields that this version does not know.
    pub(crate) unknown: Vec<String>,
}

/// The task id, if it is valid: it is also a directory name.
pub(crate) fn task_id(raw: &Value) -> Option<&str> {
    raw.get("task_id")?.as_str().filter(|id| is_id(id))
}

/// Whether an order is a cancel order.
pub(crate) fn is_cancel(raw: &Value) -> bool {
    raw.get("kind").and_then(Value::as_str) == Some(TaskKind::CancelJob.as_str())
}

/// Whether a text is a valid id of a task or a job.
pub(crate) fn is_id(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=100).contains(&text.len()) && text.bytes().all(plain) && !text.starts_with('-')
}

/// Parses an order whose task id is valid.
pub(crate) fn parse(raw: &Value) -> Order {
    let kind = raw.get("kind").and_then(Value::as_str).unwrap_or_default();
    let invalid = |reason: String| invalid_order(raw, TaskError::fatal(reason));
    let Ok(kind) = kind.parse::<TaskKind>() else {
        let kind: String = kind.chars().take(50).collect();
        let reason =
            format!("this agent (version {VERSION}) does not support tasks of kind {kind}: upgrade it");
        return invalid(reason);
    };
    let order: TaskOrder = match serde_json::from_value(raw.clone()) {
        Ok(order) => order,
        Err(error) => return invalid(format!("this agent could not parse the order: {error}")),
    };
    let mut unknown = Vec::new();
    if let Ok(known) = serde_json::to_value(&order) {
        find_unknown(raw, &known, "", &mut unknown);
    }
    let request = match kind {
        TaskKind::RunJob => order.work.map(|work| Request::Run(Box::new(work))),
        TaskKind::CancelJob => order.cancels.filter(|task| is_id(task)).map(Request::Cancel),
    };
    match request {
        Some(_) if !is_id(&order.job_id) => invalid("the order has no valid job_id".to_owned()),
        Some(request) => Order { job_id: order.job_id, request, unknown },
        None => invalid("the order has neither `work` nor `cancels`".to_owned()),
    }
}

/// Result of a panic while an order was parsed.
pub(crate) fn parse_panicked(raw: &Value, error: &PanicError) -> Order {
    let message = format!("this agent (version {VERSION}) could not parse the order: {error}");
    invalid_order(raw, TaskError::transient(message))
}

/// Error of a task whose stored order cannot be read. A retry may succeed.
pub(crate) fn unreadable(error: &std::io::Error) -> TaskError {
    TaskError::transient(format!("the agent could not read its stored order: {error}"))
}

/// An order that this agent cannot execute.
pub(crate) fn invalid_order(raw: &Value, error: TaskError) -> Order {
    let job_id = raw.get("job_id").and_then(Value::as_str).unwrap_or_default().to_owned();
    Order { job_id, request: Request::Invalid(error), unknown: Vec::new() }
}

/// Collects the paths of fields in `raw` that are missing in `known`.
fn find_unknown(raw: &Value, known: &Value, path: &str, unknown: &mut Vec<String>) {
    match (raw, known) {
        (Value::Object(raw), Value::Object(known)) => {
            for (name, value) in raw {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match known.get(name) {
                    Some(known) => find_unknown(value, known, &path, unknown),
                    None if unknown.len() < UNKNOWN_MAX && !unknown.contains(&path) => unknown.push(path),
                    None => {}
                }
            }
        }
        (Value::Array(raw), Value::Array(known)) => {
            for (raw, known) in raw.iter().zip(known).take(limits::OUTPUTS_MAX) {
                find_unknown(raw, known, path, unknown);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run() -> Value {
        json!({
            "task_id": "abc-001", "kind": "RUNJOB", "job_id": "abc",
            "work": {
                "run_id": "run-0192f5a0-0000-7000-8000-000000000000", "project_id": "p", "workspace": "w",
                "job": "extract", "attempt": 1, "run": "true", "env": {"ANY": "x"}, "outputs": {"all": "*.csv"},
            },
        })
    }

    #[test]
    fn run_and_cancel_orders_are_parsed() {
        let order = parse(&run());
        assert!(matches!(order.request, Request::Run(_)), "{order:?}");
        assert_eq!((order.job_id.as_str(), order.unknown.len()), ("abc", 0));
        let cancel =
            json!({"task_id": "abc-001-cancel", "kind": "CANCELJOB", "job_id": "abc", "cancels": "abc-001"});
        assert_eq!(parse(&cancel).request, Request::Cancel("abc-001".to_owned()));
    }

    #[test]
    fn unknown_fields_are_ignored_and_named() {
        let mut raw = run();
        raw["colour"] = json!("blue");
        raw["work"]["gpu"] = json!({"count": 2});
        raw["work"]["limits"] = json!({"cpu_secs": 1, "disk": 5});
        let mut order = parse(&raw);
        order.unknown.sort_unstable();
        assert!(matches!(order.request, Request::Run(_)));
        assert_eq!(order.unknown, ["colour", "work.gpu", "work.limits.disk"]);
    }

    #[test]
    fn invalid_order_has_a_reason() {
        let kind = parse(&json!({"task_id": "a-001", "kind": "DANCE", "job_id": "a"}));
        let reason =
            format!("this agent (version {VERSION}) does not support tasks of kind DANCE: upgrade it");
        assert_eq!(kind.request, Request::Invalid(TaskError::fatal(reason)));
        let mut climbing = run();
        climbing["work"]["outputs"]["all"] = json!("../x");
        assert!(
            matches!(parse(&climbing).request, Request::Invalid(e) if e.fatal && e.message.contains("leaves"))
        );
        let empty = json!({"task_id": "a-001", "kind": "RUNJOB", "job_id": "a"});
        assert!(matches!(parse(&empty).request, Request::Invalid(_)));
    }

    #[test]
    fn ids_that_are_not_directory_names_are_invalid() {
        for bad in ["", "..", "a/b", "A", "a b", "a\0", "-a", &"a".repeat(101)] {
            assert_eq!(task_id(&json!({"task_id": bad})), None, "{bad:?}");
        }
    }
}
