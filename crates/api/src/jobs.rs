//! Jobs of graphs: details, reasons, retries and logs.

use crate::access::Caller;
use crate::app::App;
use crate::endpoint::{Endpoint, Permission};
use crate::error::ApiError;
use crate::extract::{Id, Query};
use crate::graphs::poll_wait;
use axum::Json;
use axum::extract::State;
use http::Method;
use std::str::FromStr;
use tidemill_core::graph::record::{JobDetail, JobRecord};
use tidemill_core::limits::BATCH_MAX;
use tidemill_core::run::RetryOutcome;
use tidemill_core::task::task_id;
use tidemill_engine::graph::{ChangeWatch, Watched};
use tidemill_store::{Error, RefusalCode};
use tidemill_wire::Page;
use tidemill_wire::graphs::{JobLogs, JobWhy, ReadLogs};
use tokio::time::Instant;

/// Default number of log chunks per response. The size of a chunk is bounded.
const CHUNKS: u16 = 20;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/v1/jobs", Permission::Read, held)
            .describe(
                "graphs",
                "List the jobs that agents hold, over all graphs, including those being stopped",
            )
            .responds::<Page<JobRecord>>(200, "The jobs, ordered by agent"),
        Endpoint::new(Method::GET, "/v1/jobs/{job}", Permission::Read, one)
            .describe("graphs", "Show a job with its tasks, state changes and outputs")
            .responds::<JobDetail>(200, "The job"),
        Endpoint::new(Method::GET, "/v1/jobs/{job}/why", Permission::Read, why)
            .describe("graphs", "Explain why a job is in its current state")
            .responds::<JobWhy>(200, "The reason"),
        Endpoint::new(Method::POST, "/v1/jobs/{job}/retry", Permission::Operate, retry)
            .describe("graphs", "Retry a job of an ended graph together with all jobs that depend on it")
            .responds::<RetryOutcome>(200, "The run of the retry; a repeated request returns the same one"),
        Endpoint::new(Method::GET, "/v1/jobs/{job}/logs", Permission::Read, logs)
            .describe("graphs", "Read the output of a job's attempt; with `wait_secs`, wait for more")
            .long_poll()
            .query::<ReadLogs>()
            .responds::<JobLogs>(200, "The output"),
    ]
}

/// Id of a job or a task in a path.
pub(crate) struct Key(pub(crate) String);

impl FromStr for Key {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fits = (1..=64).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if fits { Ok(Self(text.to_owned())) } else { Err("not a valid job or task id") }
    }
}

impl Caller {
    /// Returns a job that the caller may see. Another project's job is reported as unknown.
    pub(crate) async fn job(&self, app: &App, job: &str) -> Result<JobRecord, ApiError> {
        let found = app.graphs().job_record(job).await?;
        if self.can_see(&found.project_id) {
            return Ok(found);
        }
        Err(Error::refused(RefusalCode::UnknownJob, format!("job `{job}` does not exist")).into())
    }
}

async fn held(State(app): State<App>, caller: Caller) -> Result<Json<Page<JobRecord>>, ApiError> {
    let jobs = app.graphs().held_jobs(caller.own_project()?.as_deref(), BATCH_MAX).await?;
    Ok(Json(Page::complete(jobs)))
}

async fn one(
    State(app): State<App>,
    caller: Caller,
    Id(Key(job)): Id<Key>,
) -> Result<Json<JobDetail>, ApiError> {
    caller.job(&app, &job).await?;
    Ok(Json(app.graphs().job(&job).await?))
}

async fn why(
    State(app): State<App>,
    caller: Caller,
    Id(Key(job)): Id<Key>,
) -> Result<Json<JobWhy>, ApiError> {
    caller.job(&app, &job).await?;
    let reason = app.graphs().why_job(&job).await?;
    let fields = match serde_json::to_value(&reason) {
        Ok(serde_json::Value::Object(fields)) => fields,
        Ok(_) | Err(_) => serde_json::Map::new(),
    };
    Ok(Json(JobWhy { job_id: job, sentence: reason.sentence(), hint: reason.hint(), reason: fields }))
}

async fn retry(
    State(app): State<App>,
    caller: Caller,
    Id(Key(job)): Id<Key>,
) -> Result<Json<RetryOutcome>, ApiError> {
    let found = caller.job(&app, &job).await?;
    app.annotate_audit(|line| {
        line.set_project(Some(&found.project_id));
    });
    Ok(Json(app.graphs().retry(&found.run_id, &[found.name], &caller.name).await?))
}

async fn logs(
    State(app): State<App>,
    caller: Caller,
    Id(Key(job)): Id<Key>,
    Query(params): Query<ReadLogs>,
) -> Result<Json<JobLogs>, ApiError> {
    let limit = usize::from(params.limit.unwrap_or(CHUNKS)).clamp(1, 100);
    let deadline = Instant::now() + poll_wait(params.wait_secs)?;
    let mut closing = app.closing();
    let mut watch: Option<ChangeWatch> = None;
    loop {
        if let Some(watch) = &mut watch {
            watch.mark_unchanged();
        }
        // The job's state is read before its log: otherwise a reader could see the end and miss the last output.
        let found = caller.job(&app, &job).await?;
        let logs = read_logs(&app, &found, &params, limit).await?;
        if !logs.pieces.is_empty() || logs.is_last || Instant::now() >= deadline || *closing.borrow() {
            return Ok(Json(logs));
        }
        let Some(watch) = &mut watch else {
            // The next read comes after the start of the watch, so that no change is missed.
            watch = Some(app.graphs().watch(Watched::Job(job.clone())));
            continue;
        };
        tokio::select! {
            _ = closing.wait_for(|closed| *closed) => {}
            () = tokio::time::sleep_until(deadline) => {}
            () = watch.changed() => {}
        }
    }
}

/// Reads the output of an attempt after a position.
async fn read_logs(app: &App, job: &JobRecord, params: &ReadLogs, limit: usize) -> Result<JobLogs, ApiError> {
    let (job_id, is_over) = (job.job_id.clone(), job.code.is_terminal());
    let Some(attempt) = params.attempt.or((job.tasks > 0).then_some(job.tasks)) else {
        return Ok(JobLogs { job_id, attempt: None, pieces: Vec::new(), is_last: is_over, is_over });
    };
    let id = task_id(&job.job_id, attempt);
    let task = app.graphs().task(&id).await?;
    if let (None, Some(last)) = (params.after, params.last) {
        let pieces = app.graphs().logs_last(&id, usize::from(last).clamp(1, 100)).await?;
        return Ok(JobLogs { job_id, attempt: Some(attempt), pieces, is_last: !task.active, is_over });
    }
    let pieces = app.graphs().logs(&id, params.after, limit).await?;
    let is_last = !task.active && pieces.len() < limit;
    Ok(JobLogs { job_id, attempt: Some(attempt), pieces, is_last, is_over })
}
