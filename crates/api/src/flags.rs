//! Flags: what people switched on, with a note for the others.

use crate::access::Caller;
use crate::answer::Fail;
use crate::app::App;
use crate::endpoint::{Allowed, Endpoint};
use crate::extract::{Body, Query};
use crate::projects;
use crate::scope::{Feeds, shared};
use axum::Json;
use axum::extract::State;
use http::Method;
use serde_json::json;
use tidemill_core::project::{Flag, FlagName, FlagSource, SITE_SCOPE};
use tidemill_store::note;
use tidemill_wire::projects::{ClearFlag, Pause, Resumed, SetFlag};
use tidemill_wire::{Fault, Page};

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/v1/flags", Allowed::Look, list)
            .says("projects", "List what is held: projects, feeds, lanes and the site")
            .answers::<Page<Flag>>(200, "The flags"),
        Endpoint::new(Method::PUT, "/v1/flags", Allowed::Operate, set)
            .says("projects", "Switch a flag on, or change its note and end")
            .body::<SetFlag>()
            .answers::<Flag>(200, "The flag"),
        Endpoint::new(Method::DELETE, "/v1/flags", Allowed::Operate, clear)
            .says("projects", "Switch a flag off")
            .query::<ClearFlag>()
            .answers::<Resumed>(200, "Whether it was on"),
    ]
}

/// Whether a flag concerns what a caller of these feeds sees.
fn concerns(flag: &Flag, caller: &Caller, feeds: &Feeds) -> bool {
    match flag.scope.split_once(':') {
        Some(("project", project)) => caller.sees(project),
        Some(("feed", feed)) => feeds.has(feed),
        // A lane is held for every project at once, so whoever waits may know why.
        Some(_) | None => true,
    }
}

async fn list(State(app): State<App>, caller: Caller) -> Result<Json<Page<Flag>>, Fail> {
    let feeds = caller.feeds(&app).await?;
    let mut flags = app.engine().store().flags().await?;
    flags.retain(|flag| concerns(flag, &caller, &feeds));
    Ok(Json(Page::whole(flags)))
}

/// Makes sure that what a flag is to hold exists, and is the caller's to hold. The project that it belongs to, if
/// any.
async fn may_hold(app: &App, caller: &Caller, scope: &str) -> Result<Option<String>, Fail> {
    match scope.split_once(':') {
        Some(("project", project)) => Ok(Some(projects::known(app, caller, project).await?.project_id)),
        Some(("feed", feed)) => Ok(Some(caller.feed(app, feed).await?.feed.project_id)),
        Some(("lane", _)) if caller.project.is_none() => Ok(None),
        Some(("lane", _)) => Err(shared("a lane")),
        None if scope == SITE_SCOPE && caller.project.is_none() => Ok(None),
        None if scope == SITE_SCOPE => Err(shared("the site")),
        Some(_) | None => {
            let problem = "must be `project:ID`, `feed:NAME`, `lane:LANE` or `site`".to_owned();
            Err(Fail::invalid(vec![Fault { field: "scope".to_owned(), problem }]))
        }
    }
}

/// Pauses hold what their scope names; everything else concerns the site.
fn fits(flag: FlagName, scope: &str) -> Result<(), Fail> {
    if flag == FlagName::Paused || scope == SITE_SCOPE {
        return Ok(());
    }
    let problem = format!("must be `site` for the flag `{flag}`");
    Err(Fail::invalid(vec![Fault { field: "scope".to_owned(), problem }]))
}

/// Says for the record which flag it is about, which no path names.
fn noted(flag: FlagName, scope: &str, project: Option<&str>) {
    note(|line| {
        line.names(scope).belongs_to(project).tells("flag", json!(flag));
    });
}

async fn set(State(app): State<App>, caller: Caller, Body(set): Body<SetFlag>) -> Result<Json<Flag>, Fail> {
    let project = may_hold(&app, &caller, &set.scope).await?;
    fits(set.flag, &set.scope)?;
    noted(set.flag, &set.scope, project.as_deref());
    let pause = Pause { note: set.note, until_at: set.until_at };
    switch_on(&app, &caller, set.flag, set.scope, pause).await.map(Json)
}

async fn clear(
    State(app): State<App>,
    caller: Caller,
    Query(clear): Query<ClearFlag>,
) -> Result<Json<Resumed>, Fail> {
    let project = may_hold(&app, &caller, &clear.scope).await?;
    fits(clear.flag, &clear.scope)?;
    noted(clear.flag, &clear.scope, project.as_deref());
    switch_off(&app, clear.flag, clear.scope).await.map(Json)
}

/// Switches a flag on in the caller's name.
pub(crate) async fn switch_on(
    app: &App,
    caller: &Caller,
    flag: FlagName,
    scope: String,
    pause: Pause,
) -> Result<Flag, Fail> {
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

/// Switches a flag off, and wakes whoever waited for that.
pub(crate) async fn switch_off(app: &App, flag: FlagName, scope: String) -> Result<Resumed, Fail> {
    let resumed = app.graphs().clear_flag(flag, &scope).await?;
    app.engine().store().wake_soon();
    Ok(Resumed { resumed })
}
