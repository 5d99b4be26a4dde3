//! A server with the routes of agents, which remembers what it was told and answers as it is asked to.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{post, put};
use axum::{Json, Router};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tidemill_wire::agents::{
    AgentBeat, AskKept, PollTasks, RegisterAgent, ReportLog, ReportProbe, ReportResult, ReportStage,
};

/// What a server knows, and how it is to behave.
#[derive(Default)]
pub(crate) struct Known {
    /// It answers nothing but that it cannot.
    pub(crate) is_down: bool,
    /// It sends orders again that the agent has.
    pub(crate) repeats: bool,
    /// So many answers of a route get lost after what was asked is done.
    pub(crate) lost: BTreeMap<&'static str, u32>,
    /// A route that does not answer until it is taken away again.
    pub(crate) held: Option<&'static str>,
    /// Tasks that are another's by now.
    pub(crate) stale: BTreeSet<String>,
    /// Tasks that are over for it.
    pub(crate) over: BTreeSet<String>,
    /// Jobs of which nobody needs what they left, and for how long; a server that is older does not know.
    pub(crate) unused: Option<BTreeMap<String, Option<u64>>>,
    /// Jobs of which somebody has come to need what they left since.
    pub(crate) needed: BTreeSet<String>,
    pub(crate) kept: Vec<AskKept>,
    /// Tasks that are active.
    pub(crate) orders: Vec<Value>,
    pub(crate) registered: Vec<RegisterAgent>,
    pub(crate) beats: Vec<AgentBeat>,
    pub(crate) stages: Vec<(String, String)>,
    pub(crate) results: BTreeMap<String, Vec<ReportResult>>,
    pub(crate) logs: BTreeMap<String, BTreeMap<i32, Vec<String>>>,
    pub(crate) probes: Vec<ReportProbe>,
    pub(crate) goodbyes: u32,
}

/// A server that runs as long as this lives.
#[derive(Clone)]
pub(crate) struct Server {
    known: Arc<Mutex<Known>>,
    pub(crate) address: String,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let server = Self { known: Arc::default(), address };
        let routes = Router::new()
            .route("/v1/agents/{agent}", put(register).delete(goodbye))
            .route("/v1/agents/{agent}/beat", post(beat))
            .route("/v1/agents/{agent}/poll", post(poll))
            .route("/v1/agents/{agent}/kept", post(kept))
            .route("/v1/agents/{agent}/probe", post(probe))
            .route("/v1/tasks/{task}/stage", post(stage))
            .route("/v1/tasks/{task}/result", post(result))
            .route("/v1/tasks/{task}/logs", post(logs))
            .with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        server
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap()
    }

    pub(crate) fn order(&self, order: Value) {
        self.known().orders.push(order);
    }

    /// The first result of a task, if it came.
    pub(crate) fn result(&self, task: &str) -> Option<ReportResult> {
        self.known().results.get(task).map(|results| results[0].clone())
    }

    /// All lines of a task.
    pub(crate) fn log(&self, task: &str) -> Vec<String> {
        self.known().logs.get(task).into_iter().flat_map(BTreeMap::values).flatten().cloned().collect()
    }

    /// What it was told so far, for a test that fails.
    pub(crate) fn told(&self) -> String {
        let known = self.known();
        let (registered, beats) = (known.registered.len(), known.beats.len());
        format!("{registered} registrations, {beats} beats, {:?}, {:?}", known.stages, known.results)
    }

    /// Whether a stage was reported.
    pub(crate) fn has_stage(&self, task: &str, stage: &str) -> bool {
        self.known().stages.contains(&(task.to_owned(), stage.to_owned()))
    }

    /// Refuses whoever is not the process that speaks, and everybody while it is down; waits while a route is
    /// held.
    async fn admit(&self, route: &'static str, boot: uuid::Uuid) -> Result<(), Response> {
        while self.known().held == Some(route) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let known = self.known();
        if known.is_down {
            return Err(StatusCode::SERVICE_UNAVAILABLE.into_response());
        }
        if known.registered.last().is_some_and(|last| last.boot != boot) {
            let problem = json!({"code": "stale", "message": "another process speaks for this agent"});
            return Err((StatusCode::CONFLICT, Json(problem)).into_response());
        }
        Ok(())
    }

    /// The answer, unless it is to get lost.
    fn answer(&self, route: &'static str, answer: Value) -> Response {
        let mut known = self.known();
        if let Some(left) = known.lost.get_mut(route).filter(|left| **left > 0) {
            *left -= 1;
            return StatusCode::BAD_GATEWAY.into_response();
        }
        Json(answer).into_response()
    }
}

fn is_active(known: &Known, task: &str) -> bool {
    !known.stale.contains(task) && known.orders.iter().any(|order| order["task_id"] == task)
}

async fn register(State(server): State<Server>, Json(asked): Json<RegisterAgent>) -> Response {
    if server.known().is_down {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    server.known().registered.push(asked);
    server.answer("register", json!({"protocol": 1, "beat_secs": 1, "silent_secs": 20}))
}

async fn goodbye(State(server): State<Server>) -> Response {
    server.known().goodbyes += 1;
    StatusCode::NO_CONTENT.into_response()
}

async fn beat(State(server): State<Server>, Json(beat): Json<AgentBeat>) -> Response {
    if let Err(refused) = server.admit("beat", beat.boot).await {
        return refused;
    }
    let over: Vec<String> = server.known().over.iter().cloned().collect();
    server.known().beats.push(beat);
    // Its clock is far off, which is nothing to the agent.
    server.answer("beat", json!({"over": over, "draining": false, "now": "2001-01-01T00:00:00Z"}))
}

async fn poll(State(server): State<Server>, Json(asked): Json<PollTasks>) -> Response {
    if let Err(refused) = server.admit("poll", asked.boot).await {
        return refused;
    }
    for _ in 0..=u32::from(asked.wait_secs.unwrap_or_default().min(2)) * 100 {
        let tasks: Vec<Value> = {
            let known = server.known();
            let is_new = |order: &&Value| {
                known.repeats || !asked.have.iter().any(|have| order["task_id"] == have.as_str())
            };
            known.orders.iter().filter(is_new).cloned().collect()
        };
        if !tasks.is_empty() {
            return server.answer("poll", json!({"tasks": tasks, "hint": "a field to come"}));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.answer("poll", json!({"tasks": []}))
}

async fn kept(State(server): State<Server>, Json(asked): Json<AskKept>) -> Response {
    if let Err(refused) = server.admit("kept", asked.boot).await {
        return refused;
    }
    let (unused, needed) = {
        let mut known = server.known();
        known.kept.push(asked.clone());
        (known.unused.clone(), known.needed.clone())
    };
    let Some(unused) = unused else { return StatusCode::NOT_FOUND.into_response() };
    let told: Vec<Value> = asked
        .keeps
        .iter()
        .filter_map(|job| Some(json!({"job_id": job, "idle_secs": unused.get(job)?})))
        .collect();
    let gone: Vec<String> = asked.removes.into_iter().filter(|job| !needed.contains(job)).collect();
    server.answer("kept", json!({"unused": told, "gone": gone}))
}

async fn probe(State(server): State<Server>, Json(probe): Json<ReportProbe>) -> Response {
    server.known().probes.push(probe);
    StatusCode::NO_CONTENT.into_response()
}

async fn stage(
    State(server): State<Server>,
    Path(task): Path<String>,
    Json(said): Json<ReportStage>,
) -> Response {
    if let Err(refused) = server.admit("stage", said.boot).await {
        return refused;
    }
    let outcome = {
        let mut known = server.known();
        let told = (task.clone(), said.stage);
        match (is_active(&known, &task), known.stages.contains(&told)) {
            (false, _) => "stale",
            (true, true) => "duplicate",
            (true, false) => {
                known.stages.push(told);
                "applied"
            }
        }
    };
    server.answer("stage", json!({"outcome": outcome}))
}

async fn result(
    State(server): State<Server>,
    Path(task): Path<String>,
    Json(said): Json<ReportResult>,
) -> Response {
    if let Err(refused) = server.admit("result", said.boot).await {
        return refused;
    }
    let outcome = {
        let mut known = server.known();
        let is_active = is_active(&known, &task);
        known.orders.retain(|order| order["task_id"] != task.as_str());
        let results = known.results.entry(task).or_default();
        results.push(said);
        match (is_active, results.len()) {
            (true, 1) => "applied",
            (false, 2..) => "duplicate",
            _ => "stale",
        }
    };
    server.answer("result", json!({"outcome": outcome}))
}

async fn logs(
    State(server): State<Server>,
    Path(task): Path<String>,
    Json(said): Json<ReportLog>,
) -> Response {
    if let Err(refused) = server.admit("logs", said.boot).await {
        return refused;
    }
    let lines = said.lines.into_iter().map(|line| format!("{}: {}", line.stream, line.text)).collect();
    // The first piece of a number wins.
    server.known().logs.entry(task).or_default().entry(said.seq).or_insert(lines);
    server.answer("logs", json!({"outcome": "applied"}))
}
