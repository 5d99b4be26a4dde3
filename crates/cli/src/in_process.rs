//! The HTTP API within this process: commands with direct database access call the router without a socket.

use crate::retry::is_idempotent;
use axum::Router;
use axum::body::{Body, to_bytes};
use bytes::Bytes;
use http::{Request, StatusCode};
use tidemill_api::access::Access;
use tidemill_api::{App, Cause, router};
use tidemill_client::{ApiRequest, ApiResponse, Client, Error, Transport, TransportFuture};
use tidemill_engine::RetryPolicy;
use tidemill_engine::retry_policy::{RetryableError as _, chain};
use tidemill_engine::sync::Syncs;
use tidemill_wire::Problem;
use tower::ServiceExt as _;

/// Transport that calls a router as a function.
///
/// The client retries calls that it may repeat, as it does with a remote server. For these calls the use cases make one
/// attempt, so that no loop of retries contains another. All other calls are retried by the use cases, which know what
/// they may repeat.
struct InProcessTransport {
    single_attempt: Router,
    retrying: Router,
}

/// Creates a client that has all rights.
pub(crate) fn client(syncs: Syncs, name: String) -> Client {
    let access = Access::Open { name };
    let single_attempt = App::new(syncs.with_retry_policy(RetryPolicy::None), access.clone());
    let retrying = App::new(syncs, access);
    crate::retry::client(InProcessTransport {
        single_attempt: router(single_attempt),
        retrying: router(retrying),
    })
}

impl Transport for InProcessTransport {
    fn send(&self, call: ApiRequest) -> TransportFuture<'_, ApiResponse> {
        Box::pin(async move {
            let router = if is_idempotent(&call) { &self.single_attempt } else { &self.retrying };
            let mut request = Request::builder().method(call.method).uri(call.path);
            if let Some(key) = call.idempotency_key {
                request = request.header("idempotency-key", key.into_bytes());
            }
            let request = request.body(Body::from(call.body.unwrap_or_default()));
            let request = request.map_err(|error| Error::InvalidResponse(error.to_string()))?;
            let answered = router.clone().oneshot(request).await;
            let response = match answered {
                Ok(response) => response,
                Err(never) => match never {},
            };
            if let Some(Cause(error)) = response.extensions().get::<Cause>() {
                return Ok(database_problem(error));
            }
            let status = response.status();
            let body = to_bytes(response.into_body(), usize::MAX).await;
            let body = body.map_err(|error| Error::InvalidResponse(error.to_string()))?;
            Ok(ApiResponse { status, body, retry_after: None })
        })
    }
}

/// The full error of the database. A server would hide it from its clients; here the user owns the database.
fn database_problem(error: &tidemill_store::Error) -> ApiResponse {
    let status = if error.is_retryable() {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::INTERNAL_SERVER_ERROR
    };
    let problem = Problem { hint: error.hint(), ..Problem::new("database", chain(error)) };
    let body = serde_json::to_vec(&problem).map(Bytes::from).unwrap_or_default();
    ApiResponse { status, body, retry_after: None }
}

#[cfg(test)]
mod tests {
    use super::InProcessTransport;
    use axum::Router;
    use http::Method;
    use std::time::Duration;
    use tidemill_client::{ApiRequest, Transport as _};

    #[tokio::test]
    async fn repeatable_call_makes_one_attempt() {
        let named = |name: &'static str| Router::new().fallback(move || async move { name });
        let transport = InProcessTransport { single_attempt: named("single"), retrying: named("retrying") };
        for (method, path, expected) in [
            (Method::GET, "/v1/tokens", "single"),
            (Method::POST, "/v1/runs/batch", "single"),
            (Method::POST, "/v1/tokens", "retrying"),
        ] {
            let path = path.to_owned();
            let timeout = Duration::from_secs(10);
            let call = ApiRequest { method, path, idempotency_key: None, body: None, timeout };
            assert_eq!(transport.send(call).await.unwrap().body, expected);
        }
    }
}
