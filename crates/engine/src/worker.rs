//! A worker process: claims runs, has them carried out, and keeps its promises about them.
//!
//! One row in the database says that the process lives. The dispatch loop beats it: a loop that is wedged does not
//! beat, and a beat that fails is not passed on to the commands, whose supervisors end them before the lease can go
//! to somebody else. What a worker no longer holds it does not finish.

mod active;
mod carrier;
mod claims;
mod door;
mod life;
mod log;
mod report;

pub use carrier::{Carrier, Ended, Ending, Sign, Worked, WorkerOptions};
pub use door::{Door, Waiting};
pub use log::{Place, RunLog};

use crate::Engine;
use crate::patience::{Patience, chain};
use active::{Active, Asked};
use claims::Backoff;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tidemill_core::run::Applied;
use tidemill_core::{RunId, WorkerId};
use tidemill_store::{ClaimRuns, Error};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Whether runs were cut off that are still ours as far as the database knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owed {
    Nothing,
    /// The work on a run broke off by a fault of ours: the others in hand are well, and end first.
    WhenIdle,
    /// Commands were cut off because the database was silent.
    AtOnce,
}

/// A run that is over, as far as this worker is concerned.
struct Over {
    run_id: RunId,
    applied: Option<Applied>,
    interrupted: bool,
}

/// The loop's own state.
struct Dispatch<D: Door, C: Carrier> {
    door: D,
    patience: Patience,
    options: WorkerOptions,
    carrier: Arc<C>,
    worker_id: WorkerId,
    active: HashMap<RunId, Active<C::Moment>>,
    /// The first ask under the present request id since the database last answered that there is nothing.
    asked: Option<Asked<C::Moment>>,
    /// Set while claims fail for good.
    backoff: Backoff,
    tasks: JoinSet<Over>,
    lost: mpsc::UnboundedSender<RunId>,
    worked: Worked,
    last_beat: Instant,
    waiter: Option<D::Waiter>,
    /// The request id of the claim that has not been answered yet.
    request_id: String,
    /// What is to be given back.
    owed: Owed,
    /// The life before this one, while the database does not know that it is over.
    left: Option<WorkerId>,
    /// Whether the process is to end.
    stop: watch::Receiver<bool>,
    /// Whether somebody asked this worker to drain, as the last beat told.
    draining: bool,
    /// Whether the last claim was answered: one that was not may have brought runs that nobody told us of.
    is_answered: bool,
}

impl Engine {
    /// Works until told to stop, or until drained. A person's `stop` lets the runs in hand end first.
    pub async fn work<C: Carrier>(
        &self,
        options: WorkerOptions,
        carrier: C,
        stop: watch::Receiver<bool>,
    ) -> Result<Worked, Error> {
        let keeper = options.upkeep.clone().map(|upkeep| {
            let engine = self.with_patience(Patience::None);
            let mut keeper = JoinSet::new();
            // Its parts are supervised; the set ends them with the worker.
            keeper.spawn(async move { engine.keep_up(&upkeep).await });
            keeper
        });
        let result = work_at(self.with_patience(Patience::None), self.patience, options, carrier, stop).await;
        drop(keeper);
        result
    }
}

/// Works at a door until told to stop, or until drained. Upkeep is left to others.
///
/// `patience` is for the beginning: how long to go on trying to register.
pub async fn work_at<D: Door, C: Carrier>(
    door: D,
    patience: Patience,
    options: WorkerOptions,
    carrier: C,
    mut stop: watch::Receiver<bool>,
) -> Result<Worked, D::Error> {
    let (lost, mut losses) = mpsc::unbounded_channel();
    let mut dispatch = Dispatch {
        door,
        patience,
        options,
        carrier: Arc::new(carrier),
        worker_id: WorkerId(uuid::Uuid::new_v4()),
        active: HashMap::new(),
        asked: None,
        backoff: Backoff::default(),
        tasks: JoinSet::new(),
        lost,
        worked: Worked::default(),
        last_beat: Instant::now(),
        waiter: None,
        request_id: uuid::Uuid::new_v4().to_string(),
        owed: Owed::Nothing,
        left: None,
        stop: stop.clone(),
        draining: false,
        is_answered: true,
    };
    dispatch.run(&mut stop, &mut losses).await?;
    Ok(dispatch.worked)
}

impl<D: Door, C: Carrier> Dispatch<D, C> {
    async fn run(
        &mut self,
        stop: &mut watch::Receiver<bool>,
        losses: &mut mpsc::UnboundedReceiver<RunId>,
    ) -> Result<(), D::Error> {
        self.register().await?;
        let mut idle = false;
        loop {
            self.beat_if_due().await;
            self.collect(losses);
            if *stop.borrow() {
                break;
            }
            if self.owed == Owed::AtOnce || (self.owed == Owed::WhenIdle && self.active.is_empty()) {
                let result = self.give_back().await;
                self.survive("begin anew", result)?;
                idle = false;
                continue;
            }
            // Two asks under one request id at one instant could each learn of a part: one is on its way at a time.
            let asking = self.waiter.as_ref().is_some_and(Waiting::is_asking);
            if !asking && self.active.len() < self.options.slots {
                if idle {
                    self.arm().await;
                }
                if self.claim().await? > 0 {
                    self.disarm().await;
                    idle = false;
                    continue;
                }
                // A wake-up that came before we declared to wait is lost: declare, and look once more.
                if !idle {
                    idle = true;
                    continue;
                }
            }
            let is_idle = self.active.is_empty() && !asking;
            if is_idle && self.draining && self.is_answered {
                // What the last beat told may have been taken back since: ask once more before ending.
                self.beat().await;
                if self.draining {
                    self.worked.drained = true;
                    break;
                }
                continue;
            }
            let may_end = is_idle && self.options.ending == Ending::Drained;
            if may_end && self.is_drained().await {
                break;
            }
            self.wait(stop, losses).await;
        }
        self.disarm().await;
        self.shut_down(losses).await;
        Ok(())
    }

    /// Takes note of runs that are over, and of those that turned out to be lost.
    fn collect(&mut self, losses: &mut mpsc::UnboundedReceiver<RunId>) {
        while let Ok(run) = losses.try_recv() {
            self.tell(&run, |sign| sign.lost = true);
        }
        while let Some(done) = self.tasks.try_join_next() {
            self.note(done);
        }
    }

    fn note(&mut self, done: Result<Over, tokio::task::JoinError>) {
        match done {
            Ok(over) => {
                let active = self.active.remove(&over.run_id);
                // Nobody told it to stop: it was cut off, and nobody else knows.
                let untold = active.is_some_and(|active| !active.sign.borrow().is_told());
                if over.interrupted && untold {
                    self.owed = Owed::AtOnce;
                }
                if matches!(over.applied, Some(Applied::Applied | Applied::Duplicate)) {
                    self.worked.finished += 1;
                }
            }
            Err(error) => {
                let broken = self.active.extract_if(|_, active| active.task == error.id()).next();
                if let Some((run, _)) = broken {
                    // Beats no longer name it: it is carried on by others when its lease is over, or before.
                    tracing::error!(run.id = %run, "the work on run {run} broke off: {error}");
                    if self.owed == Owed::Nothing {
                        self.owed = Owed::WhenIdle;
                    }
                }
            }
        }
    }

    fn tell(&self, run: &RunId, change: impl FnOnce(&mut Sign<C::Moment>)) {
        if let Some(active) = self.active.get(run) {
            active.sign.send_modify(change);
        }
    }

    /// Declares that this worker waits for a wake-up.
    async fn arm(&mut self) {
        let longest = self.options.loop_answer_max();
        if self.waiter.is_none() {
            let asked = self.door.waiter(self.worker_id);
            match in_time(&self.door, "wait for runs", longest, asked).await {
                Ok(waiter) => self.waiter = Some(waiter),
                Err(error) => tracing::warn!("this worker only polls for now: {}", chain(&error)),
            }
        }
        if let Some(waiter) = &mut self.waiter
            && let Err(error) = in_time(&self.door, "wait for runs", longest, waiter.arm()).await
        {
            tracing::warn!("this worker only polls for now: {}", chain(&error));
            self.waiter = None;
        }
    }

    async fn disarm(&mut self) {
        let longest = self.options.loop_answer_max();
        if let Some(waiter) = &mut self.waiter
            && in_time(&self.door, "stop waiting", longest, waiter.disarm()).await.is_err()
        {
            self.waiter = None;
        }
    }

    /// Waits for something to do: a run to claim, one that is over, a beat that is due, or the end.
    async fn wait(&mut self, stop: &mut watch::Receiver<bool>, losses: &mut mpsc::UnboundedReceiver<RunId>) {
        let beat_due = self.options.beat.saturating_sub(self.last_beat.elapsed());
        let longest = self.options.look.min(beat_due).max(Duration::from_millis(1));
        let has_slot = self.active.len() < self.options.slots;
        let may_ask = has_slot && !self.backoff.is_waiting();
        let (ask, mut waiter) = (self.ask(), self.waiter.take());
        if may_ask && D::Waiter::CLAIMS && waiter.is_some() {
            self.note_asked();
        }
        let mut broken = false;
        tokio::select! {
            woken = listen(waiter.as_mut().filter(|_| may_ask), ask, longest) => broken = woken.is_err(),
            Some(done) = self.tasks.join_next(), if !self.tasks.is_empty() => self.note(done),
            Some(run) = losses.recv() => self.tell(&run, |sign| sign.lost = true),
            _ = stop.changed() => {}
        }
        if broken {
            tokio::time::sleep(longest.min(Duration::from_millis(200))).await;
        } else {
            self.waiter = waiter;
        }
    }

    /// Whether nothing is left that could come to this worker without anybody doing anything.
    async fn is_drained(&self) -> bool {
        let (labels, projects) = (self.options.labels.clone(), self.options.projects.clone());
        let asked = self.door.work_left(labels, projects);
        let left = in_time(&self.door, "look for runs", self.options.loop_answer_max(), asked).await;
        left.is_ok_and(|left| left == 0)
    }
}

/// Waits for a wake-up, or for `longest` where there is nobody to wake us.
async fn listen<W: Waiting>(
    waiter: Option<&mut W>,
    ask: ClaimRuns,
    longest: Duration,
) -> Result<(), W::Error> {
    let Some(waiter) = waiter else {
        tokio::time::sleep(longest).await;
        return Ok(());
    };
    waiter.wait(ask, longest).await
}

/// Asks once, for so long at most. Whoever dies silently at the other end would otherwise be waited for without end;
/// what is asked here can be asked again.
async fn in_time<D: Door, T>(
    door: &D,
    what: &'static str,
    longest: Duration,
    call: impl Future<Output = Result<T, D::Error>>,
) -> Result<T, D::Error> {
    tokio::time::timeout(longest, call).await.unwrap_or_else(|_| Err(door.unanswered(what)))
}
