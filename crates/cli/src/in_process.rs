//! The HTTP API within this process: commands with direct database access call the router without a socket.

use axum::Router;
use axum::body::{Body, to_bytes};
use bytes::Bytes;
use http::{Request, StatusCode};
use tidemill_api::access::Access;
use tidemill_api::{App, Cause, router};
use tidemill_client::{ApiRequest, ApiResponse, Client, Error, Transport, TransportFuture};
use tidemill_engine::retry_policy::{RetryableError as _, chain};
use tidemill_engine::sync::Syncs;
use tidemill_wire::Problem;
use tower::ServiceExt as _;

/// Transport that calls the router as a function.
struct InProcessTransport {
    router: Router,
}

/// Creates a client that has all rights.
///
/// The API retries writes while the database is unreachable, but not all reads. The client retries both, as it does
/// with a remote server.
pub(crate) fn client(syncs: Syncs, name: String) -> Client {
    crate::retry::client(InProcessTransport { router: router(App::new(syncs, Access::Open { name })) })
}

impl Transport for InProcessTransport {
    fn send(&self, call: ApiRequest) -> TransportFuture<'_, ApiResponse> {
        Box::pin(async move {
            let mut request = Request::builder().method(call.method).uri(call.path);
            if let Some(key) = call.idempotency_key {
                request = request.header("idempotency-key", key.into_bytes());
            }
            let request = request.body(Body::from(call.body.unwrap_or_default()));
            let request = request.map_err(|error| Error::InvalidResponse(error.to_string()))?;
            let answered = self.router.clone().oneshot(request).await;
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
