//! Worker processes.
//!
//! A process belongs to no project, but a token may. The ids that callers of one project give to their processes are
//! kept apart from everybody else's: whatever id they name, they reach no process but their own, and one that is not
//! theirs reads as one that does not exist. In the list they see the processes that hold runs of their project.

use crate::access::Caller;
use crate::answer::Fail;
use crate::app::App;
use crate::endpoint::{Allowed, Endpoint};
use crate::extract::{Body, Checked, Id};
use axum::Json;
use axum::extract::State;
use http::{Method, StatusCode};
use tidemill_core::worker::{NewWorker, Worker};
use tidemill_core::{WorkerId, digest};
use tidemill_store::{Error, Refusal};
use tidemill_wire::Page;
use tidemill_wire::workers::{Beat, Beaten, DrainWorker, Register};
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
        Endpoint::new(Method::POST, "/v1/workers/{worker}/drain", Allowed::Operate, drain)
            .says(
                "work",
                "Let a worker get nothing new, so that it ends once it has nothing in hand; or undo that",
            )
            .body::<DrainWorker>()
            .answers::<Worker>(200, "The worker"),
        Endpoint::new(Method::DELETE, "/v1/workers/{worker}", Allowed::Work, retire)
            .says("work", "Say goodbye: what the worker still holds goes to others at once")
            .empty(204, "It is gone"),
    ]
}

/// The id that a caller's process is kept under: the one that it gave, and for callers of one project one that is made
/// of it and the project.
pub(crate) fn kept(caller: &Caller, given: WorkerId) -> WorkerId {
    let Some(project) = &caller.project else { return given };
    let mut bytes = [0; 16];
    let digest = digest::sha256(format!("worker {} of {project}", given.0).as_bytes());
    for (byte, digested) in bytes.iter_mut().zip(digest) {
        *byte = digested;
    }
    WorkerId(uuid::Builder::from_custom_bytes(bytes).into_uuid())
}

/// A refusal in the caller's words: the id that its process is kept under means nothing to it.
fn in_words_of(error: Error, given: WorkerId, kept: WorkerId) -> Fail {
    let Error::Refused(refusal) = error else { return error.into() };
    let message = refusal.message.replace(&kept.to_string(), &given.to_string());
    Error::Refused(Refusal { message, ..refusal }).into()
}

async fn list(State(app): State<App>, caller: Caller) -> Result<Json<Page<Worker>>, Fail> {
    Ok(Json(Page::whole(app.engine().store().workers_of(caller.project).await?)))
}

async fn register(
    State(app): State<App>,
    caller: Caller,
    Id(worker): Id<Uuid>,
    Checked(register): Checked<Register>,
) -> Result<StatusCode, Fail> {
    let worker = NewWorker {
        worker_id: kept(&caller, WorkerId(worker)),
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
    let given = WorkerId(worker);
    let kept = kept(&caller, given);
    let beaten = engine.store().beat_worker(kept, beat.runs, engine.clock().now()).await;
    Ok(Json(beaten.map_err(|error| in_words_of(error, given, kept))?))
}

/// A process works for whoever has runs: whether it takes any is nothing that one project decides.
async fn drain(
    State(app): State<App>,
    caller: Caller,
    Id(worker): Id<Uuid>,
    Body(drain): Body<DrainWorker>,
) -> Result<Json<Worker>, Fail> {
    caller.sees_all()?;
    Ok(Json(app.engine().drain_worker(WorkerId(worker), drain.draining).await?))
}

async fn retire(State(app): State<App>, caller: Caller, Id(worker): Id<Uuid>) -> Result<StatusCode, Fail> {
    let engine = app.engine();
    engine.store().retire_worker(kept(&caller, WorkerId(worker)), engine.clock().now()).await?;
    Ok(StatusCode::NO_CONTENT)
}
