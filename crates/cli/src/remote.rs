//! Access to a remote server: the connection of commands, and the API calls of a worker.

use crate::args::Global;
use crate::config::Config;
use crate::failure::Failure;
use crate::local_token::LocalServer;
use std::time::Duration;
use tidemill_client::{Client, Error, HttpOptions, HttpTransport};
use tidemill_core::event::NewEvent;
use tidemill_core::run::{ChangeOutcome, Claim, ClaimRuns, Run};
use tidemill_core::worker::{HeartbeatResponse, NewWorker};
use tidemill_core::{RunId, WorkerId};
use tidemill_engine::retry_policy::RetryableError;
use tidemill_engine::worker::{RunWaiter, Transport};
use tidemill_store::{FinishRun, Holder, RefusalCode};
use tidemill_wire::claims::{ClaimRequest, WorkerScope};
use tidemill_wire::runs::{Append, Finish};
use tokio::task::JoinHandle;

/// Time limit of a claim that does not wait. The worker must send its next heartbeat in time.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time that the server holds a claim back.
const WAIT_SECS_MAX: u16 = 60;
const NO_ANSWER: &str = "the server did not answer in time";

/// First line of a certificate in PEM format.
const PEM_HEADER: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// Creates the transport to the server of `--server`, if it is given.
pub(crate) fn transport(global: &Global, config: &Config) -> Result<Option<HttpTransport>, Failure> {
    global.server.as_ref().map(|server| transport_to(server, global, config)).transpose()
}

/// Creates the transport to a server. Without a token, a server of this machine gets the token of its file.
pub(crate) fn transport_to(server: &str, global: &Global, config: &Config) -> Result<HttpTransport, Failure> {
    let (server, authorities) = (server.to_owned(), authorities(global)?);
    let options = HttpOptions { server, token: None, authorities };
    let transport = match &global.token {
        Some(token) => match token.strip_prefix('@') {
            Some(path) => {
                let path = path.to_owned();
                read_token(&path).map_err(Failure::usage)?;
                HttpTransport::with_token_source(options, Box::new(move || read_token(&path).map(Some)))
            }
            None => HttpTransport::new(HttpOptions { token: Some(token.clone()), ..options }),
        },
        None => match LocalServer::of_url(&options.server, config)? {
            Some(local) => {
                local.token().map_err(Failure::usage)?;
                let options = HttpOptions { server: local.url.clone(), ..options };
                HttpTransport::local(options, Box::new(move || local.token()))
            }
            None => HttpTransport::new(options),
        },
    };
    Ok(transport?)
}

/// Creates the transport of a probe. It sends no token, because the probed paths are public, and uses no proxy, because
/// the answer of a proxy would say nothing about the process.
pub(crate) fn probe_transport(server: &str, global: &Global) -> Result<HttpTransport, Failure> {
    let options = HttpOptions { server: server.to_owned(), token: None, authorities: authorities(global)? };
    Ok(HttpTransport::local(options, Box::new(|| Ok(None)))?)
}

/// Reads the additional certificate authorities of `--ca-file`.
fn authorities(global: &Global) -> Result<Vec<u8>, Failure> {
    let Some(path) = &global.ca_file else { return Ok(Vec::new()) };
    let shown = path.display();
    let text = std::fs::read(path)
        .map_err(|error| Failure::usage(format!("could not read certificates from `{shown}`: {error}")))?;
    // The TLS library accepts a file without certificates, and the option would silently have no effect.
    if text.windows(PEM_HEADER.len()).any(|part| part == PEM_HEADER) {
        return Ok(text);
    }
    let hint = "use a certificate in PEM format, which begins with -----BEGIN CERTIFICATE-----";
    Err(Failure::usage(format!("`{shown}` contains no certificate")).with_hint(hint))
}

/// Reads the file of `--token @file`. The error is a message for the user.
fn read_token(path: &str) -> Result<String, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("could not read the token from `{path}`: {error}"))?;
    Ok(text.trim().to_owned())
}

/// API calls of a worker to a remote server.
#[derive(Clone)]
pub(crate) struct RemoteServer {
    client: Client,
}

impl RemoteServer {
    pub(crate) fn new(http: HttpTransport) -> Self {
        Self { client: Client::new(http) }
    }
}

/// Error of a call to the server.
#[derive(Debug)]
pub(crate) struct RemoteError(pub(crate) Error);

impl std::fmt::Display for RemoteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for RemoteError {}

impl RetryableError for RemoteError {
    fn is_retryable(&self) -> bool {
        self.0.is_transient()
    }
}

/// Converts a claim into a request that waits up to `wait` for a run.
fn claim_request(ask: ClaimRuns, wait: Duration) -> ClaimRequest {
    let wait_secs =
        u16::try_from(wait.as_millis().div_ceil(1_000)).unwrap_or(WAIT_SECS_MAX).min(WAIT_SECS_MAX);
    ClaimRequest {
        worker: ask.worker,
        worker_id: ask.worker_id,
        limit: Some(u16::try_from(ask.limit).unwrap_or(u16::MAX)),
        labels: ask.labels,
        projects: ask.projects,
        request_id: ask.request_id,
        lease_secs: ask.lease_secs.and_then(|secs| u32::try_from(secs).ok()),
        wait_secs: Some(wait_secs),
    }
}

impl Transport for RemoteServer {
    type Error = RemoteError;
    type Waiter = LongPoll;

    fn is_stale(error: &RemoteError) -> bool {
        error.0.is_stale()
    }

    fn is_fatal(error: &RemoteError) -> bool {
        error.0.is_permanent()
    }

    fn is_too_large(error: &RemoteError) -> bool {
        error.0.problem().is_some_and(|problem| problem.code == RefusalCode::TooLarge.as_str())
    }

    fn timeout_error(&self, _: &'static str) -> RemoteError {
        RemoteError(self.client.unreachable(NO_ANSWER))
    }

    async fn register(&self, worker: NewWorker) -> Result<(), RemoteError> {
        self.client.register(worker).await.map_err(RemoteError)
    }

    async fn claim(&self, ask: ClaimRuns) -> Result<Vec<Claim>, RemoteError> {
        let ask = claim_request(ask, Duration::ZERO);
        match tokio::time::timeout(CLAIM_TIMEOUT, self.client.claim(&ask)).await {
            Ok(answer) => Ok(answer.map_err(RemoteError)?.runs),
            Err(_) => Err(self.timeout_error("claim")),
        }
    }

    async fn append(
        &self,
        run: &RunId,
        events: Vec<NewEvent>,
        holder: &Holder,
    ) -> Result<Vec<Option<String>>, RemoteError> {
        let count = events.len();
        let events = events.into_iter().map(|event| tidemill_wire::runs::NewEvent {
            level: event.level,
            message: event.message,
            payload: event.payload,
            key: event.key,
        });
        let (worker, epoch) = (holder.worker.clone().unwrap_or_default(), holder.epoch.unwrap_or_default());
        let append = Append { events: events.collect(), worker, epoch };
        match self.client.append(run, &append).await {
            Ok(appended) => Ok(appended.event_ids),
            Err(error) if error.is_stale() => Ok(vec![None; count]),
            Err(error) => Err(RemoteError(error)),
        }
    }

    /// Finishes a run. The server counts the transition, because it knows the kind.
    async fn finish(
        &self,
        end: FinishRun,
        worker: Option<String>,
        _: &str,
    ) -> Result<ChangeOutcome, RemoteError> {
        let (worker, epoch) = (worker.unwrap_or_default(), end.epoch.unwrap_or_default());
        let finish = Finish { status: end.status, metadata: end.metadata, worker, epoch };
        self.client.finish_run(&end.run_id, &finish).await.map_err(RemoteError)
    }

    async fn heartbeat(&self, worker: WorkerId, runs: Vec<RunId>) -> Result<HeartbeatResponse, RemoteError> {
        self.client.heartbeat_worker(worker, runs).await.map_err(RemoteError)
    }

    async fn retire(&self, worker: WorkerId) -> Result<(), RemoteError> {
        self.client.retire(worker).await.map_err(RemoteError)
    }

    async fn run(&self, run: &RunId) -> Result<Run, RemoteError> {
        self.client.run(run).await.map_err(RemoteError)
    }

    async fn work_left(
        &self,
        labels: Vec<String>,
        projects: Option<Vec<String>>,
    ) -> Result<i64, RemoteError> {
        Ok(self.client.work_left(&WorkerScope { labels, projects }).await.map_err(RemoteError)?.left)
    }

    async fn sweep(&self, _: Duration) {
        // The server runs the maintenance loops.
    }

    async fn waiter(&self, _: WorkerId) -> Result<LongPoll, RemoteError> {
        Ok(LongPoll { client: self.client.clone(), claim: None })
    }
}

/// Waits for runs with a claim that the server holds back until a run is available.
///
/// The response is not read here. The worker repeats the claim with the same request id, and that response contains
/// the claimed runs and confirms the contact.
pub(crate) struct LongPoll {
    client: Client,
    claim: Option<JoinHandle<Result<(), Error>>>,
}

impl RunWaiter for LongPoll {
    type Error = RemoteError;
    const CLAIMS: bool = true;

    async fn arm(&mut self) -> Result<(), RemoteError> {
        Ok(())
    }

    async fn disarm(&mut self) -> Result<(), RemoteError> {
        Ok(())
    }

    async fn wait(&mut self, ask: ClaimRuns, longest: Duration) -> Result<(), RemoteError> {
        let client = self.client.clone();
        let claim = self.claim.get_or_insert_with(|| {
            let ask = claim_request(ask, longest);
            tokio::spawn(async move { client.claim(&ask).await.map(|_| ()) })
        });
        // The worker loop has other work to do; the claim stays open until the server answers.
        let Ok(joined) = tokio::time::timeout(longest, claim).await else { return Ok(()) };
        self.claim = None;
        match joined {
            // The server considers this worker dead. The next claim fails with the same error, which the loop handles.
            Ok(Err(error)) if !error.is_stale() => Err(RemoteError(error)),
            Ok(Ok(()) | Err(_)) => Ok(()),
            Err(error) => Err(RemoteError(self.client.unreachable(error.to_string()))),
        }
    }

    fn has_pending_claim(&self) -> bool {
        self.claim.is_some()
    }
}

impl Drop for LongPoll {
    fn drop(&mut self) {
        if let Some(claim) = &self.claim {
            claim.abort();
        }
    }
}
