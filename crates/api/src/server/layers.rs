//! What stands around every route of a server: limits, time, panics, compression, and what is counted and logged.

use super::Limits;
use super::local;
use crate::answer::Fail;
use crate::claims::WAIT_SECS_MAX;
use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{Next, from_fn_with_state};
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

/// Answers below this size are sent as they are.
const COMPRESSED_BYTES_MIN: u16 = 1024;
/// How many times the largest body is read past, so that a caller that sends too much hears so.
const READ_PAST: usize = 8;

/// What stands around every route; cheap to clone.
#[derive(Clone)]
pub(super) struct Layers {
    inner: Arc<Inner>,
}

struct Inner {
    limits: Limits,
    is_local: bool,
    /// Routes that wait for something to happen.
    waiting: HashSet<(Method, &'static str)>,
    /// Routes whose bodies may be larger than usual.
    large: HashMap<(Method, &'static str), usize>,
    in_flight: Semaphore,
    bodies: Arc<Semaphore>,
}

impl Layers {
    pub(super) fn new(limits: Limits, is_local: bool) -> Self {
        let (mut waiting, mut large) = (HashSet::new(), HashMap::new());
        for endpoint in crate::endpoints() {
            let route = (endpoint.method, endpoint.path);
            if let Some(bytes) = endpoint.body_bytes {
                large.insert(route.clone(), bytes);
            }
            if endpoint.waits {
                waiting.insert(route);
            }
        }
        let in_flight = Semaphore::new(limits.requests);
        let bodies = Arc::new(Semaphore::new(limits.bodies_bytes.min(Semaphore::MAX_PERMITS)));
        Self { inner: Arc::new(Inner { limits, is_local, waiting, large, in_flight, bodies }) }
    }

    /// Puts everything around the routes; what stands last here is the outermost.
    pub(super) fn around(&self, router: Router) -> Router {
        let compressed = DefaultPredicate::new().and(SizeAbove::new(COMPRESSED_BYTES_MIN));
        router
            .layer(from_fn_with_state(self.clone(), within_limits))
            .layer(CatchPanicLayer::custom(panicked))
            .layer(CompressionLayer::new().quality(CompressionLevel::Fastest).compress_when(compressed))
            .layer(from_fn_with_state(self.clone(), counted))
    }
}

/// What is said where a handler panicked. Why is in the log alone.
#[expect(clippy::needless_pass_by_value, reason = "this is how the layer hands it over")]
fn panicked(cause: Box<dyn Any + Send + 'static>) -> Response {
    let text = cause.downcast_ref::<&str>().copied();
    let text = text.or_else(|| cause.downcast_ref::<String>().map(String::as_str));
    Fail::internal(&format!("a panic: {}", text.unwrap_or("it says nothing"))).into_response()
}

/// Counts a request, and says it in the log, without what is in it.
async fn counted(State(layers): State<Layers>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let method = method_label(request.method());
    let checked = if layers.inner.is_local { local::check(&request) } else { Ok(()) };
    let response = match checked {
        Ok(()) => next.run(request).await,
        Err(fail) => fail.into_response(),
    };
    let (status, took) = (response.status(), began.elapsed());
    tracing::debug!(
        http.method = method, http.route = %route, http.status = status.as_u16(), took_ms = took.as_millis(),
        "{method} {route} was answered with {}", status.as_u16()
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

/// Reads the body, and carries a request out in its time, if there is room.
async fn within_limits(
    State(layers): State<Layers>,
    request: Request,
    next: Next,
) -> Result<Response, Response> {
    let inner = &layers.inner;
    let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let waits = inner.waiting.iter().any(|(method, route)| method == request.method() && *route == path);
    let large = inner.large.iter().find(|((method, route), _)| method == request.method() && *route == path);
    let most = large.map_or(inner.limits.body_bytes, |(_, bytes)| inner.limits.body_bytes.max(*bytes));
    let (request, _held) = inner.read(request, most).await.map_err(closing)?;
    let (_turn, time) = if waits {
        (None, inner.limits.request_time + Duration::from_secs(WAIT_SECS_MAX.into()))
    } else {
        (Some(inner.in_flight.try_acquire().map_err(|_| busy("requests"))?), inner.limits.request_time)
    };
    tokio::time::timeout(time, next.run(request)).await.map_err(|_| {
        tracing::warn!("a request was given up after {} s", time.as_secs());
        let message = "this took longer than the server waits; it may have been done all the same";
        Fail::new(StatusCode::SERVICE_UNAVAILABLE, "took_too_long", message).retry_after(1).into_response()
    })
}

/// There is no room.
fn busy(why: &'static str) -> Response {
    metrics::counter!("tidemill_http_refused_total", "why" => why).increment(1);
    let message = "the server has more to do than it takes at once; ask again";
    Fail::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message).retry_after(1).into_response()
}

/// The same answer, after which the connection is closed: the rest of the body is still in it.
fn closing(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

impl Inner {
    /// A request with all of its body, and what its body takes of what there is for all.
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
            let message = "the body of this request took too long to arrive";
            Fail::new(StatusCode::REQUEST_TIMEOUT, "too_slow", message).into_response()
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
                let message = "the body of this request could not be read to its end";
                Fail::new(StatusCode::BAD_REQUEST, "unread", message).into_response()
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

/// What is said of a body that is too large, after some of its rest was read: a caller that is still sending does not
/// listen.
async fn too_large(mut body: Body, most: usize) -> Response {
    let mut past = 0;
    while let Some(Ok(frame)) = body.frame().await {
        past += frame.data_ref().map_or(0, Bytes::len);
        if past > most.saturating_mul(READ_PAST) {
            break;
        }
    }
    metrics::counter!("tidemill_http_refused_total", "why" => "large").increment(1);
    let message = format!("a body has at most {most} bytes");
    Fail::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use tower::ServiceExt as _;

    async fn panics() -> &'static str {
        panic!("the secret of the house");
    }

    #[tokio::test]
    async fn a_panic_reaches_a_client_as_a_problem_without_its_text() {
        let router = Router::new().route("/", get(panics)).route("/well", get(async || "well"));
        let router = Layers::new(Limits::default(), false).around(router);
        let ask = |path: &str| http::Request::get(path).body(Body::empty()).unwrap();
        let answer = router.clone().oneshot(ask("/")).await.unwrap();
        assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(text.contains("\"internal\"") && !text.contains("secret"), "{text}");
        // Whatever it held was given back.
        assert_eq!(router.oneshot(ask("/well")).await.unwrap().status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn more_requests_than_there_is_room_for_are_told_to_come_back() {
        let limits = Limits { requests: 1, ..Limits::default() };
        let end = Arc::new(tokio::sync::Notify::new());
        let told = end.clone();
        let router = Router::new().route("/", get(async move || told.notified().await));
        let router = Layers::new(limits, false).around(router);
        let ask = || router.clone().oneshot(http::Request::get("/").body(Body::empty()).unwrap());
        let first = tokio::spawn(ask());
        tokio::time::sleep(Duration::from_millis(50)).await;
        let second = ask().await.unwrap();
        assert_eq!(second.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(second.headers()[header::RETRY_AFTER], "1");
        end.notify_one();
        assert_eq!(first.await.unwrap().unwrap().status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn a_request_that_takes_too_long_is_given_up() {
        let limits = Limits { request_time: Duration::from_millis(50), ..Limits::default() };
        let router = Router::new().route("/", get(std::future::pending::<&'static str>));
        let router = Layers::new(limits, false).around(router);
        let answer = router.oneshot(http::Request::get("/").body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}
