//! Flags that pause projects, feeds, lanes or the site, each with a note.

use crate::access::Caller;
use crate::app::App;
use crate::endpoint::{Endpoint, Permission};
use crate::error::ApiError;
use crate::extract::{Body, Query};
use crate::projects;
use crate::scope::{VisibleFeeds, shared_object_error};
use axum::Json;
use axum::extract::State;
use http::Method;
use serde_json::json;
use tidemill_core::project::{Flag, FlagName, FlagSource, SITE_SCOPE};
use tidemill_wire::projects::{ClearFlag, Pause, ResumeResponse, SetFlag};
use tidemill_wire::{FieldError, Page};

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/v1/flags", Permission::Read, list)
            .describe("projects", "List the flags of projects, feeds, lanes and the site")
            .responds::<Page<Flag>>(200, "The flags"),
        Endpoint::new(Method::PUT, "/v1/flags", Permission::Operate, set)
            .describe("projects", "Set a flag, or change its note and end")
            .body::<SetFlag>()
            .responds::<Flag>(200, "The flag"),
        Endpoint::new(Method::DELETE, "/v1/flags", Permission::Operate, clear)
            .describe("projects", "Clear a flag")
            .query::<ClearFlag>()
            .responds::<ResumeResponse>(200, "Whether the flag was set"),
    ]
}

/// Whether the caller may see a flag.
fn is_visible(flag: &Flag, caller: &Caller, feeds: &VisibleFeeds) -> bool {
    match flag.scope.split_once(':') {
        Some(("project", project)) => caller.can_see(project),
        Some(("feed", feed)) => feeds.contains(feed),
        // Flags of a lane or the site affect every project, so every caller may see them.
        Some(_) | None => true,
    }
}

async fn list(State(app): State<App>, caller: Caller) -> Result<Json<Page<Flag>>, ApiError> {
    let feeds = caller.feeds(&app).await?;
    let mut flags = app.engine().store().flags().await?;
    flags.retain(|flag| is_visible(flag, &caller, &feeds));
    Ok(Json(Page::complete(flags)))
}

/// Checks that the scope of a flag exists and that the caller may change it. Returns its project, if it has one.
async fn check_scope_access(app: &App, caller: &Caller, scope: &str) -> Result<Option<String>, ApiError> {
    match scope.split_once(':') {
        Some(("project", project)) => {
            Ok(Some(projects::visible_project(app, caller, project).await?.project_id))
        }
        Some(("feed", feed)) => Ok(Some(caller.feed(app, feed).await?.feed.project_id)),
        Some(("lane", _)) if caller.sees_all_projects() => Ok(None),
        Some(("lane", _)) => Err(shared_object_error("a lane")),
        None if scope == SITE_SCOPE && caller.sees_all_projects() => Ok(None),
        None if scope == SITE_SCOPE => Err(shared_object_error("the site")),
        Some(_) | None => {
            let problem = "must be `project:ID`, `feed:NAME`, `lane:LANE` or `site`".to_owned();
            Err(ApiError::invalid(vec![FieldError { field: "scope".to_owned(), problem }]))
        }
    }
}

/// Only the flag `paused` may have another scope than the site.
fn check_flag_scope(flag: FlagName, scope: &str) -> Result<(), ApiError> {
    if flag == FlagName::Paused || scope == SITE_SCOPE {
        return Ok(());
    }
    let problem = format!("must be `site` for the flag `{flag}`");
    Err(ApiError::invalid(vec![FieldError { field: "scope".to_owned(), problem }]))
}

/// Adds the flag to the audit entry, because the path does not contain it.
fn annotate(app: &App, flag: FlagName, scope: &str, project: Option<&str>) {
    app.annotate_audit(|line| {
        line.set_subject(scope).set_project(project).add_detail("flag", json!(flag));
    });
}

async fn set(
    State(app): State<App>,
    caller: Caller,
    Body(set): Body<SetFlag>,
) -> Result<Json<Flag>, ApiError> {
    let project = check_scope_access(&app, &caller, &set.scope).await?;
    check_flag_scope(set.flag, &set.scope)?;
    annotate(&app, set.flag, &set.scope, project.as_deref());
    let pause = Pause { note: set.note, until_at: set.until_at };
    set_flag(&app, &caller, set.flag, set.scope, pause).await.map(Json)
}

async fn clear(
    State(app): State<App>,
    caller: Caller,
    Query(clear): Query<ClearFlag>,
) -> Result<Json<ResumeResponse>, ApiError> {
    let project = check_scope_access(&app, &caller, &clear.scope).await?;
    check_flag_scope(clear.flag, &clear.scope)?;
    annotate(&app, clear.flag, &clear.scope, project.as_deref());
    clear_flag(&app, clear.flag, clear.scope).await.map(Json)
}

/// Sets a flag in the caller's name.
pub(crate) async fn set_flag(
    app: &App,
    caller: &Caller,
    flag: FlagName,
    scope: String,
    pause: Pause,
) -> Result<Flag, ApiError> {
    let engine = app.engine();
    let since = engine.store().now(engine.clock().now()).await?;
    let Pause { note, until_at } = pause;
    let flag = Flag {
        flag,
        scope,
        note,
        since,
        until_at: until_at.map(tidemill_core::request::micros),
        set_by: Some(caller.name.clone()),
        source: FlagSource::Manual,
    };
    app.graphs().set_flag(flag.clone()).await?;
    Ok(flag)
}

/// Clears a flag and wakes the workers that it held back.
pub(crate) async fn clear_flag(app: &App, flag: FlagName, scope: String) -> Result<ResumeResponse, ApiError> {
    let resumed = app.graphs().clear_flag(flag, &scope).await?;
    app.engine().store().wake_soon();
    Ok(ResumeResponse { resumed })
}
