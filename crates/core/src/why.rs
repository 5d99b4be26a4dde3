//! The reason for the current state of a run: one typed value with one sentence, the same in every interface.
//!
//! [`explain`] decides from facts of one snapshot. Reasons that no worker could change, such as a pause, come before
//! missing workers.

mod job;
mod sync;

pub use job::{AgentFacts, GraphReason, JobFacts, JobReason, explain_job};
pub use sync::{ProcessCounts, SyncFacts, SyncReason, explain_sync};

use crate::project::Flag;
use crate::run::{EndCause, Gate, Lane, Run, RunState};
use crate::shell::quote;
use crate::{RunId, Timestamp};

/// The input of [`explain`], read in one transaction.
#[derive(Debug, Clone)]
pub struct Facts {
    pub run: Run,
    /// Flags of its project or its lane.
    pub flags: Vec<Flag>,
    /// The run that holds its concurrency key, or is the next to get it.
    pub key_head: Option<RunId>,
    /// Worker of that run.
    pub key_worker: Option<String>,
    /// Facts about that run, if this run waits for it.
    pub key_head_facts: Option<Box<Facts>>,
    /// Number of runs that would be claimed before it.
    pub ahead: i64,
    /// Live workers with its labels that are not draining.
    pub workers_fitting: i64,
    /// Live workers that are not draining.
    pub workers_alive: i64,
    /// Live workers with its labels that are draining.
    pub workers_draining: i64,
    /// Time of the last heartbeat of its own worker.
    pub worker_beat_at: Option<Timestamp>,
    pub successor: Option<RunId>,
    /// Last event that a worker wrote.
    pub last_event: Option<String>,
    /// Time of that event.
    pub last_event_at: Option<Timestamp>,
}

/// The reason for the current state of a run.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum Reason {
    Paused {
        /// Scope of the pause.
        scope: String,
        /// Reason of the pause.
        note: Option<String>,
        /// End of the pause, if it ends by itself.
        until: Option<Timestamp>,
    },
    /// Its start time has not come.
    NotYet {
        /// Earliest time of a claim.
        available_at: Timestamp,
        /// Whether it backs off after a failed attempt.
        backing_off: bool,
    },
    /// Another run of its concurrency key comes before it.
    KeyHeld {
        key: String,
        /// Run that comes before it.
        head: Option<RunId>,
        /// Worker of that run.
        worker: Option<String>,
        /// Reason for which that run makes no progress, if it does not.
        #[serde(skip_serializing_if = "Option::is_none")]
        head_reason: Option<Box<Reason>>,
    },
    /// No worker is running.
    NoWorkers {
        /// Labels that the run requires.
        labels: Vec<String>,
    },
    /// All matching workers are draining.
    WorkersDraining {
        /// Number of draining workers that match.
        workers: i64,
    },
    /// No running worker has the required labels.
    NoWorkerFits {
        /// Labels that the run requires.
        labels: Vec<String>,
        /// Number of running workers.
        workers_alive: i64,
    },
    /// Other runs come before it.
    Behind {
        /// Number of these runs.
        ahead: i64,
    },
    /// The next matching worker gets it.
    Next,
    /// A cancel was requested, and its worker has not confirmed it.
    Stopping {
        /// Name of the caller who requested it.
        by: Option<String>,
        /// Name of its worker.
        worker: Option<String>,
        /// Time of the request.
        since: Timestamp,
    },
    /// Its worker has stopped sending heartbeats.
    WorkerSilent {
        /// Name of its worker.
        worker: Option<String>,
        /// Time of the worker's last heartbeat.
        since: Timestamp,
    },
    /// It is running and silent, and its worker sends no heartbeats: an operator must decide.
    Stalled {
        /// Name of its worker.
        worker: Option<String>,
        /// Time of the last activity.
        since: Timestamp,
    },
    /// Its worker has claimed it and not started it.
    Claimed {
        /// Name of its worker.
        worker: Option<String>,
        /// End of the lease.
        lease_until: Option<Timestamp>,
    },
    /// Its worker is executing it.
    Running {
        /// Name of its worker.
        worker: Option<String>,
        /// Time of the start.
        since: Option<Timestamp>,
        /// Last event that the worker wrote.
        last_event: Option<String>,
    },
    /// It is a sync that waits for something specific to syncs.
    Sync(SyncReason),
    /// It is a graph; one of its jobs determines the reason.
    Graph(GraphReason),
    Ended {
        status: RunState,
        /// Cause of the end.
        cause: Option<EndCause>,
        /// Error or reason from its metadata.
        detail: Option<String>,
        /// Run that continues the request.
        successor: Option<RunId>,
    },
}

/// Time without a heartbeat after which a worker is reported as silent.
const SILENT_SECS: i64 = 10;

/// Returns the reason for the state of a run at `now`.
pub fn explain(facts: &Facts, now: Timestamp) -> Reason {
    match facts.run.status {
        RunState::Queued => explain_queued(facts, now),
        RunState::Claimed | RunState::Running => explain_held(facts, now),
        RunState::Success | RunState::Failed | RunState::Cancelled => Reason::Ended {
            status: facts.run.status,
            cause: facts.run.end_cause,
            detail: detail(&facts.run),
            successor: facts.successor.clone(),
        },
    }
}

fn explain_queued(facts: &Facts, now: Timestamp) -> Reason {
    let run = &facts.run;
    if let Some(flag) = facts.flags.iter().find(|flag| flag.is_on(now)) {
        return Reason::Paused { scope: flag.scope.clone(), note: flag.note.clone(), until: flag.until_at };
    }
    if let (Some(Gate::Time), Some(available_at)) = (run.gate, run.available_at)
        && available_at > now
    {
        return Reason::NotYet { available_at, backing_off: run.retry_of.is_some() };
    }
    if let (Some(Gate::Key), Some(key)) = (run.gate, &run.concurrency_key) {
        return Reason::KeyHeld {
            key: key.clone(),
            head: facts.key_head.clone(),
            worker: facts.key_worker.clone(),
            head_reason: facts
                .key_head_facts
                .as_deref()
                .and_then(|head| explain_head(head, now))
                .map(Box::new),
        };
    }
    if facts.workers_fitting == 0 && facts.workers_draining > 0 {
        return Reason::WorkersDraining { workers: facts.workers_draining };
    }
    if facts.workers_fitting == 0 && !run.labels.is_empty() && facts.workers_alive > 0 {
        return Reason::NoWorkerFits { labels: run.labels.clone(), workers_alive: facts.workers_alive };
    }
    if facts.workers_alive == 0 {
        return Reason::NoWorkers { labels: run.labels.clone() };
    }
    if facts.ahead > 0 { Reason::Behind { ahead: facts.ahead } } else { Reason::Next }
}

/// Returns the reason for which the run that holds a concurrency key makes no progress; `None` if it makes progress
/// or has ended.
fn explain_head(head: &Facts, now: Timestamp) -> Option<Reason> {
    // The reasons of syncs and graphs need other facts.
    if head.run.lane != Lane::Ops {
        return None;
    }
    let reason = explain(head, now);
    let progresses = matches!(
        reason,
        Reason::Claimed { .. } | Reason::Running { .. } | Reason::Ended { .. } | Reason::KeyHeld { .. }
    );
    (!progresses).then_some(reason)
}

fn explain_held(facts: &Facts, now: Timestamp) -> Reason {
    let run = &facts.run;
    let worker = run.claimed_by.clone();
    if let Some(since) = run.cancel_requested_at {
        return Reason::Stopping { by: run.cancel_requested_by.clone(), worker, since };
    }
    if let Some(stalled_at) = run.stalled_at {
        let since = facts.last_event_at.max(run.started_at).unwrap_or(stalled_at);
        return Reason::Stalled { worker, since };
    }
    if let Some(since) = facts.worker_beat_at
        && now - since > chrono::Duration::seconds(SILENT_SECS)
    {
        return Reason::WorkerSilent { worker, since };
    }
    if run.status == RunState::Claimed {
        return Reason::Claimed { worker, lease_until: run.lease_until };
    }
    Reason::Running { worker, since: run.started_at, last_event: facts.last_event.clone() }
}

/// Returns the error or the reason from the metadata of an ended run.
fn detail(run: &Run) -> Option<String> {
    let text = |key: &str| run.metadata.get(key).and_then(crate::Json::as_str).map(str::to_owned);
    if run.status == RunState::Success { None } else { text("error").or_else(|| text("reason")) }
}

impl Reason {
    /// Returns the reason as a sentence, with times in UTC.
    pub fn sentence(&self) -> String {
        match self {
            Self::Paused { .. } | Self::NotYet { .. } | Self::KeyHeld { .. } => self.waiting_sentence(),
            Self::NoWorkers { .. } => "It waits for a worker, but no worker is running.".to_owned(),
            Self::WorkersDraining { workers } => {
                let one = "matching worker is draining and takes";
                let several = "matching workers are draining and take";
                format!("It waits for a worker: {} no new runs.", counted(*workers, one, several))
            }
            Self::NoWorkerFits { labels, workers_alive } => format!(
                "It needs a worker with the labels {}; {} running, none with these labels.",
                labels.join(", "),
                counted(*workers_alive, "worker is", "workers are"),
            ),
            Self::Behind { ahead } => {
                format!("It waits behind {}.", counted(*ahead, "other run", "other runs"))
            }
            Self::Next => "It is next: the first free worker takes it.".to_owned(),
            Self::Stopping { by, worker, since } => format!(
                "{} asked to stop it at {}; worker {} has not confirmed yet.",
                by.as_deref().unwrap_or("A caller"),
                at(*since),
                worker.as_deref().unwrap_or("unknown"),
            ),
            Self::WorkerSilent { worker, since } => format!(
                "Its worker {} has been silent since {}; the sweeper acts when the lease expires.",
                worker.as_deref().unwrap_or("unknown"),
                at(*since),
            ),
            Self::Stalled { worker, since } => format!(
                "It is stalled: worker {} has been silent since {}. That worker sends no heartbeats, so the run stays \
                 with it. If the worker is gone, fail the run, or fail it with --retry to queue a successor.",
                worker.as_deref().unwrap_or("unknown"),
                at(*since),
            ),
            Self::Claimed { worker, lease_until } => format!(
                "Worker {} has claimed it but not started it; the lease ends at {}.",
                worker.as_deref().unwrap_or("unknown"),
                lease_until.map_or_else(|| "the end of its worker".to_owned(), at),
            ),
            Self::Running { worker, since, last_event } => {
                let since = since.map_or_else(String::new, |since| format!(" since {}", at(since)));
                let event =
                    last_event.as_ref().map_or_else(String::new, |event| format!(", last event: {event}"));
                format!("Worker {} is executing it{since}{event}.", worker.as_deref().unwrap_or("unknown"))
            }
            Self::Sync(reason) => reason.sentence(),
            Self::Graph(reason) => reason.sentence(),
            Self::Ended { status, cause, detail, successor } => {
                ended_sentence(*status, *cause, detail.as_deref(), successor.as_ref())
            }
        }
    }

    fn waiting_sentence(&self) -> String {
        match self {
            Self::Paused { scope, note, until } => {
                let what =
                    scope.split_once(':').map_or(scope.clone(), |(kind, name)| format!("{kind} {name}"));
                let note = note.as_ref().map_or_else(String::new, |note| format!(" ({note})"));
                let until = until.map_or_else(String::new, |until| format!(" until {}", at(until)));
                format!("Its {what} is paused{until}{note}.")
            }
            Self::NotYet { available_at, backing_off: true } => {
                format!("The previous attempt failed; it backs off until {}.", at(*available_at))
            }
            Self::NotYet { available_at, backing_off: false } => {
                format!("It must not start before {}.", at(*available_at))
            }
            Self::KeyHeld { key, head, worker, head_reason } => {
                let head = head.as_ref().map_or_else(|| "Another run".to_owned(), |run| format!("Run {run}"));
                let worker = worker.as_ref().map_or_else(String::new, |name| format!(" on worker {name}"));
                let state = head_reason
                    .as_ref()
                    .map_or_else(String::new, |reason| format!(" About that run: {}", reason.sentence()));
                format!("{head}{worker} comes before it for concurrency key `{key}`.{state}")
            }
            Self::NoWorkers { .. }
            | Self::WorkersDraining { .. }
            | Self::NoWorkerFits { .. }
            | Self::Behind { .. }
            | Self::Next
            | Self::Stopping { .. }
            | Self::WorkerSilent { .. }
            | Self::Stalled { .. }
            | Self::Claimed { .. }
            | Self::Running { .. }
            | Self::Sync(_)
            | Self::Graph(_)
            | Self::Ended { .. } => self.sentence(),
        }
    }

    /// Returns a command that helps, if there is one.
    pub fn hint(&self, run: &RunId) -> Option<String> {
        match self {
            Self::Paused { scope, .. } => {
                let project = scope.strip_prefix("project:")?;
                Some(format!("tidemill project resume {project}"))
            }
            Self::NoWorkers { labels } | Self::NoWorkerFits { labels, .. } => {
                let mut command = String::from("tidemill work");
                for label in labels {
                    command.push_str(" --label ");
                    command.push_str(&quote(label));
                }
                Some(command + " -- COMMAND")
            }
            Self::WorkersDraining { .. } => Some("tidemill worker list".to_owned()),
            Self::Sync(reason) => reason.hint(),
            Self::Graph(reason) => reason.reason.hint(),
            Self::KeyHeld { head: Some(head), head_reason, .. } => head_reason
                .as_ref()
                .and_then(|reason| reason.hint(head))
                .or_else(|| Some(format!("tidemill run show {}", head.in_shell()))),
            Self::Stalled { .. } => Some(format!("tidemill run fail {}", run.in_shell())),
            Self::Ended { successor: Some(next), .. } => {
                Some(format!("tidemill run show {}", next.in_shell()))
            }
            Self::Ended { status: RunState::Failed, successor: None, .. } => {
                Some(format!("tidemill run retry {}", run.in_shell()))
            }
            Self::NotYet { .. }
            | Self::KeyHeld { head: None, .. }
            | Self::Behind { .. }
            | Self::Next
            | Self::Stopping { .. }
            | Self::WorkerSilent { .. }
            | Self::Claimed { .. }
            | Self::Running { .. }
            | Self::Ended { .. } => None,
        }
    }
}

fn ended_sentence(
    status: RunState,
    cause: Option<EndCause>,
    detail: Option<&str>,
    successor: Option<&RunId>,
) -> String {
    let how = match cause {
        Some(EndCause::Reported) | None => match status {
            RunState::Success => "It succeeded".to_owned(),
            RunState::Failed => "It failed, as its worker reported".to_owned(),
            RunState::Cancelled | RunState::Queued | RunState::Claimed | RunState::Running => {
                "It was cancelled".to_owned()
            }
        },
        Some(EndCause::Cancelled) => "It was cancelled".to_owned(),
        Some(EndCause::CancelGrace) => {
            "It was cancelled; its worker did not confirm within the grace period".to_owned()
        }
        Some(EndCause::Stale) => "Its worker claimed it but never started it".to_owned(),
        Some(EndCause::Lost) => "Its worker was lost while it was running".to_owned(),
        Some(EndCause::Interrupted) => "Its worker was shut down before the run ended".to_owned(),
        Some(EndCause::Quarantined) => "It is in quarantine: it has lost its worker too often".to_owned(),
        Some(EndCause::TimedOut) => "It exceeded its timeout".to_owned(),
        Some(EndCause::Expired) => "No worker claimed it before it expired".to_owned(),
        Some(EndCause::Statement) => format!("A plain SQL statement set it to {status}"),
    };
    let detail = detail.map_or_else(String::new, |detail| format!(": {detail}"));
    let next = successor.map_or_else(String::new, |next| format!(" Its successor is run {next}."));
    format!("{how}{detail}.{next}")
}

fn at(moment: Timestamp) -> String {
    moment.format("%Y-%m-%d %H:%M:%S UTC").to_string()
}

fn counted(count: i64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
