//! Projects and their environments.

use crate::access::{Caller, hidden_project, unknown_project};
use crate::answer::Fail;
use crate::app::App;
use crate::endpoint::{Allowed, Endpoint};
use crate::extract::{Body, Id};
use crate::flags;
use crate::scope::{Name, shared};
use axum::Json;
use axum::extract::State;
use http::Method;
use tidemill_core::project::{Flag, FlagName, Project, project_scope};
use tidemill_wire::Page;
use tidemill_wire::projects::{Pause, ProjectPut, PutProject, Resumed};

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/v1/projects", Allowed::Look, list)
            .says("projects", "List projects, with their environments and what holds them")
            .answers::<Page<Project>>(200, "The projects"),
        Endpoint::new(Method::GET, "/v1/projects/{project}", Allowed::Look, one)
            .says("projects", "Show a project")
            .answers::<Project>(200, "The project"),
        Endpoint::new(Method::PUT, "/v1/projects/{project}", Allowed::Admin, put)
            .says("projects", "Make a project, or add environments to it")
            .body::<PutProject>()
            .answers::<ProjectPut>(200, "It is there, with these environments"),
        Endpoint::new(Method::POST, "/v1/projects/{project}/pause", Allowed::Operate, pause)
            .says("projects", "Let no run of a project be claimed; runs in hand go on")
            .body::<Pause>()
            .answers::<Flag>(200, "The flag that holds it"),
        Endpoint::new(Method::POST, "/v1/projects/{project}/resume", Allowed::Operate, resume)
            .says("projects", "Let a project go on")
            .answers::<Resumed>(200, "Whether it was paused"),
    ]
}

async fn list(State(app): State<App>, caller: Caller) -> Result<Json<Page<Project>>, Fail> {
    let mut projects = app.engine().store().projects().await?;
    projects.retain(|project| caller.sees(&project.project_id));
    Ok(Json(Page::whole(projects)))
}

/// A project that exists, and that the caller may see.
pub(crate) async fn known(app: &App, caller: &Caller, id: &str) -> Result<Project, Fail> {
    let projects = app.engine().store().projects().await?;
    let found = projects.into_iter().find(|project| project.project_id == id && caller.sees(id));
    let refused = || if caller.project.is_none() { unknown_project(id) } else { hidden_project(id) };
    found.ok_or_else(refused)
}

async fn one(State(app): State<App>, caller: Caller, Id(id): Id<Name>) -> Result<Json<Project>, Fail> {
    known(&app, &caller, &id.0).await.map(Json)
}

async fn put(
    State(app): State<App>,
    caller: Caller,
    Id(Name(id)): Id<Name>,
    Body(put): Body<PutProject>,
) -> Result<Json<ProjectPut>, Fail> {
    if !caller.sees(&id) {
        return Err(shared("which projects there are"));
    }
    let engine = app.engine();
    let created = engine.store().create_project(&id, put.environments, engine.clock().now()).await?;
    let project = known(&app, &caller, &id).await?;
    Ok(Json(ProjectPut { project_id: id, environments: project.environments, created }))
}

async fn pause(
    State(app): State<App>,
    caller: Caller,
    Id(Name(id)): Id<Name>,
    Body(pause): Body<Pause>,
) -> Result<Json<Flag>, Fail> {
    known(&app, &caller, &id).await?;
    flags::switch_on(&app, &caller, FlagName::Paused, project_scope(&id), pause).await.map(Json)
}

async fn resume(
    State(app): State<App>,
    caller: Caller,
    Id(Name(id)): Id<Name>,
) -> Result<Json<Resumed>, Fail> {
    known(&app, &caller, &id).await?;
    flags::switch_off(&app, FlagName::Paused, project_scope(&id)).await.map(Json)
}
