//! A typed client of the HTTP door: over a network, or within one process.
//!
//! Every call says what it wants and gets what is said in [`tidemill_wire`] or kept in [`tidemill_core`]. How
//! the bytes travel is a [`Transport`]: commands that run beside their database use the same calls as those far
//! away.

mod access;
mod agents;
mod error;
mod feeds;
mod graphs;
mod hooks;
mod http;
mod live;
mod projects;
mod queues;
mod rules;
mod runs;
mod schedules;
mod syncs;
mod workers;

pub use error::Error;
pub use http::{Http, HttpOptions};
pub use live::{Chunks, LaterOf, Opened, Seen, Watch};

use ::http::{Method, StatusCode};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Write as _;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tidemill_wire::Problem;
use tidemill_wire::info::Info;

/// A request on its way.
#[derive(Debug, Clone)]
pub struct Call {
    /// Its method.
    pub method: Method,
    /// Its path and query.
    pub path: String,
    /// The key that makes asking twice the same as asking once.
    pub idempotency_key: Option<String>,
    /// Its body, as JSON.
    pub body: Option<Bytes>,
    /// How long the answer may take.
    pub patience: Duration,
}

/// What came back.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its body.
    pub body: Bytes,
    /// How long the server asks its caller to wait before the next request.
    pub retry_after: Option<Duration>,
}

/// An answer, later.
pub type Later<'a> = Pin<Box<dyn Future<Output = Result<Answer, Error>> + Send + 'a>>;

/// How requests travel.
pub trait Transport: Send + Sync {
    /// Carries one request there, and its answer back.
    fn carry(&self, call: Call) -> Later<'_>;

    /// Carries one request there, and begins to read an answer that has no end, after the event with this id.
    fn open(&self, _call: Call, _last_event_id: Option<String>) -> LaterOf<'_, Opened> {
        let problem = "live events do not travel this way; name a server".to_owned();
        Box::pin(async move { Err(Error::BadAddress(problem)) })
    }

    /// The address of the server, for messages; none where it is in this process.
    fn address(&self) -> Option<&str> {
        None
    }
}

/// How long an answer may take, unless the call waits for something.
const PATIENCE: Duration = Duration::from_secs(30);

/// A client of one server; cheap to clone.
#[derive(Clone)]
pub struct Client {
    transport: Arc<dyn Transport>,
}

impl Client {
    /// A client whose requests travel like this.
    pub fn new(transport: impl Transport + 'static) -> Self {
        Self { transport: Arc::new(transport) }
    }

    /// The error of a call that the server did not answer.
    pub fn unreachable(&self, reason: impl Into<String>) -> Error {
        Error::unreachable(self.transport.address(), reason)
    }

    /// The server, and who it takes the caller for.
    pub async fn info(&self) -> Result<Info, Error> {
        self.get("/v1/info".to_owned()).await
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: String) -> Result<T, Error> {
        self.ask(Method::GET, path, None::<&()>, None).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: String,
        body: &impl Serialize,
    ) -> Result<T, Error> {
        self.ask(Method::POST, path, Some(body), None).await
    }

    /// Asks, and reads the answer.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: String,
        body: Option<&impl Serialize>,
        idempotency_key: Option<String>,
    ) -> Result<T, Error> {
        let body = body.map(encoded).transpose()?;
        read(&self.send(Call { method, path, idempotency_key, body, patience: PATIENCE }).await?)
    }

    /// Asks for something to be done, where the status says all.
    pub(crate) async fn order(
        &self,
        method: Method,
        path: String,
        body: Option<&impl Serialize>,
    ) -> Result<(), Error> {
        let body = body.map(encoded).transpose()?;
        self.send(Call { method, path, idempotency_key: None, body, patience: PATIENCE }).await?;
        Ok(())
    }

    /// Sends a call; an answer that is no success is an error.
    pub(crate) async fn send(&self, call: Call) -> Result<Answer, Error> {
        let answer = self.transport.carry(call).await?;
        if answer.status.is_success() {
            return Ok(answer);
        }
        match serde_json::from_slice::<Problem>(&answer.body) {
            Ok(problem) => Err(Error::Refused { status: answer.status, problem: Box::new(problem) }),
            Err(_) => Err(Error::NotTidemill { status: answer.status }),
        }
    }
}

pub(crate) fn encoded(body: &impl Serialize) -> Result<Bytes, Error> {
    serde_json::to_vec(body).map(Bytes::from).map_err(|error| Error::Unreadable(error.to_string()))
}

pub(crate) fn read<T: DeserializeOwned>(answer: &Answer) -> Result<T, Error> {
    serde_json::from_slice(&answer.body).map_err(|error| Error::Unreadable(error.to_string()))
}

/// A part of a path, with everything escaped that means something there.
pub(crate) fn part(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

/// A query made of the fields of `asked` that are there.
pub(crate) fn query(asked: &impl Serialize) -> Result<String, Error> {
    let fields = serde_json::to_value(asked).map_err(|error| Error::Unreadable(error.to_string()))?;
    let mut query = String::new();
    for (name, value) in fields.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        query.push(if query.is_empty() { '?' } else { '&' });
        let _ = write!(query, "{}={}", part(name), part(&text));
    }
    Ok(query)
}
