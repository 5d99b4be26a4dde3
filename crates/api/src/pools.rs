//! Pools, and the restart of the site: what every project shares.

use crate::access::Caller;
use crate::answer::Fail;
use crate::app::App;
use crate::endpoint::{Allowed, Endpoint};
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
use tidemill_wire::projects::Resumed;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/v1/pools", Allowed::Look, list)
            .says("graphs", "List pools, and how full they are")
            .answers::<Page<PoolRecord>>(200, "The pools"),
        Endpoint::new(Method::PUT, "/v1/pools/{pool}", Allowed::Operate, put)
            .says("graphs", "Make a pool, or change its size; what runs goes on")
            .body::<PutPool>()
            .answers::<PoolRecord>(200, "The pool"),
        Endpoint::new(Method::DELETE, "/v1/pools/{pool}", Allowed::Operate, remove)
            .says("graphs", "Remove a pool that no live job names")
            .empty(204, "It is gone"),
        Endpoint::new(Method::GET, "/v1/reboot", Allowed::Look, status)
            .says("graphs", "Say whether the site can be restarted")
            .answers::<RebootStatus>(200, "Whether anything of graphs runs"),
        Endpoint::new(Method::POST, "/v1/reboot", Allowed::Operate, prepare)
            .says("graphs", "Prepare for a restart: jobs are stopped, and wait until it is over")
            .body::<PrepareReboot>()
            .answers::<RebootStatus>(200, "Whether anything of graphs still runs"),
        Endpoint::new(Method::DELETE, "/v1/reboot", Allowed::Operate, over)
            .says("graphs", "Say that the restart is over, or does not take place: jobs go on")
            .answers::<Resumed>(200, "Whether one was prepared for"),
    ]
}

/// The name of a pool, as it stands in a path.
struct PoolName(String);

impl FromStr for PoolName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let is_name = (1..=64).contains(&text.len()) && text.bytes().all(fits);
        if is_name { Ok(Self(text.to_owned())) } else { Err("it is not the name of a pool") }
    }
}

async fn list(State(app): State<App>) -> Result<Json<Page<PoolRecord>>, Fail> {
    Ok(Json(Page::whole(app.graphs().pools().await?)))
}

async fn put(
    State(app): State<App>,
    caller: Caller,
    Id(PoolName(name)): Id<PoolName>,
    Body(put): Body<PutPool>,
) -> Result<Json<PoolRecord>, Fail> {
    caller.sees_all()?;
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
) -> Result<StatusCode, Fail> {
    caller.sees_all()?;
    app.graphs().remove_pool(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn status(State(app): State<App>, caller: Caller) -> Result<Json<RebootStatus>, Fail> {
    caller.sees_all()?;
    Ok(Json(app.graphs().reboot_status().await?))
}

async fn prepare(
    State(app): State<App>,
    caller: Caller,
    Body(prepare): Body<PrepareReboot>,
) -> Result<Json<RebootStatus>, Fail> {
    caller.sees_all()?;
    Ok(Json(app.graphs().prepare_for_reboot(prepare.note.as_deref(), &caller.name).await?))
}

async fn over(State(app): State<App>, caller: Caller) -> Result<Json<Resumed>, Fail> {
    caller.sees_all()?;
    flags::switch_off(&app, FlagName::Reboot, SITE_SCOPE.to_owned()).await.map(Json)
}
