//! Agents: what people say about them, and how they say that they live and ask for tasks.
//!
//! An agent belongs to the token that it registered with. To everybody else who speaks as an agent it does not exist,
//! word for word. When that token is over, the agent's own directory may come with another one.

use crate::access::{Caller, Visit, trail_line};
use crate::answer::Fail;
use crate::app::App;
use crate::endpoint::{Allowed, Endpoint};
use crate::extract::{Body, Id, Query};
use crate::graphs::wait;
use axum::Json;
use axum::extract::State;
use http::{Method, StatusCode};
use tidemill_core::agent::{Agent, NewAgent};
use tidemill_core::digest::sha256_hex;
use tidemill_core::graph::record::{JobOutput, Order, OrderWork};
use tidemill_core::limits::{AGENT_BEAT_SECS, AGENT_SILENT_SECS, KEY_BYTES_MAX};
use tidemill_engine::graph::{Forget, Holding, Speaker};
use tidemill_store::{Error, Record, RefusalCode};
use tidemill_wire::Page;
use tidemill_wire::agents::{
    AgentBeat, AgentBeaten, AgentRegistered, AskKept, HomeSecret, Input, KeptOutputs, Orders, PROTOCOL,
    PollTasks, RegisterAgent, ReportProbe, TaskOrder, UnusedOutputs, Work,
};
use tidemill_wire::graphs::{AgentForgotten, DrainAgent, ForgetAgent, Goodbye};
use uuid::Uuid;

/// The path of an agent.
const AGENT_PATH: &str = "/v1/agents/{agent}";
/// What is shorter could be guessed.
const SECRET_BYTES_MIN: usize = 32;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/v1/agents", Allowed::Look, list)
            .says("agents", "List agents")
            .answers::<Page<Agent>>(200, "The agents"),
        Endpoint::new(Method::POST, "/v1/agents/{agent}/drain", Allowed::Operate, drain)
            .says("agents", "Let an agent get no new tasks, or get them again")
            .body::<DrainAgent>()
            .answers::<Agent>(200, "The agent"),
        Endpoint::new(Method::POST, "/v1/agents/{agent}/forget", Allowed::Operate, forget)
            .says("agents", "Say that nothing of an agent runs any more: its jobs go to others at once")
            .query::<ForgetAgent>()
            .answers::<AgentForgotten>(200, "Whether that was news"),
        Endpoint::new(Method::PUT, AGENT_PATH, Allowed::Agent, register)
            .says("agents", "Register an agent, or its next process: an earlier one is refused from now on")
            .body::<RegisterAgent>()
            .answers::<AgentRegistered>(200, "How the server wants to be spoken to"),
        Endpoint::new(Method::POST, "/v1/agents/{agent}/beat", Allowed::Agent, beat)
            .says("agents", "Say that an agent lives and what it holds, and learn what is over of it")
            .body::<AgentBeat>()
            .answers::<AgentBeaten>(200, "What is over"),
        Endpoint::new(Method::POST, "/v1/agents/{agent}/poll", Allowed::Agent, poll)
            .says("agents", "Ask for tasks, and wait for them where asked")
            .waits()
            .body::<PollTasks>()
            .answers::<Orders>(200, "The orders that the agent does not have yet"),
        Endpoint::new(Method::POST, "/v1/agents/{agent}/kept", Allowed::Agent, kept)
            .says("agents", "Ask who needs what an agent keeps of what jobs left, and what of it may go")
            .body::<AskKept>()
            .answers::<KeptOutputs>(200, "What no run that goes on needs, and what may go"),
        Endpoint::new(Method::POST, "/v1/agents/{agent}/probe", Allowed::Agent, probe)
            .says("agents", "Say whether a probe found the database under maintenance")
            .body::<ReportProbe>()
            .empty(204, "It was heard"),
        Endpoint::new(Method::DELETE, AGENT_PATH, Allowed::Agent, leave)
            .says("agents", "Say goodbye: what the agent has not begun goes to others")
            .query::<Goodbye>()
            .empty(204, "It is gone"),
    ]
}

fn unknown(agent: Uuid) -> Fail {
    Error::refused(RefusalCode::UnknownAgent, format!("agent `{agent}` does not exist")).into()
}

impl Caller {
    /// An agent that they may change: their project's own, or any where they see every project.
    async fn agent(&self, app: &App, agent: Uuid) -> Result<Agent, Fail> {
        let found = app.graphs().agent(agent).await?;
        let is_theirs = self.project.is_none() || self.project == found.project_id;
        if is_theirs { Ok(found) } else { Err(unknown(agent)) }
    }
}

async fn list(State(app): State<App>, caller: Caller) -> Result<Json<Page<Agent>>, Fail> {
    Ok(Json(Page::whole(app.graphs().agents(caller.project.as_deref()).await?)))
}

async fn drain(
    State(app): State<App>,
    caller: Caller,
    Id(agent): Id<Uuid>,
    Body(drain): Body<DrainAgent>,
) -> Result<Json<Agent>, Fail> {
    caller.agent(&app, agent).await?;
    Ok(Json(app.graphs().drain(agent, drain.draining).await?))
}

async fn forget(
    State(app): State<App>,
    caller: Caller,
    Id(agent): Id<Uuid>,
    Query(forget): Query<ForgetAgent>,
) -> Result<Json<AgentForgotten>, Fail> {
    caller.agent(&app, agent).await?;
    let when = if forget.force { Forget::Anyway } else { Forget::IfSilent };
    Ok(Json(AgentForgotten { forgotten: app.graphs().forget(agent, when).await? }))
}

async fn register(
    State(app): State<App>,
    caller: Caller,
    visit: Visit,
    Id(agent): Id<Uuid>,
    Body(register): Body<RegisterAgent>,
) -> Result<Json<AgentRegistered>, Fail> {
    let mut line = trail_line(&caller, &visit, "PUT", AGENT_PATH, StatusCode::OK);
    "agents.rebind".clone_into(&mut line.action);
    line.names(&agent.to_string());
    let new = NewAgent {
        agent_id: agent,
        name: register.name,
        host: register.host,
        labels: register.labels,
        capacity: register.capacity,
        version: register.version,
        project_id: caller.project,
        token_id: visit.token_id,
        boot_id: register.boot,
        secret_hash: register.secret.map(|secret| proof(&secret)).transpose()?,
    };
    // Agents are not on record, but for this: that another token speaks for one from now on.
    let record = Record::new(line, app.engine().clock().now());
    record.around(app.graphs().register(new)).await?;
    if register.draining {
        app.graphs().drain(agent, true).await?;
    }
    Ok(Json(AgentRegistered {
        protocol: PROTOCOL,
        beat_secs: AGENT_BEAT_SECS,
        silent_secs: AGENT_SILENT_SECS,
    }))
}

/// What is kept of the secret of an agent's directory.
fn proof(secret: &HomeSecret) -> Result<String, Fail> {
    if (SECRET_BYTES_MIN..=KEY_BYTES_MAX).contains(&secret.0.len()) {
        return Ok(sha256_hex(secret.0.as_bytes()));
    }
    let message = format!("the secret of an agent has between {SECRET_BYTES_MIN} and {KEY_BYTES_MAX} bytes");
    Err(Error::refused(RefusalCode::BadValue, message).into())
}

/// Who speaks for an agent.
pub(crate) fn speaker(visit: &Visit, agent: Uuid, boot: Uuid) -> Speaker {
    Speaker { agent_id: agent, boot_id: boot, token_id: visit.token_id }
}

async fn beat(
    State(app): State<App>,
    visit: Visit,
    Id(agent): Id<Uuid>,
    Body(beat): Body<AgentBeat>,
) -> Result<Json<AgentBeaten>, Fail> {
    // A stage that is not known here is none.
    let told = |stage: Option<String>| stage.and_then(|stage| stage.parse().ok());
    let holding: Vec<Holding> = beat
        .holding
        .into_iter()
        .map(|held| Holding { task_id: held.task_id, stage: told(held.stage) })
        .collect();
    let beaten = app.graphs().beat(&speaker(&visit, agent, beat.boot), &holding).await?;
    if beat.draining && !beaten.draining {
        app.graphs().drain(agent, true).await?;
    }
    Ok(Json(AgentBeaten { over: beaten.over, draining: beaten.draining, now: beaten.now }))
}

async fn poll(
    State(app): State<App>,
    visit: Visit,
    Id(agent): Id<Uuid>,
    Body(poll): Body<PollTasks>,
) -> Result<Json<Orders>, Fail> {
    let wait = wait(poll.wait_secs)?;
    let mut closing = app.closing();
    let who = speaker(&visit, agent, poll.boot);
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

async fn kept(
    State(app): State<App>,
    visit: Visit,
    Id(agent): Id<Uuid>,
    Body(asked): Body<AskKept>,
) -> Result<Json<KeptOutputs>, Fail> {
    let who = speaker(&visit, agent, asked.boot);
    let kept = app.graphs().kept(&who, &asked.keeps, &asked.removes).await?;
    let unused = kept.unused.into_iter().map(|(job_id, idle_secs)| UnusedOutputs { job_id, idle_secs });
    Ok(Json(KeptOutputs { unused: unused.collect(), gone: kept.gone }))
}

async fn probe(
    State(app): State<App>,
    visit: Visit,
    Id(agent): Id<Uuid>,
    Body(probe): Body<ReportProbe>,
) -> Result<StatusCode, Fail> {
    let who = speaker(&visit, agent, probe.boot);
    app.graphs().report_probe(&who, probe.maintenance, probe.note).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn leave(
    State(app): State<App>,
    visit: Visit,
    Id(agent): Id<Uuid>,
    Query(goodbye): Query<Goodbye>,
) -> Result<StatusCode, Fail> {
    app.graphs().leave(&speaker(&visit, agent, goodbye.boot)).await?;
    // It is empty and gone, which is what draining was for: when it comes back, it gets tasks again.
    app.graphs().drain(agent, false).await?;
    Ok(StatusCode::NO_CONTENT)
}
