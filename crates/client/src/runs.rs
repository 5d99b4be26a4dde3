//! Runs.

use crate::{Call, Client, Error, PATIENCE, encoded, query, read};
use http::Method;
use std::time::Duration;
use tidemill_core::RunId;
use tidemill_core::artifact::Artifact;
use tidemill_core::event::Event;
use tidemill_core::run::{Applied, QueueRun, Queued, Retried, Run};
use tidemill_core::worker::Held;
use tidemill_wire::Page;
use tidemill_wire::claims::{Ask, Claimed, Left, Offer};
use tidemill_wire::runs::{
    Append, Appended, ArtifactAnswer, Cancel, CancelAnswer, Fail, FailAnswer, Finish, FinishMany, Hold,
    ListArtifacts, ListEvents, ListFailures, ListRuns, ListTail, ListWaiting, NewArtifact, NewRun, Outcome,
    Outcomes, RunDetail, Tail, Why,
};

impl Client {
    /// Queues a run. The same key and the same request give the run that exists.
    pub async fn queue_run(&self, request: QueueRun) -> Result<Queued, Error> {
        self.queue_run_as(request, None).await
    }

    /// The same under an id that the caller made: asked again with it, the answer is the run that exists.
    pub async fn queue_run_as(&self, mut request: QueueRun, run_id: Option<RunId>) -> Result<Queued, Error> {
        let key = request.idempotency_key.take();
        let run = NewRun { run_id, ..NewRun::from(request) };
        self.ask(Method::POST, "/v1/runs".to_owned(), Some(&run), key).await
    }

    /// Lists runs, the newest first.
    pub async fn runs(&self, asked: &ListRuns) -> Result<Page<Run>, Error> {
        self.get(format!("/v1/runs{}", query(asked)?)).await
    }

    /// Lists failed runs that nothing made good, the newest first.
    pub async fn failures(&self, asked: &ListFailures) -> Result<Page<Run>, Error> {
        self.get(format!("/v1/failures{}", query(asked)?)).await
    }

    /// Lists runs that wait, the oldest first.
    pub async fn waiting_runs(&self, asked: &ListWaiting) -> Result<Page<Run>, Error> {
        self.get(format!("/v1/waiting{}", query(asked)?)).await
    }

    /// A run.
    pub async fn run(&self, run: &RunId) -> Result<Run, Error> {
        self.get(format!("/v1/runs/{}", run.in_path())).await
    }

    /// A run with what belongs to it.
    pub async fn run_detail(&self, run: &RunId) -> Result<RunDetail, Error> {
        self.get(format!("/v1/runs/{}/detail", run.in_path())).await
    }

    /// Why a run is where it is.
    pub async fn why(&self, run: &RunId) -> Result<Why, Error> {
        self.get(format!("/v1/runs/{}/why", run.in_path())).await
    }

    /// Every try of a run's request, the first one first.
    pub async fn tries(&self, run: &RunId) -> Result<Page<Run>, Error> {
        self.get(format!("/v1/runs/{}/tries", run.in_path())).await
    }

    /// What a run left, the oldest first.
    pub async fn artifacts(&self, run: &RunId, asked: &ListArtifacts) -> Result<Page<Artifact>, Error> {
        self.get(format!("/v1/runs/{}/artifacts{}", run.in_path(), query(asked)?)).await
    }

    /// A part of a run's record.
    pub async fn events(&self, run: &RunId, asked: &ListEvents) -> Result<Page<Event>, Error> {
        self.get(format!("/v1/runs/{}/events{}", run.in_path(), query(asked)?)).await
    }

    /// The end of a run's record, or a part before it.
    pub async fn tail(&self, run: &RunId, asked: &ListTail) -> Result<Tail, Error> {
        self.get(format!("/v1/runs/{}/tail{}", run.in_path(), query(asked)?)).await
    }

    /// Cancels a run that waits, or asks the worker of a held one to stop.
    pub async fn cancel_run(&self, run: &RunId, reason: Option<String>) -> Result<CancelAnswer, Error> {
        self.post(format!("/v1/runs/{}/cancel", run.in_path()), &Cancel { reason }).await
    }

    /// Fails a stalled run, with or without a successor.
    pub async fn fail_run(&self, run: &RunId, ask: &Fail) -> Result<FailAnswer, Error> {
        self.post(format!("/v1/runs/{run}/fail"), ask).await
    }

    /// Queues another try of a run that failed or was cancelled.
    pub async fn retry_run(&self, run: &RunId) -> Result<Retried, Error> {
        self.ask(Method::POST, format!("/v1/runs/{}/retry", run.in_path()), None::<&()>, None).await
    }

    /// Claims runs, and waits for them where asked.
    pub async fn claim(&self, ask: &Ask) -> Result<Claimed, Error> {
        let wait = Duration::from_secs(ask.wait_secs.unwrap_or(0).into());
        let call = Call {
            method: Method::POST,
            path: "/v1/claims".to_owned(),
            idempotency_key: None,
            body: Some(encoded(ask)?),
            patience: PATIENCE + wait,
        };
        read(&self.send(call).await?)
    }

    /// Counts what could still come to such a worker without anybody doing anything.
    pub async fn work_left(&self, offer: &Offer) -> Result<Left, Error> {
        self.post("/v1/claims/left".to_owned(), offer).await
    }

    /// Starts a claimed run.
    pub async fn start_run(&self, run: &RunId, hold: &Hold) -> Result<Applied, Error> {
        outcome(self.post(format!("/v1/runs/{}/start", run.in_path()), hold).await)
    }

    /// Appends events; an error that is stale where the caller no longer holds the run.
    pub async fn append(&self, run: &RunId, append: &Append) -> Result<Appended, Error> {
        self.post(format!("/v1/runs/{}/events", run.in_path()), append).await
    }

    /// Renews a run's lease.
    pub async fn heartbeat(&self, run: &RunId, hold: &Hold) -> Result<Held, Error> {
        self.post(format!("/v1/runs/{}/heartbeat", run.in_path()), hold).await
    }

    /// Finishes a run.
    pub async fn finish_run(&self, run: &RunId, finish: &Finish) -> Result<Applied, Error> {
        outcome(self.post(format!("/v1/runs/{}/finish", run.in_path()), finish).await)
    }

    /// Finishes several runs; an outcome for each.
    pub async fn finish_runs(&self, finish: &FinishMany) -> Result<Outcomes, Error> {
        self.post("/v1/finishes".to_owned(), finish).await
    }

    /// Records an artifact of a run.
    pub async fn add_artifact(&self, run: &RunId, artifact: &NewArtifact) -> Result<ArtifactAnswer, Error> {
        self.post(format!("/v1/runs/{}/artifacts", run.in_path()), artifact).await
    }
}

/// A stale belief is an outcome, as it is everywhere else.
fn outcome(answer: Result<Outcome, Error>) -> Result<Applied, Error> {
    match answer {
        Ok(outcome) => Ok(outcome.outcome),
        Err(error) if error.is_stale() => Ok(Applied::Stale),
        Err(error) => Err(error),
    }
}
