//! Why a run is where it is: one typed reason, the same sentence at every door.
//!
//! [`explain`] decides from facts that were read together. The order of the questions is the order in which a
//! person would want to hear the answers: what no worker could change comes before what only lacks a worker.

mod job;
mod sync;

pub use job::{AgentFacts, GraphReason, JobFacts, JobReason, explain_job};
pub use sync::{Hands, SyncFacts, SyncReason, explain_sync};

use crate::project::Flag;
use crate::run::{EndCause, Gate, Lane, Run, RunState};
use crate::shell::pasted;
use crate::{RunId, Timestamp};

/// What was read to answer the question.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The run.
    pub run: Run,
    /// The flags that hold its project or its lane.
    pub flags: Vec<Flag>,
    /// The run that holds its concurrency key, or is first in line for it.
    pub key_head: Option<RunId>,
    /// The worker of that run.
    pub key_worker: Option<String>,
    /// The facts about that run, if this run waits for it.
    pub key_head_facts: Option<Box<Facts>>,
    /// Runs that would be claimed before it.
    pub ahead: i64,
    /// Live workers that offer what it needs, and take runs.
    pub workers_fitting: i64,
    /// Live workers that take runs.
    pub workers_alive: i64,
    /// Live workers that offer what it needs, and drain.
    pub workers_draining: i64,
    /// When its own worker last gave a sign of life.
    pub worker_beat_at: Option<Timestamp>,
    /// The try that followed it.
    pub successor: Option<RunId>,
    /// The last event that a worker wrote.
    pub last_event: Option<String>,
    /// When it wrote that event.
    pub last_event_at: Option<Timestamp>,
}

/// The one reason.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum Reason {
    /// A flag holds it.
    Paused {
        /// What is paused.
        scope: String,
        /// Why.
        note: Option<String>,
        /// Until when.
        until: Option<Timestamp>,
    },
    /// Its time has not come.
    NotYet {
        /// When it comes.
        available_at: Timestamp,
        /// Whether it waits because the try before it failed.
        backing_off: bool,
    },
    /// Another run of its concurrency key is before it.
    KeyHeld {
        /// The key.
        key: String,
        /// The run that is before it.
        head: Option<RunId>,
        /// The worker of that run.
        worker: Option<String>,
        /// Why that run does not progress, if it does not.
        #[serde(skip_serializing_if = "Option::is_none")]
        head_reason: Option<Box<Reason>>,
    },
    /// Nobody works at all.
    NoWorkers {
        /// What it needs, once somebody does.
        labels: Vec<String>,
    },
    /// Whoever could take it was asked to drain.
    WorkersDraining {
        /// How many there are.
        workers: i64,
    },
    /// Nobody who works offers what it needs.
    NoWorkerFits {
        /// What it needs.
        labels: Vec<String>,
        /// How many workers there are.
        workers_alive: i64,
    },
    /// Others are before it.
    Behind {
        /// How many.
        ahead: i64,
    },
    /// The next worker that asks gets it.
    Next,
    /// It was asked to stop, and its worker has not confirmed yet.
    Stopping {
        /// Who asked.
        by: Option<String>,
        /// Its worker.
        worker: Option<String>,
        /// When it was asked.
        since: Timestamp,
    },
    /// Its worker is silent.
    WorkerSilent {
        /// Its worker.
        worker: Option<String>,
        /// The worker's last sign of life.
        since: Timestamp,
    },
    /// It is running and silent, and its worker has promised no signs of life: a person must decide.
    Stalled {
        /// Its worker.
        worker: Option<String>,
        /// The worker's last sign of life.
        since: Timestamp,
    },
    /// Its worker has it, and has not started.
    Claimed {
        /// Its worker.
        worker: Option<String>,
        /// When its lease ends.
        lease_until: Option<Timestamp>,
    },
    /// Its worker carries it out.
    Running {
        /// Its worker.
        worker: Option<String>,
        /// Since when.
        since: Option<Timestamp>,
        /// What the worker said last.
        last_event: Option<String>,
    },
    /// It is a sync, and waits for something of its own.
    Sync(SyncReason),
    /// It is a graph: one of its jobs says what it waits for.
    Graph(GraphReason),
    /// It is over.
    Ended {
        /// How.
        status: RunState,
        /// Why.
        cause: Option<EndCause>,
        /// What its metadata says of it.
        detail: Option<String>,
        /// The try that followed it.
        successor: Option<RunId>,
    },
}

/// Silence of a worker that is worth telling a person about.
const SILENT_SECS: i64 = 10;

/// Decides the reason at `now`.
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

/// Decides why the run that holds a concurrency key does not progress. `None`: it is carried out, or is over.
fn explain_head(head: &Facts, now: Timestamp) -> Option<Reason> {
    // A sync or a graph waits for things of its own, which these facts do not tell.
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

/// What the metadata says about the end: an error, or a reason.
fn detail(run: &Run) -> Option<String> {
    let text = |key: &str| run.metadata.get(key).and_then(crate::Json::as_str).map(str::to_owned);
    if run.status == RunState::Success { None } else { text("error").or_else(|| text("reason")) }
}

impl Reason {
    /// The sentence for people. Times stand as UTC; a terminal may say them more kindly.
    pub fn sentence(&self) -> String {
        match self {
            Self::Paused { .. } | Self::NotYet { .. } | Self::KeyHeld { .. } => self.waiting_sentence(),
            Self::NoWorkers { .. } => "It waits for a worker, and none is alive.".to_owned(),
            Self::WorkersDraining { workers } => {
                let one = "worker that offers what it needs drains, and takes";
                let several = "workers that offer what it needs drain, and take";
                format!("It waits for a worker: {} nothing new.", counted(*workers, one, several))
            }
            Self::NoWorkerFits { labels, workers_alive } => format!(
                "It needs a worker that offers {}; {} alive, and none of them does.",
                labels.join(", "),
                counted(*workers_alive, "worker is", "workers are"),
            ),
            Self::Behind { ahead } => {
                format!("It waits in line behind {}.", counted(*ahead, "other run", "other runs"))
            }
            Self::Next => "It is next: the first free worker takes it.".to_owned(),
            Self::Stopping { by, worker, since } => format!(
                "{} asked it to stop at {}; worker {} has not confirmed yet.",
                by.as_deref().unwrap_or("Somebody"),
                at(*since),
                worker.as_deref().unwrap_or("unknown"),
            ),
            Self::WorkerSilent { worker, since } => format!(
                "Its worker {} has been silent since {}; the sweeper decides when the lease is over.",
                worker.as_deref().unwrap_or("unknown"),
                at(*since),
            ),
            Self::Stalled { worker, since } => format!(
                "It is stalled: worker {} has given no sign of life since {}. The worker promised none, so the run \
                 stays with it. If the worker is gone, fail the run, or fail it with --retry to queue a successor.",
                worker.as_deref().unwrap_or("unknown"),
                at(*since),
            ),
            Self::Claimed { worker, lease_until } => format!(
                "Worker {} has claimed it and not started; the lease lasts until {}.",
                worker.as_deref().unwrap_or("unknown"),
                lease_until.map_or_else(|| "its worker's end".to_owned(), at),
            ),
            Self::Running { worker, since, last_event } => {
                let since = since.map_or_else(String::new, |since| format!(" since {}", at(since)));
                let said =
                    last_event.as_ref().map_or_else(String::new, |said| format!(", and last said: {said}"));
                format!("Worker {} carries it out{since}{said}.", worker.as_deref().unwrap_or("unknown"))
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
                format!("The try before it failed; it backs off until {}.", at(*available_at))
            }
            Self::NotYet { available_at, backing_off: false } => {
                format!("It is not to start before {}.", at(*available_at))
            }
            Self::KeyHeld { key, head, worker, head_reason } => {
                let head = head.as_ref().map_or_else(|| "another run".to_owned(), |run| format!("run {run}"));
                let worker = worker.as_ref().map_or_else(String::new, |name| format!(" on worker {name}"));
                let state = head_reason
                    .as_ref()
                    .map_or_else(String::new, |reason| format!(" About that run: {}", reason.sentence()));
                format!("Its concurrency key `{key}` belongs to {head}{worker} first.{state}")
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

    /// What a person can do about it, where there is one thing to do.
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
                    command.push_str(&pasted(label));
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
        Some(EndCause::Stale) => "Its worker claimed it and gave no sign of life".to_owned(),
        Some(EndCause::Lost) => "Its worker was lost while it was running".to_owned(),
        Some(EndCause::Interrupted) => "Its worker was told to end before the run did".to_owned(),
        Some(EndCause::Quarantined) => "It is in quarantine: it lost its worker once too often".to_owned(),
        Some(EndCause::TimedOut) => "It took longer than its timeout".to_owned(),
        Some(EndCause::Expired) => "Nobody claimed it before it expired".to_owned(),
        Some(EndCause::Statement) => format!("A plain SQL statement set it to {status}"),
    };
    let detail = detail.map_or_else(String::new, |detail| format!(": {detail}"));
    let next = successor.map_or_else(String::new, |next| format!(" Run {next} carries the request on."));
    format!("{how}{detail}.{next}")
}

fn at(moment: Timestamp) -> String {
    moment.format("%Y-%m-%d %H:%M:%S UTC").to_string()
}

fn counted(count: i64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
