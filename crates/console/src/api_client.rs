//! Access to the HTTP API within this process.
//!
//! Each call carries the browser's credentials, so the API identifies the caller as it would over the network. It
//! checks roles, projects and CSRF tokens, and writes audit entries. For a signed-in browser, calls made while
//! rendering a page cannot change anything, because only forms carry a CSRF token.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::response::Response;
use bytes::Bytes;
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderValue, Method, Request, header};
use std::collections::HashMap;
use std::time::Duration;
use tidemill_api::access::{Caller, Peer};
use tidemill_api::{App, Permission, endpoints, router};
use tidemill_client::{ApiRequest, ApiResponse, Client, Error, Transport, TransportFuture};
use tower::ServiceExt as _;

/// Request headers that are passed to the API: credentials, host and origin.
const FORWARDED_HEADERS: [http::HeaderName; 5] = [
    header::AUTHORIZATION,
    header::COOKIE,
    header::HOST,
    header::ORIGIN,
    http::HeaderName::from_static("x-forwarded-proto"),
];
/// Header with the CSRF token.
const CSRF_HEADER: http::HeaderName = http::HeaderName::from_static("x-csrf-token");
/// Maximum size of an API response.
const RESPONSE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// In-process API with the permissions of its routes.
pub(crate) struct ApiClient {
    router: Router,
    permissions: HashMap<(Method, &'static str), Option<Permission>>,
}

impl ApiClient {
    /// Builds the API's router.
    pub(crate) fn new(app: &App) -> Self {
        let permissions =
            endpoints().into_iter().map(|endpoint| ((endpoint.method, endpoint.path), endpoint.permission));
        Self { router: router(app.clone()), permissions: permissions.collect() }
    }

    /// Whether a caller has the permission for a route. Pages do not offer actions that the API would refuse.
    pub(crate) fn may(&self, caller: &Caller, method: Method, path: &'static str) -> bool {
        match self.permissions.get(&(method, path)) {
            Some(Some(permission)) => permission.roles().contains(&caller.role),
            Some(None) => true,
            None => false,
        }
    }

    /// Returns a client with the credentials of a request.
    pub(crate) fn client(&self, parts: &Parts) -> Client {
        self.client_with(parts, None)
    }

    /// Returns a client with a CSRF token in addition.
    pub(crate) fn client_with(&self, parts: &Parts, csrf: Option<&str>) -> Client {
        Client::new(self.transport(parts, csrf))
    }

    /// Sends one request and returns the raw response with its headers.
    pub(crate) async fn send(
        &self,
        parts: &Parts,
        method: Method,
        path: &str,
        body: Bytes,
        csrf: Option<&str>,
    ) -> Result<Response, Error> {
        let timeout = Duration::from_secs(30);
        let request =
            ApiRequest { method, path: path.to_owned(), idempotency_key: None, body: Some(body), timeout };
        self.transport(parts, csrf).dispatch(request).await
    }

    fn transport(&self, parts: &Parts, csrf: Option<&str>) -> InProcessTransport {
        let mut headers = HeaderMap::new();
        for name in FORWARDED_HEADERS {
            for value in parts.headers.get_all(&name) {
                headers.append(name.clone(), value.clone());
            }
        }
        if let Some(Ok(mut value)) = csrf.map(HeaderValue::from_str) {
            value.set_sensitive(true);
            headers.insert(CSRF_HEADER, value);
        }
        let mut extensions = Extensions::new();
        if let Some(peer) = parts.extensions.get::<Peer>() {
            extensions.insert(*peer);
        }
        InProcessTransport { router: self.router.clone(), headers, extensions }
    }
}

/// Transport with one browser's credentials.
struct InProcessTransport {
    router: Router,
    headers: HeaderMap,
    extensions: Extensions,
}

impl InProcessTransport {
    async fn dispatch(&self, api_request: ApiRequest) -> Result<Response, Error> {
        let body = Body::from(api_request.body.unwrap_or_default());
        let request = Request::builder().method(api_request.method).uri(api_request.path).body(body);
        let mut request = request.map_err(|error| Error::InvalidResponse(error.to_string()))?;
        *request.headers_mut() = self.headers.clone();
        *request.extensions_mut() = self.extensions.clone();
        if let Some(Ok(key)) = api_request.idempotency_key.as_deref().map(HeaderValue::from_str) {
            request.headers_mut().insert("idempotency-key", key);
        }
        match tokio::time::timeout(api_request.timeout, self.router.clone().oneshot(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(never)) => match never {},
            Err(_) => Err(Error::unreachable(None, "the request timed out")),
        }
    }
}

impl Transport for InProcessTransport {
    fn send(&self, api_request: ApiRequest) -> TransportFuture<'_, ApiResponse> {
        Box::pin(async move {
            let response = self.dispatch(api_request).await?;
            let status = response.status();
            let body = to_bytes(response.into_body(), RESPONSE_BYTES_MAX).await;
            let body = body.map_err(|error| Error::InvalidResponse(error.to_string()))?;
            Ok(ApiResponse { status, body, retry_after: None })
        })
    }
}
