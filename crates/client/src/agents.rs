//! What an agent says to its server.

use crate::{Call, Client, Error, encoded, part, read};
use http::Method;
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;
use tidemill_wire::agents::{
    AgentBeat, AgentBeaten, AgentRegistered, AskKept, KeptOutputs, PollTasks, RegisterAgent, ReportLog,
    ReportProbe, ReportResult, ReportStage, Reported,
};
use uuid::Uuid;

/// How much longer than asked an answer to a poll may take.
const POLL_MARGIN: Duration = Duration::from_secs(20);

/// Orders as they came: what this version does not know of them is not lost.
#[derive(Deserialize)]
struct RawOrders {
    #[serde(default)]
    tasks: Vec<Value>,
}

impl Client {
    /// An agent says what it is; from now on its process of this boot speaks for it.
    pub async fn register_agent(
        &self,
        agent: Uuid,
        register: &RegisterAgent,
    ) -> Result<AgentRegistered, Error> {
        self.ask(Method::PUT, format!("/v1/agents/{agent}"), Some(register), None).await
    }

    /// An agent says that it lives and what it holds; what it may forget.
    pub async fn beat_agent(&self, agent: Uuid, beat: &AgentBeat) -> Result<AgentBeaten, Error> {
        self.post(format!("/v1/agents/{agent}/beat"), beat).await
    }

    /// An agent asks for tasks, and waits for them. They are given as they came: each is understood, or not, by
    /// itself.
    pub async fn poll_tasks(&self, agent: Uuid, poll: &PollTasks) -> Result<Vec<Value>, Error> {
        let call = Call {
            method: Method::POST,
            path: format!("/v1/agents/{agent}/poll"),
            idempotency_key: None,
            body: Some(encoded(poll)?),
            patience: Duration::from_secs(poll.wait_secs.unwrap_or_default().into()) + POLL_MARGIN,
        };
        read::<RawOrders>(&self.send(call).await?).map(|orders| orders.tasks)
    }

    /// An agent asks who needs what it keeps; what of it may go.
    pub async fn ask_kept(&self, agent: Uuid, ask: &AskKept) -> Result<KeptOutputs, Error> {
        self.post(format!("/v1/agents/{agent}/kept"), ask).await
    }

    /// An agent says what its probe found.
    pub async fn report_probe(&self, agent: Uuid, probe: &ReportProbe) -> Result<(), Error> {
        self.order(Method::POST, format!("/v1/agents/{agent}/probe"), Some(probe)).await
    }

    /// An agent says goodbye.
    pub async fn retire_agent(&self, agent: Uuid, boot: Uuid) -> Result<(), Error> {
        self.order(Method::DELETE, format!("/v1/agents/{agent}?boot={boot}"), None::<&()>).await
    }

    /// An agent says how far it is with a task.
    pub async fn report_stage(&self, task: &str, stage: &ReportStage) -> Result<Reported, Error> {
        self.post(format!("/v1/tasks/{}/stage", part(task)), stage).await
    }

    /// An agent says what came of a task.
    pub async fn report_result(&self, task: &str, result: &ReportResult) -> Result<Reported, Error> {
        self.post(format!("/v1/tasks/{}/result", part(task)), result).await
    }

    /// An agent hands in a piece of what a command wrote.
    pub async fn report_log(&self, task: &str, log: &ReportLog) -> Result<Reported, Error> {
        self.post(format!("/v1/tasks/{}/logs", part(task)), log).await
    }
}
