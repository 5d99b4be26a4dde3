//! Orders as they came, and what this version understands of them.

use crate::executor::Fault;
use crate::panics::Panicked;
use serde_json::Value;
use tidemill_core::limits;
use tidemill_core::task::TaskKind;
use tidemill_wire::agents::{TaskOrder, Work};

/// The version of this agent.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Fields that are named at most.
const UNKNOWN_MAX: usize = 50;

/// What an order asks for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Asked {
    /// Carry a job out.
    Run(Box<Work>),
    /// Stop another task.
    Cancel(String),
    /// Nothing that this agent can do, for this reason.
    Impossible(Fault),
}

/// An order, read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Order {
    /// The job.
    pub(crate) job_id: String,
    /// What it asks for.
    pub(crate) asked: Asked,
    /// Fields that this version does not know.
    pub(crate) unknown: Vec<String>,
}

/// The id of the task, if it can be one: it is also the name of a directory.
pub(crate) fn task_id(raw: &Value) -> Option<&str> {
    raw.get("task_id")?.as_str().filter(|id| is_id(id))
}

/// Whether an order is to stop another task.
pub(crate) fn is_cancel(raw: &Value) -> bool {
    raw.get("kind").and_then(Value::as_str) == Some(TaskKind::CancelJob.as_str())
}

/// Whether a text can be the id of a task or a job.
pub(crate) fn is_id(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=100).contains(&text.len()) && text.bytes().all(plain) && !text.starts_with('-')
}

/// Reads an order whose id was found to be one.
pub(crate) fn read(raw: &Value) -> Order {
    let kind = raw.get("kind").and_then(Value::as_str).unwrap_or_default();
    let impossible = |reason: String| unfit(raw, Fault::fatal(reason));
    let Ok(kind) = kind.parse::<TaskKind>() else {
        let shown: String = kind.chars().take(50).collect();
        let reason =
            format!("this agent, version {VERSION}, does not know tasks of kind {shown}: upgrade it");
        return impossible(reason);
    };
    let order: TaskOrder = match serde_json::from_value(raw.clone()) {
        Ok(order) => order,
        Err(error) => return impossible(format!("this agent does not understand the order: {error}")),
    };
    let mut unknown = Vec::new();
    if let Ok(known) = serde_json::to_value(&order) {
        name_unknown(raw, &known, "", &mut unknown);
    }
    let asked = match kind {
        TaskKind::RunJob => order.work.map(|work| Asked::Run(Box::new(work))),
        TaskKind::CancelJob => order.cancels.filter(|task| is_id(task)).map(Asked::Cancel),
    };
    match asked {
        Some(_) if !is_id(&order.job_id) => impossible("the order names no job".to_owned()),
        Some(asked) => Order { job_id: order.job_id, asked, unknown },
        None => impossible("the order does not say what is to be done".to_owned()),
    }
}

/// An order that could not even be read, because the reading broke off.
pub(crate) fn unread(raw: &Value, panicked: &Panicked) -> Order {
    unfit(raw, Fault::passing(format!("this agent, version {VERSION}, could not read the order: {panicked}")))
}

/// Why a task fails whose order was kept and cannot be read any more. Another try may do it.
pub(crate) fn unreadable(error: &std::io::Error) -> Fault {
    Fault::passing(format!("its agent cannot read the order any more that it kept: {error}"))
}

/// An order that cannot be carried out, for this reason.
pub(crate) fn unfit(raw: &Value, fault: Fault) -> Order {
    let job_id = raw.get("job_id").and_then(Value::as_str).unwrap_or_default().to_owned();
    Order { job_id, asked: Asked::Impossible(fault), unknown: Vec::new() }
}

/// Names what is in `raw` and was not read.
fn name_unknown(raw: &Value, known: &Value, path: &str, unknown: &mut Vec<String>) {
    match (raw, known) {
        (Value::Object(raw), Value::Object(known)) => {
            for (name, value) in raw {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match known.get(name) {
                    Some(known) => name_unknown(value, known, &path, unknown),
                    None if unknown.len() < UNKNOWN_MAX && !unknown.contains(&path) => unknown.push(path),
                    None => {}
                }
            }
        }
        (Value::Array(raw), Value::Array(known)) => {
            for (raw, known) in raw.iter().zip(known).take(limits::OUTPUTS_MAX) {
                name_unknown(raw, known, path, unknown);
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
    fn an_order_is_understood() {
        let order = read(&run());
        assert!(matches!(order.asked, Asked::Run(_)), "{order:?}");
        assert_eq!((order.job_id.as_str(), order.unknown.len()), ("abc", 0));
        let cancel =
            json!({"task_id": "abc-001-cancel", "kind": "CANCELJOB", "job_id": "abc", "cancels": "abc-001"});
        assert_eq!(read(&cancel).asked, Asked::Cancel("abc-001".to_owned()));
    }

    #[test]
    fn unknown_fields_are_tolerated_and_named() {
        let mut raw = run();
        raw["colour"] = json!("blue");
        raw["work"]["gpu"] = json!({"count": 2});
        raw["work"]["limits"] = json!({"cpu_secs": 1, "disk": 5});
        let mut order = read(&raw);
        order.unknown.sort_unstable();
        assert!(matches!(order.asked, Asked::Run(_)));
        assert_eq!(order.unknown, ["colour", "work.gpu", "work.limits.disk"]);
    }

    #[test]
    fn what_is_not_understood_has_a_reason() {
        let kind = read(&json!({"task_id": "a-001", "kind": "DANCE", "job_id": "a"}));
        let reason = format!("this agent, version {VERSION}, does not know tasks of kind DANCE: upgrade it");
        assert_eq!(kind.asked, Asked::Impossible(Fault::fatal(reason)));
        let mut climbing = run();
        climbing["work"]["outputs"]["all"] = json!("../x");
        assert!(
            matches!(read(&climbing).asked, Asked::Impossible(fault) if fault.fatal && fault.message.contains("climbs"))
        );
        let empty = json!({"task_id": "a-001", "kind": "RUNJOB", "job_id": "a"});
        assert!(matches!(read(&empty).asked, Asked::Impossible(_)));
    }

    #[test]
    fn ids_that_are_no_names_of_directories_are_none() {
        for bad in ["", "..", "a/b", "A", "a b", "a\0", "-a", &"a".repeat(101)] {
            assert_eq!(task_id(&json!({"task_id": bad})), None, "{bad:?}");
        }
    }
}
