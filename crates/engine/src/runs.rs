//! The use cases of a run.

use crate::Engine;
use crate::graph::{GraphSettings, Graphs};
use crate::trace::of_run;
use crate::transition_counts::{entered, entered_each};
use metrics::counter;
use tidemill_core::artifact::NewArtifact;
use tidemill_core::event::NewEvent;
use tidemill_core::run::EndCause;
use tidemill_core::run::{ChangeOutcome, Claim, FailOutcome, FailRun, Lane, QueueRun, Run, RunState};
use tidemill_core::why::{Reason, explain};
use tidemill_core::worker::RunLease;
use tidemill_core::{RunId, request};
use tidemill_store::{
    CancelOutcome, ClaimRuns, Error, FinishRun, Holder, QueueOutcome, RefusalCode, RetryOutcome, SweptRun,
};
use tracing::Instrument as _;

impl Engine {
    /// Queues a run. A repeated request with the same idempotency key returns the existing run.
    pub async fn queue(&self, request: QueueRun) -> Result<QueueOutcome, Error> {
        let run_id = self.clock.run_id();
        let queued = self.queue_as(request, run_id.clone()).await?;
        // If the first answer was lost, the retry returns `created: false`, but with our own id.
        let created = queued.created || queued.run_id == run_id;
        Ok(QueueOutcome { created, ..queued })
    }

    /// Queues a run with an id chosen by the caller. A repeated call with the same id returns the existing run.
    pub async fn queue_as(&self, request: QueueRun, run_id: RunId) -> Result<QueueOutcome, Error> {
        request.check()?;
        request::check_new_run_id(&run_id)?;
        let request = request.normalized();
        let queued = self
            .retry_policy
            .retry("queue a run", || self.store.queue_run(request.clone(), run_id.clone(), self.clock.now()))
            .instrument(of_run!("queue", run_id))
            .await?;
        if queued.created || queued.run_id == run_id {
            entered("queued", &request.kind, 1);
            self.store.wake_soon();
        }
        Ok(queued)
    }

    /// Queues up to 1,000 runs in one transaction, and returns one outcome for each request, in order.
    ///
    /// A request with a known idempotency key returns the existing run. A refused request refuses the whole call; the
    /// message names its position.
    pub async fn queue_many(&self, requests: Vec<QueueRun>) -> Result<Vec<QueueOutcome>, Error> {
        let ids = self.clock.run_ids(requests.len());
        let mut queued = self.queue_many_as(requests.into_iter().zip(ids.clone()).collect()).await?;
        // If the first answer was lost, the retry returns `created: false`, but with our own ids.
        for (outcome, id) in queued.iter_mut().zip(&ids) {
            outcome.created |= outcome.run_id == *id;
        }
        Ok(queued)
    }

    /// Queues runs with ids chosen by the caller. A repeated call with the same ids returns the existing runs.
    pub async fn queue_many_as(&self, requests: Vec<(QueueRun, RunId)>) -> Result<Vec<QueueOutcome>, Error> {
        let mut checked = Vec::with_capacity(requests.len());
        for (position, (request, run_id)) in requests.into_iter().enumerate() {
            let valid = request.check().and_then(|()| request::check_new_run_id(&run_id));
            valid.map_err(|invalid| Error::from(invalid).at_position(position))?;
            checked.push((request.normalized(), run_id));
        }
        let queued = self
            .retry_policy
            .retry("queue runs", || self.store.queue_runs(checked.clone(), self.clock.now()))
            .await?;
        let outcomes = queued.iter().zip(&checked);
        let new = outcomes.filter(|(outcome, (_, run_id))| outcome.created || outcome.run_id == *run_id);
        let mut kinds = new.map(|(_, (request, _))| request.kind.as_str()).peekable();
        if kinds.peek().is_some() {
            entered_each("queued", kinds);
            self.store.wake_soon();
        }
        Ok(queued)
    }

    /// Claims runs. The request id makes the call idempotent.
    pub async fn claim(&self, mut request: ClaimRuns) -> Result<Vec<Claim>, Error> {
        request::check_worker_name(&request.worker)?;
        request::check_labels(&request.labels)?;
        request.request_id.get_or_insert_with(|| uuid::Uuid::new_v4().to_string());
        let call = || self.store.claim_runs(request.clone(), self.clock.now());
        let claims = self.retry_policy.retry("claim runs", call).await?;
        claimed(&claims);
        Ok(claims)
    }

    /// Starts a claimed run.
    pub async fn start(&self, run: &RunId, holder: &Holder) -> Result<ChangeOutcome, Error> {
        self.retry_policy
            .retry("start a run", || self.store.start_run(run.clone(), holder.clone(), self.clock.now()))
            .instrument(of_run!("start", run))
            .await
    }

    /// Appends events in order. Returns the id of each, or `None` if the caller no longer holds the run.
    pub async fn append(
        &self,
        run: &RunId,
        events: Vec<NewEvent>,
        holder: &Holder,
    ) -> Result<Vec<Option<String>>, Error> {
        for event in &events {
            request::check_event(event)?;
        }
        self.retry_policy
            .retry("append events", || {
                self.store.append_events(run.clone(), events.clone(), holder.clone(), self.clock.now())
            })
            .await
    }

    /// Renews a run's lease.
    pub async fn heartbeat(&self, run: &RunId, holder: &Holder) -> Result<RunLease, Error> {
        self.retry_policy
            .retry("renew a lease", || self.store.heartbeat(run.clone(), holder.clone(), self.clock.now()))
            .await
    }

    /// Finishes runs. Returns an outcome for each; the caller counts them with [`crate::count_end`].
    pub async fn finish(
        &self,
        ends: Vec<FinishRun>,
        worker: Option<&str>,
    ) -> Result<Vec<ChangeOutcome>, Error> {
        for end in &ends {
            request::check_metadata(&end.metadata)?;
        }
        let spans: Vec<_> = ends.iter().map(|end| of_run!("finish", end.run_id)).collect();
        let outcomes = self
            .retry_policy
            .retry("finish runs", || {
                self.store.finish_runs(ends.clone(), worker.map(str::to_owned), self.clock.now())
            })
            .await?;
        drop(spans);
        Ok(outcomes)
    }

    /// Cancels a waiting run, or requests that the worker of a held run stops it.
    pub async fn cancel(&self, run: &RunId, by: &str, reason: Option<&str>) -> Result<CancelOutcome, Error> {
        request::check_request_by(by, reason)?;
        let Run { lane, kind, .. } = self.run(run).await?;
        if lane == Lane::Graph {
            return Ok(self.graphs().cancel(run, &[], by, reason).await?.outcome);
        }
        let is_repeated = std::sync::atomic::AtomicBool::new(false);
        let answer = self
            .retry_policy
            .retry("cancel a run", || {
                let is_repeat = is_repeated.swap(true, std::sync::atomic::Ordering::Relaxed);
                let call = self.store.cancel_run(
                    run.clone(),
                    by.to_owned(),
                    reason.map(str::to_owned),
                    self.clock.now(),
                );
                async move { Ok::<_, Error>((call.await?, is_repeat)) }
            })
            .instrument(of_run!("cancel", run))
            .await?;
        if matches!(answer, (CancelOutcome::Cancelled, _)) {
            entered("cancelled", &kind, 1);
        }
        match answer {
            // The first answer was lost: this very call may have cancelled the run.
            (CancelOutcome::Ended, true) => {
                let ended = self.run(run).await?;
                let ours =
                    ended.status == RunState::Cancelled && ended.cancel_requested_by.as_deref() == Some(by);
                Ok(if ours { CancelOutcome::Cancelled } else { CancelOutcome::Ended })
            }
            (answer, _) => Ok(answer),
        }
    }

    /// Queues a retry of a failed or cancelled run.
    pub async fn retry(&self, run: &RunId, by: &str) -> Result<RetryOutcome, Error> {
        request::check_request_by(by, None)?;
        let Run { lane, kind, .. } = self.run(run).await?;
        if lane == Lane::Graph {
            return self.graphs().retry(run, &[], by).await;
        }
        let retried = self
            .retry_policy
            .retry("retry a run", || self.store.retry_run(run.clone(), by.to_owned(), self.clock.now()))
            .instrument(of_run!("retry", run))
            .await?;
        if retried.created {
            entered("queued", &kind, 1);
        }
        self.store.wake_soon();
        Ok(retried)
    }

    /// Fails a stalled run on behalf of an operator, and queues a successor if requested.
    pub async fn fail_run(&self, request: FailRun) -> Result<FailOutcome, Error> {
        let kind = self.run(&request.run_id).await?.kind;
        let failed = self
            .retry_policy
            .retry("fail a run", || self.store.fail_run(request.clone(), self.clock.now()))
            .instrument(of_run!("fail", request.run_id))
            .await?;
        if failed.outcome == ChangeOutcome::Applied {
            entered("failed", &kind, 1);
        }
        if failed.successor.is_some() {
            self.store.wake_soon();
        }
        Ok(failed)
    }

    /// Records an artifact and returns its id.
    pub async fn add_artifact(&self, run: &RunId, artifact: NewArtifact) -> Result<String, Error> {
        request::check_artifact(&artifact)?;
        self.retry_policy
            .retry("record an artifact", || {
                self.store.add_artifact(run.clone(), artifact.clone(), self.clock.now())
            })
            .await
    }

    /// Returns a run, or an error if it does not exist.
    pub async fn run(&self, run: &RunId) -> Result<Run, Error> {
        let found = self.retry_policy.retry("read a run", || self.store.run(run.clone())).await?;
        found.ok_or_else(|| unknown(run))
    }

    /// Explains the state of a run.
    pub async fn why(&self, run: &RunId) -> Result<Reason, Error> {
        let facts = self
            .retry_policy
            .retry("read why", || self.store.why_facts(run.clone(), self.clock.now()))
            .await?;
        let (facts, now) = facts.ok_or_else(|| unknown(run))?;
        if facts.run.lane == Lane::Sync
            && let Some(reason) = self.why_sync(&facts.run, now).await?
        {
            // A pause of the lane or the project explains more than the state of the sync.
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

    fn graphs(&self) -> Graphs {
        Graphs::new(self.clone(), GraphSettings::default())
    }

    /// Ends up to `limit` runs that are stale, lost or past their deadline.
    pub async fn sweep(&self, limit: usize, dead_after_secs: f64) -> Result<Vec<SweptRun>, Error> {
        let swept = self
            .retry_policy
            .retry("sweep", || self.store.sweep(limit, dead_after_secs, self.clock.now()))
            .await?;
        for decision in &swept {
            drop(of_run!("sweep", decision.run_id));
            counter!("tidemill_sweeper_decisions_total", "cause" => decision.action.as_str()).increment(1);
            if matches!(decision.action, EndCause::Stale | EndCause::Lost | EndCause::Quarantined) {
                counter!("tidemill_lease_expiries_total").increment(1);
            }
            let next =
                decision.successor.as_ref().map_or_else(String::new, |next| format!(", followed by {next}"));
            tracing::info!(
                run.id = %decision.run_id,
                run.end = %decision.action,
            "sweeper ended run {} as {}{next}", decision.run_id, decision.action
            );
        }
        if swept.iter().any(|decision| decision.successor.is_some()) {
            self.store.wake_soon();
        }
        Ok(swept)
    }
}

/// Counts a claim and adds it to the trace of each claimed run.
pub(crate) fn claimed(claims: &[Claim]) {
    let outcome = if claims.is_empty() { "empty" } else { "given" };
    counter!("tidemill_claims_total", "outcome" => outcome).increment(1);
    entered_each("claimed", claims.iter().map(|claim| claim.kind.as_str()));
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

    /// Size of a future in bytes. The closure only supplies the type and is never called.
    fn size<F>(_: impl FnOnce(&'static Engine) -> F) -> usize {
        size_of::<F>()
    }

    /// Each layer copies the futures that it awaits. When they contained the code that opens a connection, they had 5
    /// to 7 KB, and the copies were more than half of the instructions of a call.
    #[test]
    fn futures_of_the_verbs_are_small() {
        const BYTES_MAX: usize = 3 * 1024;
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
        let large: Vec<_> = sizes.iter().filter(|(_, size)| *size > BYTES_MAX).collect();
        assert!(large.is_empty(), "futures larger than {BYTES_MAX} bytes: {large:?}");
    }
}
