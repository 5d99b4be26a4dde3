//! What agents report of their tasks. Each report can be repeated, and is fenced by the task, the agent and its
//! process.

use crate::access::Visit;
use crate::agents::speaker;
use crate::answer::Fail;
use crate::app::App;
use crate::endpoint::{Allowed, Endpoint};
use crate::extract::{Body, Id};
use crate::jobs::Key;
use axum::Json;
use axum::extract::State;
use http::Method;
use tidemill_core::graph::record::LogLine;
use tidemill_core::limits::LOG_CHUNK_BYTES_MAX;
use tidemill_core::run::Applied;
use tidemill_engine::graph::TaskReport;
use tidemill_wire::agents::{ReportLog, ReportResult, ReportStage, Reported, Taken};

/// Bytes of a result, which may name many files.
const RESULT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes of a piece of a log: a control character takes six bytes as JSON, and each line has a few words around it.
const LOG_BYTES_MAX: usize = 6 * LOG_CHUNK_BYTES_MAX + 512 * 1024;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::POST, "/v1/tasks/{task}/stage", Allowed::Agent, stage)
            .says("agents", "Report how far an agent is with a task")
            .body::<ReportStage>()
            .answers::<Reported>(200, "What became of it; nothing is begun where it is stale"),
        Endpoint::new(Method::POST, "/v1/tasks/{task}/result", Allowed::Agent, result)
            .says("agents", "Report what came of a task, and the files that it left")
            .body::<ReportResult>()
            .takes(RESULT_BYTES_MAX)
            .answers::<Reported>(200, "What became of it"),
        Endpoint::new(Method::POST, "/v1/tasks/{task}/logs", Allowed::Agent, logs)
            .says("agents", "Hand in a piece of what a command wrote; the same piece twice is one")
            .body::<ReportLog>()
            .takes(LOG_BYTES_MAX)
            .answers::<Reported>(200, "What became of it"),
    ]
}

fn reported(applied: Applied) -> Json<Reported> {
    let outcome = match applied {
        Applied::Applied => Taken::Applied,
        Applied::Duplicate => Taken::Duplicate,
        Applied::Stale => Taken::Stale,
    };
    Json(Reported { outcome })
}

async fn stage(
    State(app): State<App>,
    visit: Visit,
    Id(Key(task)): Id<Key>,
    Body(report): Body<ReportStage>,
) -> Result<Json<Reported>, Fail> {
    let who = speaker(&visit, report.agent, report.boot);
    Ok(reported(app.graphs().report_stage(&who, &task, &report.stage).await?))
}

async fn result(
    State(app): State<App>,
    visit: Visit,
    Id(Key(task)): Id<Key>,
    Body(report): Body<ReportResult>,
) -> Result<Json<Reported>, Fail> {
    let who = speaker(&visit, report.agent, report.boot);
    let report = TaskReport { result: report.result, outputs: report.outputs, unknown: report.unknown };
    Ok(reported(app.graphs().report_result(&who, &task, report).await?))
}

async fn logs(
    State(app): State<App>,
    visit: Visit,
    Id(Key(task)): Id<Key>,
    Body(report): Body<ReportLog>,
) -> Result<Json<Reported>, Fail> {
    let who = speaker(&visit, report.agent, report.boot);
    let lines = report.lines.into_iter().map(|line| LogLine { stream: line.stream, text: line.text });
    Ok(reported(app.graphs().report_log(&who, &task, report.seq, lines.collect()).await?))
}
