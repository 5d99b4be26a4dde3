//! The agent's client of the server API, and the classification of its errors.

use http::StatusCode;
use serde_json::Value;
use tidemill_client::{Client, Error};
use tidemill_core::task::Stage;
use tidemill_supervisor::BootInstant;
use tidemill_wire::agents::{
    AgentHeartbeat, AgentHeartbeatResponse, LogLine, PollTasks, RegisterAgent, RegisterAgentResponse,
    ReportLog, ReportOutcome, ReportProbe, ReportResponse, ReportResult, ReportStage, RetentionRequest,
    RetentionResponse, TaskProgress,
};
use uuid::Uuid;

use crate::task_dir::Manifest;

/// Sends requests to the server in the name of one process of an agent.
pub(crate) struct ServerClient {
    client: Client,
    agent: Uuid,
    boot: Uuid,
}

/// Classified error of a request, with its message.
#[derive(Debug, Clone)]
pub(crate) enum RequestError {
    /// A later attempt may succeed.
    Retryable(String),
    Forbidden(String),
    /// The server does not know the agent, the task or the endpoint.
    NotFound(String),
    /// The server rejected the content; repeating the request would fail again.
    Rejected(String),
    /// Another process has registered as this agent.
    Superseded(String),
}

impl RequestError {
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Retryable(message)
            | Self::Forbidden(message)
            | Self::NotFound(message)
            | Self::Rejected(message)
            | Self::Superseded(message) => message,
        }
    }
}

impl From<Error> for RequestError {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        if error.is_stale() {
            return Self::Superseded(message);
        }
        let status = match &error {
            Error::Refused { status, .. } => *status,
            Error::Unreachable { .. }
            | Error::NotTidemill { .. }
            | Error::InvalidResponse(_)
            | Error::InvalidConfig(_) => {
                return Self::Retryable(message);
            }
        };
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Self::Forbidden(message),
            StatusCode::NOT_FOUND => Self::NotFound(message),
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY => {
                Self::Rejected(message)
            }
            _ => Self::Retryable(message),
        }
    }
}

/// Returns the outcome of a report. A report about a task that the server does not know is stale.
fn outcome(response: Result<ReportResponse, Error>) -> Result<ReportOutcome, RequestError> {
    match response.map_err(RequestError::from) {
        Ok(response) => Ok(response.outcome),
        Err(RequestError::NotFound(_)) => Ok(ReportOutcome::Stale),
        Err(error) => Err(error),
    }
}

impl ServerClient {
    pub(crate) fn new(client: Client, agent: Uuid) -> Self {
        Self { client, agent, boot: Uuid::new_v4() }
    }

    /// Identifies this process of the agent.
    pub(crate) fn boot(&self) -> Uuid {
        self.boot
    }

    pub(crate) async fn register(
        &self,
        register: &RegisterAgent,
    ) -> Result<RegisterAgentResponse, RequestError> {
        Ok(self.client.register_agent(self.agent, register).await?)
    }

    /// Sends a heartbeat; also returns the time before it was sent.
    pub(crate) async fn heartbeat(
        &self,
        holding: Vec<TaskProgress>,
        draining: bool,
    ) -> Result<(AgentHeartbeatResponse, BootInstant), RequestError> {
        let at = BootInstant::now();
        let heartbeat = AgentHeartbeat { boot: self.boot, holding, draining };
        Ok((self.client.heartbeat_agent(self.agent, &heartbeat).await?, at))
    }

    pub(crate) async fn poll(&self, have: Vec<String>, wait_secs: u16) -> Result<Vec<Value>, RequestError> {
        let poll = PollTasks { boot: self.boot, have, wait_secs: Some(wait_secs) };
        Ok(self.client.poll_tasks(self.agent, &poll).await?)
    }

    pub(crate) async fn stage(&self, task: &str, stage: Stage) -> Result<ReportOutcome, RequestError> {
        let report = ReportStage { agent: self.agent, boot: self.boot, stage: stage.as_str().to_owned() };
        outcome(self.client.report_stage(task, &report).await)
    }

    pub(crate) async fn result(&self, manifest: &Manifest) -> Result<ReportOutcome, RequestError> {
        let report = ReportResult {
            agent: self.agent,
            boot: self.boot,
            result: manifest.result.clone(),
            outputs: manifest.outputs.clone(),
            unknown: manifest.unknown.clone(),
        };
        outcome(self.client.report_result(&manifest.task_id, &report).await)
    }

    pub(crate) async fn log(
        &self,
        task: &str,
        seq: i32,
        lines: Vec<LogLine>,
    ) -> Result<ReportOutcome, RequestError> {
        let report = ReportLog { agent: self.agent, boot: self.boot, seq, lines };
        outcome(self.client.report_log(task, &report).await)
    }

    /// Queries which retained outputs are unused, and requests permission to remove some.
    pub(crate) async fn check_retention(
        &self,
        keeps: Vec<String>,
        removes: Vec<String>,
    ) -> Result<RetentionResponse, RequestError> {
        let request = RetentionRequest { boot: self.boot, keeps, removes };
        Ok(self.client.check_retained_outputs(self.agent, &request).await?)
    }

    pub(crate) async fn probe(&self, maintenance: bool, note: Option<String>) -> Result<(), RequestError> {
        let report = ReportProbe { boot: self.boot, maintenance, note };
        Ok(self.client.report_probe(self.agent, &report).await?)
    }

    pub(crate) async fn retire(&self) -> Result<(), RequestError> {
        Ok(self.client.retire_agent(self.agent, self.boot).await?)
    }
}
