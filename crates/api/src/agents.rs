//! Agents: operator actions, and the heartbeat and task endpoints that agents call.
//!
//! An agent belongs to the token that it registered with, and a token of role agent to one agent. For other agent
//! tokens the agent does not exist, with exactly the same error. Each registration proves and replaces the secret of
//! the agent's directory. When the token is revoked or expired, the agent can continue under another token.
//!
//! Every other call proves the id of the agent process. Only that process knows it: it is not in the directory, no
//! response contains it, and the database stores a hash.

use crate::access::{AuthContext, Caller, audit_entry};
use crate::app::App;
use crate::endpoint::{Endpoint, Permission};
use crate::error::ApiError;
use crate::extract::{Body, Id, Query};
use crate::graphs::poll_wait;
use axum::Json;
use axum::extract::State;
use http::{Method, StatusCode};
use tidemill_core::agent::{Agent, NewAgent};
use tidemill_core::digest::sha256_hex;
use tidemill_core::graph::record::{JobOutput, Order, OrderWork};
use tidemill_core::ids::derived_uuid;
use tidemill_core::limits::{AGENT_HEARTBEAT_SECS, AGENT_SECRET_SECS, AGENT_SILENT_SECS, KEY_BYTES_MAX};
use tidemill_engine::graph::{AgentIdentity, ForgetMode, TaskProgress};
use tidemill_store::{AuditEntry, Error, RefusalCode};
use tidemill_wire::Page;
use tidemill_wire::agents::{
    AgentHeartbeat, AgentHeartbeatResponse, AgentSecret, Input, Orders, PROTOCOL, PollTasks, RegisterAgent,
    RegisterAgentResponse, ReportProbe, RetentionRequest, RetentionResponse, TaskOrder, UnusedOutputs, Work,
};
use tidemill_wire::graphs::{DrainAgent, ForgetAgent, ForgetAgentResponse, Goodbye};
use uuid::Uuid;

const AGENT_PATH: &str = "/v1/agents/{agent}";
/// Minimum length of an agent secret; shorter ones could be guessed.
const SECRET_BYTES_MIN: usize = 32;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/v1/agents", Permission::Read, list)
            .describe("agents", "List agents")
            .responds::<Page<Agent>>(200, "The agents"),
        Endpoint::new(Method::POST, "/v1/agents/{agent}/drain", Permission::Operate, drain)
            .describe("agents", "Start or end the draining of an agent; a draining agent gets no new tasks")
            .body::<DrainAgent>()
            .responds::<Agent>(200, "The agent"),
        Endpoint::new(Method::POST, "/v1/agents/{agent}/forget", Permission::Operate, forget)
            .describe(
                "agents",
                "Confirm that no command of an agent is running any more; its jobs are reassigned at once",
            )
            .query::<ForgetAgent>()
            .responds::<ForgetAgentResponse>(200, "Whether the agent was still assumed to run commands"),
        Endpoint::new(Method::PUT, AGENT_PATH, Permission::Agent, register)
            .describe(
                "agents",
                "Register an agent process; an earlier process of the same agent is refused from then on",
            )
            .body::<RegisterAgent>()
            .responds::<RegisterAgentResponse>(200, "Protocol version and heartbeat intervals"),
        Endpoint::new(Method::POST, "/v1/agents/{agent}/beat", Permission::Agent, heartbeat)
            .describe("agents", "Send an agent's heartbeat with the tasks that it holds")
            .body::<AgentHeartbeat>()
            .responds::<AgentHeartbeatResponse>(
                200,
                "The tasks that have ended, and whether the agent is draining",
            ),
        Endpoint::new(Method::POST, "/v1/agents/{agent}/poll", Permission::Agent, poll)
            .describe("agents", "Poll for tasks; with `wait_secs`, wait for them")
            .long_poll()
            .body::<PollTasks>()
            .responds::<Orders>(200, "The tasks that the agent does not have yet"),
        Endpoint::new(Method::POST, "/v1/agents/{agent}/kept", Permission::Agent, check_retained_outputs)
            .describe("agents", "Ask which retained job outputs are unused and which may be deleted")
            .body::<RetentionRequest>()
            .responds::<RetentionResponse>(
                200,
                "The outputs that no active run needs, and those that may be deleted",
            ),
        Endpoint::new(Method::POST, "/v1/agents/{agent}/probe", Permission::Agent, probe)
            .describe("agents", "Report whether a probe found the database in maintenance")
            .body::<ReportProbe>()
            .responds_empty(204, "The report was accepted"),
        Endpoint::new(Method::DELETE, AGENT_PATH, Permission::Agent, unregister)
            .describe("agents", "Unregister an agent; tasks that it has not started are reassigned")
            .query::<Goodbye>()
            .responds_empty(204, "The agent is unregistered"),
    ]
}

fn unknown(agent: Uuid) -> ApiError {
    Error::refused(RefusalCode::UnknownAgent, format!("agent `{agent}` does not exist")).into()
}

impl Caller {
    /// Returns an agent that the caller may change: one whose projects it all sees.
    async fn agent(&self, app: &App, agent: Uuid) -> Result<Agent, ApiError> {
        let found = app.graphs().agent(agent).await?;
        if self.projects.covers(&found.projects) { Ok(found) } else { Err(unknown(agent)) }
    }
}

async fn list(State(app): State<App>, caller: Caller) -> Result<Json<Page<Agent>>, ApiError> {
    Ok(Json(Page::complete(app.graphs().agents(caller.own_project()?.as_deref()).await?)))
}

async fn drain(
    State(app): State<App>,
    caller: Caller,
    Id(agent): Id<Uuid>,
    Body(drain): Body<DrainAgent>,
) -> Result<Json<Agent>, ApiError> {
    caller.agent(&app, agent).await?;
    Ok(Json(app.graphs().drain(agent, drain.draining).await?))
}

async fn forget(
    State(app): State<App>,
    caller: Caller,
    Id(agent): Id<Uuid>,
    Query(forget): Query<ForgetAgent>,
) -> Result<Json<ForgetAgentResponse>, ApiError> {
    caller.agent(&app, agent).await?;
    let when = if forget.force { ForgetMode::Always } else { ForgetMode::IfSilent };
    Ok(Json(ForgetAgentResponse { forgotten: app.graphs().forget(agent, when).await? }))
}

async fn register(
    State(app): State<App>,
    caller: Caller,
    auth: AuthContext,
    Id(agent): Id<Uuid>,
    Body(register): Body<RegisterAgent>,
) -> Result<Json<RegisterAgentResponse>, ApiError> {
    let mut entry = audit_entry(&caller, &auth, "PUT", AGENT_PATH);
    "agents.rebind".clone_into(&mut entry.action);
    entry.set_subject(&agent.to_string());
    let new = NewAgent {
        agent_id: agent,
        name: register.name,
        host: register.host,
        labels: register.labels,
        capacity: register.capacity,
        version: register.version,
        projects: caller.projects,
        token_id: auth.token_id,
        boot_id: stored_boot(register.boot),
        secret_hash: secret_hash(&register.secret)?,
        next_secret_hash: secret_hash(&register.next_secret)?,
        dir_lock: register.dir_lock,
        isolation: register.isolation,
    };
    // The only agent request that is audited: another token takes over the agent.
    let record = AuditEntry::new(entry, app.engine().clock().now());
    app.graphs().for_call(record).register(new).await?;
    if register.draining {
        app.graphs().drain(agent, true).await?;
    }
    Ok(Json(RegisterAgentResponse {
        protocol: PROTOCOL,
        beat_secs: AGENT_HEARTBEAT_SECS,
        silent_secs: AGENT_SILENT_SECS,
        secret_secs: AGENT_SECRET_SECS,
    }))
}

/// Hashes the secret of an agent's directory for storage.
fn secret_hash(secret: &AgentSecret) -> Result<String, ApiError> {
    if (SECRET_BYTES_MIN..=KEY_BYTES_MAX).contains(&secret.0.len()) {
        return Ok(sha256_hex(secret.0.as_bytes()));
    }
    let message = format!(
        "agent secret has {} bytes; it must have {SECRET_BYTES_MIN} to {KEY_BYTES_MAX}",
        secret.0.len()
    );
    Err(Error::refused(RefusalCode::BadValue, message).into())
}

/// Stored form of the id of an agent process. The id is a secret of that process.
fn stored_boot(boot: Uuid) -> Uuid {
    derived_uuid(&format!("agent process {boot}"))
}

/// Identity of the agent process that sent a request.
pub(crate) fn speaker(auth: &AuthContext, agent: Uuid, boot: Uuid) -> AgentIdentity {
    AgentIdentity { agent_id: agent, boot_id: stored_boot(boot), token_id: auth.token_id }
}

async fn heartbeat(
    State(app): State<App>,
    auth: AuthContext,
    Id(agent): Id<Uuid>,
    Body(beat): Body<AgentHeartbeat>,
) -> Result<Json<AgentHeartbeatResponse>, ApiError> {
    // A stage that this version does not know is ignored.
    let parse_stage = |stage: Option<String>| stage.and_then(|stage| stage.parse().ok());
    let holding: Vec<TaskProgress> = beat
        .holding
        .into_iter()
        .map(|held| TaskProgress { task_id: held.task_id, stage: parse_stage(held.stage) })
        .collect();
    let beaten = app.graphs().heartbeat(&speaker(&auth, agent, beat.boot), &holding).await?;
    if beat.draining && !beaten.draining {
        app.graphs().drain(agent, true).await?;
    }
    Ok(Json(AgentHeartbeatResponse { over: beaten.over, draining: beaten.draining, now: beaten.now }))
}

async fn poll(
    State(app): State<App>,
    auth: AuthContext,
    Id(agent): Id<Uuid>,
    Body(poll): Body<PollTasks>,
) -> Result<Json<Orders>, ApiError> {
    let wait = poll_wait(poll.wait_secs)?;
    let mut closing = app.closing();
    let who = speaker(&auth, agent, poll.boot);
    let orders = tokio::select! {
        orders = app.graphs().poll(&who, &poll.have, wait) => orders?,
        _ = closing.wait_for(|closed| *closed) => Vec::new(),
    };
    Ok(Json(Orders { tasks: orders.into_iter().map(order).collect() }))
}

fn order(order: Order) -> TaskOrder {
    TaskOrder {
        task_id: order.task_id,
        kind: order.kind.to_string(),
        job_id: order.job_id,
        cancels: order.cancels,
        work: order.work.map(work),
    }
}

fn work(work: OrderWork) -> Work {
    let spec = work.spec;
    Work {
        traceparent: None,
        run_id: work.run_id,
        project_id: work.project_id,
        workspace: work.workspace,
        job: spec.name,
        attempt: work.attempt,
        run: spec.run,
        env: spec.env,
        secrets: spec.secrets,
        outputs: spec.outputs,
        inputs: work.inputs.into_iter().map(input).collect(),
        timeout_secs: spec.timeout_secs,
        workdir: spec.workdir,
        limits: spec.limits,
        on_agent_lost: spec.on_agent_lost,
    }
}

fn input(file: JobOutput) -> Input {
    Input { job_id: file.job_id, job: file.job, agent_id: file.agent_id, output: file.output }
}

async fn check_retained_outputs(
    State(app): State<App>,
    auth: AuthContext,
    Id(agent): Id<Uuid>,
    Body(request): Body<RetentionRequest>,
) -> Result<Json<RetentionResponse>, ApiError> {
    let who = speaker(&auth, agent, request.boot);
    let kept = app.graphs().check_retention(&who, &request.keeps, &request.removes).await?;
    let unused = kept.unused.into_iter().map(|(job_id, idle_secs)| UnusedOutputs { job_id, idle_secs });
    Ok(Json(RetentionResponse { unused: unused.collect(), gone: kept.deletable }))
}

async fn probe(
    State(app): State<App>,
    auth: AuthContext,
    Id(agent): Id<Uuid>,
    Body(probe): Body<ReportProbe>,
) -> Result<StatusCode, ApiError> {
    let who = speaker(&auth, agent, probe.boot);
    app.graphs().report_probe(&who, probe.maintenance, probe.note).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn unregister(
    State(app): State<App>,
    auth: AuthContext,
    Id(agent): Id<Uuid>,
    Query(goodbye): Query<Goodbye>,
) -> Result<StatusCode, ApiError> {
    app.graphs().leave(&speaker(&auth, agent, goodbye.boot)).await?;
    // The agent has drained and is gone. When it registers again, it must get tasks.
    app.graphs().drain(agent, false).await?;
    Ok(StatusCode::NO_CONTENT)
}
