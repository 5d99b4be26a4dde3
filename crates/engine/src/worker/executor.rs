//! The executor of runs, its stop signals, and the options of a worker.

use super::RunLog;
use crate::Upkeep;
use std::future::Future;
use std::time::Duration;
use tidemill_core::run::{ChangeOutcome, Claim, FinalStatus};
use tidemill_core::{Json, RunId};
use tokio::sync::watch;

/// Settings of a worker process.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// Display name; several processes may share it.
    pub name: String,
    pub host: String,
    pub labels: Vec<String>,
    /// The projects that it works for; `None` for all.
    pub projects: Option<Vec<String>>,
    /// Number of runs that it executes at once.
    pub slots: usize,
    /// When it ends by itself.
    pub exit_when: ExitCondition,
    /// Time between two heartbeats.
    pub heartbeat_every: Duration,
    /// Longest time between two claims, with or without a wake-up.
    pub poll_every: Duration,
    /// Time limit of a shutdown. Other workers continue the runs that are not reported by then.
    pub shutdown_timeout: Duration,
    /// Maintenance loops, if this process runs them.
    pub upkeep: Option<Upkeep>,
}

/// Shortest time limit of a call, however short the heartbeat interval is.
const CALL_TIMEOUT_MIN: Duration = Duration::from_secs(5);

impl WorkerOptions {
    /// Time limit of a call in the dispatch loop, which has to send heartbeats meanwhile.
    pub(super) fn loop_timeout(&self) -> Duration {
        self.heartbeat_every.max(CALL_TIMEOUT_MIN)
    }

    /// Time limit of a call outside of the loop: events and the end of a run.
    pub(super) fn call_timeout(&self) -> Duration {
        (self.heartbeat_every * 6).max(CALL_TIMEOUT_MIN)
    }
}

/// When a worker ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitCondition {
    Never,
    /// When it could claim nothing, now or soon. It waits for runs in back-off and for runs that other workers hold.
    Drained,
}

/// Signals to the executor of a run: the last contact with the database, and all reasons to stop.
///
/// A reason is never withdrawn. Several may apply at once, and the executor has to obey all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunSignal<M> {
    /// Taken before the last claim or heartbeat that the database answered.
    pub contact: M,
    /// Whether the worker no longer holds the run, so that its result does not count.
    pub lost: bool,
    /// Set when a cancel was requested: the last moment at which the run was known not to be cancelled.
    ///
    /// The database counts the grace period from a later moment, so a deadline derived from this one is early enough.
    pub cancelled: Option<M>,
    pub shutdown: bool,
}

impl<M> RunSignal<M> {
    /// No reason to stop.
    pub(super) fn new(contact: M) -> Self {
        Self { contact, lost: false, cancelled: None, shutdown: false }
    }

    /// Whether there is a reason to stop.
    pub fn should_stop(&self) -> bool {
        self.lost || self.cancelled.is_some() || self.shutdown
    }
}

/// Outcome of executing a run.
#[derive(Debug, Clone)]
pub enum ExecutionOutcome {
    Finished(FinalStatus, Json),
    /// No result, because the process was told to end. Another worker continues the run.
    Interrupted,
}

/// Executes the runs that a worker claims.
pub trait Executor: Send + Sync + 'static {
    /// A moment on the clock with which the executor measures silence.
    type Moment: Copy + Send + Sync + 'static;

    /// Returns the current moment.
    fn moment(&self) -> Self::Moment;

    /// Executes one run. Must return soon after a signal to stop.
    fn execute(
        &self,
        claim: Claim,
        log: RunLog,
        signal: watch::Receiver<RunSignal<Self::Moment>>,
    ) -> impl Future<Output = ExecutionOutcome> + Send;

    /// Called for each run after its report, with the outcome of the report.
    fn finished(&self, run: &RunId, ended: &ExecutionOutcome, applied: Option<ChangeOutcome>) {
        let _ = (run, ended, applied);
    }
}

/// Totals of a worker's life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct WorkerSummary {
    pub claimed: u64,
    /// Runs whose result was recorded.
    pub finished: u64,
    /// Whether the worker ended because of a drain request.
    pub drained: bool,
}
