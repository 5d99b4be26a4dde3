//! Tasks: orders to agents, and what agents report of them. Agents only report; the controller decides.

use crate::job::JobEvent;
use crate::label::labelled;

labelled! {
    /// What an agent is asked to do.
    "task kind" TaskKind {
        /// Carry a job out.
        RunJob = "RUNJOB",
        /// Stop carrying it out, and say when it has stopped.
        CancelJob = "CANCELJOB",
    }
}

labelled! {
    /// How far an agent is with a task, as it derives it from its disk and its processes.
    "stage" Stage {
        /// It makes the directory.
        Preparing = "preparing",
        /// It is ready to start the command.
        Prepared = "prepared",
        /// The command runs.
        Executing = "executing",
        /// The command ended badly.
        Error = "error",
        /// The command is over.
        Executed = "executed",
        /// It collects what the command left.
        Finalizing = "finalizing",
        /// What the command left is kept.
        Finalized = "finalized",
    }
}

impl Stage {
    /// What it means for the job.
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

/// What came of a task.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TaskResult {
    /// The command ended by itself, and what it left was looked at.
    Ended {
        /// Its exit code; 128 and the signal's number where one ended it.
        exit_code: i32,
        /// Outputs that nothing matched, each as its name with the pattern: `table (out/*.csv)`. Agents of earlier
        /// releases send the name alone.
        unmatched: Vec<String>,
        /// Files that are new and match nothing: what may have been meant.
        #[serde(default)]
        hint: Vec<String>,
        /// Why it ended, where the agent knows more than the code: out of time, out of memory.
        #[serde(default)]
        message: Option<String>,
    },
    /// The agent could not carry it out.
    Failed {
        /// Whether trying again would fail again.
        fatal: bool,
        /// Whether that is so on this agent alone: another one may do better. Agents of earlier releases do not say.
        #[serde(default)]
        elsewhere: bool,
        /// Why.
        message: String,
    },
    /// It was stopped, and nothing of it runs any more.
    Stopped,
}

/// A file that a job left.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Output {
    /// The name under which the definition asks for it.
    pub name: String,
    /// Where it is, below the job's directory.
    pub path: String,
    /// Its size.
    pub size_bytes: i64,
    /// SHA-256 of what is in it, in hexadecimal digits.
    pub sha256: String,
    /// Where it is kept, for agents elsewhere; without it, it is in the workspace of the agent that made it.
    #[serde(default)]
    pub url: Option<String>,
}

/// The id of a job's task: the job, and which try this is.
pub fn task_id(job: &str, number: i32) -> String {
    format!("{job}-{number:03}")
}

/// How often an agent is told to stop a task, where it answers each time that it cannot.
pub const STOPS_MAX: u32 = 5;

/// The id of the order to stop a task.
pub fn cancel_id(task: &str) -> String {
    format!("{task}-cancel")
}

/// The id of the order that follows one to stop a task which came to nothing; none where it was the last.
pub fn next_cancel_id(order: &str) -> Option<String> {
    let (task, number) = order.rsplit_once("-cancel")?;
    let number: u32 = number.strip_prefix('-').map_or(Some(1), |number| number.parse().ok())?;
    (number < STOPS_MAX).then(|| format!("{task}-cancel-{}", number + 1))
}

/// The id of a job: the same for the same run and name, however often it is made.
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
    fn ids_are_the_same_for_the_same_run_and_name() {
        let run: crate::RunId = "run-0192f5a0-0000-7000-8000-000000000000".parse().unwrap();
        let id = job_id(&run, "extract");
        assert_eq!(id, job_id(&run, "extract"));
        assert_ne!(id, job_id(&run, "load"));
        assert_eq!(id.len(), 16);
        assert!(id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()));
        assert_eq!(cancel_id(&task_id(&id, 7)), format!("{id}-007-cancel"));
    }

    #[test]
    fn a_task_is_told_to_stop_so_often() {
        let orders = std::iter::successors(Some(cancel_id("a-001")), |order| next_cancel_id(order));
        let orders: Vec<String> = orders.collect();
        assert_eq!(orders[..2], ["a-001-cancel", "a-001-cancel-2"]);
        assert_eq!((orders.len(), orders[4].as_str()), (STOPS_MAX as usize, "a-001-cancel-5"));
        assert_eq!(next_cancel_id("a-001"), None);
    }
}
