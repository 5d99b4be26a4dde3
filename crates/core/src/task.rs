//! Tasks: orders to agents, and their reports. Agents only report; the controller decides.

use crate::job::JobEvent;
use crate::label::labelled;

labelled! {
    /// The kind of a task.
    "task kind" TaskKind {
        RunJob = "RUNJOB",
        /// Stop the execution of a job and confirm it.
        CancelJob = "CANCELJOB",
    }
}

labelled! {
    /// The progress of a task, as the agent derives it from its disk and its processes.
    "stage" Stage {
        /// The agent creates the directory.
        Preparing = "preparing",
        /// The agent is ready to start the command.
        Prepared = "prepared",
        Executing = "executing",
        Error = "error",
        Executed = "executed",
        /// The agent collects the outputs.
        Finalizing = "finalizing",
        Finalized = "finalized",
    }
}

impl Stage {
    /// Returns the event that this stage means for the job.
    pub const fn event(self) -> JobEvent {
        match self {
            Self::Preparing => JobEvent::Prepare,
            Self::Prepared => JobEvent::Ready,
            Self::Executing => JobEvent::Execute,
            Self::Error => JobEvent::Break,
            Self::Executed => JobEvent::Leave,
            Self::Finalizing => JobEvent::Finalize,
            Self::Finalized => JobEvent::Deliver,
        }
    }
}

/// The result of a task.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TaskResult {
    /// The command ended by itself, and the agent collected its outputs.
    Ended {
        /// Exit code; 128 plus the signal's number if a signal ended it.
        exit_code: i32,
        /// Outputs without a matching file, each as its name with the pattern: `table (out/*.csv)`. Agents of earlier
        /// releases send only the name.
        unmatched: Vec<String>,
        /// New files that match no output, as a hint.
        #[serde(default)]
        hint: Vec<String>,
        /// Explanation, if the agent knows more than the exit code: timeout, out of memory.
        #[serde(default)]
        message: Option<String>,
    },
    /// The agent could not execute it.
    Failed {
        /// Whether a retry would fail again.
        fatal: bool,
        /// Whether only this agent is affected, so that another agent may succeed. Agents of earlier releases do not
        /// send it.
        #[serde(default)]
        elsewhere: bool,
        message: String,
    },
    /// The task was stopped, and none of its processes runs.
    Stopped,
}

/// An output file of a job.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Output {
    /// Name of the output in the definition.
    pub name: String,
    /// Path relative to the job's directory.
    pub path: String,
    pub size_bytes: i64,
    /// SHA-256 of the contents in hexadecimal digits.
    pub sha256: String,
    /// URL in the object store; null if the file is only on the disk of the agent that produced it.
    #[serde(default)]
    pub url: Option<String>,
}

/// Returns the id of a job's task, made of the job id and the number of the attempt.
pub fn task_id(job: &str, number: i32) -> String {
    format!("{job}-{number:03}")
}

/// Maximum number of orders to stop a task, if the agent reports each time that it cannot.
pub const STOPS_MAX: u32 = 5;

/// Returns the id of the order to stop a task.
pub fn cancel_id(task: &str) -> String {
    format!("{task}-cancel")
}

/// Returns the id of the next stop order after a failed one; `None` after the last.
pub fn next_cancel_id(order: &str) -> Option<String> {
    let (task, number) = order.rsplit_once("-cancel")?;
    let number: u32 = number.strip_prefix('-').map_or(Some(1), |number| number.parse().ok())?;
    (number < STOPS_MAX).then(|| format!("{task}-cancel-{}", number + 1))
}

/// Returns the id of a job, derived from the run and the name.
pub fn job_id(run: &crate::RunId, name: &str) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    use sha2::Digest as _;
    let digest = sha2::Sha256::digest(format!("{run}\n{name}"));
    let mut id = String::with_capacity(16);
    let (mut bits, mut held) = (0_u32, 0_u32);
    for &byte in &digest[..10] {
        bits = (bits << 8) | u32::from(byte);
        held += 8;
        while held >= 5 {
            held -= 5;
            let index = (bits >> held) & 31;
            id.push(char::from(ALPHABET[index as usize]));
        }
        bits &= (1 << held) - 1;
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_ids_are_deterministic() {
        let run: crate::RunId = "run-0192f5a0-0000-7000-8000-000000000000".parse().unwrap();
        let id = job_id(&run, "extract");
        assert_eq!(id, job_id(&run, "extract"));
        assert_ne!(id, job_id(&run, "load"));
        assert_eq!(id.len(), 16);
        assert!(id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()));
        assert_eq!(cancel_id(&task_id(&id, 7)), format!("{id}-007-cancel"));
    }

    #[test]
    fn stop_orders_are_limited() {
        let orders = std::iter::successors(Some(cancel_id("a-001")), |order| next_cancel_id(order));
        let orders: Vec<String> = orders.collect();
        assert_eq!(orders[..2], ["a-001-cancel", "a-001-cancel-2"]);
        assert_eq!((orders.len(), orders[4].as_str()), (STOPS_MAX as usize, "a-001-cancel-5"));
        assert_eq!(next_cancel_id("a-001"), None);
    }
}
