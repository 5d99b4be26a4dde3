//! Graphs: check, submit, look, stop, try again.

use crate::access::{Caller, hidden_project};
use crate::answer::Fail;
use crate::app::App;
use crate::claims::WAIT_SECS_MAX;
use crate::endpoint::{Allowed, Endpoint};
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
use tidemill_core::run::Retried;
use tidemill_engine::graph::{JobPage, SubmitFault, SubmitGraph};
use tidemill_store::{note, unchanged};
use tidemill_wire::graphs::{
    CancelGraph, CheckGraph, GraphCancelled, GraphChecked, GraphSubmitted, ListJobs, ListNeeds, NewGraph,
    RetryGraph,
};
use tidemill_wire::{Fault, Page};
use tokio::time::Instant;

/// Bytes of a body that holds a graph: its text as JSON, where line ends and quotes take two bytes.
const BODY_BYTES_MAX: usize = 2 * GRAPH_BYTES_MAX;
/// Time between two looks for whoever waits for a change.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::POST, "/v1/graphs/check", Allowed::Look, check)
            .says("graphs", "Look at a graph without submitting it: everything that is wrong with it")
            .body::<CheckGraph>()
            .takes(BODY_BYTES_MAX)
            .answers::<GraphChecked>(200, "What was found"),
        Endpoint::new(Method::POST, "/v1/graphs", Allowed::Operate, submit)
            .says("graphs", "Submit a graph: a run, and all of its jobs")
            .keyed()
            .body::<NewGraph>()
            .takes(BODY_BYTES_MAX)
            .answers::<GraphSubmitted>(201, "The run that was made")
            .answers::<GraphSubmitted>(200, "The run that this key had made before"),
        Endpoint::new(Method::GET, "/v1/graphs/{run}", Allowed::Look, one)
            .says("graphs", "Show a graph, and how many of its jobs are where")
            .answers::<GraphRecord>(200, "The graph"),
        Endpoint::new(Method::GET, "/v1/graphs/{run}/jobs", Allowed::Look, jobs)
            .says(
                "graphs",
                "List the jobs of a graph, or those that changed, and wait for a change where asked",
            )
            .waits()
            .query::<ListJobs>()
            .answers::<Page<JobRecord>>(200, "One page of jobs"),
        Endpoint::new(Method::GET, "/v1/graphs/{run}/needs", Allowed::Look, needs)
            .says("graphs", "Tell which jobs of a graph need which, by their places")
            .query::<ListNeeds>()
            .answers::<Page<JobNeeds>>(200, "One page of jobs that need others"),
        Endpoint::new(Method::POST, "/v1/graphs/{run}/cancel", Allowed::Operate, cancel)
            .says("graphs", "Stop a graph, or some of its jobs")
            .body::<CancelGraph>()
            .answers::<GraphCancelled>(200, "What was done; asked twice, it is one wish"),
        Endpoint::new(Method::POST, "/v1/graphs/{run}/retry", Allowed::Operate, retry)
            .says("graphs", "Queue another try of a graph that has ended; what succeeded is reused")
            .body::<RetryGraph>()
            .answers::<Retried>(200, "The next try; asked twice, it is one"),
    ]
}

async fn check(Body(asked): Body<CheckGraph>) -> Result<Json<GraphChecked>, Fail> {
    // It is a question that travels as a change does: nothing is done that belongs on record.
    unchanged();
    // A large text takes a while to read.
    let read = tokio::task::spawn_blocking(move || parse(&asked.text)).await;
    let read = read.map_err(|_| Fail::internal("a graph could not be read"))?;
    let found = match read {
        Ok(graph) => GraphChecked {
            is_sound: true,
            name: graph.name,
            workspace: graph.workspace,
            jobs: graph.jobs.into_iter().map(|job| job.name).collect(),
            faults: Vec::new(),
        },
        Err(faults) => {
            GraphChecked { is_sound: false, name: None, workspace: None, jobs: Vec::new(), faults }
        }
    };
    Ok(Json(found))
}

async fn submit(
    State(app): State<App>,
    caller: Caller,
    IdempotencyKey(key): IdempotencyKey,
    Body(new): Body<NewGraph>,
) -> Result<(StatusCode, Json<GraphSubmitted>), Fail> {
    if !caller.sees(&new.project) {
        return Err(hidden_project(&new.project));
    }
    note(|line| {
        line.belongs_to(Some(&new.project));
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
        SubmitFault::Faults(places) => Fail::bad_graph(places),
        SubmitFault::Store(error) => error.into(),
    })?;
    let status = if submitted.created { StatusCode::CREATED } else { StatusCode::OK };
    let answer = GraphSubmitted {
        run_id: submitted.run_id,
        created: submitted.created,
        jobs: submitted.jobs,
        reused: submitted.reused,
    };
    Ok((status, Json(answer)))
}

async fn one(State(app): State<App>, caller: Caller, Id(run): Id<RunId>) -> Result<Json<GraphRecord>, Fail> {
    caller.may_touch(&app, &run).await?;
    Ok(Json(app.graphs().graph(&run).await?))
}

/// How long a caller wants to wait.
pub(crate) fn wait(asked: Option<u16>) -> Result<Duration, Fail> {
    let secs = asked.unwrap_or(0);
    if secs <= WAIT_SECS_MAX {
        return Ok(Duration::from_secs(secs.into()));
    }
    let problem = format!("is {secs}; it must be between 0 and {WAIT_SECS_MAX}");
    Err(Fail::invalid(vec![Fault { field: "wait_secs".to_owned(), problem }]))
}

async fn jobs(
    State(app): State<App>,
    caller: Caller,
    Id(run): Id<RunId>,
    Query(asked): Query<ListJobs>,
) -> Result<Json<Page<JobRecord>>, Fail> {
    let (limit, wait) = (rows(asked.limit)?, wait(asked.wait_secs)?);
    caller.may_touch(&app, &run).await?;
    app.graphs().graph(&run).await?;
    let deadline = Instant::now() + wait;
    let mut closing = app.closing();
    loop {
        let (changed_after, after_position) = (asked.changed_after, asked.after);
        let page = JobPage { changed_after, after_position, state: asked.state, limit };
        let items = app.graphs().jobs(&run, page).await?;
        let is_late = Instant::now() >= deadline || asked.changed_after.is_none();
        if !items.is_empty() || is_late || *closing.borrow() {
            let last = items.last().filter(|_| items.len() == limit);
            let next = last.map(|job| match asked.changed_after {
                Some(_) => job.version.to_string(),
                None => job.position.to_string(),
            });
            return Ok(Json(Page { items, next }));
        }
        tokio::select! {
            _ = closing.wait_for(|closed| *closed) => {}
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

async fn needs(
    State(app): State<App>,
    caller: Caller,
    Id(run): Id<RunId>,
    Query(asked): Query<ListNeeds>,
) -> Result<Json<Page<JobNeeds>>, Fail> {
    let limit = i32::try_from(rows(asked.limit)?).unwrap_or(i32::MAX);
    caller.may_touch(&app, &run).await?;
    let graph = app.graphs().graph(&run).await?;
    let after = asked.after.unwrap_or(-1);
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
) -> Result<Json<GraphCancelled>, Fail> {
    caller.may_touch(&app, &run).await?;
    let done = app.graphs().cancel(&run, &cancel.jobs, &caller.name, cancel.reason.as_deref()).await?;
    Ok(Json(GraphCancelled { run_id: run, jobs: done.jobs, outcome: done.outcome }))
}

async fn retry(
    State(app): State<App>,
    caller: Caller,
    Id(run): Id<RunId>,
    Body(retry): Body<RetryGraph>,
) -> Result<Json<Retried>, Fail> {
    caller.may_touch(&app, &run).await?;
    Ok(Json(app.graphs().retry(&run, &retry.jobs, &caller.name).await?))
}
