//! Endpoints for worker processes.
//!
//! A worker belongs to the token that registered it: the stored id is derived from the id that the worker generated
//! and its token. So a token cannot reach the workers of another token, and gets the same error for a foreign id as for
//! an unknown one. Lists contain the stored ids, by which operators drain workers. The list of a caller of one project
//! contains the workers that hold runs of that project.

use crate::access::{AuthContext, Caller};
use crate::app::App;
use crate::endpoint::{Endpoint, Permission};
use crate::error::ApiError;
use crate::extract::{Body, Id, ValidBody};
use axum::Json;
use axum::extract::State;
use http::{Method, StatusCode};
use tidemill_core::worker::{NewWorker, Worker};
use tidemill_core::{WorkerId, ids};
use tidemill_store::{Error, Refusal};
use tidemill_wire::Page;
use tidemill_wire::workers::{DrainWorker, HeartbeatResponse, RegisterWorker, WorkerHeartbeat};
use uuid::Uuid;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/v1/workers", Permission::Read, list)
            .describe("work", "List worker processes")
                .responds::<Page<Worker>>(200, "The workers that are alive or died recently"),
        Endpoint::new(Method::PUT, "/v1/workers/{worker}", Permission::Work, register)
                .describe("work", "Register a worker process under an id that it generated at start")
            .body::<RegisterWorker>()
                .responds_empty(204, "The worker is registered"),
        Endpoint::new(Method::POST, "/v1/workers/{worker}/beat", Permission::Work, heartbeat)
                .describe("work", "Send a worker's heartbeat with the runs that it holds")
            .body::<WorkerHeartbeat>()
                .responds::<HeartbeatResponse>(200, "The state of each run"),
        Endpoint::new(Method::POST, "/v1/workers/{worker}/drain", Permission::Operate, drain)
            .describe(
                "work",
                "Start or end the draining of a worker; a draining worker gets no new runs and exits when idle",
            )
            .body::<DrainWorker>()
            .responds::<Worker>(200, "The worker"),
        Endpoint::new(Method::DELETE, "/v1/workers/{worker}", Permission::Work, retire)
                .describe("work", "Unregister a worker; runs that it still holds are reassigned at once")
                .responds_empty(204, "The worker is unregistered"),
    ]
}

/// The stored id of a caller's worker: derived from the given one and the caller's token. Without a token, it is
/// derived from the caller's project; a caller with neither uses the given id.
pub(crate) fn stored_id(caller: &Caller, auth: &AuthContext, given: WorkerId) -> WorkerId {
    let owner = match (auth.token_id, caller.projects.names()) {
        (Some(token), _) => format!("token {token}"),
        (None, Some(projects)) => format!("project {}", projects.join(",")),
        (None, None) => return given,
    };
    WorkerId(ids::derived_uuid(&format!("worker {} of {owner}", given.0)))
}

/// Replaces the stored worker id in an error message by the id that the caller gave.
fn with_given_id(error: Error, given: WorkerId, stored: WorkerId) -> ApiError {
    let Error::Refused(refusal) = error else { return error.into() };
    let message = refusal.message.replace(&stored.to_string(), &given.to_string());
    Error::Refused(Refusal { message, ..refusal }).into()
}

async fn list(State(app): State<App>, caller: Caller) -> Result<Json<Page<Worker>>, ApiError> {
    Ok(Json(Page::complete(app.engine().store().workers_of(caller.own_project()?).await?)))
}

async fn register(
    State(app): State<App>,
    caller: Caller,
    auth: AuthContext,
    Id(worker): Id<Uuid>,
    ValidBody(register): ValidBody<RegisterWorker>,
) -> Result<StatusCode, ApiError> {
    let worker = NewWorker {
        worker_id: stored_id(&caller, &auth, WorkerId(worker)),
        name: register.name,
        host: register.host,
        pid: register.pid,
        labels: register.labels,
        version: register.version,
    };
    let engine = app.engine();
    engine.store().register_worker(worker, engine.clock().now()).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn heartbeat(
    State(app): State<App>,
    caller: Caller,
    auth: AuthContext,
    Id(worker): Id<Uuid>,
    Body(beat): Body<WorkerHeartbeat>,
) -> Result<Json<HeartbeatResponse>, ApiError> {
    for run in &beat.runs {
        caller.check_run_access(&app, run).await?;
    }
    let engine = app.engine();
    let given = WorkerId(worker);
    let stored = stored_id(&caller, &auth, given);
    let beaten = engine.store().heartbeat_worker(stored, beat.runs, engine.clock().now()).await;
    Ok(Json(beaten.map_err(|error| with_given_id(error, given, stored))?))
}

/// Drains a worker. Not for callers of one project, because a worker serves all projects.
async fn drain(
    State(app): State<App>,
    caller: Caller,
    Id(worker): Id<Uuid>,
    Body(drain): Body<DrainWorker>,
) -> Result<Json<Worker>, ApiError> {
    caller.require_all_projects()?;
    Ok(Json(app.engine().drain_worker(WorkerId(worker), drain.draining).await?))
}

async fn retire(
    State(app): State<App>,
    caller: Caller,
    auth: AuthContext,
    Id(worker): Id<Uuid>,
) -> Result<StatusCode, ApiError> {
    let engine = app.engine();
    engine.store().retire_worker(stored_id(&caller, &auth, WorkerId(worker)), engine.clock().now()).await?;
    Ok(StatusCode::NO_CONTENT)
}
