//! Lifecycle of a worker process: registration, heartbeats, shutdown, and registering again after it was declared dead.
//!
//! All waits for the database end when the process is told to stop: an unreachable server must not block the shutdown.

use super::active_run::RequestTime;
use super::transport::Transport;
use super::{Dispatch, Executor, Handover, with_timeout};
use crate::retry_policy::{RetryPolicy, chain};
use std::time::Duration;
use tidemill_core::worker::NewWorker;
use tidemill_core::{RunId, WorkerId};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Time limit for deregistering at the end.
const DEREGISTER_TIMEOUT: Duration = Duration::from_secs(5);

impl<D: Transport, C: Executor> Dispatch<D, C> {
    /// Registers the process, unless it is told to stop first.
    pub(super) async fn register(&mut self) -> Result<(), D::Error> {
        let worker = NewWorker {
            worker_id: self.worker_id,
            name: self.options.name.clone(),
            host: self.options.host.clone(),
            pid: i64::from(std::process::id()),
            labels: self.options.labels.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let (transport, longest) = (&self.transport, self.options.call_timeout());
        let what = "register this worker";
        let register = || with_timeout(transport, what, longest, transport.register(worker.clone()));
        tokio::select! {
            biased;
            () = stop_requested(self.stop.clone()) => {}
            done = self.retry_policy.retry(what, register) => done?,
        }
        self.last_heartbeat = Instant::now();
        Ok(())
    }

    pub(super) async fn heartbeat_if_due(&mut self) {
        if self.last_heartbeat.elapsed() >= self.options.heartbeat_every {
            self.heartbeat().await;
        }
    }

    pub(super) async fn heartbeat(&mut self) {
        let runs: Vec<RunId> = self.active.keys().cloned().collect();
        let (sent_at, moment) = (Instant::now(), self.executor.moment());
        let heartbeat = self.transport.heartbeat(self.worker_id, runs.clone());
        // A heartbeat that hangs must not block the loop: the next one may succeed on another connection.
        match tokio::time::timeout(self.options.heartbeat_every, heartbeat).await {
            Ok(Ok(response)) => {
                self.last_heartbeat = sent_at;
                self.draining = response.draining;
                for (run, held) in runs.iter().zip(response.held) {
                    if let Some(active) = self.active.get_mut(run) {
                        active.update(
                            run,
                            &held,
                            RequestTime { moment, at: sent_at },
                            self.options.heartbeat_every,
                        );
                    }
                }
            }
            Ok(Err(error)) if D::is_stale(&error) => {
                tracing::warn!("this worker was declared dead; it stops its runs and registers again");
                if let Err(error) = self.register_again().await {
                    tracing::warn!("could not register again: {}", chain(&error));
                }
            }
            Ok(Err(error)) => {
                tracing::warn!("heartbeat failed: {}", chain(&error));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(_) => {
                tracing::warn!(
                    "heartbeat failed: no answer within {} s",
                    self.options.heartbeat_every.as_secs_f32()
                );
            }
        }
    }

    /// Ends this worker's registration, so that other workers continue its interrupted runs at once instead of after
    /// their leases. Runs are interrupted when the database did not answer for too long or when their task broke off.
    /// No other run is active then: an unreachable database interrupts all of them, and after a broken task the
    /// others finish first.
    pub(super) async fn hand_over(&mut self) -> Result<(), D::Error> {
        tracing::warn!(
            "runs were interrupted; this worker registers again, so that other workers continue them"
        );
        self.previous = Some(self.worker_id);
        self.register_again().await?;
        let stop = self.stop.clone();
        tokio::select! {
            biased;
            () = stop_requested(stop) => Ok(()),
            done = self.retire_previous() => done,
        }
    }

    /// Retires the previous registration and sweeps its runs.
    async fn retire_previous(&mut self) -> Result<(), D::Error> {
        let Some(worker) = self.previous else { return Ok(()) };
        let (transport, longest) = (&self.transport, self.options.call_timeout());
        let what = "hand over runs";
        self.retry_policy
            .retry(what, || with_timeout(transport, what, longest, transport.retire(worker)))
            .await?;
        self.previous = None;
        transport.sweep(self.dead_after()).await;
        Ok(())
    }

    fn dead_after(&self) -> Duration {
        self.options.upkeep.clone().unwrap_or_default().dead_after
    }

    /// Stops all runs, because they belong to other workers, and registers as a new process.
    pub(super) async fn register_again(&mut self) -> Result<(), D::Error> {
        for active in self.active.values() {
            active.signal.send_modify(|signal| signal.lost = true);
        }
        let stop = self.stop.clone();
        let is_stopping = tokio::select! {
            biased;
            () = stop_requested(stop) => true,
            () = self.join_tasks() => false,
        };
        if is_stopping {
            return Ok(());
        }
        self.active.clear();
        self.waiter = None;
        self.handover = Handover::None;
        self.forget_request();
        self.worker_id = WorkerId(uuid::Uuid::new_v4());
        self.register().await
    }

    async fn join_tasks(&mut self) {
        while let Some(done) = self.tasks.join_next().await {
            self.record_end(done);
        }
    }

    /// Lets the active runs end, and deregisters.
    pub(super) async fn shut_down(&mut self, losses: &mut mpsc::UnboundedReceiver<RunId>) {
        for active in self.active.values() {
            active.signal.send_modify(|signal| signal.shutdown = true);
        }
        let deadline = Instant::now() + self.options.shutdown_timeout;
        while !self.tasks.is_empty() && Instant::now() < deadline {
            let tick = self
                .options
                .heartbeat_every
                .saturating_sub(self.last_heartbeat.elapsed())
                .max(Duration::from_millis(10));
            tokio::select! {
                Some(done) = self.tasks.join_next() => self.record_end(done),
                Some(run) = losses.recv() => self.signal_run(&run, |signal| signal.lost = true),
                () = tokio::time::sleep(tick) => self.heartbeat_if_due().await,
            }
        }
        self.tasks.abort_all();
        if tokio::time::timeout(DEREGISTER_TIMEOUT, self.deregister()).await.is_err() {
            tracing::warn!(
                "could not deregister this worker: no answer within {} s",
                DEREGISTER_TIMEOUT.as_secs()
            );
        }
    }

    async fn deregister(&self) {
        for worker in self.previous.into_iter().chain([self.worker_id]) {
            let retire = || self.transport.retire(worker);
            if let Err(error) =
                RetryPolicy::For(DEREGISTER_TIMEOUT).retry("deregister this worker", retire).await
            {
                tracing::warn!("could not deregister this worker: {}", chain(&error));
                return;
            }
        }
        // Interrupted runs continue at once, without waiting for another process to sweep.
        if self.summary.finished < self.summary.claimed {
            self.transport.sweep(self.dead_after()).await;
        }
    }
}

/// Waits until the process is told to stop; forever if the sender is gone.
async fn stop_requested(mut stop: watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}
