//! A worker process: claims runs, has them carried out, and keeps its promises about them.
//!
//! One row in the database says that the process lives. The dispatch loop beats it: a loop that is wedged does not
//! beat, and a beat that fails is not passed on to the commands, whose supervisors end them before the lease can go
//! to somebody else. What a worker no longer holds it does not finish.

mod carrier;
mod door;
mod life;
mod log;
mod report;

pub use carrier::{Carrier, Ended, Ending, Sign, Stop, Worked, WorkerOptions};
pub use door::{Door, Waiting};
pub use log::{Place, RunLog};

use crate::Engine;
use crate::patience::{Passing as _, Patience, chain};
use crate::trace::of_run;
use report::Report;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tidemill_core::run::{Applied, Claim};
use tidemill_core::{RunId, WorkerId};
use tidemill_store::{ClaimRuns, Error, Holder};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Instrument as _;

/// A run that is being carried out.
struct Active<M> {
    sign: watch::Sender<Sign<M>>,
    task: tokio::task::Id,
}

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
            tokio::spawn(async move { engine.keep_up(&upkeep).await })
        });
        let result = work_at(self.with_patience(Patience::None), self.patience, options, carrier, stop).await;
        if let Some(keeper) = keeper {
            keeper.abort();
        }
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
                self.give_back().await?;
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

    /// What this worker asks for: as many runs as it has free slots.
    fn ask(&self) -> ClaimRuns {
        ClaimRuns {
            worker: self.options.name.clone(),
            worker_id: Some(self.worker_id),
            limit: self.options.slots.saturating_sub(self.active.len()),
            labels: self.options.labels.clone(),
            projects: self.options.projects.clone(),
            request_id: Some(self.request_id.clone()),
            lease_secs: tidemill_core::limits::LEASE_SECS,
        }
    }

    /// Claims as many runs as there are free slots, and begins to carry them out.
    async fn claim(&mut self) -> Result<usize, D::Error> {
        let ask = self.ask();
        if ask.limit == 0 {
            return Ok(0);
        }
        let longest = self.options.loop_answer_max();
        let (mut asked, began) = (self.carrier.moment(), Instant::now());
        let mut answer = in_time::<D, _>("claim runs", longest, self.door.claim(ask.clone())).await;
        if began.elapsed() >= self.options.beat && answer.as_ref().is_ok_and(|claims| !claims.is_empty()) {
            // An answer that took long says little about now, and a command must not begin on it: ask again. The
            // same request id gives the same runs.
            asked = self.carrier.moment();
            answer = in_time::<D, _>("claim runs", longest, self.door.claim(ask)).await;
        }
        self.is_answered = answer.is_ok();
        let claims = match answer {
            Ok(claims) => claims,
            Err(error) if D::is_stale(&error) => {
                tracing::warn!("this worker was found dead; it stops what it runs, and begins anew");
                self.start_over().await?;
                return Ok(0);
            }
            // The answer may be lost: ask again under the same request id, after a while.
            Err(error) if error.passes() => {
                tracing::warn!("could not claim: {}", chain(&error));
                return Ok(0);
            }
            Err(error) => return Err(error),
        };
        if !claims.is_empty() {
            // Not before: what an ask that was given up brought later is found under the same id.
            self.request_id = uuid::Uuid::new_v4().to_string();
        }
        let count = claims.len();
        for claim in claims {
            self.begin(claim, asked);
        }
        Ok(count)
    }

    fn begin(&mut self, claim: Claim, asked: C::Moment) {
        tracing::info!(run.id = %claim.run_id, "worker {} claimed run {}", self.options.name, claim.run_id);
        self.worked.claimed += 1;
        let run_id = claim.run_id.clone();
        let key = run_id.clone();
        let (sign, signs) = watch::channel(Sign { contact: asked, stop: None });
        let (door, answer_max) = (self.door.clone(), self.options.answer_max());
        let holder = Holder { worker: Some(self.options.name.clone()), epoch: Some(claim.epoch) };
        let (carrier, lost) = (self.carrier.clone(), self.lost.clone());
        let task = self.tasks.spawn(async move {
            let log = RunLog::open(door.clone(), run_id.clone(), holder.clone(), answer_max, lost);
            let writer = log.writer();
            let ended = carrier.carry(claim, log, signs).instrument(of_run!("carry", run_id)).await;
            writer.flush().await;
            let report = Report { door: &door, run: &run_id, holder: &holder, answer_max };
            let applied = match &ended {
                Ended::With(status, metadata) => report.send(*status, metadata).await,
                Ended::Interrupted => None,
            };
            carrier.finished(&run_id, &ended, applied);
            Over { run_id, applied, interrupted: matches!(ended, Ended::Interrupted) }
        });
        self.active.insert(key, Active { sign, task: task.id() });
    }

    /// Takes note of runs that are over, and of those that turned out to be lost.
    fn collect(&mut self, losses: &mut mpsc::UnboundedReceiver<RunId>) {
        while let Ok(run) = losses.try_recv() {
            self.tell(&run, |sign| sign.stop = Some(Stop::Lost));
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
                let untold = active.is_some_and(|active| active.sign.borrow().stop.is_none());
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
            match in_time::<D, _>("wait for runs", longest, asked).await {
                Ok(waiter) => self.waiter = Some(waiter),
                Err(error) => tracing::warn!("this worker only polls for now: {}", chain(&error)),
            }
        }
        if let Some(waiter) = &mut self.waiter
            && let Err(error) = in_time::<D, _>("wait for runs", longest, waiter.arm()).await
        {
            tracing::warn!("this worker only polls for now: {}", chain(&error));
            self.waiter = None;
        }
    }

    async fn disarm(&mut self) {
        let longest = self.options.loop_answer_max();
        if let Some(waiter) = &mut self.waiter
            && in_time::<D, _>("stop waiting", longest, waiter.disarm()).await.is_err()
        {
            self.waiter = None;
        }
    }

    /// Waits for something to do: a run to claim, one that is over, a beat that is due, or the end.
    async fn wait(&mut self, stop: &mut watch::Receiver<bool>, losses: &mut mpsc::UnboundedReceiver<RunId>) {
        let beat_due = self.options.beat.saturating_sub(self.last_beat.elapsed());
        let longest = self.options.look.min(beat_due).max(Duration::from_millis(1));
        let has_slot = self.active.len() < self.options.slots;
        let (ask, mut waiter) = (self.ask(), self.waiter.take());
        let mut broken = false;
        tokio::select! {
            woken = listen(waiter.as_mut().filter(|_| has_slot), ask, longest) => broken = woken.is_err(),
            Some(done) = self.tasks.join_next(), if !self.tasks.is_empty() => self.note(done),
            Some(run) = losses.recv() => self.tell(&run, |sign| sign.stop = Some(Stop::Lost)),
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
        let left = in_time::<D, _>("look for runs", self.options.loop_answer_max(), asked).await;
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
    what: &'static str,
    longest: Duration,
    call: impl Future<Output = Result<T, D::Error>>,
) -> Result<T, D::Error> {
    tokio::time::timeout(longest, call).await.unwrap_or_else(|_| Err(D::unanswered(what)))
}
