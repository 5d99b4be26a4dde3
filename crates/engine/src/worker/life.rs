//! The life of a worker process: its row in the database, its beats, its end, and a new life where the old one is over.
//!
//! Whatever waits for the database here ends when the process is told to stop: a server that is away must not keep a
//! worker from going.

use super::active::Asked;
use super::door::Door;
use super::{Carrier, Dispatch, Owed, in_time};
use crate::patience::{Patience, chain};
use std::time::Duration;
use tidemill_core::worker::NewWorker;
use tidemill_core::{RunId, WorkerId};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// How long a worker that ends tries to say so.
const GOODBYE_MAX: Duration = Duration::from_secs(5);

impl<D: Door, C: Carrier> Dispatch<D, C> {
    /// Registers the process, or is told to stop before that.
    pub(super) async fn register(&mut self) -> Result<(), D::Error> {
        let worker = NewWorker {
            worker_id: self.worker_id,
            name: self.options.name.clone(),
            host: self.options.host.clone(),
            pid: i64::from(std::process::id()),
            labels: self.options.labels.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let (door, longest) = (&self.door, self.options.answer_max());
        let what = "register this worker";
        let register = || in_time(door, what, longest, door.register(worker.clone()));
        tokio::select! {
            biased;
            () = told(self.stop.clone()) => {}
            done = self.patience.settle(what, register) => done?,
        }
        self.last_beat = Instant::now();
        Ok(())
    }

    pub(super) async fn beat_if_due(&mut self) {
        if self.last_beat.elapsed() >= self.options.beat {
            self.beat().await;
        }
    }

    pub(super) async fn beat(&mut self) {
        let runs: Vec<RunId> = self.active.keys().cloned().collect();
        let (asked, moment) = (Instant::now(), self.carrier.moment());
        let beat = self.door.beat(self.worker_id, runs.clone());
        // A beat that hangs must not hang the loop: the next one may get through on another connection.
        match tokio::time::timeout(self.options.beat, beat).await {
            Ok(Ok(beaten)) => {
                self.last_beat = asked;
                self.draining = beaten.draining;
                for (run, held) in runs.iter().zip(beaten.held) {
                    if let Some(active) = self.active.get_mut(run) {
                        active.hear(run, &held, Asked { moment, at: asked }, self.options.beat);
                    }
                }
            }
            Ok(Err(error)) if D::is_stale(&error) => {
                tracing::warn!("this worker was found dead; it stops what it runs, and begins anew");
                if let Err(error) = self.start_over().await {
                    tracing::warn!("could not register anew: {}", chain(&error));
                }
            }
            Ok(Err(error)) => {
                tracing::warn!("could not say that this worker lives: {}", chain(&error));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(_) => tracing::warn!("could not say that this worker lives: nobody answers"),
        }
    }

    /// What was cut off stays ours for the rest of its lease: a command after the database was silent for too long, or
    /// work that broke off. The end of this worker's life gives it to others at once. Nothing else is in hand then:
    /// the same silence has cut off the rest, and work that broke off waits for it.
    pub(super) async fn give_back(&mut self) -> Result<(), D::Error> {
        tracing::warn!("runs in hand were cut off; this worker begins anew, so that others carry them on");
        self.left = Some(self.worker_id);
        self.start_over().await?;
        let stop = self.stop.clone();
        tokio::select! {
            biased;
            () = told(stop) => Ok(()),
            done = self.leave() => done,
        }
    }

    /// Ends the life that is over, and has its runs carried on.
    async fn leave(&mut self) -> Result<(), D::Error> {
        let Some(worker) = self.left else { return Ok(()) };
        let (door, longest) = (&self.door, self.options.answer_max());
        let what = "give runs back";
        self.patience.settle(what, || in_time(door, what, longest, door.retire(worker))).await?;
        self.left = None;
        door.sweep(self.dead_after()).await;
        Ok(())
    }

    fn dead_after(&self) -> Duration {
        self.options.upkeep.clone().unwrap_or_default().dead_after
    }

    /// Everything that the process holds belongs to others: stop it, and begin again as a new process.
    pub(super) async fn start_over(&mut self) -> Result<(), D::Error> {
        for active in self.active.values() {
            active.sign.send_modify(|sign| sign.lost = true);
        }
        let stop = self.stop.clone();
        let is_told = tokio::select! {
            biased;
            () = told(stop) => true,
            () = self.end_all() => false,
        };
        if is_told {
            return Ok(());
        }
        self.active.clear();
        self.waiter = None;
        self.owed = Owed::Nothing;
        self.forget_request();
        self.worker_id = WorkerId(uuid::Uuid::new_v4());
        self.register().await
    }

    async fn end_all(&mut self) {
        while let Some(done) = self.tasks.join_next().await {
            self.note(done);
        }
    }

    /// Lets what is in hand end, and says goodbye.
    pub(super) async fn shut_down(&mut self, losses: &mut mpsc::UnboundedReceiver<RunId>) {
        for active in self.active.values() {
            active.sign.send_modify(|sign| sign.shutdown = true);
        }
        let deadline = Instant::now() + self.options.ending_max;
        while !self.tasks.is_empty() && Instant::now() < deadline {
            let tick =
                self.options.beat.saturating_sub(self.last_beat.elapsed()).max(Duration::from_millis(10));
            tokio::select! {
                Some(done) = self.tasks.join_next() => self.note(done),
                Some(run) = losses.recv() => self.tell(&run, |sign| sign.lost = true),
                () = tokio::time::sleep(tick) => self.beat_if_due().await,
            }
        }
        self.tasks.abort_all();
        if tokio::time::timeout(GOODBYE_MAX, self.say_goodbye()).await.is_err() {
            tracing::warn!("could not say goodbye: nobody answers");
        }
    }

    async fn say_goodbye(&self) {
        for worker in self.left.into_iter().chain([self.worker_id]) {
            let retire = || self.door.retire(worker);
            if let Err(error) = Patience::For(GOODBYE_MAX).settle("say goodbye", retire).await {
                tracing::warn!("could not say goodbye: {}", chain(&error));
                return;
            }
        }
        // Runs that were interrupted go on at once, without waiting for the next sweep of somebody else.
        if self.worked.finished < self.worked.claimed {
            self.door.sweep(self.dead_after()).await;
        }
    }
}

/// Waits until the process is told to stop. Nobody who could tell is nobody who does.
async fn told(mut stop: watch::Receiver<bool>) {
    if stop.wait_for(|told| *told).await.is_err() {
        std::future::pending::<()>().await;
    }
}
