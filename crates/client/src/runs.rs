//! API calls for runs and their events.

use crate::{ApiRequest, Client, Error, REQUEST_TIMEOUT, decode, encode, query};
use http::Method;
use std::time::Duration;
use tidemill_core::RunId;
use tidemill_core::artifact::Artifact;
use tidemill_core::event::Event;
use tidemill_core::run::{ChangeOutcome, QueueOutcome, QueueRun, RetryOutcome, Run};
use tidemill_core::worker::RunLease;
use tidemill_wire::Page;
use tidemill_wire::claims::{ClaimRequest, ClaimResponse, WorkLeft, WorkerScope};
use tidemill_wire::runs::{
    Append, AppendResponse, ArtifactResponse, BatchRun, Cancel, CancelResponse, Fail, FailResponse, Finish,
    FinishMany, Hold, ListArtifacts, ListEvents, ListFailures, ListRuns, ListTail, ListWaiting, NewArtifact,
    NewRun, NewRuns, Outcome, Outcomes, QueuedRuns, RunDetail, Tail, Why,
};

impl Client {
    /// Queues a run. A repeated request with the same key returns the existing run.
    pub async fn queue_run(&self, request: QueueRun) -> Result<QueueOutcome, Error> {
        self.queue_run_as(request, None).await
    }

    /// Queues a run under an id chosen by the caller. A repeated request with the same id returns the existing run.
    pub async fn queue_run_as(
        &self,
        mut request: QueueRun,
        run_id: Option<RunId>,
    ) -> Result<QueueOutcome, Error> {
        let key = request.idempotency_key.take();
        let run = NewRun { run_id, ..NewRun::from(request) };
        self.request(Method::POST, "/v1/runs".to_owned(), Some(&run), key).await
    }

    /// Queues several runs in one transaction, and returns one outcome for each, in order. One refused request refuses
    /// all. The call can be repeated safely if each request has an idempotency key or a run id.
    pub async fn queue_runs(&self, runs: Vec<BatchRun>) -> Result<Vec<QueueOutcome>, Error> {
        let queued: QueuedRuns = self.post("/v1/runs/batch".to_owned(), &NewRuns { runs }).await?;
        Ok(queued.runs)
    }

    /// Lists runs, newest first.
    pub async fn runs(&self, params: &ListRuns) -> Result<Page<Run>, Error> {
        self.get(format!("/v1/runs{}", query(params)?)).await
    }

    /// Lists failed runs that no later run has superseded, newest first.
    pub async fn failures(&self, params: &ListFailures) -> Result<Page<Run>, Error> {
        self.get(format!("/v1/failures{}", query(params)?)).await
    }

    /// Lists waiting runs, oldest first.
    pub async fn waiting_runs(&self, params: &ListWaiting) -> Result<Page<Run>, Error> {
        self.get(format!("/v1/waiting{}", query(params)?)).await
    }

    /// Returns a run with its details.
    pub async fn run(&self, run: &RunId) -> Result<Run, Error> {
        self.get(format!("/v1/runs/{}", run.in_path())).await
    }

    /// Returns a run with its tries, artifacts and latest events.
    pub async fn run_detail(&self, run: &RunId) -> Result<RunDetail, Error> {
        self.get(format!("/v1/runs/{}/detail", run.in_path())).await
    }

    /// Explains why a run is in its current state.
    pub async fn why(&self, run: &RunId) -> Result<Why, Error> {
        self.get(format!("/v1/runs/{}/why", run.in_path())).await
    }

    /// Lists the tries of a run's request, first one first.
    pub async fn tries(&self, run: &RunId) -> Result<Page<Run>, Error> {
        self.get(format!("/v1/runs/{}/tries", run.in_path())).await
    }

    /// Lists the artifacts of a run, oldest first.
    pub async fn artifacts(&self, run: &RunId, params: &ListArtifacts) -> Result<Page<Artifact>, Error> {
        self.get(format!("/v1/runs/{}/artifacts{}", run.in_path(), query(params)?)).await
    }

    /// Lists events of a run.
    pub async fn events(&self, run: &RunId, params: &ListEvents) -> Result<Page<Event>, Error> {
        self.get(format!("/v1/runs/{}/events{}", run.in_path(), query(params)?)).await
    }

    /// Returns the last events of a run, or the ones before a given event.
    pub async fn tail(&self, run: &RunId, params: &ListTail) -> Result<Tail, Error> {
        self.get(format!("/v1/runs/{}/tail{}", run.in_path(), query(params)?)).await
    }

    /// Cancels a waiting run, or asks the worker of a held run to stop.
    pub async fn cancel_run(&self, run: &RunId, reason: Option<String>) -> Result<CancelResponse, Error> {
        self.post(format!("/v1/runs/{}/cancel", run.in_path()), &Cancel { reason }).await
    }

    /// Fails a stalled run, with or without a retry.
    pub async fn fail_run(&self, run: &RunId, request: &Fail) -> Result<FailResponse, Error> {
        self.post(format!("/v1/runs/{run}/fail"), request).await
    }

    /// Queues a retry of a failed or cancelled run.
    pub async fn retry_run(&self, run: &RunId) -> Result<RetryOutcome, Error> {
        self.request(Method::POST, format!("/v1/runs/{}/retry", run.in_path()), None::<&()>, None).await
    }

    /// Claims runs. With `wait_secs`, waits for them.
    pub async fn claim(&self, claim: &ClaimRequest) -> Result<ClaimResponse, Error> {
        let wait = Duration::from_secs(claim.wait_secs.unwrap_or(0).into());
        let request = ApiRequest {
            method: Method::POST,
            path: "/v1/claims".to_owned(),
            idempotency_key: None,
            body: Some(encode(claim)?),
            timeout: REQUEST_TIMEOUT + wait,
        };
        decode(&self.send(request).await?)
    }

    /// Counts the runs that such a worker could still get without further input.
    pub async fn work_left(&self, offer: &WorkerScope) -> Result<WorkLeft, Error> {
        self.post("/v1/claims/left".to_owned(), offer).await
    }

    /// Starts a claimed run.
    pub async fn start_run(&self, run: &RunId, hold: &Hold) -> Result<ChangeOutcome, Error> {
        outcome(self.post(format!("/v1/runs/{}/start", run.in_path()), hold).await)
    }

    /// Appends events. The error is stale if the caller no longer holds the run.
    pub async fn append(&self, run: &RunId, append: &Append) -> Result<AppendResponse, Error> {
        self.post(format!("/v1/runs/{}/events", run.in_path()), append).await
    }

    /// Renews a run's lease.
    pub async fn heartbeat(&self, run: &RunId, hold: &Hold) -> Result<RunLease, Error> {
        self.post(format!("/v1/runs/{}/heartbeat", run.in_path()), hold).await
    }

    /// Finishes a run that this worker holds.
    pub async fn finish_run(&self, run: &RunId, finish: &Finish) -> Result<ChangeOutcome, Error> {
        outcome(self.post(format!("/v1/runs/{}/finish", run.in_path()), finish).await)
    }

    /// Finishes several runs and returns an outcome for each.
    pub async fn finish_runs(&self, finish: &FinishMany) -> Result<Outcomes, Error> {
        self.post("/v1/finishes".to_owned(), finish).await
    }

    /// Records an artifact of a run.
    pub async fn add_artifact(&self, run: &RunId, artifact: &NewArtifact) -> Result<ArtifactResponse, Error> {
        self.post(format!("/v1/runs/{}/artifacts", run.in_path()), artifact).await
    }
}

/// Turns a `stale` error into [`Applied::Stale`], the outcome that the engine returns for it.
fn outcome(response: Result<Outcome, Error>) -> Result<ChangeOutcome, Error> {
    match response {
        Ok(outcome) => Ok(outcome.outcome),
        Err(error) if error.is_stale() => Ok(ChangeOutcome::Stale),
        Err(error) => Err(error),
    }
}
