//! A worker process: claims runs, executes them, and maintains their leases.
//!
//! One row in the database represents the process. The dispatch loop sends its heartbeats, so a blocked loop sends
//! none. If heartbeats fail, the supervisors of the commands end them before the leases can go to another worker. A
//! worker does not finish a run that it no longer holds.

mod active_run;
mod claims;
mod executor;
mod lifecycle;
mod log;
mod report;
mod transport;

pub use executor::{ExecutionOutcome, Executor, ExitCondition, RunSignal, WorkerOptions, WorkerSummary};
pub use log::{LogSlot, RunLog};
pub use transport::{RunWaiter, Transport};

use crate::Engine;
use crate::retry_policy::{RetryPolicy, chain};
use active_run::{ActiveRun, RequestTime};
use claims::Backoff;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tidemill_core::run::ChangeOutcome;
use tidemill_core::{RunId, WorkerId};
use tidemill_store::{ClaimRuns, Error};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Whether interrupted runs, which the database still assigns to this worker, must go to other workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Handover {
    None,
    /// A run's task broke off because of a bug. The other runs are fine and finish first.
    WhenIdle,
    /// Commands were ended because the database did not answer.
    Immediate,
}

/// A run that this worker no longer executes.
struct FinishedRun {
    run_id: RunId,
    applied: Option<ChangeOutcome>,
    interrupted: bool,
}

/// State of the dispatch loop.
struct Dispatch<D: Transport, C: Executor> {
    transport: D,
    retry_policy: RetryPolicy,
    options: WorkerOptions,
    executor: Arc<C>,
    worker_id: WorkerId,
    active: HashMap<RunId, ActiveRun<C::Moment>>,
    /// Time of the first request with the current request id since the database last answered that nothing is queued.
    first_request: Option<RequestTime<C::Moment>>,
    /// Active while claims fail permanently.
    backoff: Backoff,
    tasks: JoinSet<FinishedRun>,
    lost: mpsc::UnboundedSender<RunId>,
    summary: WorkerSummary,
    last_heartbeat: Instant,
    waiter: Option<D::Waiter>,
    /// Request id of the unanswered claim.
    request_id: String,
    handover: Handover,
    /// The previous worker id, until the database has recorded its end.
    previous: Option<WorkerId>,
    /// True when the process is to end.
    stop: watch::Receiver<bool>,
    /// Whether this worker is to drain, as of the last heartbeat.
    draining: bool,
    /// Whether the last claim was answered. An unanswered claim may have assigned runs to this worker.
    is_answered: bool,
}

impl Engine {
    /// Works until `stop` is set or the worker is drained. Held runs may finish first.
    pub async fn work<C: Executor>(
        &self,
        options: WorkerOptions,
        executor: C,
        stop: watch::Receiver<bool>,
    ) -> Result<WorkerSummary, Error> {
        let keeper = options.upkeep.clone().map(|upkeep| {
            let engine = self.with_retry_policy(RetryPolicy::None);
            let mut keeper = JoinSet::new();
            // Its loops are supervised; the set ends them with the worker.
            keeper.spawn(async move { engine.run_maintenance(&upkeep).await });
            keeper
        });
        let result = work_with_transport(
            self.with_retry_policy(RetryPolicy::None),
            self.retry_policy,
            options,
            executor,
            stop,
        )
        .await;
        drop(keeper);
        result
    }
}

/// Works through a transport until `stop` is set or the worker is drained. Runs no maintenance loops.
///
/// `retry_policy` limits the attempts to register at the start.
pub async fn work_with_transport<D: Transport, C: Executor>(
    transport: D,
    retry_policy: RetryPolicy,
    options: WorkerOptions,
    executor: C,
    mut stop: watch::Receiver<bool>,
) -> Result<WorkerSummary, D::Error> {
    let (lost, mut losses) = mpsc::unbounded_channel();
    let mut dispatch = Dispatch {
        transport,
        retry_policy,
        options,
        executor: Arc::new(executor),
        worker_id: WorkerId(uuid::Uuid::new_v4()),
        active: HashMap::new(),
        first_request: None,
        backoff: Backoff::default(),
        tasks: JoinSet::new(),
        lost,
        summary: WorkerSummary::default(),
        last_heartbeat: Instant::now(),
        waiter: None,
        request_id: uuid::Uuid::new_v4().to_string(),
        handover: Handover::None,
        previous: None,
        stop: stop.clone(),
        draining: false,
        is_answered: true,
    };
    dispatch.run(&mut stop, &mut losses).await?;
    Ok(dispatch.summary)
}

impl<D: Transport, C: Executor> Dispatch<D, C> {
    async fn run(
        &mut self,
        stop: &mut watch::Receiver<bool>,
        losses: &mut mpsc::UnboundedReceiver<RunId>,
    ) -> Result<(), D::Error> {
        self.register().await?;
        let mut idle = false;
        loop {
            self.heartbeat_if_due().await;
            self.collect(losses);
            if *stop.borrow() {
                break;
            }
            if self.handover == Handover::Immediate
                || (self.handover == Handover::WhenIdle && self.active.is_empty())
            {
                let result = self.hand_over().await;
                self.handle_error("register again", result)?;
                idle = false;
                continue;
            }
            // Two concurrent claims with one request id could each return a part of the runs, so only one is sent at
            // a time.
            let asking = self.waiter.as_ref().is_some_and(RunWaiter::has_pending_claim);
            if !asking && self.active.len() < self.options.slots {
                if idle {
                    self.arm().await;
                }
                if self.claim().await? > 0 {
                    self.disarm().await;
                    idle = false;
                    continue;
                }
                // A wake-up before the worker declared that it waits is lost: declare it, then claim once more.
                if !idle {
                    idle = true;
                    continue;
                }
            }
            let is_idle = self.active.is_empty() && !asking;
            if is_idle && self.draining && self.is_answered {
                // The drain may have been revoked since the last heartbeat, so check once more before ending.
                self.heartbeat().await;
                if self.draining {
                    self.summary.drained = true;
                    break;
                }
                continue;
            }
            let may_end = is_idle && self.options.exit_when == ExitCondition::Drained;
            if may_end && self.is_drained().await {
                break;
            }
            self.wait(stop, losses).await;
        }
        self.disarm().await;
        self.shut_down(losses).await;
        Ok(())
    }

    /// Processes finished tasks and runs that turned out to be lost.
    fn collect(&mut self, losses: &mut mpsc::UnboundedReceiver<RunId>) {
        while let Ok(run) = losses.try_recv() {
            self.signal_run(&run, |signal| signal.lost = true);
        }
        while let Some(done) = self.tasks.try_join_next() {
            self.record_end(done);
        }
    }

    fn record_end(&mut self, done: Result<FinishedRun, tokio::task::JoinError>) {
        match done {
            Ok(finished) => {
                let active = self.active.remove(&finished.run_id);
                // No signal told it to stop: the command was cut off, and only this worker knows.
                let is_unexpected = active.is_some_and(|active| !active.signal.borrow().should_stop());
                if finished.interrupted && is_unexpected {
                    self.handover = Handover::Immediate;
                }
                if matches!(finished.applied, Some(ChangeOutcome::Applied | ChangeOutcome::Duplicate)) {
                    self.summary.finished += 1;
                }
            }
            Err(error) => {
                let broken = self.active.extract_if(|_, active| active.task == error.id()).next();
                if let Some((run, _)) = broken {
                    // Heartbeats no longer name it, so another worker continues it when its lease expires, or earlier.
                    tracing::error!(run.id = %run, "the task of run {run} broke off: {error}");
                    if self.handover == Handover::None {
                        self.handover = Handover::WhenIdle;
                    }
                }
            }
        }
    }

    fn signal_run(&self, run: &RunId, change: impl FnOnce(&mut RunSignal<C::Moment>)) {
        if let Some(active) = self.active.get(run) {
            active.signal.send_modify(change);
        }
    }

    /// Declares that this worker waits for a wake-up.
    async fn arm(&mut self) {
        let longest = self.options.loop_timeout();
        if self.waiter.is_none() {
            let request = self.transport.waiter(self.worker_id);
            match with_timeout(&self.transport, "wait for runs", longest, request).await {
                Ok(waiter) => self.waiter = Some(waiter),
                Err(error) => tracing::warn!("no wake-ups, polling for now: {}", chain(&error)),
            }
        }
        if let Some(waiter) = &mut self.waiter
            && let Err(error) = with_timeout(&self.transport, "wait for runs", longest, waiter.arm()).await
        {
            tracing::warn!("no wake-ups, polling for now: {}", chain(&error));
            self.waiter = None;
        }
    }

    async fn disarm(&mut self) {
        let longest = self.options.loop_timeout();
        if let Some(waiter) = &mut self.waiter
            && with_timeout(&self.transport, "stop waiting", longest, waiter.disarm()).await.is_err()
        {
            self.waiter = None;
        }
    }

    /// Waits for the next event: a run to claim, a finished task, a due heartbeat, or the end.
    async fn wait(&mut self, stop: &mut watch::Receiver<bool>, losses: &mut mpsc::UnboundedReceiver<RunId>) {
        let heartbeat_due = self.options.heartbeat_every.saturating_sub(self.last_heartbeat.elapsed());
        let longest = self.options.poll_every.min(heartbeat_due).max(Duration::from_millis(1));
        let has_slot = self.active.len() < self.options.slots;
        let may_claim = has_slot && !self.backoff.is_waiting();
        let (request, mut waiter) = (self.claim_request(), self.waiter.take());
        if may_claim && D::Waiter::CLAIMS && waiter.is_some() {
            self.record_request();
        }
        let mut broken = false;
        tokio::select! {
            woken = listen(waiter.as_mut().filter(|_| may_claim), request, longest) => broken = woken.is_err(),
            Some(done) = self.tasks.join_next(), if !self.tasks.is_empty() => self.record_end(done),
            Some(run) = losses.recv() => self.signal_run(&run, |signal| signal.lost = true),
            _ = stop.changed() => {}
        }
        if broken {
            tokio::time::sleep(longest.min(Duration::from_millis(200))).await;
        } else {
            self.waiter = waiter;
        }
    }

    /// Whether no run can become claimable for this worker without outside action.
    async fn is_drained(&self) -> bool {
        let (labels, projects) = (self.options.labels.clone(), self.options.projects.clone());
        let request = self.transport.work_left(labels, projects);
        let left = with_timeout(&self.transport, "look for runs", self.options.loop_timeout(), request).await;
        left.is_ok_and(|left| left == 0)
    }
}

/// Waits for a wake-up; without a waiter, sleeps for `longest`.
async fn listen<W: RunWaiter>(
    waiter: Option<&mut W>,
    request: ClaimRuns,
    longest: Duration,
) -> Result<(), W::Error> {
    let Some(waiter) = waiter else {
        tokio::time::sleep(longest).await;
        return Ok(());
    };
    waiter.wait(request, longest).await
}

/// Sends one call with a time limit, because a dead peer would otherwise block it forever. All calls here are
/// idempotent.
async fn with_timeout<D: Transport, T>(
    transport: &D,
    what: &'static str,
    longest: Duration,
    call: impl Future<Output = Result<T, D::Error>>,
) -> Result<T, D::Error> {
    tokio::time::timeout(longest, call).await.unwrap_or_else(|_| Err(transport.timeout_error(what)))
}
