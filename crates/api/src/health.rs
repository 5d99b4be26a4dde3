//! The liveness and readiness endpoints.

use crate::app::App;
use crate::endpoint::{Endpoint, Permission};
use crate::error::ApiError;
use axum::Json;
use axum::extract::State;
use http::{Method, StatusCode};
use std::time::Duration;
use tidemill_engine::retry_policy::chain;
use tidemill_store::{Class, Error, LoopError, LoopState};
use tidemill_wire::info::{Health, LoopHealth};

/// Time limit for the database to answer.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/healthz", Permission::Anyone, alive)
            .public()
            .describe("server", "Report whether the server process is alive")
            .responds::<Health>(200, "The process is alive"),
        Endpoint::new(Method::GET, "/readyz", Permission::Anyone, ready)
            .public()
            .describe(
                "server",
                "Report whether the server is ready: the database answers and its schema fits",
            )
            .responds::<Health>(200, "The server is ready. `degraded` lists the background loops that fail"),
    ]
}

async fn alive() -> Json<Health> {
    Json(Health { status: "lives".to_owned(), loops: Vec::new() })
}

async fn ready(State(app): State<App>) -> Result<Json<Health>, ApiError> {
    if *app.closing().borrow() {
        return Err(not_ready("the server is shutting down"));
    }
    match tokio::time::timeout(DATABASE_TIMEOUT, app.engine().store().check_schema()).await {
        Ok(Ok(())) => Ok(Json(health(&app))),
        Ok(Err(error)) => {
            // The caller is not authenticated, so only the log gets the details.
            tracing::warn!("the server is not ready: {}", chain(&error));
            let is_schema = matches!(error, Error::Schema { .. } | Error::Foreign { .. });
            let hint = error.hint().filter(|_| is_schema);
            Err(match (error.class(), hint) {
                (Class::Transient, _) => not_ready("the database does not answer"),
                (Class::Permanent, Some(hint)) => {
                    not_ready("the database schema does not match this server").hint(hint)
                }
                (Class::Permanent, None) => {
                    not_ready("the database cannot be used; see the server log for the cause")
                }
            })
        }
        Err(_) => Err(not_ready("the database did not answer in time")),
    }
}

/// A degraded server still returns 200: otherwise one bad row would make a load balancer remove every server.
fn health(app: &App) -> Health {
    let failing = app.engine().store().monitor().loops().into_iter().filter(|state| state.failure.is_some());
    let loops: Vec<LoopHealth> = failing.map(|state| loop_health(state, |error| error.summary)).collect();
    let status = if loops.is_empty() { "ready" } else { "degraded" };
    Health { status: status.to_owned(), loops }
}

/// State of a background loop. `error` selects how much of the error the caller may see.
pub(crate) fn loop_health(state: LoopState, error: impl FnOnce(LoopError) -> String) -> LoopHealth {
    LoopHealth {
        name: state.name.to_owned(),
        restarts: state.restarts,
        failing_secs: state.failure.as_ref().map(|failure| failure.lasts.as_secs()),
        error: state.failure.map(|failure| error(failure.error)),
    }
}

fn not_ready(message: &str) -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", message).retry_after(1)
}
