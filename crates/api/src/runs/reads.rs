//! Read-only endpoints of runs.

use crate::access::Caller;
use crate::app::App;
use crate::error::ApiError;
use crate::extract::{Id, Query};
use axum::Json;
use axum::extract::State;
use tidemill_core::RunId;
use tidemill_core::artifact::Artifact;
use tidemill_core::event::Event;
use tidemill_core::limits::BATCH_MAX;
use tidemill_core::run::{Run, RunCursor};
use tidemill_core::why::Reason;
use tidemill_store::{EventPage, EventTail, RunFilter};
use tidemill_wire::runs::{
    ListArtifacts, ListEvents, ListFailures, ListRuns, ListTail, ListWaiting, RunDetail, Tail, Why,
};
use tidemill_wire::{FieldError, Page};

const PAGE_SIZE: u16 = 50;

/// Maximum number of artifacts in the details of a run; the artifact list has all of them.
const DETAIL_ARTIFACTS: usize = 100;

/// Validates the page size.
pub(crate) fn rows(limit: Option<u16>) -> Result<usize, ApiError> {
    let limit = usize::from(limit.unwrap_or(PAGE_SIZE));
    if (1..=BATCH_MAX).contains(&limit) {
        return Ok(limit);
    }
    let problem = format!("is {limit}; it must be between 1 and {BATCH_MAX}");
    Err(ApiError::invalid(vec![FieldError { field: "limit".to_owned(), problem }]))
}

pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(params): Query<ListRuns>,
) -> Result<Json<Page<Run>>, ApiError> {
    let limit = rows(params.limit)?;
    let filter = RunFilter {
        project: caller.narrow_project(params.project)?,
        env: params.env,
        status: params.status,
        lane: params.lane,
        kind: params.kind,
        feed: params.feed,
        since: params.since,
        until: params.until,
        id_prefix: params.id_prefix,
        sha_prefix: params.sha_prefix,
        ref_prefix: params.ref_prefix,
        name_prefix: params.name_prefix,
        before: params.after,
        limit,
    };
    let items = app.engine().store().runs(filter).await?;
    let next = items.last().filter(|_| items.len() == limit).map(|run| RunCursor::at(run).to_string());
    Ok(Json(Page { items, next }))
}

pub(super) async fn failures(
    State(app): State<App>,
    caller: Caller,
    Query(params): Query<ListFailures>,
) -> Result<Json<Page<Run>>, ApiError> {
    let filter = RunFilter {
        project: caller.narrow_project(params.project)?,
        since: params.since,
        before: params.after,
        limit: rows(params.limit)?,
        ..RunFilter::default()
    };
    let found = app.engine().store().failures(filter).await?;
    Ok(Json(Page { items: found.items, next: found.next }))
}

pub(super) async fn waiting(
    State(app): State<App>,
    caller: Caller,
    Query(params): Query<ListWaiting>,
) -> Result<Json<Page<Run>>, ApiError> {
    let limit = rows(params.limit)?;
    let project = caller.narrow_project(params.project)?;
    let filter = RunFilter { project, before: params.after, limit, ..RunFilter::default() };
    let items = app.engine().store().waiting_runs(filter).await?;
    let next = items.last().filter(|_| items.len() == limit).map(|run| RunCursor::at(run).to_string());
    Ok(Json(Page { items, next }))
}

pub(super) async fn one(
    State(app): State<App>,
    caller: Caller,
    Id(run): Id<RunId>,
) -> Result<Json<Run>, ApiError> {
    caller.run(&app, &run).await.map(Json)
}

/// Converts a reason to its API form.
pub(crate) fn why_response(run: &RunId, reason: &Reason) -> Why {
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
) -> Result<Json<Why>, ApiError> {
    caller.check_run_access(&app, &run).await?;
    let reason = app.engine().why(&run).await?;
    Ok(Json(why_response(&run, &reason)))
}

pub(super) async fn tries(
    State(app): State<App>,
    caller: Caller,
    Id(run): Id<RunId>,
) -> Result<Json<Page<Run>>, ApiError> {
    caller.run(&app, &run).await?;
    Ok(Json(Page::complete(app.engine().store().tries(run).await?)))
}

pub(super) async fn detail(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<RunId>,
) -> Result<Json<RunDetail>, ApiError> {
    let run = caller.run(&app, &id).await?;
    let (engine, store) = (app.engine(), app.engine().store());
    let why = why_response(&id, &engine.why(&id).await?);
    let tries = store.tries(id.clone()).await?;
    let artifacts = store.artifact_page(id, None, DETAIL_ARTIFACTS).await?;
    Ok(Json(RunDetail { run, why, tries, artifacts }))
}

pub(super) async fn artifacts(
    State(app): State<App>,
    caller: Caller,
    Id(run): Id<RunId>,
    Query(params): Query<ListArtifacts>,
) -> Result<Json<Page<Artifact>>, ApiError> {
    let limit = rows(params.limit)?;
    caller.run(&app, &run).await?;
    let items = app.engine().store().artifact_page(run, params.after, limit).await?;
    let next = items.last().filter(|_| items.len() == limit).map(|artifact| artifact.artifact_id.clone());
    Ok(Json(Page { items, next }))
}

pub(super) async fn events(
    State(app): State<App>,
    caller: Caller,
    Id(run): Id<RunId>,
    Query(params): Query<ListEvents>,
) -> Result<Json<Page<Event>>, ApiError> {
    let limit = rows(params.limit)?;
    caller.run(&app, &run).await?;
    let page = EventPage { after: params.after.unwrap_or(0), limit };
    let items = app.engine().store().events(run, page).await?;
    let next = items.last().filter(|_| items.len() == limit).map(|event| event.seq.to_string());
    Ok(Json(Page { items, next }))
}

pub(super) async fn tail(
    State(app): State<App>,
    caller: Caller,
    Id(run): Id<RunId>,
    Query(params): Query<ListTail>,
) -> Result<Json<Tail>, ApiError> {
    let limit = rows(params.limit)?;
    caller.run(&app, &run).await?;
    let tail = EventTail { before: params.before, level: params.level, contains: params.contains, limit };
    let (items, before) = app.engine().store().event_tail(run, tail).await?;
    Ok(Json(Tail { items, before }))
}
