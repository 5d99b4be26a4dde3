//! The HTTP API: a real server on the loopback interface, and the public client.
//!
//! Time and caller are parameters of every call, but HTTP carries neither. So each request path begins with both, and
//! the test server strips them and answers as at that time, to that caller.
#![expect(clippy::expect_used, reason = "a server that cannot be started must end the test")]

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use tidemill_api::access::Access;
use tidemill_api::{App, router};
use tidemill_client::{
    ApiRequest, ApiResponse, Client, Error as ClientError, HttpOptions, HttpTransport, Transport,
    TransportFuture,
};
use tidemill_core::artifact::NewArtifact;
use tidemill_core::event::NewEvent;
use tidemill_core::run::{ChangeOutcome, Claim, FailOutcome, FailRun, QueueRun};
use tidemill_core::sync::SYNC_LABEL;
use tidemill_core::worker::{HeartbeatResponse, NewWorker, RunLease};
use tidemill_core::{RunId, Timestamp, WorkerId};
use tidemill_engine::sync::{SyncSettings, Syncs};
use tidemill_engine::{Clock, Engine, RetryPolicy};
use tidemill_store::{
    CancelOutcome, ClaimRuns, Error, FinishRun, Holder, QueueOutcome, Refusal, RefusalCode, RetryOutcome,
    Store, SweptRun,
};
use tidemill_wire::claims::ClaimRequest;
use tidemill_wire::runs::{Append, BatchRun, Finish, FinishMany, FinishOne, Hold};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tower::ServiceExt as _;

use super::{Interface, InterfaceFuture};

/// A server and a client for it.
pub(super) struct HttpInterface {
    http: Arc<HttpTransport>,
    owner: Store,
    serving: JoinHandle<()>,
}

impl HttpInterface {
    /// Starts a server on this store.
    pub(super) async fn open(owner: Store) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
        let address = listener.local_addr().expect("the listener has an address");
        let store = owner.clone();
        let service = tower::service_fn(move |request: Request| answer(store.clone(), request));
        let interface = axum::Router::new().fallback_service(service);
        let serving = tokio::spawn(async move {
            let _ = axum::serve(listener, interface).await;
        });
        let options =
            HttpOptions { server: format!("http://{address}"), token: None, authorities: Vec::new() };
        Self { http: Arc::new(HttpTransport::new(options).expect("the address is one")), owner, serving }
    }

    /// Returns a client with the time `now`.
    fn at(&self, now: Timestamp) -> Client {
        self.as_person("nobody", now)
    }

    fn as_person(&self, name: &str, now: Timestamp) -> Client {
        let prefix = format!("/{}/{name}", now.timestamp_micros());
        Client::new(StampedTransport { http: self.http.clone(), prefix })
    }
}

impl Drop for HttpInterface {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A transport that adds time and caller to each path.
struct StampedTransport {
    http: Arc<HttpTransport>,
    prefix: String,
}

impl Transport for StampedTransport {
    fn send(&self, mut call: ApiRequest) -> TransportFuture<'_, ApiResponse> {
        call.path = format!("{}{}", self.prefix, call.path);
        self.http.send(call)
    }
}

/// Answers one request as at its time, to its caller.
async fn answer(store: Store, mut request: Request<Body>) -> Result<Response, Infallible> {
    let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    let mut parts = path.splitn(4, '/').skip(1);
    let micros = parts.next().and_then(|micros| micros.parse().ok());
    let now = micros.and_then(Timestamp::from_timestamp_micros);
    let (Some(now), Some(name), Some(rest)) = (now, parts.next(), parts.next()) else {
        return Ok(StatusCode::BAD_REQUEST.into_response());
    };
    let access = Access::Open { name: name.to_owned() };
    let Ok(uri) = format!("/{rest}").parse() else { return Ok(StatusCode::BAD_REQUEST.into_response()) };
    *request.uri_mut() = uri;
    let engine = Engine::new(store, Clock::fixed(now), RetryPolicy::None);
    router(App::new(Syncs::new(engine, SyncSettings::default()), access)).oneshot(request).await
}

/// Converts an error of the client into the store's error.
///
/// The HTTP API validates a request completely and reports all problems as `invalid`. The other interfaces have one
/// rule per problem: too large if the message says so, and otherwise a bad value.
fn error(error: ClientError) -> Error {
    let ClientError::Refused { problem, .. } = error else { panic!("the server did not answer: {error}") };
    let code = if problem.code == "invalid" {
        let too_large = problem.faults.iter().all(|fault| fault.problem.contains(" long; at most "));
        Some(if too_large { RefusalCode::TooLarge } else { RefusalCode::BadValue })
    } else {
        RefusalCode::parse(&problem.code)
    };
    let Some(code) = code else { panic!("the server failed: {}: {}", problem.code, problem.message) };
    Error::Refused(Refusal { code, message: problem.message, hint: problem.hint })
}

impl HttpInterface {
    /// Completes a holder. HTTP requires the worker and the epoch; a case that skips such a check means the current
    /// claim.
    async fn hold(&self, run: &RunId, worker: Option<String>, epoch: Option<i32>) -> Hold {
        let current = self.owner.run(run.clone()).await.ok().flatten();
        let (claimed_by, current) = current.map_or((None, 0), |run| (run.claimed_by, run.epoch));
        Hold { worker: worker.or(claimed_by).unwrap_or_default(), epoch: epoch.unwrap_or(current) }
    }
}

impl Interface for HttpInterface {
    fn queue(&self, request: QueueRun, run: RunId, now: Timestamp) -> InterfaceFuture<'_, QueueOutcome> {
        let client = self.at(now);
        Box::pin(async move { client.queue_run_as(request, Some(run)).await.map_err(error) })
    }

    fn queue_many(
        &self,
        requests: Vec<(QueueRun, RunId)>,
        now: Timestamp,
    ) -> InterfaceFuture<'_, Vec<QueueOutcome>> {
        let client = self.at(now);
        let named = requests.into_iter().map(|(request, run)| {
            let mut named = BatchRun::from(request);
            named.run.run_id = Some(run);
            named
        });
        let named = named.collect();
        Box::pin(async move { client.queue_runs(named).await.map_err(error) })
    }

    fn claim(&self, ask: ClaimRuns, now: Timestamp) -> InterfaceFuture<'_, Vec<Claim>> {
        if ask.labels.iter().any(|label| label == SYNC_LABEL) {
            // Sync runs are not claimed over HTTP.
            return Box::pin(self.owner.claim_runs(ask, Some(now)));
        }
        let client = self.at(now);
        let ask = ClaimRequest {
            worker: ask.worker,
            worker_id: ask.worker_id,
            // A limit of 0 claims one run, and a batch is capped.
            limit: Some(u16::try_from(ask.limit.clamp(1, 1_000)).unwrap_or(1_000)),
            labels: ask.labels,
            projects: ask.projects,
            request_id: ask.request_id,
            lease_secs: ask.lease_secs.and_then(|secs| u32::try_from(secs).ok()),
            wait_secs: None,
        };
        Box::pin(async move { Ok(client.claim(&ask).await.map_err(error)?.runs) })
    }

    fn start(&self, run: RunId, holder: Holder, now: Timestamp) -> InterfaceFuture<'_, ChangeOutcome> {
        let client = self.at(now);
        Box::pin(async move {
            let hold = self.hold(&run, holder.worker, holder.epoch).await;
            client.start_run(&run, &hold).await.map_err(error)
        })
    }

    fn append(
        &self,
        run: RunId,
        events: Vec<NewEvent>,
        holder: Holder,
        now: Timestamp,
    ) -> InterfaceFuture<'_, Vec<Option<String>>> {
        let client = self.at(now);
        let said = events.into_iter().map(|event| tidemill_wire::runs::NewEvent {
            level: event.level,
            message: event.message,
            payload: event.payload,
            key: event.key,
        });
        let events = said.collect();
        Box::pin(async move {
            let Hold { worker, epoch } = self.hold(&run, holder.worker, holder.epoch).await;
            let append = Append { events, worker, epoch };
            match client.append(&run, &append).await {
                Ok(appended) => Ok(appended.event_ids),
                Err(refused) if refused.is_stale() => Ok(vec![None; append.events.len()]),
                Err(refused) => Err(error(refused)),
            }
        })
    }

    fn heartbeat(&self, run: RunId, holder: Holder, now: Timestamp) -> InterfaceFuture<'_, RunLease> {
        let client = self.at(now);
        Box::pin(async move {
            let hold = self.hold(&run, holder.worker, holder.epoch).await;
            match client.heartbeat(&run, &hold).await {
                Err(refused) if refused.is_stale() => {
                    Ok(RunLease { held: false, cancel_requested: false, lease_until: None })
                }
                answer => answer.map_err(error),
            }
        })
    }

    fn finish(
        &self,
        mut ends: Vec<FinishRun>,
        worker: Option<String>,
        now: Timestamp,
    ) -> InterfaceFuture<'_, Vec<ChangeOutcome>> {
        let client = self.at(now);
        Box::pin(async move {
            // Both routes are used: for a single run and for a batch.
            if ends.len() == 1 {
                let end = ends.remove(0);
                let Hold { worker, epoch } = self.hold(&end.run_id, worker, end.epoch).await;
                let finish = Finish { status: end.status, metadata: end.metadata, worker, epoch };
                return Ok(vec![client.finish_run(&end.run_id, &finish).await.map_err(error)?]);
            }
            let (mut named, mut holder) = (Vec::new(), worker);
            for end in ends {
                let Hold { worker, epoch } = self.hold(&end.run_id, holder.take(), end.epoch).await;
                holder = Some(worker);
                let FinishRun { run_id, status, metadata, .. } = end;
                named.push(FinishOne { run_id, status, metadata, epoch });
            }
            let finish = FinishMany { ends: named, worker: holder.unwrap_or_default() };
            Ok(client.finish_runs(&finish).await.map_err(error)?.outcomes)
        })
    }

    fn cancel(
        &self,
        run: RunId,
        by: String,
        reason: Option<String>,
        now: Timestamp,
    ) -> InterfaceFuture<'_, CancelOutcome> {
        let client = self.as_person(&by, now);
        Box::pin(async move { Ok(client.cancel_run(&run, reason).await.map_err(error)?.outcome) })
    }

    fn retry(&self, run: RunId, by: String, now: Timestamp) -> InterfaceFuture<'_, RetryOutcome> {
        let client = self.as_person(&by, now);
        Box::pin(async move { client.retry_run(&run).await.map_err(error) })
    }

    fn fail(&self, ask: FailRun, now: Timestamp) -> InterfaceFuture<'_, FailOutcome> {
        let client = self.as_person(&ask.by, now);
        let wish = tidemill_wire::runs::Fail { reason: ask.reason, retry: ask.retry };
        Box::pin(async move {
            let answer = client.fail_run(&ask.run_id, &wish).await.map_err(error)?;
            Ok(FailOutcome { outcome: answer.outcome, successor: answer.successor })
        })
    }

    fn add_artifact(&self, run: RunId, artifact: NewArtifact, now: Timestamp) -> InterfaceFuture<'_, String> {
        let client = self.at(now);
        Box::pin(async move {
            let Hold { worker, epoch } = self.hold(&run, None, None).await;
            let artifact = tidemill_wire::runs::NewArtifact {
                artifact_type: artifact.artifact_type,
                url: artifact.url,
                digest: artifact.digest,
                size_bytes: artifact.size_bytes,
                metadata: artifact.metadata,
                worker,
                epoch,
            };
            Ok(client.add_artifact(&run, &artifact).await.map_err(error)?.artifact_id)
        })
    }

    fn register(&self, worker: NewWorker, now: Timestamp) -> InterfaceFuture<'_, ()> {
        let client = self.at(now);
        Box::pin(async move { client.register(worker).await.map_err(error) })
    }

    fn worker_heartbeat(
        &self,
        worker: WorkerId,
        runs: Vec<RunId>,
        now: Timestamp,
    ) -> InterfaceFuture<'_, HeartbeatResponse> {
        let client = self.at(now);
        Box::pin(async move { client.heartbeat_worker(worker, runs).await.map_err(error) })
    }

    fn retire(&self, worker: WorkerId, now: Timestamp) -> InterfaceFuture<'_, ()> {
        let client = self.at(now);
        Box::pin(async move { client.retire(worker).await.map_err(error) })
    }

    fn sweep(
        &self,
        limit: usize,
        dead_after_secs: f64,
        now: Timestamp,
    ) -> InterfaceFuture<'_, Vec<SweptRun>> {
        Box::pin(self.owner.sweep(limit, dead_after_secs, Some(now)))
    }

    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.serving.abort();
        Box::pin(std::future::ready(()))
    }
}
