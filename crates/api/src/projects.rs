//! Projects and their environments.

use crate::access::{Caller, invisible_project, unknown_project};
use crate::app::App;
use crate::endpoint::{Endpoint, Permission};
use crate::error::ApiError;
use crate::extract::{Body, Id};
use crate::flags;
use crate::scope::{Name, shared_object_error};
use axum::Json;
use axum::extract::State;
use http::Method;
use tidemill_core::project::{Flag, FlagName, Project, project_scope};
use tidemill_wire::Page;
use tidemill_wire::projects::{Pause, PutProject, PutProjectResponse, ResumeResponse};

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/v1/projects", Permission::Read, list)
            .describe("projects", "List projects with their environments and flags")
            .responds::<Page<Project>>(200, "The projects"),
        Endpoint::new(Method::GET, "/v1/projects/{project}", Permission::Read, one)
            .describe("projects", "Show a project")
            .responds::<Project>(200, "The project"),
        Endpoint::new(Method::PUT, "/v1/projects/{project}", Permission::Admin, put)
            .describe("projects", "Create a project or add environments to it")
            .body::<PutProject>()
            .responds::<PutProjectResponse>(200, "The project with its environments"),
        Endpoint::new(Method::POST, "/v1/projects/{project}/pause", Permission::Operate, pause)
            .describe("projects", "Pause a project: its runs are not claimed; running ones continue")
            .body::<Pause>()
            .responds::<Flag>(200, "The flag that pauses the project"),
        Endpoint::new(Method::POST, "/v1/projects/{project}/resume", Permission::Operate, resume)
            .describe("projects", "Resume a project")
            .responds::<ResumeResponse>(200, "Whether the project was paused"),
    ]
}

async fn list(State(app): State<App>, caller: Caller) -> Result<Json<Page<Project>>, ApiError> {
    let mut projects = app.engine().store().projects().await?;
    projects.retain(|project| caller.can_see(&project.project_id));
    Ok(Json(Page::complete(projects)))
}

/// Returns a project that the caller may see.
pub(crate) async fn visible_project(app: &App, caller: &Caller, id: &str) -> Result<Project, ApiError> {
    let projects = app.engine().store().projects().await?;
    let found = projects.into_iter().find(|project| project.project_id == id && caller.can_see(id));
    let refused = || if caller.sees_all_projects() { unknown_project(id) } else { invisible_project(id) };
    found.ok_or_else(refused)
}

async fn one(State(app): State<App>, caller: Caller, Id(id): Id<Name>) -> Result<Json<Project>, ApiError> {
    visible_project(&app, &caller, &id.0).await.map(Json)
}

async fn put(
    State(app): State<App>,
    caller: Caller,
    Id(Name(id)): Id<Name>,
    Body(put): Body<PutProject>,
) -> Result<Json<PutProjectResponse>, ApiError> {
    if !caller.can_see(&id) {
        return Err(shared_object_error("the list of projects"));
    }
    let engine = app.engine();
    let created = engine.store().create_project(&id, put.environments, engine.clock().now()).await?;
    let project = visible_project(&app, &caller, &id).await?;
    Ok(Json(PutProjectResponse { project_id: id, environments: project.environments, created }))
}

async fn pause(
    State(app): State<App>,
    caller: Caller,
    Id(Name(id)): Id<Name>,
    Body(pause): Body<Pause>,
) -> Result<Json<Flag>, ApiError> {
    visible_project(&app, &caller, &id).await?;
    flags::set_flag(&app, &caller, FlagName::Paused, project_scope(&id), pause).await.map(Json)
}

async fn resume(
    State(app): State<App>,
    caller: Caller,
    Id(Name(id)): Id<Name>,
) -> Result<Json<ResumeResponse>, ApiError> {
    visible_project(&app, &caller, &id).await?;
    flags::clear_flag(&app, FlagName::Paused, project_scope(&id)).await.map(Json)
}
