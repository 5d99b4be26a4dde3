//! The life of a run: every state, every event, and the one function that joins them.

mod verbs;

pub use verbs::{Cancelled, ClaimRuns, FailRun, Failed, FinishRun, Holder, Queued, Retried, RunFilter};

use crate::label::labelled;
use crate::{EnvId, Json, RunId, Timestamp, WorkerId};

labelled! {
    /// Where a run is in its life.
    "run state" RunState {
        /// Waits for a worker.
        Queued = "queued",
        /// Taken by a worker that has not yet said anything.
        Claimed = "claimed",
        /// Carried out by the worker that claimed it.
        Running = "running",
        /// Ended well.
        Success = "success",
        /// Ended badly.
        Failed = "failed",
        /// Stopped.
        Cancelled = "cancelled",
    }
}

labelled! {
    /// What can happen to a run.
    "run event" RunEvent {
        /// A worker takes the run.
        Claim = "claim",
        /// The worker gives its first sign of life.
        Start = "start",
        /// The worker reports success.
        Succeed = "succeed",
        /// The worker reports failure.
        Fail = "fail",
        /// A person, or the worker on a person's behalf, stops the run.
        Cancel = "cancel",
        /// Nobody claimed it in time, or its claimer never gave a sign of life.
        Expire = "expire",
        /// The worker died or fell silent while the run was running.
        Lose = "lose",
        /// The run took longer than it may.
        TimeOut = "time_out",
    }
}

/// The state `event` leads to, or `None` where it is illegal.
///
/// Nested, never a tuple with `_`: a new state or event does not compile until it is placed here.
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
    /// Whether nothing can leave this state. Derived, so it cannot disagree with [`next`].
    pub fn is_terminal(self) -> bool {
        RunEvent::ALL.iter().all(|&event| next(self, event).is_none())
    }

    /// Whether a worker holds a run in this state.
    pub const fn is_held(self) -> bool {
        matches!(self, Self::Claimed | Self::Running)
    }
}

/// Every legal change of state, once each: what the database's guard is generated from.
pub fn pairs() -> Vec<(RunState, RunState)> {
    crate::lifecycle::pairs(RunState::ALL, RunEvent::ALL, next)
}

labelled! {
    /// Which part of the product a run belongs to.
    "lane" Lane {
        /// One operation that any worker claims.
        Ops = "ops",
        /// Jobs with dependencies.
        Graph = "graph",
        /// An outside feed kept in a table.
        Sync = "sync",
    }
}

labelled! {
    /// What keeps a queued run from being claimed, as far as its own row knows.
    "gate" Gate {
        /// Nothing: the next worker that fits may claim it.
        Open = "open",
        /// Its time has not come.
        Time = "time",
        /// Another run of the same concurrency key is before it.
        Key = "key",
    }
}

labelled! {
    /// Why a run ended, as decided by whoever ended it.
    "end" EndCause {
        /// Its worker said so.
        Reported = "reported",
        /// Somebody cancelled it.
        Cancelled = "cancelled",
        /// It was asked to stop, and its worker did not confirm within the grace period.
        CancelGrace = "cancel_grace",
        /// It was claimed, and its worker gave no sign of life.
        Stale = "stale",
        /// Its worker died or fell silent while it was running.
        Lost = "lost",
        /// Its worker was told to end, and ended before the run did.
        Interrupted = "interrupted",
        /// It lost its worker more often than it may.
        Quarantined = "quarantined",
        /// It took longer than its timeout.
        TimedOut = "timed_out",
        /// Nobody claimed it before it expired.
        Expired = "expired",
        /// A plain SQL statement ended it.
        Statement = "statement",
    }
}

labelled! {
    /// How a worker may end a run.
    "final status" FinalStatus {
        /// It did what was asked.
        Success = "success",
        /// It did not.
        Failed = "failed",
        /// It was stopped.
        Cancelled = "cancelled",
    }
}

/// A request to do something once, as a caller states it.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueRun {
    /// The project that the run belongs to.
    pub project: String,
    /// The environment, by its name within the project.
    pub env: String,
    /// The commit to work on.
    pub git_sha: Option<String>,
    /// The branch or tag to work on.
    pub git_ref: Option<String>,
    /// What the worker should know; merged with what it reports at the end.
    pub metadata: Json,
    /// Makes asking twice the same as asking once.
    pub idempotency_key: Option<String>,
    /// Larger is first.
    pub priority: i32,
    /// Not before this time.
    pub available_at: Option<Timestamp>,
    /// Not claimed by this time: cancelled.
    pub expires_at: Option<Timestamp>,
    /// Tries in all before a failure that a worker reports is final.
    pub max_attempts: i32,
    /// Times the run may lose its worker.
    pub max_losses: i32,
    /// Wait before the first retry of a reported failure; doubles each time.
    pub backoff_secs: i32,
    /// How long the run may be running.
    pub timeout_secs: Option<i32>,
    /// At most one run of the project with this key is claimed at a time.
    pub concurrency_key: Option<String>,
    /// What a worker must offer.
    pub labels: Vec<String>,
}

impl QueueRun {
    /// A request with every default.
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
        }
    }
}

/// A run as it is kept.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Run {
    /// Its id.
    pub run_id: RunId,
    /// The project that it belongs to.
    pub project_id: String,
    /// The environment that it belongs to.
    pub env_id: EnvId,
    /// The part of the product that carries it out.
    pub lane: Lane,
    /// Where it is in its life.
    pub status: RunState,
    /// What holds it back while it is queued.
    pub gate: Option<Gate>,
    /// The commit.
    pub git_sha: Option<String>,
    /// The branch or tag.
    pub git_ref: Option<String>,
    /// What was asked, merged with what was reported.
    pub metadata: Json,
    /// The caller's key, on the first run of a request.
    pub idempotency_key: Option<String>,
    /// Larger is first.
    pub priority: i32,
    /// What a worker must offer.
    pub labels: Vec<String>,
    /// The key that it shares with runs that must not run beside it.
    pub concurrency_key: Option<String>,
    /// Not before this time.
    pub available_at: Option<Timestamp>,
    /// Cancelled if nobody claimed it by then.
    pub expires_at: Option<Timestamp>,
    /// How long it may be running.
    pub timeout_secs: Option<i32>,
    /// Which try of its request this is, from 1.
    pub attempt: i32,
    /// Reported failures before this try that count against `max_attempts`.
    pub failures: i32,
    /// Lost workers before this try that count against `max_losses`.
    pub losses: i32,
    /// Tries in all before a reported failure is final.
    pub max_attempts: i32,
    /// Times that it may lose its worker.
    pub max_losses: i32,
    /// Wait before the first retry.
    pub backoff_secs: i32,
    /// The run that this one is the successor of.
    pub retry_of: Option<RunId>,
    /// The name of the worker that holds or held it.
    pub claimed_by: Option<String>,
    /// The worker process, where it is a registered one.
    pub worker_id: Option<WorkerId>,
    /// How often it was claimed; a fence for writes.
    pub epoch: i32,
    /// Until when its worker needs to give no sign of life.
    pub lease_until: Option<Timestamp>,
    /// When the sweeper ends it for taking too long.
    pub deadline_at: Option<Timestamp>,
    /// When somebody asked it to stop.
    pub cancel_requested_at: Option<Timestamp>,
    /// Who asked it to stop.
    pub cancel_requested_by: Option<String>,
    /// Why it should stop.
    pub cancel_reason: Option<String>,
    /// When it went silent, if its worker has promised no signs of life: a person decides what becomes of it.
    pub stalled_at: Option<Timestamp>,
    /// Why it ended.
    pub end_cause: Option<EndCause>,
    /// When it was queued.
    pub queued_at: Timestamp,
    /// When it was claimed.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// When its row was made.
    pub created_at: Timestamp,
    /// When its row was last changed.
    pub updated_at: Timestamp,
}

impl Run {
    /// What people call it by: the name of its graph, or the feed of its sync. Runs of lane `ops` have none.
    pub fn name(&self) -> Option<&str> {
        match self.lane {
            Lane::Ops => None,
            Lane::Graph => self.metadata.get("graph")?.get("name")?.as_str(),
            Lane::Sync => self.concurrency_key.as_deref()?.strip_prefix("feed:"),
        }
    }
}

/// What a worker gets when it claims a run.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Claim {
    /// The run.
    pub run_id: RunId,
    /// Its project.
    pub project_id: String,
    /// Its environment.
    pub env_id: EnvId,
    /// The commit.
    pub git_sha: Option<String>,
    /// The branch or tag.
    pub git_ref: Option<String>,
    /// What was asked.
    pub metadata: Json,
    /// The fence that later writes carry.
    pub epoch: i32,
    /// Which try of its request this is.
    pub attempt: i32,
    /// How long it may be running.
    pub timeout_secs: Option<i32>,
    /// Until when the lease lasts without a sign of life.
    pub lease_until: Timestamp,
}

/// What became of a request to change something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Applied {
    /// It was changed, now and by this call.
    Applied,
    /// The same call had changed it before.
    Duplicate,
    /// The caller no longer holds what it wanted to change: nothing was changed.
    Stale,
}

#[cfg(test)]
mod tests {
    use super::*;
    use {RunEvent as E, RunState as S};

    /// Every legal arrow, written out once more by hand.
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
    fn every_pair_is_in_the_table_or_illegal() {
        for &from in S::ALL {
            for &event in E::ALL {
                let expected = TABLE.iter().find(|row| row.0 == from && row.1 == event).map(|row| row.2);
                assert_eq!(next(from, event), expected, "{from} + {event}");
            }
        }
    }

    #[test]
    fn every_state_is_reachable_and_every_live_state_can_end() {
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
    fn a_run_is_claimed_at_most_once_in_its_life() {
        assert_eq!(pairs().iter().filter(|(_, to)| *to == S::Claimed).count(), 1);
        assert!(pairs().iter().all(|(_, to)| *to != S::Queued));
    }
}
