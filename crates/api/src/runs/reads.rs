//! What is only read.

use crate::access::Caller;
use crate::answer::Fail;
use crate::app::App;
use crate::extract::{Id, Query};
use axum::Json;
use axum::extract::State;
use tidemill_core::RunId;
use tidemill_core::artifact::Artifact;
use tidemill_core::event::Event;
use tidemill_core::limits::BATCH_MAX;
use tidemill_core::run::Run;
use tidemill_core::why::Reason;
use tidemill_store::{EventPage, EventTail, RunFilter};
use tidemill_wire::runs::{
    ListArtifacts, ListEvents, ListFailures, ListRuns, ListTail, ListWaiting, RunDetail, Tail, Why,
};
use tidemill_wire::{Fault, Page};

/// Rows of a page where the caller does not say.
const PAGE: u16 = 50;

/// Artifacts that come with a run; the list of its own has all of them.
const DETAIL_ARTIFACTS: usize = 100;

/// How many rows the caller wants.
pub(crate) fn rows(limit: Option<u16>) -> Result<usize, Fail> {
    let limit = usize::from(limit.unwrap_or(PAGE));
    if (1..=BATCH_MAX).contains(&limit) {
        return Ok(limit);
    }
    let problem = format!("is {limit}; it must be between 1 and {BATCH_MAX}");
    Err(Fail::invalid(vec![Fault { field: "limit".to_owned(), problem }]))
}

pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(asked): Query<ListRuns>,
) -> Result<Json<Page<Run>>, Fail> {
    let limit = rows(asked.limit)?;
    let filter = RunFilter {
        project: caller.narrow(asked.project)?,
        env: asked.env,
        status: asked.status,
        lane: asked.lane,
        feed: asked.feed,
        since: asked.since,
        until: asked.until,
        id_prefix: asked.id_prefix,
        sha_prefix: asked.sha_prefix,
        ref_prefix: asked.ref_prefix,
        name_prefix: asked.name_prefix,
        before: asked.after,
        limit,
    };
    let items = app.engine().store().runs(filter).await?;
    let next = items.last().filter(|_| items.len() == limit).map(|run| run.run_id.to_string());
    Ok(Json(Page { items, next }))
}

pub(super) async fn failures(
    State(app): State<App>,
    caller: Caller,
    Query(asked): Query<ListFailures>,
) -> Result<Json<Page<Run>>, Fail> {
    let filter = RunFilter {
        project: caller.narrow(asked.project)?,
        since: asked.since,
        before: asked.after,
        limit: rows(asked.limit)?,
        ..RunFilter::default()
    };
    let found = app.engine().store().failures(filter).await?;
    Ok(Json(Page { items: found.items, next: found.next }))
}

pub(super) async fn waiting(
    State(app): State<App>,
    caller: Caller,
    Query(asked): Query<ListWaiting>,
) -> Result<Json<Page<Run>>, Fail> {
    let limit = rows(asked.limit)?;
    let project = caller.narrow(asked.project)?;
    let filter = RunFilter { project, before: asked.after, limit, ..RunFilter::default() };
    let items = app.engine().store().waiting_runs(filter).await?;
    let next = items.last().filter(|_| items.len() == limit).map(|run| run.run_id.to_string());
    Ok(Json(Page { items, next }))
}

pub(super) async fn one(
    State(app): State<App>,
    caller: Caller,
    Id(run): Id<RunId>,
) -> Result<Json<Run>, Fail> {
    caller.run(&app, &run).await.map(Json)
}

/// A reason as it is said.
pub(crate) fn said(run: &RunId, reason: &Reason) -> Why {
    let fields = match serde_json::to_value(reason) {
        Ok(serde_json::Value::Object(fields)) => fields,
        Ok(_) | Err(_) => serde_json::Map::new(),
    };
    Why { run_id: run.clone(), sentence: reason.sentence(), hint: reason.hint(run), reason: fields }
}

pub(super) async fn why(
    State(app): State<App>,
    caller: Caller,
    Id(run): Id<RunId>,
) -> Result<Json<Why>, Fail> {
    caller.may_touch(&app, &run).await?;
    let reason = app.engine().why(&run).await?;
    Ok(Json(said(&run, &reason)))
}

pub(super) async fn tries(
    State(app): State<App>,
    caller: Caller,
    Id(run): Id<RunId>,
) -> Result<Json<Page<Run>>, Fail> {
    caller.run(&app, &run).await?;
    Ok(Json(Page::whole(app.engine().store().tries(run).await?)))
}

pub(super) async fn detail(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<RunId>,
) -> Result<Json<RunDetail>, Fail> {
    let run = caller.run(&app, &id).await?;
    let (engine, store) = (app.engine(), app.engine().store());
    let why = said(&id, &engine.why(&id).await?);
    let tries = store.tries(id.clone()).await?;
    let artifacts = store.artifact_page(id, None, DETAIL_ARTIFACTS).await?;
    Ok(Json(RunDetail { run, why, tries, artifacts }))
}

pub(super) async fn artifacts(
    State(app): State<App>,
    caller: Caller,
    Id(run): Id<RunId>,
    Query(asked): Query<ListArtifacts>,
) -> Result<Json<Page<Artifact>>, Fail> {
    let limit = rows(asked.limit)?;
    caller.run(&app, &run).await?;
    let items = app.engine().store().artifact_page(run, asked.after, limit).await?;
    let next = items.last().filter(|_| items.len() == limit).map(|artifact| artifact.artifact_id.clone());
    Ok(Json(Page { items, next }))
}

pub(super) async fn events(
    State(app): State<App>,
    caller: Caller,
    Id(run): Id<RunId>,
    Query(asked): Query<ListEvents>,
) -> Result<Json<Page<Event>>, Fail> {
    let limit = rows(asked.limit)?;
    caller.run(&app, &run).await?;
    let page = EventPage { after: asked.after.unwrap_or(0), limit };
    let items = app.engine().store().events(run, page).await?;
    let next = items.last().filter(|_| items.len() == limit).map(|event| event.seq.to_string());
    Ok(Json(Page { items, next }))
}

pub(super) async fn tail(
    State(app): State<App>,
    caller: Caller,
    Id(run): Id<RunId>,
    Query(asked): Query<ListTail>,
) -> Result<Json<Tail>, Fail> {
    let limit = rows(asked.limit)?;
    caller.run(&app, &run).await?;
    let wanted = EventTail { before: asked.before, level: asked.level, contains: asked.contains, limit };
    let (items, before) = app.engine().store().event_tail(run, wanted).await?;
    Ok(Json(Tail { items, before }))
}
