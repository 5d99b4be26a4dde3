//! The HTTP server, and the handle for tests.

use crate::admin::{self, AdminResponse, Truth, TruthBody};
use crate::api;
use crate::behaviour::{Behaviour, DateHeader};
use crate::changes::{Change, ChangeOutcome, Churn};
use crate::config::{Config, MAX_STONES};
use crate::failure::{ApiResponse, RateWindow};
use crate::state::SupplierState;
use crate::stats::Stats;
use crate::stone::number_of;
use crate::template::Template;
use crate::{lock, rest};
use http_body_util::{BodyExt as _, Either, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, DATE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidemill_core::Timestamp;
use tokio::net::{TcpListener, TcpStream};
use tracing::{debug, warn};

/// Maximum size of a request body.
const BODY_BYTES_MAX: usize = 1024 * 1024;
/// Time limit for receiving a request.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for open requests at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of the churn per second.
const CHURN_INTERVAL: Duration = Duration::from_millis(20);

type HttpResponse = Response<Either<Full<Bytes>, TruthBody>>;

/// Reason why a supplier could not be started.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("too many stones: {requested}; a supplier has at most {MAX_STONES}")]
    TooManyStones { requested: u32 },
    #[error("could not listen on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("invalid standard selection: {0}")]
    Selection(String),
}

/// A supplier that is bound to its address, but does not serve yet.
pub struct Supplier {
    listener: TcpListener,
    local_addr: SocketAddr,
    state: Arc<SupplierState>,
}

/// Closes a connection without a response.
#[derive(Debug, thiserror::Error)]
#[error("the supplier closed the connection")]
struct Closed;

impl Supplier {
    /// Generates the stones and binds the address.
    pub async fn bind(config: Config) -> Result<Self, BindError> {
        if config.stones > MAX_STONES {
            return Err(BindError::TooManyStones { requested: config.stones });
        }
        let standard = Template::standard().map_err(BindError::Selection)?;
        let address = config.listen;
        let listen = |source| BindError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(listen)?;
        let local_addr = listener.local_addr().map_err(listen)?;
        Ok(Self { listener, local_addr, state: Arc::new(SupplierState::new(config, standard)) })
    }

    pub const fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// URL of the API.
    pub fn endpoint(&self) -> String {
        format!("http://{}/api/diamonds", self.local_addr)
    }

    /// URL of the REST API.
    pub fn rest_url(&self) -> String {
        format!("http://{}/rest", self.local_addr)
    }

    /// Returns the handle for tests and the demo.
    pub fn handle(&self) -> Handle {
        Handle { state: Arc::clone(&self.state) }
    }

    /// Serves until `shutdown` is ready, then completes open requests.
    pub async fn serve(self, shutdown: impl Future<Output = ()> + Send) {
        let Self { listener, state, .. } = self;
        let graceful = GracefulShutdown::new();
        let window = Arc::new(Mutex::new(RateWindow::default()));
        let churn = churn(&state);
        tokio::pin!(shutdown, churn);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                () = &mut churn => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => connect(stream, peer, &state, &window, &graceful),
                    Err(error) => {
                        // Probably too many open files: some will be closed soon.
                        warn!("the supplier could not accept a connection: {error}");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
            }
        }
        drop(listener);
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, graceful.shutdown()).await.is_err() {
            warn!("the supplier stopped before all responses were sent");
        }
    }

    /// Serves in a separate task, for tests.
    pub fn spawn(self) -> RunningSupplier {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (local_addr, handle) = (self.local_addr, self.handle());
        let (endpoint, rest_url) = (self.endpoint(), self.rest_url());
        let task = tokio::spawn(self.serve(async move {
            // It also ends when the sender is dropped.
            let _ = stopped.await;
        }));
        RunningSupplier { local_addr, endpoint, rest_url, handle, stop, task }
    }
}

/// A supplier that serves in a task until this is dropped.
pub struct RunningSupplier {
    pub local_addr: SocketAddr,
    /// URL of the API.
    pub endpoint: String,
    /// URL of the REST API.
    pub rest_url: String,
    pub handle: Handle,
    stop: tokio::sync::oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl RunningSupplier {
    /// Stops it and waits for its end.
    pub async fn stop(self) {
        drop(self.stop);
        if let Err(error) = self.task.await {
            warn!("the task of the supplier failed: {error}");
        }
    }
}

/// Applies the churn per second; never returns.
async fn churn(state: &SupplierState) {
    let mut pending = 0_u64;
    loop {
        if state.churn_per_second() == 0 {
            pending = 0;
            state.churn_changed.notified().await;
            continue;
        }
        tokio::time::sleep(CHURN_INTERVAL).await;
        // The rate is read again, because the churn may have been stopped meanwhile. The unit of `pending` is changes
        // times milliseconds, so that slow rates are exact.
        pending += u64::from(state.churn_per_second()) * 20;
        state.apply_churn(u32::try_from(pending / 1_000).unwrap_or(u32::MAX));
        pending %= 1_000;
    }
}

fn connect(
    stream: TcpStream,
    peer: SocketAddr,
    state: &Arc<SupplierState>,
    window: &Arc<Mutex<RateWindow>>,
    graceful: &GracefulShutdown,
) {
    // A page is written at once, so Nagle's algorithm would only delay its end.
    let _ = stream.set_nodelay(true);
    let (state, window) = (Arc::clone(state), Arc::clone(window));
    let service = service_fn(move |request| {
        let (state, window) = (Arc::clone(&state), Arc::clone(&window));
        async move { route(&state, &window, peer, request).await }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(READ_TIMEOUT)
        .auto_date_header(false)
        .serve_connection(TokioIo::new(stream), service);
    let connection = graceful.watch(connection);
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            debug!("a connection to the supplier ended: {error}");
        }
    });
}

async fn route(
    state: &Arc<SupplierState>,
    window: &Mutex<RateWindow>,
    peer: SocketAddr,
    request: Request<Incoming>,
) -> Result<HttpResponse, Closed> {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let admin = path.strip_prefix("/admin/");
    let mut reply = if admin.is_some() && !is_on_this_machine(peer) {
        admin_reply(admin::failure(
            StatusCode::FORBIDDEN,
            "admin endpoints are available on this machine only",
        ))
    } else {
        match (admin, path, read(body).await) {
            (_, _, Err(refused)) => admin_reply(refused),
            (Some(admin), _, Ok(body)) => admin_reply(admin::respond(state, &head.method, admin, &body)),
            (None, "/api/diamonds", Ok(body)) if head.method == Method::POST => {
                api_reply(api::respond(state, window, &body).await)?
            }
            (None, "/api/diamonds", Ok(_)) => {
                let text = "the API requires POST";
                let mut reply = admin_reply(admin::failure(StatusCode::METHOD_NOT_ALLOWED, text));
                reply.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
                reply
            }
            (None, path, Ok(body)) if path.starts_with("/rest/") => {
                api_reply(rest::respond(state, window, &head, &body).await)?
            }
            (None, _, Ok(_)) => {
                let text = "the APIs are at /api/diamonds and /rest/items";
                admin_reply(admin::failure(StatusCode::NOT_FOUND, text))
            }
        }
    };
    let header = lock(&state.behaviour).date;
    if let (DateHeader::Sent, Ok(date)) = (header, HeaderValue::try_from(date(state))) {
        reply.headers_mut().insert(DATE, date);
    }
    Ok(reply)
}

/// Whether a peer may use the admin endpoints.
const fn is_on_this_machine(peer: SocketAddr) -> bool {
    peer.ip().to_canonical().is_loopback()
}

/// Value of the `Date` header, with the configured offset.
fn date(state: &SupplierState) -> String {
    let skew = lock(&state.behaviour).date_skew_secs;
    let now = state.clock.now();
    let skewed = chrono::Duration::try_seconds(skew).and_then(|skew| now.checked_add_signed(skew));
    skewed.unwrap_or(now).format("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

async fn read(body: Incoming) -> Result<Bytes, AdminResponse> {
    match tokio::time::timeout(READ_TIMEOUT, Limited::new(body, BODY_BYTES_MAX).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            let text = format!("the body is larger than {BODY_BYTES_MAX} bytes");
            Err(admin::failure(StatusCode::PAYLOAD_TOO_LARGE, &text))
        }
        Ok(Err(error)) => Err(admin::failure(StatusCode::BAD_REQUEST, &error.to_string())),
        Err(_) => Err(admin::failure(StatusCode::REQUEST_TIMEOUT, "the body was not received in time")),
    }
}

fn reply(status: StatusCode, kind: &'static str, body: Either<Full<Bytes>, TruthBody>) -> HttpResponse {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    reply
}

fn admin_reply(response: AdminResponse) -> HttpResponse {
    match response {
        AdminResponse::Json(status, body) => {
            reply(status, "application/json", Either::Left(Full::new(body.into())))
        }
        AdminResponse::Truth(body) => reply(StatusCode::OK, "application/x-ndjson", Either::Right(body)),
    }
}

fn api_reply(response: ApiResponse) -> Result<HttpResponse, Closed> {
    let full = |body: Vec<u8>| Either::Left(Full::new(body.into()));
    match response {
        ApiResponse::Json { status, headers, body } => {
            let mut reply = reply(status, "application/json", full(body));
            reply.headers_mut().extend(headers);
            Ok(reply)
        }
        ApiResponse::Html => {
            let text = "<!doctype html><title>Maintenance</title><p>We will be back soon.</p>";
            Ok(reply(StatusCode::OK, "text/html; charset=utf-8", full(text.into())))
        }
        ApiResponse::Closed => Err(Closed),
    }
}

/// Control of the supplier within the process: the admin functions without HTTP.
#[derive(Clone)]
pub struct Handle {
    state: Arc<SupplierState>,
}

impl Handle {
    pub fn behaviour(&self) -> Behaviour {
        lock(&self.state.behaviour).clone()
    }

    /// Changes the configured behaviour with a closure.
    pub fn behave(&self, change: impl FnOnce(&mut Behaviour)) {
        // The closure never fails.
        let _ = self.state.behave(|behaviour| {
            change(behaviour);
            Ok(())
        });
    }

    /// Invalidates all issued tokens.
    pub fn expire_tokens(&self) {
        self.state.expire_tokens();
    }

    /// Applies a change. The error says what is wrong with the request.
    pub fn change(&self, change: &Change) -> Result<ChangeOutcome, String> {
        self.state.change(change)
    }

    /// Sets the churn; the default stops it.
    pub fn churn(&self, churn: Churn) {
        self.state.set_churn(churn);
    }

    /// The supplier's time.
    pub fn now(&self) -> Timestamp {
        self.state.clock.now()
    }

    /// Sets a fixed time; `None` follows the clock of the machine again.
    pub fn set_time(&self, time: Option<Timestamp>) {
        self.state.clock.set(time);
    }

    pub fn stats(&self) -> Stats {
        self.state.counters.read()
    }

    /// Returns the active items of the REST API: their JSON by id.
    pub fn rest_truth(&self) -> BTreeMap<String, String> {
        admin::rest_truth(&self.state)
    }

    /// Returns the id in the REST API of a stone, such as one of a [`ChangeOutcome`].
    pub fn rest_id(&self, stone_id: &str) -> Option<String> {
        number_of(self.state.config.seed, stone_id).map(rest::id_text)
    }

    /// Returns the true state of all stones.
    pub fn truth(&self) -> Vec<Truth> {
        admin::all_truth(&self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admin_endpoints_admit_local_peers_only() {
        let admitted = |peer: &str| is_on_this_machine(peer.parse().unwrap());
        assert!(admitted("127.0.0.1:80") && admitted("[::1]:80") && admitted("[::ffff:127.0.0.1]:80"));
        assert!(
            !admitted("10.0.0.1:80") && !admitted("[::ffff:10.0.0.1]:80") && !admitted("[2001:db8::1]:80")
        );
    }
}
