//! Whether the server lives, and whether it can be used.

use crate::answer::Fail;
use crate::app::App;
use crate::endpoint::{Allowed, Endpoint};
use axum::Json;
use axum::extract::State;
use http::{Method, StatusCode};
use std::time::Duration;
use tidemill_engine::patience::chain;
use tidemill_store::{Class, Error, LoopError, LoopState};
use tidemill_wire::info::{Health, LoopHealth};

/// How long the database has to answer.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/healthz", Allowed::Anyone, lives)
            .open()
            .says("server", "Say whether the server lives")
            .answers::<Health>(200, "It lives"),
        Endpoint::new(Method::GET, "/readyz", Allowed::Anyone, ready)
            .open()
            .says("server", "Say whether the server can be used: the database answers, and its schema fits")
            .answers::<Health>(200, "It can be used. `degraded` names the background loops that fail"),
    ]
}

async fn lives() -> Json<Health> {
    Json(Health { status: "lives".to_owned(), loops: Vec::new() })
}

async fn ready(State(app): State<App>) -> Result<Json<Health>, Fail> {
    if *app.closing().borrow() {
        return Err(not_ready("the server is about to end"));
    }
    match tokio::time::timeout(PATIENCE, app.engine().store().check_schema()).await {
        Ok(Ok(())) => Ok(Json(health(&app))),
        Ok(Err(error)) => {
            // Whoever asks has no token: what exactly is wrong, and where, is for the log.
            tracing::warn!("the server cannot be used: {}", chain(&error));
            let is_schema = matches!(error, Error::Schema { .. } | Error::Foreign { .. });
            let hint = error.hint().filter(|_| is_schema);
            Err(match (error.class(), hint) {
                (Class::Transient, _) => not_ready("the database does not answer"),
                (Class::Permanent, Some(hint)) => {
                    not_ready("the schema of the database does not fit this server").hint(hint)
                }
                (Class::Permanent, None) => {
                    not_ready("the database cannot be used; the server's log says why")
                }
            })
        }
        Err(_) => Err(not_ready("the database does not answer in time")),
    }
}

/// Degraded is still 200: otherwise one bad row would make a load balancer remove every server at once.
fn health(app: &App) -> Health {
    let failing = app.engine().store().monitor().loops().into_iter().filter(|state| state.failure.is_some());
    let loops: Vec<LoopHealth> = failing.map(|state| loop_health(state, |error| error.summary)).collect();
    let status = if loops.is_empty() { "ready" } else { "degraded" };
    Health { status: status.to_owned(), loops }
}

/// The state of a loop, with as much of its error as the caller may see.
pub(crate) fn loop_health(state: LoopState, error: impl FnOnce(LoopError) -> String) -> LoopHealth {
    LoopHealth {
        name: state.name.to_owned(),
        restarts: state.restarts,
        failing_secs: state.failure.as_ref().map(|failure| failure.lasts.as_secs()),
        error: state.failure.map(|failure| error(failure.error)),
    }
}

fn not_ready(message: &str) -> Fail {
    Fail::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", message).retry_after(1)
}
