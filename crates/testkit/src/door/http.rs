//! The HTTP door: a real server on the loopback interface, and the client that people use.
//!
//! Time is a parameter of every call and who calls is one too, and neither travels over HTTP. So each request goes to
//! a path that begins with both, and the server takes them off and answers as at that time, to that person.
#![expect(clippy::expect_used, reason = "a server that cannot be started ends the test, loudly")]

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use tidemill_api::access::Access;
use tidemill_api::{App, router};
use tidemill_client::{Call, Client, Error as ClientError, Http, HttpOptions, Later, Transport};
use tidemill_core::artifact::NewArtifact;
use tidemill_core::event::NewEvent;
use tidemill_core::run::{Applied, Claim, FailRun, Failed, QueueRun};
use tidemill_core::worker::{Beaten, Held, NewWorker};
use tidemill_core::{RunId, Timestamp, WorkerId};
use tidemill_engine::sync::{SyncSettings, Syncs};
use tidemill_engine::{Clock, Engine, Patience};
use tidemill_store::{
    Cancelled, ClaimRuns, Error, FinishRun, Holder, Queued, Refusal, RefusalCode, Retried, Store, Swept,
};
use tidemill_wire::claims::Ask;
use tidemill_wire::runs::{Append, Finish, FinishMany, FinishOne, Hold};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tower::ServiceExt as _;

use super::{Answer, Door};

/// A server, and a client of it.
pub(super) struct HttpDoor {
    http: Arc<Http>,
    owner: Store,
    serving: JoinHandle<()>,
}

impl HttpDoor {
    /// Starts a server on this store.
    pub(super) async fn open(owner: Store) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
        let address = listener.local_addr().expect("the listener has an address");
        let store = owner.clone();
        let service = tower::service_fn(move |request: Request| answer(store.clone(), request));
        let door = axum::Router::new().fallback_service(service);
        let serving = tokio::spawn(async move {
            let _ = axum::serve(listener, door).await;
        });
        let options =
            HttpOptions { server: format!("http://{address}"), token: None, authorities: Vec::new() };
        Self { http: Arc::new(Http::new(options).expect("the address is one")), owner, serving }
    }

    /// A client of the time `now`.
    fn at(&self, now: Timestamp) -> Client {
        self.as_person("nobody", now)
    }

    fn as_person(&self, name: &str, now: Timestamp) -> Client {
        let prefix = format!("/{}/{name}", now.timestamp_micros());
        Client::new(Stamped { http: self.http.clone(), prefix })
    }
}

impl Drop for HttpDoor {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Requests that say when they are made, and by whom.
struct Stamped {
    http: Arc<Http>,
    prefix: String,
}

impl Transport for Stamped {
    fn carry(&self, mut call: Call) -> Later<'_> {
        call.path = format!("{}{}", self.prefix, call.path);
        self.http.carry(call)
    }
}

/// Answers one request as at its time, to its person.
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
    let engine = Engine::new(store, Clock::fixed(now), Patience::None);
    router(App::new(Syncs::new(engine, SyncSettings::default()), access)).oneshot(request).await
}

/// The error of the store that the server spoke of.
///
/// A request is checked as a whole, and what is wrong with it comes back as `invalid` with every fault. The doors
/// beneath have a rule for each fault: too large where it says so, and a bad value otherwise.
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

fn hold(holder: Holder) -> Hold {
    Hold { worker: holder.worker, epoch: holder.epoch }
}

impl Door for HttpDoor {
    fn queue(&self, request: QueueRun, run: RunId, now: Timestamp) -> Answer<'_, Queued> {
        let client = self.at(now);
        Box::pin(async move { client.queue_run_as(request, Some(run)).await.map_err(error) })
    }

    fn claim(&self, ask: ClaimRuns, now: Timestamp) -> Answer<'_, Vec<Claim>> {
        let client = self.at(now);
        let ask = Ask {
            worker: ask.worker,
            worker_id: ask.worker_id,
            // Whoever asks for nothing asks for one, and nobody can ask for more than a batch here.
            limit: Some(u16::try_from(ask.limit.clamp(1, 1_000)).unwrap_or(1_000)),
            labels: ask.labels,
            projects: ask.projects,
            request_id: ask.request_id,
            lease_secs: ask.lease_secs.and_then(|secs| u32::try_from(secs).ok()),
            wait_secs: None,
        };
        Box::pin(async move { Ok(client.claim(&ask).await.map_err(error)?.runs) })
    }

    fn start(&self, run: RunId, holder: Holder, now: Timestamp) -> Answer<'_, Applied> {
        let client = self.at(now);
        Box::pin(async move { client.start_run(&run, &hold(holder)).await.map_err(error) })
    }

    fn append(
        &self,
        run: RunId,
        events: Vec<NewEvent>,
        holder: Holder,
        now: Timestamp,
    ) -> Answer<'_, Vec<Option<String>>> {
        let client = self.at(now);
        let said = events.into_iter().map(|event| tidemill_wire::runs::NewEvent {
            level: event.level,
            message: event.message,
            payload: event.payload,
            key: event.key,
        });
        let append = Append { events: said.collect(), worker: holder.worker, epoch: holder.epoch };
        Box::pin(async move {
            match client.append(&run, &append).await {
                Ok(appended) => Ok(appended.event_ids),
                Err(refused) if refused.is_stale() => Ok(vec![None; append.events.len()]),
                Err(refused) => Err(error(refused)),
            }
        })
    }

    fn heartbeat(&self, run: RunId, holder: Holder, now: Timestamp) -> Answer<'_, Held> {
        let client = self.at(now);
        Box::pin(async move {
            match client.heartbeat(&run, &hold(holder)).await {
                Err(refused) if refused.is_stale() => {
                    Ok(Held { held: false, cancel_requested: false, lease_until: None })
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
    ) -> Answer<'_, Vec<Applied>> {
        let client = self.at(now);
        Box::pin(async move {
            // Both routes are used: the one of a single run, and the one of a batch.
            if ends.len() == 1 {
                let end = ends.remove(0);
                let finish = Finish { status: end.status, metadata: end.metadata, worker, epoch: end.epoch };
                return Ok(vec![client.finish_run(&end.run_id, &finish).await.map_err(error)?]);
            }
            let ends = ends.into_iter().map(|end| FinishOne {
                run_id: end.run_id,
                status: end.status,
                metadata: end.metadata,
                epoch: end.epoch,
            });
            let finish = FinishMany { ends: ends.collect(), worker };
            Ok(client.finish_runs(&finish).await.map_err(error)?.outcomes)
        })
    }

    fn cancel(
        &self,
        run: RunId,
        by: String,
        reason: Option<String>,
        now: Timestamp,
    ) -> Answer<'_, Cancelled> {
        let client = self.as_person(&by, now);
        Box::pin(async move { Ok(client.cancel_run(&run, reason).await.map_err(error)?.outcome) })
    }

    fn retry(&self, run: RunId, by: String, now: Timestamp) -> Answer<'_, Retried> {
        let client = self.as_person(&by, now);
        Box::pin(async move { client.retry_run(&run).await.map_err(error) })
    }

    fn fail(&self, ask: FailRun, now: Timestamp) -> Answer<'_, Failed> {
        let client = self.as_person(&ask.by, now);
        let wish = tidemill_wire::runs::Fail { reason: ask.reason, retry: ask.retry };
        Box::pin(async move {
            let answer = client.fail_run(&ask.run_id, &wish).await.map_err(error)?;
            Ok(Failed { outcome: answer.outcome, successor: answer.successor })
        })
    }

    fn add_artifact(&self, run: RunId, artifact: NewArtifact, now: Timestamp) -> Answer<'_, String> {
        let client = self.at(now);
        let artifact = tidemill_wire::runs::NewArtifact {
            artifact_type: artifact.artifact_type,
            url: artifact.url,
            digest: artifact.digest,
            size_bytes: artifact.size_bytes,
            metadata: artifact.metadata,
        };
        Box::pin(async move { Ok(client.add_artifact(&run, &artifact).await.map_err(error)?.artifact_id) })
    }

    fn register(&self, worker: NewWorker, now: Timestamp) -> Answer<'_, ()> {
        let client = self.at(now);
        Box::pin(async move { client.register(worker).await.map_err(error) })
    }

    fn beat(&self, worker: WorkerId, runs: Vec<RunId>, now: Timestamp) -> Answer<'_, Beaten> {
        let client = self.at(now);
        Box::pin(async move { client.beat(worker, runs).await.map_err(error) })
    }

    fn retire(&self, worker: WorkerId, now: Timestamp) -> Answer<'_, ()> {
        let client = self.at(now);
        Box::pin(async move { client.retire(worker).await.map_err(error) })
    }

    fn sweep(&self, limit: usize, dead_after_secs: f64, now: Timestamp) -> Answer<'_, Vec<Swept>> {
        Box::pin(self.owner.sweep(limit, dead_after_secs, Some(now)))
    }

    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.serving.abort();
        Box::pin(std::future::ready(()))
    }
}
