//! An HTTP API in this process, and its client.

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tidemill_api::access::{Access, Caller};
use tidemill_api::{App, router};
use tidemill_client::{ApiRequest, ApiResponse, Client, Error, Transport, TransportFuture};
use tidemill_core::access::Role;
use tidemill_core::project_set::ProjectSet;
use tidemill_engine::sync::{SyncSettings, Syncs};
use tidemill_engine::{Clock, Engine, RetryPolicy};
use tidemill_testkit::interface::{Fixture, Kind, at};
use tower::ServiceExt as _;

/// A transport that calls the router directly.
#[derive(Clone)]
pub(crate) struct InProcessTransport(axum::Router);

impl Transport for InProcessTransport {
    fn send(&self, call: ApiRequest) -> TransportFuture<'_, ApiResponse> {
        Box::pin(async move {
            let mut request = Request::builder().method(call.method).uri(call.path);
            if let Some(key) = call.idempotency_key {
                request = request.header("idempotency-key", key);
            }
            let body = axum::body::Body::from(call.body.unwrap_or_default());
            let request = request.body(body).map_err(|error| Error::InvalidResponse(error.to_string()))?;
            let answer = self.0.clone().oneshot(request).await.expect("a router answers");
            let status = answer.status();
            let body = answer.into_body().collect().await.expect("a body is read").to_bytes();
            Ok(ApiResponse { status, body, retry_after: None })
        })
    }
}

/// The HTTP API on a database of its own, and clients of it.
pub(crate) struct ApiFixture {
    pub(crate) base: Fixture,
    pub(crate) syncs: Syncs,
    /// Client of an admin.
    pub(crate) admin: Client,
    transport: InProcessTransport,
}

impl ApiFixture {
    /// Opens the API with a fixed clock.
    pub(crate) async fn open(kind: Kind) -> Self {
        Self::on(Fixture::open(kind).await)
    }

    pub(crate) fn on(base: Fixture) -> Self {
        let engine = Engine::new(base.store.clone(), Clock::fixed(at(0)), RetryPolicy::None);
        Self::of(base, Syncs::new(engine, SyncSettings::default()))
    }

    pub(crate) fn of(base: Fixture, syncs: Syncs) -> Self {
        let access = Access::Open { name: "ann".to_owned() };
        let transport = InProcessTransport(router(App::new(syncs.clone(), access)));
        Self { base, syncs, admin: Client::new(transport.clone()), transport }
    }

    /// Returns the API for a caller of one project.
    pub(crate) fn of_project(&self, project: &str) -> ApiFixture {
        let caller =
            Caller { name: "bob".to_owned(), role: Role::Admin, projects: ProjectSet::of(Some(project)) };
        let transport = InProcessTransport(router(App::new(self.syncs.clone(), Access::Fixed(caller))));
        ApiFixture {
            base: self.base.clone(),
            syncs: self.syncs.clone(),
            admin: Client::new(transport.clone()),
            transport,
        }
    }

    /// Sends a request with a literal body.
    pub(crate) async fn raw(&self, method: Method, path: &str, body: &str) -> (StatusCode, Value) {
        self.keyed(method, path, body, None).await
    }

    /// Sends a request with an idempotency key.
    pub(crate) async fn keyed(
        &self,
        method: Method,
        path: &str,
        body: &str,
        key: Option<&str>,
    ) -> (StatusCode, Value) {
        let call = ApiRequest {
            method,
            path: path.to_owned(),
            idempotency_key: key.map(str::to_owned),
            body: Some(Bytes::copy_from_slice(body.as_bytes())),
            timeout: std::time::Duration::from_secs(30),
        };
        let answer = self.transport.send(call).await.expect("the API answers");
        (answer.status, serde_json::from_slice(&answer.body).unwrap_or(Value::Null))
    }
}

/// Returns the status and the code of a refusal.
pub(crate) fn refused<T: std::fmt::Debug>(answer: Result<T, Error>) -> (u16, String) {
    let error = answer.expect_err("this is refused");
    let Error::Refused { status, problem } = error else { panic!("{error:?}") };
    (status.as_u16(), problem.code)
}

/// Returns the fields that an error names, sorted.
pub(crate) fn fields(problem: &Value) -> Vec<String> {
    let faults = problem["faults"].as_array().expect("a problem with faults");
    let mut fields: Vec<String> =
        faults.iter().filter_map(|fault| fault["field"].as_str().map(str::to_owned)).collect();
    fields.sort();
    fields.dedup();
    fields
}
