//! Typed client of the HTTP API.
//!
//! Requests and responses are types from [`tidemill_wire`] and [`tidemill_core`]. A [`Transport`] carries the bytes:
//! over the network, or to a server within the same process. Commands use the same calls with either.

mod access;
mod agents;
mod error;
mod feeds;
mod graphs;
mod health;
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
pub use health::Probe;
pub use http::{HttpOptions, HttpTransport, TokenSource, bundled_authorities};
pub use live::{Chunks, StreamEvent, StreamResponse, Watch};

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

/// Request to the HTTP API.
#[derive(Debug, Clone)]
pub struct ApiRequest {
    pub method: Method,
    /// Path and query string, starting with `/`.
    pub path: String,
    /// A repeated request with the same key returns the first result.
    pub idempotency_key: Option<String>,
    pub body: Option<Bytes>,
    /// Time limit for the response.
    pub timeout: Duration,
}

/// Response of the HTTP API.
#[derive(Debug, Clone)]
pub struct ApiResponse {
    pub status: StatusCode,
    pub body: Bytes,
    /// Delay before the next request, as requested by the server.
    pub retry_after: Option<Duration>,
}

/// Future that a transport returns.
pub type TransportFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// Delivery of requests to a server.
pub trait Transport: Send + Sync {
    /// Sends a request and reads the whole response.
    fn send(&self, request: ApiRequest) -> TransportFuture<'_, ApiResponse>;

    /// Sends a request and starts to read an event stream, after the event with this id.
    fn open(
        &self,
        _request: ApiRequest,
        _last_event_id: Option<String>,
    ) -> TransportFuture<'_, StreamResponse> {
        let problem = "live events need a server; give its address with --server".to_owned();
        Box::pin(async move { Err(Error::InvalidConfig(problem)) })
    }

    /// Address of the server for messages; `None` for an in-process server.
    fn address(&self) -> Option<&str> {
        None
    }
}

/// Default time limit for a response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Client of one server. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    transport: Arc<dyn Transport>,
}

impl Client {
    /// Creates a client on a transport.
    pub fn new(transport: impl Transport + 'static) -> Self {
        Self { transport: Arc::new(transport) }
    }

    /// Creates the error for a request that the server did not answer.
    pub fn unreachable(&self, reason: impl Into<String>) -> Error {
        Error::unreachable(self.transport.address(), reason)
    }

    /// Returns the server's version and the caller's identity.
    pub async fn info(&self) -> Result<Info, Error> {
        self.get("/v1/info".to_owned()).await
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: String) -> Result<T, Error> {
        self.request(Method::GET, path, None::<&()>, None).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: String,
        body: &impl Serialize,
    ) -> Result<T, Error> {
        self.request(Method::POST, path, Some(body), None).await
    }

    /// Sends a request and decodes the response.
    pub(crate) async fn request<T: DeserializeOwned>(
        &self,
        method: Method,
        path: String,
        body: Option<&impl Serialize>,
        idempotency_key: Option<String>,
    ) -> Result<T, Error> {
        let body = body.map(encode).transpose()?;
        decode(
            &self.send(ApiRequest { method, path, idempotency_key, body, timeout: REQUEST_TIMEOUT }).await?,
        )
    }

    /// Sends a request and ignores the response body.
    pub(crate) async fn request_no_content(
        &self,
        method: Method,
        path: String,
        body: Option<&impl Serialize>,
    ) -> Result<(), Error> {
        let body = body.map(encode).transpose()?;
        self.send(ApiRequest { method, path, idempotency_key: None, body, timeout: REQUEST_TIMEOUT }).await?;
        Ok(())
    }

    /// Sends a request. A response without a success status becomes an error.
    pub(crate) async fn send(&self, request: ApiRequest) -> Result<ApiResponse, Error> {
        let response = self.transport.send(request).await?;
        if response.status.is_success() {
            return Ok(response);
        }
        match serde_json::from_slice::<Problem>(&response.body) {
            Ok(problem) => Err(Error::Refused { status: response.status, problem: Box::new(problem) }),
            Err(_) => Err(Error::NotTidemill { status: response.status }),
        }
    }
}

pub(crate) fn encode(body: &impl Serialize) -> Result<Bytes, Error> {
    serde_json::to_vec(body).map(Bytes::from).map_err(|error| Error::InvalidResponse(error.to_string()))
}

pub(crate) fn decode<T: DeserializeOwned>(response: &ApiResponse) -> Result<T, Error> {
    serde_json::from_slice(&response.body).map_err(|error| Error::InvalidResponse(error.to_string()))
}

/// Percent-encodes a path segment.
pub(crate) fn path_segment(text: &str) -> String {
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

/// Builds a query string from the fields that are not null.
pub(crate) fn query(params: &impl Serialize) -> Result<String, Error> {
    let fields = serde_json::to_value(params).map_err(|error| Error::InvalidResponse(error.to_string()))?;
    let mut query = String::new();
    for (name, value) in fields.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        query.push(if query.is_empty() { '?' } else { '&' });
        let _ = write!(query, "{}={}", path_segment(name), path_segment(&text));
    }
    Ok(query)
}
