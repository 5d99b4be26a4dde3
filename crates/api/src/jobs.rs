//! Jobs of graphs: what they are, why they are where they are, and what they wrote.

use crate::access::Caller;
use crate::answer::Fail;
use crate::app::App;
use crate::endpoint::{Allowed, Endpoint};
use crate::extract::{Id, Query};
use crate::graphs::{LOOK, wait};
use axum::Json;
use axum::extract::State;
use http::Method;
use std::str::FromStr;
use tidemill_core::graph::record::{JobDetail, JobRecord};
use tidemill_core::limits::BATCH_MAX;
use tidemill_core::run::Retried;
use tidemill_core::task::task_id;
use tidemill_store::{Error, RefusalCode, note};
use tidemill_wire::Page;
use tidemill_wire::graphs::{JobLogs, JobWhy, ReadLogs};
use tokio::time::Instant;

/// Pieces of output in one answer, where the caller does not say; each is bounded.
const PIECES: u16 = 20;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/v1/jobs", Allowed::Look, held)
            .says(
                "graphs",
                "List the jobs that agents have, over all graphs, and those that are being stopped",
            )
            .answers::<Page<JobRecord>>(200, "The jobs, by their agents"),
        Endpoint::new(Method::GET, "/v1/jobs/{job}", Allowed::Look, one)
            .says("graphs", "Show a job: its tasks, how it changed, and what it left")
            .answers::<JobDetail>(200, "The job"),
        Endpoint::new(Method::GET, "/v1/jobs/{job}/why", Allowed::Look, why)
            .says("graphs", "Say why a job is where it is")
            .answers::<JobWhy>(200, "The reason"),
        Endpoint::new(Method::POST, "/v1/jobs/{job}/retry", Allowed::Operate, retry)
            .says("graphs", "Run a job of an ended graph again, with everything after it")
            .answers::<Retried>(200, "The run that does it; asked twice, it is one"),
        Endpoint::new(Method::GET, "/v1/jobs/{job}/logs", Allowed::Look, logs)
            .says("graphs", "Read what an attempt of a job wrote, and wait for more where asked")
            .waits()
            .query::<ReadLogs>()
            .answers::<JobLogs>(200, "What it wrote"),
    ]
}

/// The id of a job or a task, as it stands in a path.
pub(crate) struct Key(pub(crate) String);

impl FromStr for Key {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fits = (1..=64).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if fits { Ok(Self(text.to_owned())) } else { Err("it is not the id of a job or a task") }
    }
}

impl Caller {
    /// A job that they may see. Another project's job reads as one that does not exist.
    pub(crate) async fn job(&self, app: &App, job: &str) -> Result<JobRecord, Fail> {
        let found = app.graphs().job_record(job).await?;
        if self.sees(&found.project_id) {
            return Ok(found);
        }
        Err(Error::refused(RefusalCode::UnknownJob, format!("job `{job}` does not exist")).into())
    }
}

async fn held(State(app): State<App>, caller: Caller) -> Result<Json<Page<JobRecord>>, Fail> {
    let jobs = app.graphs().held_jobs(caller.project.as_deref(), BATCH_MAX).await?;
    Ok(Json(Page::whole(jobs)))
}

async fn one(State(app): State<App>, caller: Caller, Id(Key(job)): Id<Key>) -> Result<Json<JobDetail>, Fail> {
    caller.job(&app, &job).await?;
    Ok(Json(app.graphs().job(&job).await?))
}

async fn why(State(app): State<App>, caller: Caller, Id(Key(job)): Id<Key>) -> Result<Json<JobWhy>, Fail> {
    caller.job(&app, &job).await?;
    let reason = app.graphs().why_job(&job).await?;
    let fields = match serde_json::to_value(&reason) {
        Ok(serde_json::Value::Object(fields)) => fields,
        Ok(_) | Err(_) => serde_json::Map::new(),
    };
    Ok(Json(JobWhy { job_id: job, sentence: reason.sentence(), hint: reason.hint(), reason: fields }))
}

async fn retry(State(app): State<App>, caller: Caller, Id(Key(job)): Id<Key>) -> Result<Json<Retried>, Fail> {
    let found = caller.job(&app, &job).await?;
    note(|line| {
        line.belongs_to(Some(&found.project_id));
    });
    Ok(Json(app.graphs().retry(&found.run_id, &[found.name], &caller.name).await?))
}

async fn logs(
    State(app): State<App>,
    caller: Caller,
    Id(Key(job)): Id<Key>,
    Query(asked): Query<ReadLogs>,
) -> Result<Json<JobLogs>, Fail> {
    let limit = usize::from(asked.limit.unwrap_or(PIECES)).clamp(1, 100);
    let deadline = Instant::now() + wait(asked.wait_secs)?;
    let mut closing = app.closing();
    loop {
        // What has ended is read before what it wrote, so that an end is never seen before the last of it.
        let found = caller.job(&app, &job).await?;
        let said = said(&app, &found, &asked, limit).await?;
        if !said.pieces.is_empty() || said.is_last || Instant::now() >= deadline || *closing.borrow() {
            return Ok(Json(said));
        }
        tokio::select! {
            _ = closing.wait_for(|closed| *closed) => {}
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// What an attempt wrote after a place.
async fn said(app: &App, job: &JobRecord, asked: &ReadLogs, limit: usize) -> Result<JobLogs, Fail> {
    let (job_id, is_over) = (job.job_id.clone(), job.code.is_terminal());
    let Some(attempt) = asked.attempt.or((job.tasks > 0).then_some(job.tasks)) else {
        return Ok(JobLogs { job_id, attempt: None, pieces: Vec::new(), is_last: is_over, is_over });
    };
    let id = task_id(&job.job_id, attempt);
    let task = app.graphs().task(&id).await?;
    if let (None, Some(last)) = (asked.after, asked.last) {
        let pieces = app.graphs().logs_last(&id, usize::from(last).clamp(1, 100)).await?;
        return Ok(JobLogs { job_id, attempt: Some(attempt), pieces, is_last: !task.active, is_over });
    }
    let pieces = app.graphs().logs(&id, asked.after, limit).await?;
    let is_last = !task.active && pieces.len() < limit;
    Ok(JobLogs { job_id, attempt: Some(attempt), pieces, is_last, is_over })
}
