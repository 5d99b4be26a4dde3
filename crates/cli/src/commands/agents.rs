//! Agents as people see them: list, drain, forget.

use crate::fail::Failure;
use crate::out::{Cell, Out, Style};
use crate::times;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::Timestamp;
use tidemill_core::agent::Agent;
use tidemill_core::limits::AGENT_SILENT_SECS;
use tidemill_wire::graphs::ForgetAgent;

use uuid::Uuid;

pub(super) async fn list(client: &Client, out: Out) -> Result<ExitCode, Failure> {
    let agents = client.agents().await?.items;
    if out.is_json() {
        out.json(&agents);
        return Ok(ExitCode::SUCCESS);
    }
    if agents.is_empty() {
        out.say("no agent is there; start one: tidemill agent run --server URL");
        return Ok(ExitCode::SUCCESS);
    }
    let now = client.info().await?.now;
    let rows: Vec<Vec<Cell>> = agents
        .iter()
        .map(|agent| {
            vec![
                agent.name.as_str().into(),
                state(agent, now),
                agent.capacity.to_string().into(),
                if agent.labels.is_empty() { "–".into() } else { agent.labels.join(", ").into() },
                agent.project_id.clone().unwrap_or_else(|| "all".to_owned()).into(),
                times::relative(agent.seen_at, now).into(),
                agent.version.as_str().into(),
                agent.agent_id.to_string().into(),
            ]
        })
        .collect();
    out.table(&["AGENT", "STATE", "CARRIES", "LABELS", "PROJECT", "HEARD", "VERSION", "ID"], &rows);
    Ok(ExitCode::SUCCESS)
}

fn state(agent: &Agent, now: Timestamp) -> Cell {
    let silence = i64::try_from(AGENT_SILENT_SECS).unwrap_or(i64::MAX);
    if agent.left_at.is_some() {
        Cell("gone".to_owned(), Style::Dim)
    } else if (now - agent.seen_at).num_seconds() > silence {
        Cell("silent".to_owned(), Style::Bad)
    } else if agent.draining {
        Cell("draining".to_owned(), Style::Odd)
    } else {
        Cell("here".to_owned(), Style::Good)
    }
}

pub(super) async fn drain(client: &Client, agent: &str, undo: bool, out: Out) -> Result<ExitCode, Failure> {
    let found = find(client, agent).await?;
    let agent = client.drain_agent(found.agent_id, !undo).await?;
    if out.is_json() {
        out.json(&agent);
    } else if agent.draining {
        out.line(format!("agent {} gets no new tasks; what it has goes on", agent.name));
    } else {
        out.line(format!("agent {} gets tasks again", agent.name));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn forget(client: &Client, agent: &str, force: bool, out: Out) -> Result<ExitCode, Failure> {
    let found = find(client, agent).await?;
    let forgotten = client.forget_agent(found.agent_id, ForgetAgent { force }).await?.forgotten;
    if out.is_json() {
        out.json(&serde_json::json!({"agent_id": found.agent_id, "forgotten": forgotten}));
    } else {
        out.line(format!("agent {} is forgotten; its jobs go to others", found.name));
    }
    Ok(ExitCode::SUCCESS)
}

/// An agent by its id, or by its name where only one has it.
async fn find(client: &Client, wanted: &str) -> Result<Agent, Failure> {
    let agents = client.agents().await?.items;
    let id: Option<Uuid> = wanted.parse().ok();
    let mut found = agents.into_iter().filter(|agent| Some(agent.agent_id) == id || agent.name == wanted);
    let Some(first) = found.next() else {
        let failure = Failure::refused(format!("agent `{wanted}` does not exist"));
        return Err(failure.coded("unknown_agent").hint("tidemill agent list"));
    };
    if found.next().is_some() {
        return Err(Failure::refused(format!("several agents are called `{wanted}`"))
            .hint("name one by its id: tidemill agent list"));
    }
    Ok(first)
}
