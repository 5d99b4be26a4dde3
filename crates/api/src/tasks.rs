//! Task reports of agents. Each report is idempotent, and is refused if the task, the agent or its process is not
//! current.

use crate::access::AuthContext;
use crate::agents::speaker;
use crate::app::App;
use crate::endpoint::{Endpoint, Permission};
use crate::error::ApiError;
use crate::extract::{Body, Id};
use crate::jobs::Key;
use axum::Json;
use axum::extract::State;
use http::Method;
use tidemill_core::graph::record::LogLine;
use tidemill_core::limits::LOG_CHUNK_BYTES_MAX;
use tidemill_core::run::ChangeOutcome;
use tidemill_engine::graph::TaskReport;
use tidemill_wire::agents::{ReportLog, ReportOutcome, ReportResponse, ReportResult, ReportStage};

/// Body size limit of a result, which may list many files.
const RESULT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Body size limit of a log chunk. As JSON, a control character takes six bytes, and each line has a few field names.
const LOG_BYTES_MAX: usize = 6 * LOG_CHUNK_BYTES_MAX + 512 * 1024;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::POST, "/v1/tasks/{task}/stage", Permission::Agent, stage)
            .describe("agents", "Report the stage that a task has reached")
            .body::<ReportStage>()
            .responds::<ReportResponse>(
                200,
                "The outcome; with `stale`, the agent must not start the command",
            ),
        Endpoint::new(Method::POST, "/v1/tasks/{task}/result", Permission::Agent, result)
            .describe("agents", "Report the result of a task and its output files")
            .body::<ReportResult>()
            .body_limit(RESULT_BYTES_MAX)
            .responds::<ReportResponse>(200, "The outcome"),
        Endpoint::new(Method::POST, "/v1/tasks/{task}/logs", Permission::Agent, logs)
            .describe("agents", "Upload a chunk of a command's output; a repeated chunk is stored once")
            .body::<ReportLog>()
            .body_limit(LOG_BYTES_MAX)
            .responds::<ReportResponse>(200, "The outcome"),
    ]
}

fn reported(applied: ChangeOutcome) -> Json<ReportResponse> {
    let outcome = match applied {
        ChangeOutcome::Applied => ReportOutcome::Applied,
        ChangeOutcome::Duplicate => ReportOutcome::Duplicate,
        ChangeOutcome::Stale => ReportOutcome::Stale,
    };
    Json(ReportResponse { outcome })
}

async fn stage(
    State(app): State<App>,
    auth: AuthContext,
    Id(Key(task)): Id<Key>,
    Body(report): Body<ReportStage>,
) -> Result<Json<ReportResponse>, ApiError> {
    let who = speaker(&auth, report.agent, report.boot);
    Ok(reported(app.graphs().report_stage(&who, &task, &report.stage).await?))
}

async fn result(
    State(app): State<App>,
    auth: AuthContext,
    Id(Key(task)): Id<Key>,
    Body(report): Body<ReportResult>,
) -> Result<Json<ReportResponse>, ApiError> {
    let who = speaker(&auth, report.agent, report.boot);
    let report = TaskReport { result: report.result, outputs: report.outputs, unknown: report.unknown };
    Ok(reported(app.graphs().report_result(&who, &task, report).await?))
}

async fn logs(
    State(app): State<App>,
    auth: AuthContext,
    Id(Key(task)): Id<Key>,
    Body(report): Body<ReportLog>,
) -> Result<Json<ReportResponse>, ApiError> {
    let who = speaker(&auth, report.agent, report.boot);
    let lines = report.lines.into_iter().map(|line| LogLine { stream: line.stream, text: line.text });
    Ok(reported(app.graphs().report_log(&who, &task, report.seq, lines.collect()).await?))
}
