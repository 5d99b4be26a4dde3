//! Endpoints that agents request.

use crate::{ApiRequest, Client, Error, decode, encode, path_segment};
use http::Method;
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;
use tidemill_wire::agents::{
    AgentHeartbeat, AgentHeartbeatResponse, PollTasks, RegisterAgent, RegisterAgentResponse, ReportLog,
    ReportProbe, ReportResponse, ReportResult, ReportStage, RetentionRequest, RetentionResponse,
};
use uuid::Uuid;

/// Extra time for the response to a long poll, on top of the requested wait.
const POLL_MARGIN: Duration = Duration::from_secs(20);

/// Poll response with undecoded tasks: a task from a newer server must not make the others unreadable.
#[derive(Deserialize)]
struct RawTasks {
    #[serde(default)]
    tasks: Vec<Value>,
}

impl Client {
    /// Registers an agent. From then on, only the agent process with this boot id may report for it.
    pub async fn register_agent(
        &self,
        agent: Uuid,
        register: &RegisterAgent,
    ) -> Result<RegisterAgentResponse, Error> {
        self.request(Method::PUT, format!("/v1/agents/{agent}"), Some(register), None).await
    }

    /// Sends an agent's heartbeat with the tasks that it holds. The response lists the tasks it may forget.
    pub async fn heartbeat_agent(
        &self,
        agent: Uuid,
        beat: &AgentHeartbeat,
    ) -> Result<AgentHeartbeatResponse, Error> {
        self.post(format!("/v1/agents/{agent}/beat"), beat).await
    }

    /// Long-polls for tasks. They are returned undecoded, so that the agent can reject each one on its own.
    pub async fn poll_tasks(&self, agent: Uuid, poll: &PollTasks) -> Result<Vec<Value>, Error> {
        let request = ApiRequest {
            method: Method::POST,
            path: format!("/v1/agents/{agent}/poll"),
            idempotency_key: None,
            body: Some(encode(poll)?),
            timeout: Duration::from_secs(poll.wait_secs.unwrap_or_default().into()) + POLL_MARGIN,
        };
        decode::<RawTasks>(&self.send(request).await?).map(|response| response.tasks)
    }

    /// Asks which of an agent's retained outputs are still needed and which it may delete.
    pub async fn check_retained_outputs(
        &self,
        agent: Uuid,
        request: &RetentionRequest,
    ) -> Result<RetentionResponse, Error> {
        self.post(format!("/v1/agents/{agent}/kept"), request).await
    }

    /// Reports the result of an agent's probe.
    pub async fn report_probe(&self, agent: Uuid, probe: &ReportProbe) -> Result<(), Error> {
        self.request_no_content(Method::POST, format!("/v1/agents/{agent}/probe"), Some(probe)).await
    }

    /// Unregisters an agent that leaves.
    pub async fn retire_agent(&self, agent: Uuid, boot: Uuid) -> Result<(), Error> {
        self.request_no_content(Method::DELETE, format!("/v1/agents/{agent}?boot={boot}"), None::<&()>).await
    }

    /// Reports the stage that a task has reached.
    pub async fn report_stage(&self, task: &str, stage: &ReportStage) -> Result<ReportResponse, Error> {
        self.post(format!("/v1/tasks/{}/stage", path_segment(task)), stage).await
    }

    /// Reports the result of a task.
    pub async fn report_result(&self, task: &str, result: &ReportResult) -> Result<ReportResponse, Error> {
        self.post(format!("/v1/tasks/{}/result", path_segment(task)), result).await
    }

    /// Uploads a chunk of a command's output.
    pub async fn report_log(&self, task: &str, log: &ReportLog) -> Result<ReportResponse, Error> {
        self.post(format!("/v1/tasks/{}/logs", path_segment(task)), log).await
    }
}
