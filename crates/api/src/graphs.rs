//! Graphs: check, submit, show, cancel, retry.

use crate::access::{Caller, invisible_project};
use crate::app::App;
use crate::claims::WAIT_SECS_MAX;
use crate::endpoint::{Endpoint, Permission};
use crate::error::ApiError;
use crate::extract::{Body, Id, IdempotencyKey, Query};
use crate::runs::rows;
use axum::Json;
use axum::extract::State;
use http::{Method, StatusCode};
use std::time::Duration;
use tidemill_core::RunId;
use tidemill_core::graph::parse;
use tidemill_core::graph::record::{GraphRecord, JobNeeds, JobRecord};
use tidemill_core::limits::GRAPH_BYTES_MAX;
use tidemill_core::run::RetryOutcome;
use tidemill_engine::graph::{ChangeWatch, JobPage, SubmitError, SubmitGraph, Watched};
use tidemill_wire::graphs::{
    CancelGraph, CancelGraphResponse, CheckGraph, CheckGraphResponse, ListJobs, ListNeeds, NewGraph,
    NewGraphResponse, RetryGraph,
};
use tidemill_wire::{FieldError, Page};
use tokio::time::Instant;

/// Body size limit for a graph. As JSON, line ends and quotes of its text take two bytes each.
const BODY_BYTES_MAX: usize = 2 * GRAPH_BYTES_MAX;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::POST, "/v1/graphs/check", Permission::Read, check)
            .describe("graphs", "Validate a graph without submitting it")
            .body::<CheckGraph>()
            .body_limit(BODY_BYTES_MAX)
            .responds::<CheckGraphResponse>(200, "All errors of the graph"),
        Endpoint::new(Method::POST, "/v1/graphs", Permission::Operate, submit)
            .describe("graphs", "Submit a graph: creates a run with all of its jobs")
            .keyed()
            .body::<NewGraph>()
            .body_limit(BODY_BYTES_MAX)
            .responds::<NewGraphResponse>(201, "The new run")
            .responds::<NewGraphResponse>(200, "The existing run of a repeated request with the same key"),
        Endpoint::new(Method::GET, "/v1/graphs/{run}", Permission::Read, one)
            .describe("graphs", "Show a graph and the number of its jobs in each state")
            .responds::<GraphRecord>(200, "The graph"),
        Endpoint::new(Method::GET, "/v1/graphs/{run}/jobs", Permission::Read, jobs)
            .describe(
                "graphs",
                "List the jobs of a graph, or those that changed; with `wait_secs`, wait for a change",
            )
            .long_poll()
            .query::<ListJobs>()
            .responds::<Page<JobRecord>>(200, "One page of jobs"),
        Endpoint::new(Method::GET, "/v1/graphs/{run}/needs", Permission::Read, needs)
            .describe("graphs", "List the dependencies between a graph's jobs, by job position")
            .query::<ListNeeds>()
            .responds::<Page<JobNeeds>>(200, "One page of jobs with dependencies"),
        Endpoint::new(Method::POST, "/v1/graphs/{run}/cancel", Permission::Operate, cancel)
            .describe("graphs", "Cancel a graph or some of its jobs")
            .body::<CancelGraph>()
            .responds::<CancelGraphResponse>(
                200,
                "The number of cancelled jobs; repeating the request has no further effect",
            ),
        Endpoint::new(Method::POST, "/v1/graphs/{run}/retry", Permission::Operate, retry)
            .describe("graphs", "Queue a retry of a graph that has ended; successful jobs are reused")
            .body::<RetryGraph>()
            .responds::<RetryOutcome>(200, "The retry; a repeated request returns the same one"),
    ]
}

async fn check(
    State(app): State<App>,
    Body(request): Body<CheckGraph>,
) -> Result<Json<CheckGraphResponse>, ApiError> {
    // A check changes nothing, although it is a POST: it is not audited.
    app.skip_audit();
    // Parsing a large graph takes long enough to block the runtime.
    let read = tokio::task::spawn_blocking(move || parse(&request.text)).await;
    let read = read.map_err(|_| ApiError::internal("the graph parser panicked"))?;
    let found = match read {
        Ok(graph) => CheckGraphResponse {
            is_sound: true,
            name: graph.name,
            workspace: graph.workspace,
            jobs: graph.jobs.into_iter().map(|job| job.name).collect(),
            faults: Vec::new(),
        },
        Err(faults) => {
            CheckGraphResponse { is_sound: false, name: None, workspace: None, jobs: Vec::new(), faults }
        }
    };
    Ok(Json(found))
}

async fn submit(
    State(app): State<App>,
    caller: Caller,
    IdempotencyKey(key): IdempotencyKey,
    Body(new): Body<NewGraph>,
) -> Result<(StatusCode, Json<NewGraphResponse>), ApiError> {
    if !caller.can_see(&new.project) {
        return Err(invisible_project(&new.project));
    }
    app.annotate_audit(|line| {
        line.set_project(Some(&new.project));
    });
    let ask = SubmitGraph {
        only: new.only,
        workspace: new.workspace,
        rerun_needed: new.rerun_needed,
        priority: new.priority,
        idempotency_key: key,
        git_sha: new.git_sha,
        git_ref: new.git_ref,
        ..SubmitGraph::new(new.project, new.env, new.text, caller.name)
    };
    let submitted = app.graphs().submit(ask).await.map_err(|fault| match fault {
        SubmitError::Definition(places) => ApiError::bad_graph(places),
        SubmitError::Store(error) => error.into(),
    })?;
    let status = if submitted.created { StatusCode::CREATED } else { StatusCode::OK };
    let answer = NewGraphResponse {
        run_id: submitted.run_id,
        created: submitted.created,
        jobs: submitted.jobs,
        reused: submitted.reused,
    };
    Ok((status, Json(answer)))
}

async fn one(
    State(app): State<App>,
    caller: Caller,
    Id(run): Id<RunId>,
) -> Result<Json<GraphRecord>, ApiError> {
    caller.check_run_access(&app, &run).await?;
    Ok(Json(app.graphs().graph(&run).await?))
}

/// Validates the requested wait of a long poll.
pub(crate) fn poll_wait(requested: Option<u16>) -> Result<Duration, ApiError> {
    let secs = requested.unwrap_or(0);
    if secs <= WAIT_SECS_MAX {
        return Ok(Duration::from_secs(secs.into()));
    }
    let problem = format!("is {secs}; it must be between 0 and {WAIT_SECS_MAX}");
    Err(ApiError::invalid(vec![FieldError { field: "wait_secs".to_owned(), problem }]))
}

async fn jobs(
    State(app): State<App>,
    caller: Caller,
    Id(run): Id<RunId>,
    Query(params): Query<ListJobs>,
) -> Result<Json<Page<JobRecord>>, ApiError> {
    let (limit, wait) = (rows(params.limit)?, poll_wait(params.wait_secs)?);
    caller.check_run_access(&app, &run).await?;
    app.graphs().graph(&run).await?;
    let deadline = Instant::now() + wait;
    let mut closing = app.closing();
    let mut watch: Option<ChangeWatch> = None;
    loop {
        if let Some(watch) = &mut watch {
            watch.mark_unchanged();
        }
        let (changed_after, after_position) = (params.changed_after, params.after);
        let page = JobPage { changed_after, after_position, state: params.state, limit };
        let items = app.graphs().jobs(&run, page).await?;
        let is_late = Instant::now() >= deadline || params.changed_after.is_none();
        if !items.is_empty() || is_late || *closing.borrow() {
            let last = items.last().filter(|_| items.len() == limit);
            let next = last.map(|job| match params.changed_after {
                Some(_) => job.version.to_string(),
                None => job.position.to_string(),
            });
            return Ok(Json(Page { items, next }));
        }
        let Some(watch) = &mut watch else {
            // The next read comes after the start of the watch, so that no change is missed.
            watch = Some(app.graphs().watch(Watched::Graph(run.clone())));
            continue;
        };
        tokio::select! {
            _ = closing.wait_for(|closed| *closed) => {}
            () = tokio::time::sleep_until(deadline) => {}
            () = watch.changed() => {}
        }
    }
}

async fn needs(
    State(app): State<App>,
    caller: Caller,
    Id(run): Id<RunId>,
    Query(params): Query<ListNeeds>,
) -> Result<Json<Page<JobNeeds>>, ApiError> {
    let limit = i32::try_from(rows(params.limit)?).unwrap_or(i32::MAX);
    caller.check_run_access(&app, &run).await?;
    let graph = app.graphs().graph(&run).await?;
    let after = params.after.unwrap_or(-1);
    let last = after.saturating_add(limit);
    let items = app.graphs().needs(&run, after, last).await?;
    let next = (graph.counts.total > i64::from(last) + 1).then(|| last.to_string());
    Ok(Json(Page { items, next }))
}

async fn cancel(
    State(app): State<App>,
    caller: Caller,
    Id(run): Id<RunId>,
    Body(cancel): Body<CancelGraph>,
) -> Result<Json<CancelGraphResponse>, ApiError> {
    caller.check_run_access(&app, &run).await?;
    let done = app.graphs().cancel(&run, &cancel.jobs, &caller.name, cancel.reason.as_deref()).await?;
    Ok(Json(CancelGraphResponse { run_id: run, jobs: done.jobs, outcome: done.outcome }))
}

async fn retry(
    State(app): State<App>,
    caller: Caller,
    Id(run): Id<RunId>,
    Body(retry): Body<RetryGraph>,
) -> Result<Json<RetryOutcome>, ApiError> {
    caller.check_run_access(&app, &run).await?;
    Ok(Json(app.graphs().retry(&run, &retry.jobs, &caller.name).await?))
}
