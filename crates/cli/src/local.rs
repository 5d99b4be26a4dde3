//! The HTTP door within one process: requests of commands that run beside their database, without a socket.

use axum::Router;
use axum::body::{Body, to_bytes};
use bytes::Bytes;
use http::{Request, StatusCode};
use tidemill_api::access::Access;
use tidemill_api::{App, Cause, router};
use tidemill_client::{Answer, Call, Client, Error, Later, Transport};
use tidemill_engine::patience::{Passing as _, chain};
use tidemill_engine::sync::Syncs;
use tidemill_wire::Problem;
use tower::ServiceExt as _;

/// The whole door, called as a function.
struct Local {
    router: Router,
}

/// A client of the door on these use cases, for somebody who may do everything. Behind the door verbs are asked again
/// while the database is away, but not all that is read: so it is here, as for a server that is far away.
pub(crate) fn client(syncs: Syncs, name: String) -> Client {
    crate::patient::client(Local { router: router(App::new(syncs, Access::Open { name })) })
}

impl Transport for Local {
    fn carry(&self, call: Call) -> Later<'_> {
        Box::pin(async move {
            let mut request = Request::builder().method(call.method).uri(call.path);
            if let Some(key) = call.idempotency_key {
                request = request.header("idempotency-key", key.into_bytes());
            }
            let request = request.body(Body::from(call.body.unwrap_or_default()));
            let request = request.map_err(|error| Error::Unreadable(error.to_string()))?;
            let answered = self.router.clone().oneshot(request).await;
            let response = match answered {
                Ok(response) => response,
                Err(never) => match never {},
            };
            if let Some(Cause(error)) = response.extensions().get::<Cause>() {
                return Ok(told(error));
            }
            let status = response.status();
            let body = to_bytes(response.into_body(), usize::MAX).await;
            let body = body.map_err(|error| Error::Unreadable(error.to_string()))?;
            Ok(Answer { status, body, retry_after: None })
        })
    }
}

/// What went wrong with the database, in full: here nobody listens who may not know it.
fn told(error: &tidemill_store::Error) -> Answer {
    let status =
        if error.passes() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::INTERNAL_SERVER_ERROR };
    let problem = Problem { hint: error.hint(), ..Problem::new("database", chain(error)) };
    let body = serde_json::to_vec(&problem).map(Bytes::from).unwrap_or_default();
    Answer { status, body, retry_after: None }
}
