//! `tidemill agent list`, `drain` and `forget`.

use crate::failure::Failure;
use crate::out::{Cell, Out, Style};
use crate::times;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::Timestamp;
use tidemill_core::agent::{Agent, IsolationLevel};
use tidemill_core::limits::AGENT_SILENT_SECS;
use tidemill_wire::graphs::ForgetAgent;
use uuid::Uuid;

pub(super) async fn list(client: &Client, out: Out) -> Result<ExitCode, Failure> {
    let agents = client.agents().await?.items;
    if out.is_json() {
        out.print_json(&agents);
        return Ok(ExitCode::SUCCESS);
    }
    if agents.is_empty() {
        out.inform("no agent is registered; start one with `tidemill agent run --server URL`");
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
                agent.projects.list().into(),
                isolation(agent),
                times::format_relative(agent.seen_at, now).into(),
                agent.version.as_str().into(),
                Cell::id(agent.agent_id.to_string()),
            ]
        })
        .collect();
    out.print_table(
        &["AGENT", "STATE", "CAPACITY", "LABELS", "PROJECT", "ISOLATION", "HEARTBEAT", "VERSION", "ID"],
        &rows,
    );
    Ok(ExitCode::SUCCESS)
}

fn isolation(agent: &Agent) -> Cell {
    let level = agent.isolation_level();
    let style = match level {
        IsolationLevel::Full => Style::Success,
        IsolationLevel::Partial | IsolationLevel::None => Style::Warning,
        IsolationLevel::Unknown => Style::Dim,
    };
    Cell::new(level.to_string(), style)
}

fn state(agent: &Agent, now: Timestamp) -> Cell {
    let limit = i64::try_from(AGENT_SILENT_SECS).unwrap_or(i64::MAX);
    if agent.left_at.is_some() {
        Cell::new("gone".to_owned(), Style::Dim)
    } else if (now - agent.seen_at).num_seconds() > limit {
        Cell::new("silent".to_owned(), Style::Error)
    } else if agent.draining {
        Cell::new("draining".to_owned(), Style::Warning)
    } else {
        Cell::new("here".to_owned(), Style::Success)
    }
}

pub(super) async fn drain(client: &Client, agent: &str, undo: bool, out: Out) -> Result<ExitCode, Failure> {
    let found = find(client, agent).await?;
    let agent = client.drain_agent(found.agent_id, !undo).await?;
    if out.is_json() {
        out.print_json(&agent);
    } else if agent.draining {
        out.print(format!("agent {} gets no new tasks; its current tasks continue", agent.name));
    } else {
        out.print(format!("agent {} gets tasks again", agent.name));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn forget(client: &Client, agent: &str, force: bool, out: Out) -> Result<ExitCode, Failure> {
    let found = find(client, agent).await?;
    let forgotten = client.forget_agent(found.agent_id, ForgetAgent { force }).await?.forgotten;
    if out.is_json() {
        out.print_json(&serde_json::json!({"agent_id": found.agent_id, "forgotten": forgotten}));
    } else {
        out.print(format!("agent {} is forgotten; its jobs go to other agents", found.name));
    }
    Ok(ExitCode::SUCCESS)
}

/// Finds an agent by its id, or by its name if it is unique.
async fn find(client: &Client, wanted: &str) -> Result<Agent, Failure> {
    let agents = client.agents().await?.items;
    let id: Option<Uuid> = wanted.parse().ok();
    let mut found = agents.into_iter().filter(|agent| Some(agent.agent_id) == id || agent.name == wanted);
    let Some(first) = found.next() else {
        let failure = Failure::refused(format!("agent `{wanted}` does not exist"));
        return Err(failure.with_code("unknown_agent").with_hint("tidemill agent list"));
    };
    if found.next().is_some() {
        return Err(Failure::refused(format!("several agents have the name `{wanted}`; use an id"))
            .with_hint("tidemill agent list"));
    }
    Ok(first)
}
