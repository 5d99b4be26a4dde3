//! Worker processes.

use crate::access::Caller;
use crate::answer::Fail;
use crate::app::App;
use crate::endpoint::{Allowed, Endpoint};
use crate::extract::{Body, Id};
use axum::Json;
use axum::extract::State;
use http::{Method, StatusCode};
use tidemill_core::WorkerId;
use tidemill_core::worker::{NewWorker, Worker};
use tidemill_wire::Page;
use tidemill_wire::workers::{Beat, Beaten, Register};
use uuid::Uuid;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/v1/workers", Allowed::Look, list)
            .says("work", "List worker processes")
            .answers::<Page<Worker>>(200, "The workers that live, or died lately"),
        Endpoint::new(Method::PUT, "/v1/workers/{worker}", Allowed::Work, register)
            .says("work", "Register a worker process under the id that it made at its start")
            .body::<Register>()
            .empty(204, "It is registered"),
        Endpoint::new(Method::POST, "/v1/workers/{worker}/beat", Allowed::Work, beat)
            .says("work", "Say that a worker lives, and learn what became of its runs")
            .body::<Beat>()
            .answers::<Beaten>(200, "What became of each run"),
        Endpoint::new(Method::DELETE, "/v1/workers/{worker}", Allowed::Work, retire)
            .says("work", "Say goodbye: what the worker still holds goes to others at once")
            .empty(204, "It is gone"),
    ]
}

async fn list(State(app): State<App>) -> Result<Json<Page<Worker>>, Fail> {
    Ok(Json(Page::whole(app.engine().store().workers().await?)))
}

async fn register(
    State(app): State<App>,
    Id(worker): Id<Uuid>,
    Body(register): Body<Register>,
) -> Result<StatusCode, Fail> {
    tidemill_core::request::check_worker_name(&register.name).map_err(tidemill_store::Error::from)?;
    tidemill_core::request::check_labels(&register.labels).map_err(tidemill_store::Error::from)?;
    let worker = NewWorker {
        worker_id: WorkerId(worker),
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

async fn beat(
    State(app): State<App>,
    caller: Caller,
    Id(worker): Id<Uuid>,
    Body(beat): Body<Beat>,
) -> Result<Json<Beaten>, Fail> {
    for run in &beat.runs {
        caller.may_touch(&app, run).await?;
    }
    let engine = app.engine();
    let held = engine.store().beat_worker(WorkerId(worker), beat.runs, engine.clock().now()).await?;
    Ok(Json(Beaten { held }))
}

async fn retire(State(app): State<App>, Id(worker): Id<Uuid>) -> Result<StatusCode, Fail> {
    let engine = app.engine();
    engine.store().retire_worker(WorkerId(worker), engine.clock().now()).await?;
    Ok(StatusCode::NO_CONTENT)
}
