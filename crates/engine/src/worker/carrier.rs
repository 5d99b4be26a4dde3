//! Whoever carries runs out, what it is told meanwhile, and what a worker offers.

use super::RunLog;
use crate::Upkeep;
use std::future::Future;
use std::time::Duration;
use tidemill_core::run::{Applied, Claim, FinalStatus};
use tidemill_core::{Json, RunId};
use tokio::sync::watch;

/// What a worker process offers, and how it behaves.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// A name for people; several processes may share it.
    pub name: String,
    /// The machine that it runs on.
    pub host: String,
    /// What it offers.
    pub labels: Vec<String>,
    /// The only projects that it works for, if not all.
    pub projects: Option<Vec<String>>,
    /// Runs that it carries out at once.
    pub slots: usize,
    /// Whether it ends when nothing is left to claim.
    pub ending: Ending,
    /// How often it says that it lives.
    pub beat: Duration,
    /// The longest wait before it looks again, told or not.
    pub look: Duration,
    /// How long it may take to end once it was told to; what is not reported by then is carried on by others.
    pub ending_max: Duration,
    /// Upkeep, where this process does it too.
    pub upkeep: Option<Upkeep>,
}

/// What nobody has answered after so long is asked again, however often the worker beats.
const ANSWER_MAX_LEAST: Duration = Duration::from_secs(5);

impl WorkerOptions {
    /// How long the loop waits for one answer: it has to beat meanwhile.
    pub(super) fn loop_answer_max(&self) -> Duration {
        self.beat.max(ANSWER_MAX_LEAST)
    }

    /// How long whoever holds nothing up waits for one answer: the events of a run, and its end.
    pub(super) fn answer_max(&self) -> Duration {
        (self.beat * 6).max(ANSWER_MAX_LEAST)
    }
}

/// When a worker ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Never.
    Never,
    /// When nothing is left that it could claim, now or soon: back-offs and runs in hand elsewhere included.
    Drained,
}

/// What the carrier of a run is told while it works: contact with the database, and every reason to stop.
///
/// A reason that was given is never taken back. Several may apply at once, and the carrier has to satisfy all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sign<M> {
    /// The moment before the last claim or heartbeat that the database confirmed.
    pub contact: M,
    /// Whether the worker no longer holds the run: nothing it reports counts any more.
    pub lost: bool,
    /// Set when a cancel was requested: the last moment at which the run was known not to be cancelled.
    ///
    /// The database counts the cancel grace from some time after this moment, so a deadline that is derived from it
    /// comes early enough.
    pub cancelled: Option<M>,
    /// Whether the worker process is to end.
    pub shutdown: bool,
}

impl<M> Sign<M> {
    /// No reason to stop.
    pub(super) fn new(contact: M) -> Self {
        Self { contact, lost: false, cancelled: None, shutdown: false }
    }

    /// Whether there is a reason to stop.
    pub fn is_told(&self) -> bool {
        self.lost || self.cancelled.is_some() || self.shutdown
    }
}

/// How the work on a run ended.
#[derive(Debug, Clone)]
pub enum Ended {
    /// With a result that counts.
    With(FinalStatus, Json),
    /// Without one: the process was told to end. The run goes to somebody else.
    Interrupted,
}

/// Whoever carries a run out.
pub trait Carrier: Send + Sync + 'static {
    /// A moment on whatever clock the carrier measures silence with.
    type Moment: Copy + Send + Sync + 'static;

    /// The present moment.
    fn moment(&self) -> Self::Moment;

    /// Carries out one run. Must return soon after it was told to stop.
    fn carry(
        &self,
        claim: Claim,
        log: RunLog,
        sign: watch::Receiver<Sign<Self::Moment>>,
    ) -> impl Future<Output = Ended> + Send;

    /// Is told about each run that is over, with what became of its report.
    fn finished(&self, run: &RunId, ended: &Ended, applied: Option<Applied>) {
        let _ = (run, ended, applied);
    }
}

/// What a worker did in its life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Worked {
    /// Runs that it claimed.
    pub claimed: u64,
    /// Runs whose result counted.
    pub finished: u64,
    /// Whether it ended because somebody asked it to drain.
    pub drained: bool,
}
