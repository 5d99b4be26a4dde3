//! Schedules.

use crate::access::{Caller, hidden_project};
use crate::answer::Fail;
use crate::app::App;
use crate::endpoint::{Allowed, Endpoint};
use crate::extract::{Body, Checked, Id};
use crate::scope::{Name, taken};
use axum::Json;
use axum::extract::State;
use http::{Method, StatusCode};
use tidemill_core::schedule::Schedule;
use tidemill_engine::NewSchedule;
use tidemill_store::{Error, RefusalCode};
use tidemill_wire::Page;
use tidemill_wire::schedules::{PauseSchedule, PutSchedule};

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/v1/schedules", Allowed::Look, list)
            .says("schedules", "List schedules")
            .answers::<Page<Schedule>>(200, "The schedules"),
        Endpoint::new(Method::GET, "/v1/schedules/{schedule}", Allowed::Look, one)
            .says("schedules", "Show a schedule")
            .answers::<Schedule>(200, "The schedule"),
        Endpoint::new(Method::PUT, "/v1/schedules/{schedule}", Allowed::Operate, put)
            .says("schedules", "Make a schedule, or change the one of that name; it first fires after now")
            .body::<PutSchedule>()
            .answers::<Schedule>(200, "The schedule"),
        Endpoint::new(Method::DELETE, "/v1/schedules/{schedule}", Allowed::Operate, remove)
            .says("schedules", "Remove a schedule; its runs stay")
            .empty(204, "It is gone"),
        Endpoint::new(Method::POST, "/v1/schedules/{schedule}/pause", Allowed::Operate, pause)
            .says("schedules", "Stop a schedule from firing")
            .body::<PauseSchedule>()
            .answers::<Schedule>(200, "The schedule"),
        Endpoint::new(Method::POST, "/v1/schedules/{schedule}/resume", Allowed::Operate, resume)
            .says("schedules", "Let a schedule fire again, from its next time on")
            .answers::<Schedule>(200, "The schedule"),
    ]
}

async fn list(State(app): State<App>, caller: Caller) -> Result<Json<Page<Schedule>>, Fail> {
    let mut schedules = app.engine().store().schedules(None).await?;
    schedules.retain(|schedule| caller.sees(&schedule.project_id));
    Ok(Json(Page::whole(schedules)))
}

/// A schedule that the caller may see.
async fn known(app: &App, caller: &Caller, name: &str) -> Result<Schedule, Fail> {
    let found = app.engine().store().schedules(Some(name.to_owned())).await?;
    let found = found.into_iter().find(|schedule| caller.sees(&schedule.project_id));
    let message = || format!("schedule `{name}` does not exist");
    found.ok_or_else(|| Error::refused(RefusalCode::UnknownSchedule, message()).into())
}

async fn one(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
) -> Result<Json<Schedule>, Fail> {
    known(&app, &caller, &name).await.map(Json)
}

async fn put(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
    Checked(put): Checked<PutSchedule>,
) -> Result<Json<Schedule>, Fail> {
    if !caller.sees(&put.request.project) {
        return Err(hidden_project(&put.request.project));
    }
    let before = app.engine().store().schedules(Some(name.clone())).await?;
    if before.iter().any(|schedule| !caller.sees(&schedule.project_id)) {
        return Err(taken("the schedule", &name));
    }
    let wanted = NewSchedule {
        name,
        cron: put.cron,
        time_zone: put.time_zone,
        request: put.request.keyed(None),
        missed: put.missed,
        overlap: put.overlap,
    };
    Ok(Json(app.engine().put_schedule(wanted).await?))
}

async fn remove(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
) -> Result<StatusCode, Fail> {
    known(&app, &caller, &name).await?;
    app.engine().store().remove_schedule(name).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn pause(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
    Body(pause): Body<PauseSchedule>,
) -> Result<Json<Schedule>, Fail> {
    known(&app, &caller, &name).await?;
    app.engine().pause_schedule(&name, pause.note).await?;
    known(&app, &caller, &name).await.map(Json)
}

async fn resume(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
) -> Result<Json<Schedule>, Fail> {
    known(&app, &caller, &name).await?;
    app.engine().resume_schedule(&name).await?;
    known(&app, &caller, &name).await.map(Json)
}
