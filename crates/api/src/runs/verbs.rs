//! What changes a run.

use crate::access::{Caller, hidden_project};
use crate::answer::Fail;
use crate::app::App;
use crate::extract::{Body, Checked, Id, IdempotencyKey};
use axum::Json;
use axum::extract::State;
use http::StatusCode;
use tidemill_core::RunId;
use tidemill_core::limits::BATCH_MAX;
use tidemill_core::run::{Applied, FailRun, Queued, Retried};
use tidemill_core::worker::Held;
use tidemill_store::{FinishRun, Holder, note};
use tidemill_wire::Fault;
use tidemill_wire::runs::{
    self, Append, Appended, ArtifactAnswer, Cancel, CancelAnswer, FailAnswer, Finish, FinishMany, Hold,
    NewArtifact, NewRun, Outcome, Outcomes,
};

pub(super) async fn queue(
    State(app): State<App>,
    caller: Caller,
    IdempotencyKey(key): IdempotencyKey,
    Checked(mut run): Checked<NewRun>,
) -> Result<(StatusCode, Json<Queued>), Fail> {
    if !caller.sees(&run.project) {
        return Err(hidden_project(&run.project));
    }
    note(|line| {
        line.belongs_to(Some(&run.project));
    });
    let queued = match run.run_id.take() {
        // An id that is taken would tell of another project's run.
        Some(_) if caller.project.is_some() => {
            let problem = "cannot be chosen by a caller of one project; use an Idempotency-Key".to_owned();
            return Err(Fail::invalid(vec![Fault { field: "run_id".to_owned(), problem }]));
        }
        Some(id) => app.engine().queue_as(run.keyed(key), id).await?,
        None => app.engine().queue(run.keyed(key)).await?,
    };
    let status = if queued.created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(queued)))
}

pub(super) async fn cancel(
    State(app): State<App>,
    caller: Caller,
    Id(run): Id<RunId>,
    Body(cancel): Body<Cancel>,
) -> Result<Json<CancelAnswer>, Fail> {
    caller.may_touch(&app, &run).await?;
    let outcome = app.engine().cancel(&run, &caller.name, cancel.reason.as_deref()).await?;
    let tries = app.engine().store().tries(run.clone()).await?;
    let live = tries.into_iter().find(|other| !other.status.is_terminal() && other.run_id != run);
    let answer = CancelAnswer { run_id: run, outcome, live_successor: live.map(|run| run.run_id) };
    Ok(Json(answer))
}

pub(super) async fn fail(
    State(app): State<App>,
    caller: Caller,
    Id(run): Id<RunId>,
    Body(fail): Body<runs::Fail>,
) -> Result<Json<FailAnswer>, Fail> {
    caller.may_touch(&app, &run).await?;
    let (reason, retry) = (fail.reason, fail.retry);
    let ask = FailRun { run_id: run.clone(), by: caller.name.clone(), reason, retry };
    let failed = app.engine().fail_run(ask).await?;
    Ok(Json(FailAnswer { run_id: run, outcome: failed.outcome, successor: failed.successor }))
}

pub(super) async fn retry(
    State(app): State<App>,
    caller: Caller,
    Id(run): Id<RunId>,
) -> Result<Json<Retried>, Fail> {
    caller.may_touch(&app, &run).await?;
    Ok(Json(app.engine().retry(&run, &caller.name).await?))
}

/// What is said to a caller that no longer holds a run.
async fn stale(app: &App, run: &RunId) -> Fail {
    let current = app.engine().run(run).await.ok().map(|run| run.status);
    let message = match current {
        Some(state) => format!("run {run} is not yours any more; it is {state}, and nothing was changed"),
        None => format!("run {run} is not yours any more; nothing was changed"),
    };
    Fail::stale(message, current)
}

async fn outcome(app: &App, run: &RunId, applied: Applied) -> Result<Json<Outcome>, Fail> {
    match applied {
        Applied::Applied | Applied::Duplicate => Ok(Json(Outcome { outcome: applied })),
        Applied::Stale => Err(stale(app, run).await),
    }
}

pub(super) async fn start(
    State(app): State<App>,
    caller: Caller,
    Id(run): Id<RunId>,
    Body(hold): Body<Hold>,
) -> Result<Json<Outcome>, Fail> {
    caller.may_touch(&app, &run).await?;
    let holder = Holder { worker: hold.worker, epoch: hold.epoch };
    let applied = app.engine().start(&run, &holder).await?;
    outcome(&app, &run, applied).await
}

/// A call has a bounded number of parts, and at least one.
fn bounded(field: &str, count: usize) -> Result<(), Fail> {
    if (1..=BATCH_MAX).contains(&count) {
        return Ok(());
    }
    let problem = format!("are {count}; a call takes 1 to {BATCH_MAX}");
    Err(Fail::invalid(vec![Fault { field: field.to_owned(), problem }]))
}

pub(super) async fn append(
    State(app): State<App>,
    caller: Caller,
    Id(run): Id<RunId>,
    Body(append): Body<Append>,
) -> Result<Json<Appended>, Fail> {
    bounded("events", append.events.len())?;
    caller.may_touch(&app, &run).await?;
    let holder = Holder { worker: append.worker, epoch: append.epoch };
    let events = append.events.into_iter().map(|event| tidemill_core::event::NewEvent {
        level: event.level,
        message: event.message,
        payload: event.payload,
        key: event.key,
    });
    let event_ids = app.engine().append(&run, events.collect(), &holder).await?;
    if event_ids.iter().all(Option::is_none) {
        return Err(stale(&app, &run).await);
    }
    Ok(Json(Appended { event_ids }))
}

pub(super) async fn heartbeat(
    State(app): State<App>,
    caller: Caller,
    Id(run): Id<RunId>,
    Body(hold): Body<Hold>,
) -> Result<Json<Held>, Fail> {
    caller.may_touch(&app, &run).await?;
    let holder = Holder { worker: hold.worker, epoch: hold.epoch };
    let answer = app.engine().heartbeat(&run, &holder).await?;
    if answer.held { Ok(Json(answer)) } else { Err(stale(&app, &run).await) }
}

pub(super) async fn finish(
    State(app): State<App>,
    caller: Caller,
    Id(run): Id<RunId>,
    Body(finish): Body<Finish>,
) -> Result<Json<Outcome>, Fail> {
    caller.may_touch(&app, &run).await?;
    let end = FinishRun {
        run_id: run.clone(),
        status: finish.status,
        metadata: finish.metadata,
        epoch: finish.epoch,
    };
    let applied = app.engine().finish(vec![end], finish.worker.as_deref()).await?;
    let applied = applied.first().copied().ok_or_else(|| Fail::internal("a finish has no outcome"))?;
    outcome(&app, &run, applied).await
}

pub(super) async fn finish_many(
    State(app): State<App>,
    caller: Caller,
    Body(finish): Body<FinishMany>,
) -> Result<Json<Outcomes>, Fail> {
    bounded("ends", finish.ends.len())?;
    for end in &finish.ends {
        caller.may_touch(&app, &end.run_id).await?;
    }
    let ends = finish.ends.into_iter().map(|end| FinishRun {
        run_id: end.run_id,
        status: end.status,
        metadata: end.metadata,
        epoch: end.epoch,
    });
    let outcomes = app.engine().finish(ends.collect(), finish.worker.as_deref()).await?;
    Ok(Json(Outcomes { outcomes }))
}

pub(super) async fn add_artifact(
    State(app): State<App>,
    caller: Caller,
    Id(run): Id<RunId>,
    Body(artifact): Body<NewArtifact>,
) -> Result<(StatusCode, Json<ArtifactAnswer>), Fail> {
    caller.may_touch(&app, &run).await?;
    let artifact = tidemill_core::artifact::NewArtifact {
        artifact_type: artifact.artifact_type,
        url: artifact.url,
        digest: artifact.digest,
        size_bytes: artifact.size_bytes,
        metadata: artifact.metadata,
    };
    let artifact_id = app.engine().add_artifact(&run, artifact).await?;
    Ok((StatusCode::CREATED, Json(ArtifactAnswer { artifact_id, run_id: run })))
}
