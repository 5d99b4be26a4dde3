//! A server far away: how commands reach it, and how a worker works there.

use crate::args::Global;
use crate::fail::Failure;
use std::time::Duration;
use tidemill_client::{Client, Error, Http, HttpOptions};
use tidemill_core::event::NewEvent;
use tidemill_core::run::{Applied, Claim, ClaimRuns, Run};
use tidemill_core::worker::{Beaten, NewWorker};
use tidemill_core::{RunId, WorkerId};
use tidemill_engine::patience::Passing;
use tidemill_engine::worker::{Door, Waiting};
use tidemill_store::{FinishRun, Holder, RefusalCode};
use tidemill_wire::claims::{Ask, Offer};
use tidemill_wire::runs::{Append, Finish};
use tokio::task::JoinHandle;

/// How long a worker waits for an answer that should come at once; it must go on beating.
const ANSWER: Duration = Duration::from_secs(5);
/// The longest wait of one claim.
const WAIT_SECS_MAX: u16 = 60;
/// What is said of a server that is silent.
const NO_ANSWER: &str = "no answer came in time";

/// How a certificate in PEM form begins.
const CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// The way to the server that the options name, if they name one.
pub(crate) fn way(global: &Global) -> Result<Option<Http>, Failure> {
    let Some(server) = &global.server else { return Ok(None) };
    let authorities = authorities(global)?;
    Ok(Some(Http::new(HttpOptions { server: server.clone(), token: token(global)?, authorities })?))
}

/// The certificates that are trusted beside the usual ones.
fn authorities(global: &Global) -> Result<Vec<u8>, Failure> {
    let Some(path) = &global.ca_file else { return Ok(Vec::new()) };
    let shown = path.display();
    let text = std::fs::read(path)
        .map_err(|error| Failure::usage(format!("could not read the certificates in `{shown}`: {error}")))?;
    // A file without any would be taken, and nothing more trusted than without it.
    if text.windows(CERTIFICATE.len()).any(|part| part == CERTIFICATE) {
        return Ok(text);
    }
    let hint =
        "give the certificate of the authority in PEM form: it begins with -----BEGIN CERTIFICATE-----";
    Err(Failure::usage(format!("there is no certificate in `{shown}`")).hint(hint))
}

/// The token, or what the file holds that it names.
fn token(global: &Global) -> Result<Option<String>, Failure> {
    let Some(path) = global.token.as_deref().and_then(|token| token.strip_prefix('@')) else {
        return Ok(global.token.clone());
    };
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("could not read the token from `{path}`: {error}")))?;
    Ok(Some(text.trim().to_owned()))
}

/// A worker's door that is far away.
#[derive(Clone)]
pub(crate) struct Away {
    client: Client,
}

impl Away {
    pub(crate) fn new(http: Http) -> Self {
        Self { client: Client::new(http) }
    }
}

/// Why the server gave no answer, or not the one that was hoped for.
#[derive(Debug)]
pub(crate) struct Trouble(pub(crate) Error);

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Trouble {}

impl Passing for Trouble {
    fn passes(&self) -> bool {
        self.0.is_transient()
    }
}

/// What is asked of the server, and for how long it may wait for something to claim.
fn asked(ask: ClaimRuns, wait: Duration) -> Ask {
    let wait_secs =
        u16::try_from(wait.as_millis().div_ceil(1_000)).unwrap_or(WAIT_SECS_MAX).min(WAIT_SECS_MAX);
    Ask {
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

impl Door for Away {
    type Error = Trouble;
    type Waiter = Poll;

    fn is_stale(error: &Trouble) -> bool {
        error.0.is_stale()
    }

    fn is_hopeless(error: &Trouble) -> bool {
        error.0.is_hopeless()
    }

    fn is_too_large(error: &Trouble) -> bool {
        error.0.problem().is_some_and(|problem| problem.code == RefusalCode::TooLarge.as_str())
    }

    fn unanswered(&self, _: &'static str) -> Trouble {
        Trouble(self.client.unreachable(NO_ANSWER))
    }

    async fn register(&self, worker: NewWorker) -> Result<(), Trouble> {
        self.client.register(worker).await.map_err(Trouble)
    }

    async fn claim(&self, ask: ClaimRuns) -> Result<Vec<Claim>, Trouble> {
        let ask = asked(ask, Duration::ZERO);
        match tokio::time::timeout(ANSWER, self.client.claim(&ask)).await {
            Ok(answer) => Ok(answer.map_err(Trouble)?.runs),
            Err(_) => Err(self.unanswered("claim")),
        }
    }

    async fn append(
        &self,
        run: &RunId,
        events: Vec<NewEvent>,
        holder: &Holder,
    ) -> Result<Vec<Option<String>>, Trouble> {
        let count = events.len();
        let events = events.into_iter().map(|event| tidemill_wire::runs::NewEvent {
            level: event.level,
            message: event.message,
            payload: event.payload,
            key: event.key,
        });
        let append = Append { events: events.collect(), worker: holder.worker.clone(), epoch: holder.epoch };
        match self.client.append(run, &append).await {
            Ok(appended) => Ok(appended.event_ids),
            Err(error) if error.is_stale() => Ok(vec![None; count]),
            Err(error) => Err(Trouble(error)),
        }
    }

    async fn finish(&self, end: FinishRun, worker: Option<String>) -> Result<Applied, Trouble> {
        let finish = Finish { status: end.status, metadata: end.metadata, worker, epoch: end.epoch };
        self.client.finish_run(&end.run_id, &finish).await.map_err(Trouble)
    }

    async fn beat(&self, worker: WorkerId, runs: Vec<RunId>) -> Result<Beaten, Trouble> {
        self.client.beat(worker, runs).await.map_err(Trouble)
    }

    async fn retire(&self, worker: WorkerId) -> Result<(), Trouble> {
        self.client.retire(worker).await.map_err(Trouble)
    }

    async fn run(&self, run: &RunId) -> Result<Run, Trouble> {
        self.client.run(run).await.map_err(Trouble)
    }

    async fn work_left(&self, labels: Vec<String>, projects: Option<Vec<String>>) -> Result<i64, Trouble> {
        Ok(self.client.work_left(&Offer { labels, projects }).await.map_err(Trouble)?.left)
    }

    async fn sweep(&self, _: Duration) {
        // Upkeep is done where the database is.
    }

    async fn waiter(&self, _: WorkerId) -> Result<Poll, Trouble> {
        Ok(Poll { client: self.client.clone(), out: None })
    }
}

/// Waiting far away: a claim that the server holds back until there is something.
///
/// What it brings is not read here. The worker asks once more under the same request id, and that answer tells it
/// both what it holds and that it is in contact now.
pub(crate) struct Poll {
    client: Client,
    out: Option<JoinHandle<Result<(), Error>>>,
}

impl Waiting for Poll {
    type Error = Trouble;
    const CLAIMS: bool = true;

    async fn arm(&mut self) -> Result<(), Trouble> {
        Ok(())
    }

    async fn disarm(&mut self) -> Result<(), Trouble> {
        Ok(())
    }

    async fn wait(&mut self, ask: ClaimRuns, longest: Duration) -> Result<(), Trouble> {
        let client = self.client.clone();
        let out = self.out.get_or_insert_with(|| {
            let ask = asked(ask, longest);
            tokio::spawn(async move { client.claim(&ask).await.map(|_| ()) })
        });
        // The loop has other things to do; the claim stays out until it is answered.
        let Ok(joined) = tokio::time::timeout(longest, out).await else { return Ok(()) };
        self.out = None;
        match joined {
            // Somebody was found dead: the next claim says so too, and is heeded.
            Ok(Err(error)) if !error.is_stale() => Err(Trouble(error)),
            Ok(Ok(()) | Err(_)) => Ok(()),
            Err(error) => Err(Trouble(self.client.unreachable(error.to_string()))),
        }
    }

    fn is_asking(&self) -> bool {
        self.out.is_some()
    }
}

impl Drop for Poll {
    fn drop(&mut self) {
        if let Some(out) = &self.out {
            out.abort();
        }
    }
}
