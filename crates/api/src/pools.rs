//! Pools and the site restart, which all projects share.

use crate::access::Caller;
use crate::app::App;
use crate::endpoint::{Endpoint, Permission};
use crate::error::ApiError;
use crate::extract::{Body, Id};
use crate::flags;
use axum::Json;
use axum::extract::State;
use http::{Method, StatusCode};
use std::str::FromStr;
use tidemill_core::graph::record::{PoolRecord, RebootStatus};
use tidemill_core::project::{FlagName, SITE_SCOPE};
use tidemill_store::{Error, RefusalCode};
use tidemill_wire::Page;
use tidemill_wire::graphs::{PrepareReboot, PutPool};
use tidemill_wire::projects::ResumeResponse;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/v1/pools", Permission::Read, list)
            .describe("graphs", "List pools with their usage")
            .responds::<Page<PoolRecord>>(200, "The pools"),
        Endpoint::new(Method::PUT, "/v1/pools/{pool}", Permission::Operate, put)
            .describe("graphs", "Create a pool or change its size; running jobs continue")
            .body::<PutPool>()
            .responds::<PoolRecord>(200, "The pool"),
        Endpoint::new(Method::DELETE, "/v1/pools/{pool}", Permission::Operate, remove)
            .describe("graphs", "Remove a pool that no active job uses")
            .responds_empty(204, "The pool is removed"),
        Endpoint::new(Method::GET, "/v1/reboot", Permission::Read, status)
            .describe("graphs", "Report whether the site can be restarted now")
            .responds::<RebootStatus>(200, "Whether any job is still running"),
        Endpoint::new(Method::POST, "/v1/reboot", Permission::Operate, prepare)
            .describe("graphs", "Prepare for a restart: running jobs are stopped and wait until it is over")
            .body::<PrepareReboot>()
            .responds::<RebootStatus>(200, "Whether any job is still running"),
        Endpoint::new(Method::DELETE, "/v1/reboot", Permission::Operate, over)
            .describe("graphs", "End the restart or call it off; jobs continue")
            .responds::<ResumeResponse>(200, "Whether a restart was prepared"),
    ]
}

/// Name of a pool in a path.
struct PoolName(String);

impl FromStr for PoolName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let is_name = (1..=64).contains(&text.len()) && text.bytes().all(fits);
        if is_name { Ok(Self(text.to_owned())) } else { Err("not a valid pool name") }
    }
}

async fn list(State(app): State<App>) -> Result<Json<Page<PoolRecord>>, ApiError> {
    Ok(Json(Page::complete(app.graphs().pools().await?)))
}

async fn put(
    State(app): State<App>,
    caller: Caller,
    Id(PoolName(name)): Id<PoolName>,
    Body(put): Body<PutPool>,
) -> Result<Json<PoolRecord>, ApiError> {
    caller.require_all_projects()?;
    app.graphs().set_pool(&name, put.size).await?;
    let pools = app.graphs().pools().await?;
    let found = pools.into_iter().find(|pool| pool.name == name);
    let message = format!("pool `{name}` does not exist");
    found.map(Json).ok_or_else(|| Error::refused(RefusalCode::UnknownPool, message).into())
}

async fn remove(
    State(app): State<App>,
    caller: Caller,
    Id(PoolName(name)): Id<PoolName>,
) -> Result<StatusCode, ApiError> {
    caller.require_all_projects()?;
    app.graphs().remove_pool(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn status(State(app): State<App>, caller: Caller) -> Result<Json<RebootStatus>, ApiError> {
    caller.require_all_projects()?;
    Ok(Json(app.graphs().reboot_status().await?))
}

async fn prepare(
    State(app): State<App>,
    caller: Caller,
    Body(prepare): Body<PrepareReboot>,
) -> Result<Json<RebootStatus>, ApiError> {
    caller.require_all_projects()?;
    Ok(Json(app.graphs().prepare_for_reboot(prepare.note.as_deref(), &caller.name).await?))
}

async fn over(State(app): State<App>, caller: Caller) -> Result<Json<ResumeResponse>, ApiError> {
    caller.require_all_projects()?;
    flags::clear_flag(&app, FlagName::Reboot, SITE_SCOPE.to_owned()).await.map(Json)
}
