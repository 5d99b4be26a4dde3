//! The use cases of a run.

use crate::Engine;
use crate::graph::{GraphSettings, Graphs};
use crate::trace::of_run;
use metrics::counter;
use tidemill_core::artifact::NewArtifact;
use tidemill_core::event::NewEvent;
use tidemill_core::run::{Applied, Claim, FailRun, Failed, Lane, QueueRun, Run, RunState};
use tidemill_core::why::{Reason, explain};
use tidemill_core::worker::Held;
use tidemill_core::{RunId, request};
use tidemill_store::SweptAction;
use tidemill_store::{Cancelled, ClaimRuns, Error, FinishRun, Holder, Queued, RefusalCode, Retried, Swept};
use tracing::Instrument as _;

impl Engine {
    /// Queues a run. The same key and the same request give the run that exists.
    pub async fn queue(&self, request: QueueRun) -> Result<Queued, Error> {
        let run_id = self.clock.run_id();
        let queued = self.queue_as(request, run_id.clone()).await?;
        // An answer that was lost and asked again says "not created"; our own id says otherwise.
        let created = queued.created || queued.run_id == run_id;
        Ok(Queued { created, ..queued })
    }

    /// Queues a run under the id that the caller made: asked again with it, the answer is the run that exists.
    pub async fn queue_as(&self, request: QueueRun, run_id: RunId) -> Result<Queued, Error> {
        request.check()?;
        request::check_new_run_id(&run_id)?;
        let request = request.normal();
        let queued = self
            .patience
            .settle("queue a run", || self.store.queue_run(request.clone(), run_id.clone(), self.clock.now()))
            .instrument(of_run!("queue", run_id))
            .await?;
        if queued.created || queued.run_id == run_id {
            entered("queued", 1);
            self.store.wake_soon();
        }
        Ok(queued)
    }

    /// Claims runs. The request id makes it safe to ask again.
    pub async fn claim(&self, mut ask: ClaimRuns) -> Result<Vec<Claim>, Error> {
        request::check_worker_name(&ask.worker)?;
        request::check_labels(&ask.labels)?;
        ask.request_id.get_or_insert_with(|| uuid::Uuid::new_v4().to_string());
        let call = || self.store.claim_runs(ask.clone(), self.clock.now());
        let claims = self.patience.settle("claim runs", call).await?;
        claimed(&claims);
        Ok(claims)
    }

    /// Starts a claimed run.
    pub async fn start(&self, run: &RunId, holder: &Holder) -> Result<Applied, Error> {
        self.patience
            .settle("start a run", || self.store.start_run(run.clone(), holder.clone(), self.clock.now()))
            .instrument(of_run!("start", run))
            .await
    }

    /// Appends events in order; the id of each, or `None` where the caller no longer holds the run.
    pub async fn append(
        &self,
        run: &RunId,
        events: Vec<NewEvent>,
        holder: &Holder,
    ) -> Result<Vec<Option<String>>, Error> {
        for event in &events {
            request::check_event(event)?;
        }
        self.patience
            .settle("append events", || {
                self.store.append_events(run.clone(), events.clone(), holder.clone(), self.clock.now())
            })
            .await
    }

    /// Renews a run's lease.
    pub async fn heartbeat(&self, run: &RunId, holder: &Holder) -> Result<Held, Error> {
        self.patience
            .settle("renew a lease", || self.store.heartbeat(run.clone(), holder.clone(), self.clock.now()))
            .await
    }

    /// Finishes runs; an outcome for each.
    pub async fn finish(&self, ends: Vec<FinishRun>, worker: Option<&str>) -> Result<Vec<Applied>, Error> {
        for end in &ends {
            request::check_metadata(&end.metadata)?;
        }
        let spans: Vec<_> = ends.iter().map(|end| of_run!("finish", end.run_id)).collect();
        let outcomes = self
            .patience
            .settle("finish runs", || {
                self.store.finish_runs(ends.clone(), worker.map(str::to_owned), self.clock.now())
            })
            .await?;
        drop(spans);
        for (end, outcome) in ends.iter().zip(&outcomes) {
            if *outcome == Applied::Applied {
                entered(end.status.as_str(), 1);
            }
        }
        Ok(outcomes)
    }

    /// Cancels a run that waits, or asks the worker of a held one to stop.
    pub async fn cancel(&self, run: &RunId, by: &str, reason: Option<&str>) -> Result<Cancelled, Error> {
        request::check_request_by(by, reason)?;
        if self.run(run).await?.lane == Lane::Graph {
            return Ok(self.graphs().cancel(run, &[], by, reason).await?.outcome);
        }
        let asked_twice = std::sync::atomic::AtomicBool::new(false);
        let answer = self
            .patience
            .settle("cancel a run", || {
                let again = asked_twice.swap(true, std::sync::atomic::Ordering::Relaxed);
                let call = self.store.cancel_run(
                    run.clone(),
                    by.to_owned(),
                    reason.map(str::to_owned),
                    self.clock.now(),
                );
                async move { Ok::<_, Error>((call.await?, again)) }
            })
            .instrument(of_run!("cancel", run))
            .await?;
        if matches!(answer, (Cancelled::Cancelled, _)) {
            entered("cancelled", 1);
        }
        match answer {
            // The first answer was lost: the run may have ended by this very call.
            (Cancelled::Ended, true) => {
                let ended = self.run(run).await?;
                let ours =
                    ended.status == RunState::Cancelled && ended.cancel_requested_by.as_deref() == Some(by);
                Ok(if ours { Cancelled::Cancelled } else { Cancelled::Ended })
            }
            (answer, _) => Ok(answer),
        }
    }

    /// Queues another try of a run that has failed or was cancelled.
    pub async fn retry(&self, run: &RunId, by: &str) -> Result<Retried, Error> {
        request::check_request_by(by, None)?;
        if self.run(run).await?.lane == Lane::Graph {
            return self.graphs().retry(run, &[], by).await;
        }
        let retried = self
            .patience
            .settle("retry a run", || self.store.retry_run(run.clone(), by.to_owned(), self.clock.now()))
            .instrument(of_run!("retry", run))
            .await?;
        if retried.created {
            entered("queued", 1);
        }
        self.store.wake_soon();
        Ok(retried)
    }

    /// Fails a stalled run on behalf of a person, and queues a successor if that was asked for.
    pub async fn fail_run(&self, ask: FailRun) -> Result<Failed, Error> {
        let failed = self
            .patience
            .settle("fail a run", || self.store.fail_run(ask.clone(), self.clock.now()))
            .instrument(of_run!("fail", ask.run_id))
            .await?;
        if failed.outcome == Applied::Applied {
            entered("failed", 1);
        }
        if failed.successor.is_some() {
            self.store.wake_soon();
        }
        Ok(failed)
    }

    /// Records an artifact; its id.
    pub async fn add_artifact(&self, run: &RunId, artifact: NewArtifact) -> Result<String, Error> {
        request::check_artifact(&artifact)?;
        self.patience
            .settle("record an artifact", || {
                self.store.add_artifact(run.clone(), artifact.clone(), self.clock.now())
            })
            .await
    }

    /// A run that must exist.
    pub async fn run(&self, run: &RunId) -> Result<Run, Error> {
        let found = self.patience.settle("read a run", || self.store.run(run.clone())).await?;
        found.ok_or_else(|| unknown(run))
    }

    /// Why a run is where it is.
    pub async fn why(&self, run: &RunId) -> Result<Reason, Error> {
        let facts =
            self.patience.settle("read why", || self.store.why_facts(run.clone(), self.clock.now())).await?;
        let (facts, now) = facts.ok_or_else(|| unknown(run))?;
        if facts.run.lane == Lane::Sync
            && let Some(reason) = self.why_sync(&facts.run, now).await?
        {
            // A pause of the lane or the project says more than what would come without it.
            if let Some(flag) = facts.flags.iter().find(|flag| flag.is_on(now) && reason.is_held_by_pauses())
            {
                let (scope, note) = (flag.scope.clone(), flag.note.clone());
                return Ok(Reason::Paused { scope, note, until: flag.until_at });
            }
            return Ok(Reason::Sync(reason));
        }
        if facts.run.lane == Lane::Graph
            && let Some(reason) = self.why_graph(run).await?
        {
            return Ok(Reason::Graph(reason));
        }
        Ok(explain(&facts, now))
    }

    /// The use cases of graphs on the same store.
    fn graphs(&self) -> Graphs {
        Graphs::new(self.clone(), GraphSettings::default())
    }

    /// Sweeps once.
    pub async fn sweep(&self, limit: usize, dead_after_secs: f64) -> Result<Vec<Swept>, Error> {
        let swept = self
            .patience
            .settle("sweep", || self.store.sweep(limit, dead_after_secs, self.clock.now()))
            .await?;
        for decision in &swept {
            drop(of_run!("sweep", decision.run_id));
            counter!("tidemill_sweeper_decisions_total", "cause" => decision.action.as_str()).increment(1);
            if matches!(decision.action, SweptAction::Stale | SweptAction::Lost | SweptAction::Quarantined) {
                counter!("tidemill_lease_expiries_total").increment(1);
            }
            let next =
                decision.successor.as_ref().map_or_else(String::new, |next| format!(", followed by {next}"));
            tracing::info!(
                run.id = %decision.run_id,
                run.end = %decision.action,
                "the sweeper ended run {} as {}{next}", decision.run_id, decision.action
            );
        }
        if swept.iter().any(|decision| decision.successor.is_some()) {
            self.store.wake_soon();
        }
        Ok(swept)
    }
}

/// Counts runs that this process brought into a state.
fn entered(state: &'static str, runs: u64) {
    counter!("tidemill_transitions_total", "to" => state).increment(runs);
}

/// Counts a claim, and notes it in the trace of each of its runs.
pub(crate) fn claimed(claims: &[Claim]) {
    let outcome = if claims.is_empty() { "empty" } else { "given" };
    counter!("tidemill_claims_total", "outcome" => outcome).increment(1);
    if !claims.is_empty() {
        entered("claimed", claims.len() as u64);
    }
    for claim in claims {
        drop(of_run!("claim", claim.run_id));
    }
}

fn unknown(run: &RunId) -> Error {
    Error::refused(RefusalCode::UnknownRun, format!("run `{run}` does not exist"))
}

#[cfg(test)]
mod tests {
    use crate::Engine;
    use tidemill_core::run::QueueRun;
    use tidemill_store::{ClaimRuns, Holder};

    /// Bytes of what a caller waits for. It is never called: its type says it.
    fn size<F>(_: impl FnOnce(&'static Engine) -> F) -> usize {
        size_of::<F>()
    }

    /// What is waited for is copied at each layer that hands it on. With the making of a connection in it, that was
    /// 5 to 7 KB, and to copy them more than half of the instructions that a verb cost its caller.
    #[test]
    fn what_a_verb_waits_for_is_small() {
        const MOST: usize = 3 * 1024;
        let run = &"run-1".parse().unwrap();
        let holder = &Holder { worker: None, epoch: None };
        let sizes = [
            ("queue", size(|engine| engine.queue(QueueRun::new("shop", "dev")))),
            ("claim", size(|engine| engine.claim(ClaimRuns::one("ann")))),
            ("start", size(|engine| engine.start(run, holder))),
            ("append", size(|engine| engine.append(run, Vec::new(), holder))),
            ("heartbeat", size(|engine| engine.heartbeat(run, holder))),
            ("finish", size(|engine| engine.finish(Vec::new(), None))),
            ("run", size(|engine| engine.run(run))),
        ];
        let large: Vec<_> = sizes.iter().filter(|(_, size)| *size > MOST).collect();
        assert!(large.is_empty(), "more than {MOST} bytes: {large:?}");
    }
}
