//! Middleware of a server: limits, timeouts, panic handling, compression, metrics and logging.

use super::admission::{Admission, Budgets, RequestKind};
use super::budget::Source;
use super::connection_table::Connection;
use super::limited_body::{HoldingBody, LimitedBody, Sending};
use super::{Limits, host, local, response_headers};
use crate::access::Peer;
use crate::claims::WAIT_SECS_MAX;
use crate::error::ApiError;
use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, Method, StatusCode, header};
use hyper::body::Body as _;
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::predicate::{DefaultPredicate, Predicate as _, SizeAbove};
use tower_http::compression::{CompressionLayer, CompressionLevel};

/// Smaller responses are not compressed.
const COMPRESSED_BYTES_MIN: u16 = 1024;
/// Middleware of all routes. Cheap to clone.
#[derive(Clone)]
pub(super) struct Layers {
    inner: Arc<Inner>,
}

struct Inner {
    limits: Limits,
    is_local: bool,
    routes: HashMap<(Method, &'static str), RouteLimits>,
    budgets: Budgets,
}

/// Properties of a route that its limits depend on.
#[derive(Debug, Clone, Copy)]
struct RouteLimits {
    kind: RequestKind,
    access: RouteAccess,
    body_bytes: usize,
}

/// Whether a route checks credentials before it reads the body and executes the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RouteAccess {
    Public,
    Guarded,
}

impl Layers {
    pub(super) fn new(limits: Limits, is_local: bool) -> Self {
        let mut routes = HashMap::new();
        let mut body_bytes_max = limits.body_bytes;
        for endpoint in crate::endpoints() {
            let kind = if endpoint.is_long_poll { RequestKind::Wait } else { RequestKind::Short };
            let access =
                if endpoint.permission.is_some() { RouteAccess::Guarded } else { RouteAccess::Public };
            let body_bytes = endpoint.body_limit.unwrap_or(0).max(limits.body_bytes);
            if access == RouteAccess::Guarded {
                body_bytes_max = body_bytes_max.max(body_bytes);
            }
            routes.insert((endpoint.method, endpoint.path), RouteLimits { kind, access, body_bytes });
        }
        let budgets = Budgets::new(&limits, body_bytes_max);
        Self { inner: Arc::new(Inner { limits, is_local, routes, budgets }) }
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

/// Executes the request within the limits. Its body is read on demand, after the credentials are checked.
async fn enforce_limits(State(layers): State<Layers>, request: Request, next: Next) -> Response {
    let inner = &layers.inner;
    let limits = inner.route(&request);
    let peer = request.extensions().get::<Peer>().map(|peer| peer.address.ip());
    let connection = request.extensions().get::<Arc<Connection>>().cloned();
    let admission = Admission::new(inner.budgets.clone(), limits.kind, Source::new(peer), connection);
    let mut response = inner.run(request, next, limits, &admission).await;
    admission.end_handler();
    if let Some(failure) = admission.body_failure() {
        response = with_connection_close(failure.into_error().into_response());
    } else if admission.must_close() {
        response = with_connection_close(response);
    }
    response.map(|body| Body::new(HoldingBody::new(body, admission)))
}

/// Closes the connection after a response, because the rest of the body is still unread.
fn with_connection_close(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

impl Inner {
    /// Returns the limits of a request's route. Other routes than those of the API check credentials themselves.
    fn route(&self, request: &Request) -> RouteLimits {
        let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
        let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
        let known = self.routes.iter().find(|((of, route), _)| of == method && *route == path);
        known.map_or(
            RouteLimits {
                kind: RequestKind::Short,
                access: RouteAccess::Guarded,
                body_bytes: self.limits.body_bytes,
            },
            |(_, limits)| *limits,
        )
    }

    async fn run(&self, request: Request, next: Next, route: RouteLimits, admission: &Admission) -> Response {
        let (mut parts, body) = request.into_parts();
        parts.extensions.insert(admission.clone());
        let body = if body.is_end_stream() {
            body
        } else {
            let expects = parts.headers.contains_key(header::EXPECT);
            let sending = if expects { Sending::OnDemand } else { Sending::AtOnce };
            Body::new(LimitedBody::new(body, admission.clone(), sending, route.body_bytes, &self.limits))
        };
        if route.access == RouteAccess::Public
            && let Err(error) = admission.admit_anonymous()
        {
            return error.into_response();
        }
        let time = match route.kind {
            RequestKind::Short => self.limits.request_time,
            RequestKind::Wait => self.limits.request_time + Duration::from_secs(WAIT_SECS_MAX.into()),
        };
        let responded = tokio::time::timeout(time, next.run(Request::from_parts(parts, body))).await;
        responded.unwrap_or_else(|_| {
            tracing::warn!("request timed out after {} s", time.as_secs());
            let message = "the request timed out; it may have been executed nevertheless";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "took_too_long", message)
                .retry_after(1)
                .into_response()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use http_body_util::BodyExt as _;
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
        let router = Router::new().route("/healthz", get(async move || signal.notified().await));
        let router = Layers::new(limits, false).wrap(router);
        let request = || router.clone().oneshot(http::Request::get("/healthz").body(Body::empty()).unwrap());
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
