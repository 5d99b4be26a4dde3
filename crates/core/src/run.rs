//! Lifecycle of a run: its states, its events and the transition function.

mod cursor;
mod operations;

pub use cursor::{InvalidCursorError, RunCursor};
pub use operations::{
    CancelOutcome, ClaimRuns, FailOutcome, FailRun, FinishRun, Holder, QueueOutcome, RetryOutcome, RunFilter,
};

use crate::label::labelled;
use crate::{EnvId, Json, RunId, Timestamp, WorkerId};

labelled! {
    /// The state of a run.
    "run state" RunState {
        Queued = "queued",
        /// Claimed by a worker that has not started it.
        Claimed = "claimed",
        /// Executed by the worker that claimed it.
        Running = "running",
        Success = "success",
        Failed = "failed",
        Cancelled = "cancelled",
    }
}

labelled! {
    /// An event in the life of a run.
    "run event" RunEvent {
        /// A worker claims the run.
        Claim = "claim",
        /// The worker starts the run: its first event or heartbeat for it.
        Start = "start",
        Succeed = "succeed",
        Fail = "fail",
        /// A caller cancels the run, or the worker confirms the cancel.
        Cancel = "cancel",
        /// No worker claimed it in time, or the worker that claimed it never started it.
        Expire = "expire",
        /// The worker died or fell silent while the run was running.
        Lose = "lose",
        /// The run exceeded its timeout.
        TimeOut = "time_out",
    }
}

/// Returns the state after `event`, or `None` if the event is illegal in this state.
///
/// The matches are nested and have no `_` arm, so that a new state or event does not compile until it is handled here.
pub const fn next(from: RunState, event: RunEvent) -> Option<RunState> {
    use {RunEvent as E, RunState as S};
    match from {
        S::Queued => match event {
            E::Claim => Some(S::Claimed),
            E::Cancel | E::Expire => Some(S::Cancelled),
            E::Start | E::Succeed | E::Fail | E::Lose | E::TimeOut => None,
        },
        S::Claimed => match event {
            E::Start => Some(S::Running),
            E::Cancel | E::Expire => Some(S::Cancelled),
            E::Claim | E::Succeed | E::Fail | E::Lose | E::TimeOut => None,
        },
        S::Running => match event {
            E::Succeed => Some(S::Success),
            E::Fail | E::Lose | E::TimeOut => Some(S::Failed),
            E::Cancel => Some(S::Cancelled),
            E::Claim | E::Start | E::Expire => None,
        },
        S::Success | S::Failed | S::Cancelled => None,
    }
}

impl RunState {
    /// Returns whether no event leaves this state. Derived from [`next`].
    pub fn is_terminal(self) -> bool {
        RunEvent::ALL.iter().all(|&event| next(self, event).is_none())
    }

    /// Returns whether a worker holds a run in this state.
    pub const fn is_held(self) -> bool {
        matches!(self, Self::Claimed | Self::Running)
    }
}

/// Returns every legal transition once. The database guard is generated from it.
pub fn pairs() -> Vec<(RunState, RunState)> {
    crate::lifecycle::pairs(RunState::ALL, RunEvent::ALL, next)
}

labelled! {
    /// The part of the product that a run belongs to.
    "lane" Lane {
        /// An operation that any worker can claim.
        Ops = "ops",
        Graph = "graph",
        /// A sync of an external feed.
        Sync = "sync",
    }
}

labelled! {
    /// The reason for which a queued run cannot be claimed, as far as its own row shows.
    "gate" Gate {
        /// No reason: the next matching worker may claim it.
        Open = "open",
        /// Its start time has not come.
        Time = "time",
        /// Another run with the same concurrency key comes before it.
        Key = "key",
    }
}

labelled! {
    /// The cause of a run's end.
    "end" EndCause {
        /// Its worker reported the end.
        Reported = "reported",
        Cancelled = "cancelled",
        /// A cancel was requested, and its worker did not confirm within the grace period.
        CancelGrace = "cancel_grace",
        /// Its worker claimed it and never started it.
        Stale = "stale",
        /// Its worker died or fell silent while it was running.
        Lost = "lost",
        /// Its worker was shut down before the run ended.
        Interrupted = "interrupted",
        /// It used up its budget of lost workers.
        Quarantined = "quarantined",
        /// It exceeded its timeout.
        TimedOut = "timed_out",
        /// No worker claimed it before it expired.
        Expired = "expired",
        /// A plain SQL statement ended it.
        Statement = "statement",
    }
}

labelled! {
    /// A final state that a worker may report.
    "final status" FinalStatus {
        Success = "success",
        Failed = "failed",
        Cancelled = "cancelled",
    }
}

/// A request to queue a run.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueRun {
    /// Project of the run.
    pub project: String,
    /// Name of the environment within the project.
    pub env: String,
    /// Commit to work on.
    pub git_sha: Option<String>,
    /// Branch or tag to work on.
    pub git_ref: Option<String>,
    /// Metadata for the worker; merged with the metadata that it reports at the end.
    pub metadata: Json,
    /// Idempotency key: a repeated request with the same key returns the first run.
    pub idempotency_key: Option<String>,
    /// Priority; higher values are claimed first.
    pub priority: i32,
    /// Earliest time of a claim.
    pub available_at: Option<Timestamp>,
    /// Time at which the run is cancelled if it was not claimed.
    pub expires_at: Option<Timestamp>,
    /// Number of attempts before a reported failure is final.
    pub max_attempts: i32,
    /// Number of lost workers before the run is quarantined.
    pub max_losses: i32,
    /// Wait before the first retry of a reported failure in seconds; it doubles with each retry.
    pub backoff_secs: i32,
    /// Time limit for the running state in seconds.
    pub timeout_secs: Option<i32>,
    /// Concurrency key: at most one run of the project with the same key is claimed at a time.
    pub concurrency_key: Option<String>,
    /// Labels that a worker must have.
    pub labels: Vec<String>,
    /// Kind of work, by which a worker chooses the handler; empty if the run has none.
    #[serde(default)]
    pub kind: String,
}

impl QueueRun {
    /// Makes a request with all defaults.
    pub fn new(project: impl Into<String>, env: impl Into<String>) -> Self {
        Self {
            project: project.into(),
            env: env.into(),
            git_sha: None,
            git_ref: None,
            metadata: Json::Object(serde_json::Map::new()),
            idempotency_key: None,
            priority: 0,
            available_at: None,
            expires_at: None,
            max_attempts: crate::limits::ATTEMPTS_DEFAULT,
            max_losses: crate::limits::LOSSES_DEFAULT,
            backoff_secs: crate::limits::BACKOFF_SECS,
            timeout_secs: None,
            concurrency_key: None,
            labels: Vec::new(),
            kind: String::new(),
        }
    }
}

/// A run as it is stored in the database.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Run {
    /// Id of the run.
    pub run_id: RunId,
    /// Project of the run.
    pub project_id: String,
    /// Environment of the run.
    pub env_id: EnvId,
    /// Lane: the part of the product that executes the run.
    pub lane: Lane,
    /// Kind of work, by which a worker chooses the handler; empty if the run has none.
    #[serde(default)]
    pub kind: String,
    /// State of the run.
    pub status: RunState,
    /// Reason for which a queued run cannot be claimed.
    pub gate: Option<Gate>,
    pub git_sha: Option<String>,
    pub git_ref: Option<String>,
    /// Metadata of the request, merged with the metadata of the worker's report.
    pub metadata: Json,
    /// Idempotency key of the caller, on the first run of a request.
    pub idempotency_key: Option<String>,
    /// Priority; higher values are claimed first.
    pub priority: i32,
    /// Labels that a worker must have.
    pub labels: Vec<String>,
    /// Concurrency key: at most one run of the project with the same key is claimed at a time.
    pub concurrency_key: Option<String>,
    /// Earliest time of a claim.
    pub available_at: Option<Timestamp>,
    /// Time at which the run is cancelled if it was not claimed.
    pub expires_at: Option<Timestamp>,
    /// Time limit for the running state in seconds.
    pub timeout_secs: Option<i32>,
    /// Number of the attempt at the request, counted from 1.
    pub attempt: i32,
    /// Reported failures of earlier attempts, which count towards `max_attempts`.
    pub failures: i32,
    /// Lost workers of earlier attempts, which count towards `max_losses`.
    pub losses: i32,
    /// Number of attempts before a reported failure is final.
    pub max_attempts: i32,
    /// Number of lost workers before the run is quarantined.
    pub max_losses: i32,
    /// Wait before the first retry of a reported failure in seconds; it doubles with each retry.
    pub backoff_secs: i32,
    /// Run of which this one is the successor.
    pub retry_of: Option<RunId>,
    /// Name of the worker that holds or held it.
    pub claimed_by: Option<String>,
    /// Id of the worker process, if it is registered.
    pub worker_id: Option<WorkerId>,
    /// Number of the claim; it fences the writes of earlier claims.
    pub epoch: i32,
    /// End of the worker's lease.
    pub lease_until: Option<Timestamp>,
    /// Time at which the sweeper ends it because of its timeout.
    pub deadline_at: Option<Timestamp>,
    /// Time of the request to cancel.
    pub cancel_requested_at: Option<Timestamp>,
    /// Name of the caller who requested the cancel.
    pub cancel_requested_by: Option<String>,
    /// Reason of the cancel.
    pub cancel_reason: Option<String>,
    /// Time at which it was found stalled: it is silent, its worker sends no heartbeats, and an operator must decide.
    pub stalled_at: Option<Timestamp>,
    /// Cause of the end.
    pub end_cause: Option<EndCause>,
    pub queued_at: Timestamp,
    /// Time of the claim.
    pub started_at: Option<Timestamp>,
    /// Time of the end.
    pub finished_at: Option<Timestamp>,
    /// Time at which the row was created.
    pub created_at: Timestamp,
    /// Time at which the row was last changed.
    pub updated_at: Timestamp,
}

impl Run {
    /// Returns the name of its graph or the feed of its sync; `None` for runs of lane `ops`.
    pub fn name(&self) -> Option<&str> {
        match self.lane {
            Lane::Ops => None,
            Lane::Graph => self.metadata.get("graph")?.get("name")?.as_str(),
            Lane::Sync => self.concurrency_key.as_deref()?.strip_prefix("feed:"),
        }
    }
}

/// A run as the worker that claimed it receives it.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Claim {
    /// Id of the run.
    pub run_id: RunId,
    /// Project of the run.
    pub project_id: String,
    /// Environment of the run.
    pub env_id: EnvId,
    /// Commit to work on.
    pub git_sha: Option<String>,
    /// Branch or tag to work on.
    pub git_ref: Option<String>,
    /// Metadata of the request.
    pub metadata: Json,
    /// Number of the claim; later calls send it so that the server can reject those of an earlier claim.
    pub epoch: i32,
    /// Number of the attempt at the request, counted from 1.
    pub attempt: i32,
    /// Time limit for the running state in seconds.
    pub timeout_secs: Option<i32>,
    /// End of the lease, unless an event or a heartbeat extends it.
    pub lease_until: Timestamp,
    /// Kind of work, by which a worker chooses the handler; empty if the run has none.
    #[serde(default)]
    pub kind: String,
}

/// The outcome of a change that requires a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ChangeOutcome {
    /// This call applied the change.
    Applied,
    /// An earlier call with the same content applied it.
    Duplicate,
    /// The caller no longer holds the run, so nothing changed.
    Stale,
}

#[cfg(test)]
mod tests {
    use super::*;
    use {RunEvent as E, RunState as S};

    /// Every legal transition, written by hand.
    const TABLE: &[(S, E, S)] = &[
        (S::Queued, E::Claim, S::Claimed),
        (S::Queued, E::Cancel, S::Cancelled),
        (S::Queued, E::Expire, S::Cancelled),
        (S::Claimed, E::Start, S::Running),
        (S::Claimed, E::Cancel, S::Cancelled),
        (S::Claimed, E::Expire, S::Cancelled),
        (S::Running, E::Succeed, S::Success),
        (S::Running, E::Fail, S::Failed),
        (S::Running, E::Cancel, S::Cancelled),
        (S::Running, E::Lose, S::Failed),
        (S::Running, E::TimeOut, S::Failed),
    ];

    #[test]
    fn transitions_match_the_table() {
        for &from in S::ALL {
            for &event in E::ALL {
                let expected = TABLE.iter().find(|row| row.0 == from && row.1 == event).map(|row| row.2);
                assert_eq!(next(from, event), expected, "{from} + {event}");
            }
        }
    }

    #[test]
    fn states_are_reachable_and_live_states_can_end() {
        let mut reached = vec![S::Queued];
        while let Some(&to) = pairs()
            .iter()
            .find(|(from, to)| reached.contains(from) && !reached.contains(to))
            .map(|(_, to)| to)
        {
            reached.push(to);
        }
        assert_eq!(reached.len(), S::ALL.len());
        for &state in S::ALL {
            let can_end = pairs().iter().any(|(from, to)| *from == state && to.is_terminal());
            assert!(can_end || state.is_terminal(), "{state} cannot end");
        }
    }

    #[test]
    fn run_is_claimed_at_most_once() {
        assert_eq!(pairs().iter().filter(|(_, to)| *to == S::Claimed).count(), 1);
        assert!(pairs().iter().all(|(_, to)| *to != S::Queued));
    }
}
