//! The way to the HTTP door, within this process.
//!
//! A call carries what the browser showed, so the door knows the caller as it would over a network: it checks
//! roles, projects and forged forms, and puts on record what was changed. A page's own calls cannot change anything
//! for a browser that signed in, because they do not carry what only a form brings.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::response::Response;
use bytes::Bytes;
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderValue, Method, Request, header};
use std::collections::HashMap;
use std::time::Duration;
use tidemill_api::access::{Caller, Peer};
use tidemill_api::{Allowed, App, endpoints, router};
use tidemill_client::{Answer, Call, Client, Error, Later, Transport};
use tower::ServiceExt as _;

/// What of a request is passed on: who calls, under which name of ours, and from which page.
const PASSED_ON: [http::HeaderName; 5] = [
    header::AUTHORIZATION,
    header::COOKIE,
    header::HOST,
    header::ORIGIN,
    http::HeaderName::from_static("x-forwarded-proto"),
];
/// What only a page of ours knows.
const CSRF_HEADER: http::HeaderName = http::HeaderName::from_static("x-csrf-token");
/// The largest answer of the door that a page is made of.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The door, and who may call which of its routes.
pub(crate) struct Door {
    router: Router,
    allowed: HashMap<(Method, &'static str), Option<Allowed>>,
}

impl Door {
    /// The door that works with this.
    pub(crate) fn new(app: &App) -> Self {
        let allowed =
            endpoints().into_iter().map(|endpoint| ((endpoint.method, endpoint.path), endpoint.allowed));
        Self { router: router(app.clone()), allowed: allowed.collect() }
    }

    /// Whether a caller may call a route. What the door would refuse is not offered.
    pub(crate) fn may(&self, caller: &Caller, method: Method, path: &'static str) -> bool {
        match self.allowed.get(&(method, path)) {
            Some(Some(allowed)) => allowed.roles().contains(&caller.role),
            Some(None) => true,
            None => false,
        }
    }

    /// A client for the sender of a request.
    pub(crate) fn client(&self, parts: &Parts) -> Client {
        self.client_with(parts, None)
    }

    /// The same, with what a form of ours carried.
    pub(crate) fn client_with(&self, parts: &Parts, csrf: Option<&str>) -> Client {
        Client::new(self.within(parts, csrf))
    }

    /// One call whose answer is wanted as it is, with its headers.
    pub(crate) async fn send(
        &self,
        parts: &Parts,
        method: Method,
        path: &str,
        body: Bytes,
        csrf: Option<&str>,
    ) -> Result<Response, Error> {
        let patience = Duration::from_secs(30);
        let call = Call { method, path: path.to_owned(), idempotency_key: None, body: Some(body), patience };
        self.within(parts, csrf).send(call).await
    }

    fn within(&self, parts: &Parts, csrf: Option<&str>) -> Within {
        let mut headers = HeaderMap::new();
        for name in PASSED_ON {
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
        Within { router: self.router.clone(), headers, extensions }
    }
}

/// Calls of one browser.
struct Within {
    router: Router,
    headers: HeaderMap,
    extensions: Extensions,
}

impl Within {
    async fn send(&self, call: Call) -> Result<Response, Error> {
        let body = Body::from(call.body.unwrap_or_default());
        let request = Request::builder().method(call.method).uri(call.path).body(body);
        let mut request = request.map_err(|error| Error::Unreadable(error.to_string()))?;
        *request.headers_mut() = self.headers.clone();
        *request.extensions_mut() = self.extensions.clone();
        if let Some(Ok(key)) = call.idempotency_key.as_deref().map(HeaderValue::from_str) {
            request.headers_mut().insert("idempotency-key", key);
        }
        match tokio::time::timeout(call.patience, self.router.clone().oneshot(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(never)) => match never {},
            Err(_) => Err(Error::unreachable(None, "it took too long")),
        }
    }
}

impl Transport for Within {
    fn carry(&self, call: Call) -> Later<'_> {
        Box::pin(async move {
            let response = self.send(call).await?;
            let status = response.status();
            let body = to_bytes(response.into_body(), ANSWER_BYTES_MAX).await;
            let body = body.map_err(|error| Error::Unreadable(error.to_string()))?;
            Ok(Answer { status, body, retry_after: None })
        })
    }
}
