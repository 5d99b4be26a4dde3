//! The way to the server: what is said in the agent's name, and what an answer means for the agent.

use http::StatusCode;
use serde_json::Value;
use tidemill_client::{Client, Error};
use tidemill_core::task::Stage;
use tidemill_supervisor::Moment;
use tidemill_wire::agents::{
    AgentBeat, AgentBeaten, AgentRegistered, AskKept, Holding, KeptOutputs, LogLine, PollTasks,
    RegisterAgent, ReportLog, ReportProbe, ReportResult, ReportStage, Reported, Taken,
};
use uuid::Uuid;

use crate::place::Manifest;

/// The server, as one process of an agent speaks to it.
pub(crate) struct Door {
    client: Client,
    agent: Uuid,
    boot: Uuid,
}

/// Why there is no answer that says yes or no.
#[derive(Debug, Clone)]
pub(crate) enum Trouble {
    /// Asking again later may help.
    Later(String),
    /// The server says who asks may not.
    Forbidden(String),
    /// The server does not know what it was asked about.
    Unknown(String),
    /// The server cannot use what it was told.
    Bad(String),
    /// Another process speaks for this agent.
    Superseded(String),
}

impl Trouble {
    /// What the server, or the network, said.
    pub(crate) fn words(&self) -> &str {
        match self {
            Self::Later(words)
            | Self::Forbidden(words)
            | Self::Unknown(words)
            | Self::Bad(words)
            | Self::Superseded(words) => words,
        }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        let words = error.to_string();
        if error.is_stale() {
            return Self::Superseded(words);
        }
        let status = match &error {
            Error::Refused { status, .. } => *status,
            Error::Unreachable { .. }
            | Error::NotTidemill { .. }
            | Error::Unreadable(_)
            | Error::BadAddress(_) => {
                return Self::Later(words);
            }
        };
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Self::Forbidden(words),
            StatusCode::NOT_FOUND => Self::Unknown(words),
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY => {
                Self::Bad(words)
            }
            _ => Self::Later(words),
        }
    }
}

/// What became of a report. Of a task that the server does not know, nothing counts.
fn taken(answer: Result<Reported, Error>) -> Result<Taken, Trouble> {
    match answer.map_err(Trouble::from) {
        Ok(reported) => Ok(reported.outcome),
        Err(Trouble::Unknown(_)) => Ok(Taken::Stale),
        Err(trouble) => Err(trouble),
    }
}

impl Door {
    pub(crate) fn new(client: Client, agent: Uuid) -> Self {
        Self { client, agent, boot: Uuid::new_v4() }
    }

    /// The process that speaks.
    pub(crate) fn boot(&self) -> Uuid {
        self.boot
    }

    pub(crate) async fn register(&self, register: &RegisterAgent) -> Result<AgentRegistered, Trouble> {
        Ok(self.client.register_agent(self.agent, register).await?)
    }

    /// Says that we live; also the moment before that was said.
    pub(crate) async fn beat(
        &self,
        holding: Vec<Holding>,
        draining: bool,
    ) -> Result<(AgentBeaten, Moment), Trouble> {
        let at = Moment::now();
        let beat = AgentBeat { boot: self.boot, holding, draining };
        Ok((self.client.beat_agent(self.agent, &beat).await?, at))
    }

    pub(crate) async fn poll(&self, have: Vec<String>, wait_secs: u16) -> Result<Vec<Value>, Trouble> {
        let poll = PollTasks { boot: self.boot, have, wait_secs: Some(wait_secs) };
        Ok(self.client.poll_tasks(self.agent, &poll).await?)
    }

    pub(crate) async fn stage(&self, task: &str, stage: Stage) -> Result<Taken, Trouble> {
        let report = ReportStage { agent: self.agent, boot: self.boot, stage: stage.as_str().to_owned() };
        taken(self.client.report_stage(task, &report).await)
    }

    pub(crate) async fn result(&self, manifest: &Manifest) -> Result<Taken, Trouble> {
        let report = ReportResult {
            agent: self.agent,
            boot: self.boot,
            result: manifest.result.clone(),
            outputs: manifest.outputs.clone(),
            unknown: manifest.unknown.clone(),
        };
        taken(self.client.report_result(&manifest.task_id, &report).await)
    }

    pub(crate) async fn log(&self, task: &str, seq: i32, lines: Vec<LogLine>) -> Result<Taken, Trouble> {
        let report = ReportLog { agent: self.agent, boot: self.boot, seq, lines };
        taken(self.client.report_log(task, &report).await)
    }

    /// Asks who needs what is kept, and what of it may be removed.
    pub(crate) async fn kept(
        &self,
        keeps: Vec<String>,
        removes: Vec<String>,
    ) -> Result<KeptOutputs, Trouble> {
        let ask = AskKept { boot: self.boot, keeps, removes };
        Ok(self.client.ask_kept(self.agent, &ask).await?)
    }

    pub(crate) async fn probe(&self, maintenance: bool, note: Option<String>) -> Result<(), Trouble> {
        let report = ReportProbe { boot: self.boot, maintenance, note };
        Ok(self.client.report_probe(self.agent, &report).await?)
    }

    pub(crate) async fn goodbye(&self) -> Result<(), Trouble> {
        Ok(self.client.retire_agent(self.agent, self.boot).await?)
    }
}
