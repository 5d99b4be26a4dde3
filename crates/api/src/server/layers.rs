//! Middleware of a server: limits, timeouts, panic handling, compression, metrics and logging.

use super::{Limits, host, local, response_headers};
use crate::claims::WAIT_SECS_MAX;
use crate::error::ApiError;
use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Method, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::predicate::{DefaultPredicate, Predicate as _, SizeAbove};
use tower_http::compression::{CompressionLayer, CompressionLevel};

/// Smaller responses are not compressed.
const COMPRESSED_BYTES_MIN: u16 = 1024;
/// How many times the size limit is read and discarded of a body that is too large, so that the client gets to read
/// the response.
const DISCARD_FACTOR: usize = 8;

/// Middleware of all routes. Cheap to clone.
#[derive(Clone)]
pub(super) struct Layers {
    inner: Arc<Inner>,
}

struct Inner {
    limits: Limits,
    is_local: bool,
    long_polls: HashSet<(Method, &'static str)>,
    /// Body size limits of routes that differ from the default.
    large: HashMap<(Method, &'static str), usize>,
    in_flight: Semaphore,
    bodies: Arc<Semaphore>,
}

impl Layers {
    pub(super) fn new(limits: Limits, is_local: bool) -> Self {
        let (mut long_polls, mut large) = (HashSet::new(), HashMap::new());
        for endpoint in crate::endpoints() {
            let route = (endpoint.method, endpoint.path);
            if let Some(bytes) = endpoint.body_limit {
                large.insert(route.clone(), bytes);
            }
            if endpoint.is_long_poll {
                long_polls.insert(route);
            }
        }
        let in_flight = Semaphore::new(limits.requests);
        let bodies = Arc::new(Semaphore::new(limits.bodies_bytes.min(Semaphore::MAX_PERMITS)));
        Self { inner: Arc::new(Inner { limits, is_local, long_polls, large, in_flight, bodies }) }
    }

    /// Wraps a router. The last layer is the outermost one.
    pub(super) fn wrap(&self, router: Router) -> Router {
        let compressed = DefaultPredicate::new().and(SizeAbove::new(COMPRESSED_BYTES_MIN));
        router
            .layer(from_fn_with_state(self.clone(), enforce_limits))
            .layer(CatchPanicLayer::custom(panic_response))
            .layer(CompressionLayer::new().quality(CompressionLevel::Fastest).compress_when(compressed))
            .layer(from_fn_with_state(self.clone(), record_request))
            .layer(from_fn(response_headers::add))
    }
}

/// Response for a handler that panicked. Only the log contains the panic's message.
#[expect(clippy::needless_pass_by_value, reason = "signature required by CatchPanicLayer")]
fn panic_response(cause: Box<dyn Any + Send + 'static>) -> Response {
    let text = cause.downcast_ref::<&str>().copied();
    let text = text.or_else(|| cause.downcast_ref::<String>().map(String::as_str));
    ApiError::internal(&format!("panic: {}", text.unwrap_or("no message"))).into_response()
}

/// Records and logs a request, without its contents.
async fn record_request(State(layers): State<Layers>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let method = method_label(request.method());
    let is_local = layers.inner.is_local;
    let checked =
        host::of(&request).and_then(|host| if is_local { local::check(&request, host) } else { Ok(()) });
    let response = match checked {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    };
    let (status, took) = (response.status(), started.elapsed());
    tracing::debug!(
        http.method = method, http.route = %route, http.status = status.as_u16(), took_ms = took.as_millis(),
            "{method} {route} returned {}", status.as_u16()
    );
    let class = class_label(status);
    metrics::histogram!("tidemill_http_request_seconds", "method" => method, "route" => route, "class" => class)
        .record(took);
    response
}

fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

fn class_label(status: StatusCode) -> &'static str {
    match status.as_u16() {
        100..200 => "1xx",
        200..300 => "2xx",
        300..400 => "3xx",
        400..500 => "4xx",
        _ => "5xx",
    }
}

/// Reads the body and executes the request, within the limits.
async fn enforce_limits(
    State(layers): State<Layers>,
    request: Request,
    next: Next,
) -> Result<Response, Response> {
    let inner = &layers.inner;
    let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let is_long_poll =
        inner.long_polls.iter().any(|(method, route)| method == request.method() && *route == path);
    let large = inner.large.iter().find(|((method, route), _)| method == request.method() && *route == path);
    let most = large.map_or(inner.limits.body_bytes, |(_, bytes)| inner.limits.body_bytes.max(*bytes));
    let (request, _held) = inner.read(request, most).await.map_err(with_connection_close)?;
    let (_permit, time) = if is_long_poll {
        (None, inner.limits.request_time + Duration::from_secs(WAIT_SECS_MAX.into()))
    } else {
        (Some(inner.in_flight.try_acquire().map_err(|_| busy("requests"))?), inner.limits.request_time)
    };
    tokio::time::timeout(time, next.run(request)).await.map_err(|_| {
        tracing::warn!("request timed out after {} s", time.as_secs());
        let message = "the request timed out; it may have been executed nevertheless";
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "took_too_long", message)
            .retry_after(1)
            .into_response()
    })
}

/// Response for a request beyond a limit.
fn busy(why: &'static str) -> Response {
    metrics::counter!("tidemill_http_refused_total", "why" => why).increment(1);
    let message = "the server is overloaded; try again";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message).retry_after(1).into_response()
}

/// Closes the connection after a response, because the rest of the body is still unread.
fn with_connection_close(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

impl Inner {
    /// Reads the whole body. The permit is its share of the memory for all bodies.
    async fn read(
        &self,
        request: Request,
        most: usize,
    ) -> Result<(Request, Option<OwnedSemaphorePermit>), Response> {
        let (parts, body) = request.into_parts();
        if body.is_end_stream() {
            return Ok((Request::from_parts(parts, body), None));
        }
        let read = tokio::time::timeout(self.limits.body_time, self.collect(body, most)).await;
        let (bytes, held) = read.map_err(|_| {
            metrics::counter!("tidemill_http_refused_total", "why" => "slow").increment(1);
            let message = "the request body took too long to arrive";
            ApiError::new(StatusCode::REQUEST_TIMEOUT, "too_slow", message).into_response()
        })??;
        Ok((Request::from_parts(parts, Body::from(bytes)), held))
    }

    async fn collect(
        &self,
        mut body: Body,
        most: usize,
    ) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Response> {
        let mut bytes = BytesMut::new();
        let mut held: Option<OwnedSemaphorePermit> = None;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| {
                let message = "the request body could not be read completely";
                ApiError::new(StatusCode::BAD_REQUEST, "unread", message).into_response()
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > most {
                drop((bytes, held));
                return Err(too_large(body, most).await);
            }
            let more = u32::try_from(data.len()).unwrap_or(u32::MAX);
            let more = self.bodies.clone().try_acquire_many_owned(more).map_err(|_| busy("bodies"))?;
            match &mut held {
                Some(held) => held.merge(more),
                None => held = Some(more),
            }
            bytes.extend_from_slice(&data);
        }
        Ok((bytes.freeze(), held))
    }
}

/// Refuses a body that is too large, after discarding some of it: a client that is still sending does not read the
/// response.
async fn too_large(mut body: Body, most: usize) -> Response {
    let mut past = 0;
    while let Some(Ok(frame)) = body.frame().await {
        past += frame.data_ref().map_or(0, Bytes::len);
        if past > most.saturating_mul(DISCARD_FACTOR) {
            break;
        }
    }
    metrics::counter!("tidemill_http_refused_total", "why" => "large").increment(1);
    let message = format!("the request body is larger than {most} bytes");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use tower::ServiceExt as _;

    async fn panics() -> &'static str {
        panic!("secret in a panic message");
    }

    #[tokio::test]
    async fn panic_becomes_a_problem_without_its_message() {
        let router = Router::new().route("/", get(panics)).route("/ok", get(async || "ok"));
        let router = Layers::new(Limits::default(), false).wrap(router);
        let request = |path: &str| http::Request::get(path).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request("/")).await.unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(text.contains("\"internal\"") && !text.contains("secret"), "{text}");
        // The permit of the panicked request was released.
        assert_eq!(router.oneshot(request("/ok")).await.unwrap().status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn requests_beyond_the_limit_get_503_with_retry_after() {
        let limits = Limits { requests: 1, ..Limits::default() };
        let end = Arc::new(tokio::sync::Notify::new());
        let signal = end.clone();
        let router = Router::new().route("/", get(async move || signal.notified().await));
        let router = Layers::new(limits, false).wrap(router);
        let request = || router.clone().oneshot(http::Request::get("/").body(Body::empty()).unwrap());
        let first = tokio::spawn(request());
        tokio::time::sleep(Duration::from_millis(50)).await;
        let second = request().await.unwrap();
        assert_eq!(second.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(second.headers()[header::RETRY_AFTER], "1");
        end.notify_one();
        assert_eq!(first.await.unwrap().unwrap().status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn request_that_takes_too_long_is_aborted() {
        let limits = Limits { request_time: Duration::from_millis(50), ..Limits::default() };
        let router = Router::new().route("/", get(std::future::pending::<&'static str>));
        let router = Layers::new(limits, false).wrap(router);
        let response = router.oneshot(http::Request::get("/").body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}
