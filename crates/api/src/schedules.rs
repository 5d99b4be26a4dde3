//! Endpoints that manage schedules.

use crate::access::{Caller, invisible_project};
use crate::app::App;
use crate::endpoint::{Endpoint, Permission};
use crate::error::ApiError;
use crate::extract::{Body, Id, ValidBody};
use crate::scope::{Name, name_taken_error};
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
        Endpoint::new(Method::GET, "/v1/schedules", Permission::Read, list)
            .describe("schedules", "List schedules")
            .responds::<Page<Schedule>>(200, "The schedules"),
        Endpoint::new(Method::GET, "/v1/schedules/{schedule}", Permission::Read, one)
            .describe("schedules", "Show a schedule")
            .responds::<Schedule>(200, "The schedule"),
        Endpoint::new(Method::PUT, "/v1/schedules/{schedule}", Permission::Operate, put)
            .describe("schedules", "Create or change a schedule; it does not fire for times in the past")
            .body::<PutSchedule>()
            .responds::<Schedule>(200, "The schedule"),
        Endpoint::new(Method::DELETE, "/v1/schedules/{schedule}", Permission::Operate, remove)
            .describe("schedules", "Remove a schedule; its runs stay")
            .responds_empty(204, "The schedule is removed"),
        Endpoint::new(Method::POST, "/v1/schedules/{schedule}/pause", Permission::Operate, pause)
            .describe("schedules", "Pause a schedule")
            .body::<PauseSchedule>()
            .responds::<Schedule>(200, "The schedule"),
        Endpoint::new(Method::POST, "/v1/schedules/{schedule}/resume", Permission::Operate, resume)
            .describe("schedules", "Resume a schedule from its next time on")
            .responds::<Schedule>(200, "The schedule"),
    ]
}

async fn list(State(app): State<App>, caller: Caller) -> Result<Json<Page<Schedule>>, ApiError> {
    let mut schedules = app.engine().store().schedules(None).await?;
    schedules.retain(|schedule| caller.can_see(&schedule.project_id));
    Ok(Json(Page::complete(schedules)))
}

/// Returns a schedule that the caller may see.
async fn visible_schedule(app: &App, caller: &Caller, name: &str) -> Result<Schedule, ApiError> {
    let found = app.engine().store().schedules(Some(name.to_owned())).await?;
    let found = found.into_iter().find(|schedule| caller.can_see(&schedule.project_id));
    let message = || format!("schedule `{name}` does not exist");
    found.ok_or_else(|| Error::refused(RefusalCode::UnknownSchedule, message()).into())
}

async fn one(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
) -> Result<Json<Schedule>, ApiError> {
    visible_schedule(&app, &caller, &name).await.map(Json)
}

async fn put(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
    ValidBody(put): ValidBody<PutSchedule>,
) -> Result<Json<Schedule>, ApiError> {
    if !caller.can_see(&put.request.project) {
        return Err(invisible_project(&put.request.project));
    }
    let before = app.engine().store().schedules(Some(name.clone())).await?;
    if before.iter().any(|schedule| !caller.can_see(&schedule.project_id)) {
        return Err(name_taken_error("the schedule", &name));
    }
    let schedule = NewSchedule {
        name,
        cron: put.cron,
        time_zone: put.time_zone,
        request: put.request.into_request(None),
        missed: put.missed,
        overlap: put.overlap,
    };
    Ok(Json(app.engine().put_schedule(schedule).await?))
}

async fn remove(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
) -> Result<StatusCode, ApiError> {
    visible_schedule(&app, &caller, &name).await?;
    app.engine().store().remove_schedule(name).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn pause(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
    Body(pause): Body<PauseSchedule>,
) -> Result<Json<Schedule>, ApiError> {
    visible_schedule(&app, &caller, &name).await?;
    app.engine().pause_schedule(&name, pause.note).await?;
    visible_schedule(&app, &caller, &name).await.map(Json)
}

async fn resume(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
) -> Result<Json<Schedule>, ApiError> {
    visible_schedule(&app, &caller, &name).await?;
    app.engine().resume_schedule(&name).await?;
    visible_schedule(&app, &caller, &name).await.map(Json)
}
