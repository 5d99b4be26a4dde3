//! A fake server with the endpoints for agents. It records the requests, and tests control its responses.

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
    AgentHeartbeat, PollTasks, RegisterAgent, ReportLog, ReportProbe, ReportResult, ReportStage,
    RetentionRequest,
};

/// Recorded requests and configured behaviour of the server.
#[derive(Default)]
pub(crate) struct ServerState {
    /// Every request gets status 503.
    pub(crate) is_down: bool,
    /// Polls also return orders that the agent already has.
    pub(crate) repeats_orders: bool,
    /// Number of responses per route that are lost after the request was processed.
    pub(crate) lost_responses: BTreeMap<&'static str, u32>,
    /// A route whose requests wait until this is cleared.
    pub(crate) blocked_route: Option<&'static str>,
    /// Tasks that were assigned to another agent.
    pub(crate) stale: BTreeSet<String>,
    /// Tasks that the server has ended.
    pub(crate) over: BTreeSet<String>,
    /// Jobs with unused outputs and their idle seconds; `None` for an older server without this endpoint.
    pub(crate) unused: Option<BTreeMap<String, Option<u64>>>,
    /// Jobs whose outputs are needed again, so that their removal is refused.
    pub(crate) needed: BTreeSet<String>,
    pub(crate) retention_requests: Vec<RetentionRequest>,
    pub(crate) orders: Vec<Value>,
    pub(crate) registered: Vec<RegisterAgent>,
    pub(crate) heartbeats: Vec<AgentHeartbeat>,
    pub(crate) stages: Vec<(String, String)>,
    pub(crate) results: BTreeMap<String, Vec<ReportResult>>,
    pub(crate) logs: BTreeMap<String, BTreeMap<i32, Vec<String>>>,
    pub(crate) probes: Vec<ReportProbe>,
    pub(crate) retired: u32,
    /// Time after which agents replace their secrets.
    pub(crate) secret_secs: u64,
}

/// Handle of the fake server.
#[derive(Clone)]
pub(crate) struct Server {
    state: Arc<Mutex<ServerState>>,
    pub(crate) address: String,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let server = Self { state: Arc::default(), address };
        let routes = Router::new()
            .route("/v1/agents/{agent}", put(register).delete(retire))
            .route("/v1/agents/{agent}/beat", post(heartbeat))
            .route("/v1/agents/{agent}/poll", post(poll))
            .route("/v1/agents/{agent}/kept", post(check_retention))
            .route("/v1/agents/{agent}/probe", post(probe))
            .route("/v1/tasks/{task}/stage", post(stage))
            .route("/v1/tasks/{task}/result", post(result))
            .route("/v1/tasks/{task}/logs", post(logs))
            .with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        server
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().unwrap()
    }

    pub(crate) fn order(&self, order: Value) {
        self.state().orders.push(order);
    }

    /// First reported result of a task.
    pub(crate) fn result(&self, task: &str) -> Option<ReportResult> {
        self.state().results.get(task).map(|results| results[0].clone())
    }

    /// All log lines of a task.
    pub(crate) fn log(&self, task: &str) -> Vec<String> {
        self.state().logs.get(task).into_iter().flat_map(BTreeMap::values).flatten().cloned().collect()
    }

    /// Summary of the received requests for the message of a failing test.
    pub(crate) fn summary(&self) -> String {
        let state = self.state();
        let (registered, heartbeats) = (state.registered.len(), state.heartbeats.len());
        format!(
            "{registered} registrations, {heartbeats} heartbeats, {:?}, {:?}",
            state.stages, state.results
        )
    }

    pub(crate) fn has_stage(&self, task: &str, stage: &str) -> bool {
        self.state().stages.contains(&(task.to_owned(), stage.to_owned()))
    }

    /// Waits while the route is blocked. Refuses requests while the server is down, and those of superseded processes.
    async fn admit(&self, route: &'static str, boot: uuid::Uuid) -> Result<(), Response> {
        while self.state().blocked_route == Some(route) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let state = self.state();
        if state.is_down {
            return Err(StatusCode::SERVICE_UNAVAILABLE.into_response());
        }
        if state.registered.last().is_some_and(|last| last.boot != boot) {
            let problem = json!({"code": "stale", "message": "another process has registered as this agent"});
            return Err((StatusCode::CONFLICT, Json(problem)).into_response());
        }
        Ok(())
    }

    /// Responds, unless the response is to be lost.
    fn respond(&self, route: &'static str, response: Value) -> Response {
        let mut state = self.state();
        if let Some(left) = state.lost_responses.get_mut(route).filter(|left| **left > 0) {
            *left -= 1;
            return StatusCode::BAD_GATEWAY.into_response();
        }
        Json(response).into_response()
    }
}

fn is_active(state: &ServerState, task: &str) -> bool {
    !state.stale.contains(task) && state.orders.iter().any(|order| order["task_id"] == task)
}

async fn register(State(server): State<Server>, Json(request): Json<RegisterAgent>) -> Response {
    if server.state().is_down {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let secret_secs = {
        let mut state = server.state();
        state.registered.push(request);
        state.secret_secs
    };
    let response = json!({"protocol": 1, "beat_secs": 1, "silent_secs": 20, "secret_secs": secret_secs});
    server.respond("register", response)
}

async fn retire(State(server): State<Server>) -> Response {
    server.state().retired += 1;
    StatusCode::NO_CONTENT.into_response()
}

async fn heartbeat(State(server): State<Server>, Json(heartbeat): Json<AgentHeartbeat>) -> Response {
    if let Err(refused) = server.admit("beat", heartbeat.boot).await {
        return refused;
    }
    let over: Vec<String> = server.state().over.iter().cloned().collect();
    server.state().heartbeats.push(heartbeat);
    // A wrong clock of the server must not affect the agent.
    server.respond("beat", json!({"over": over, "draining": false, "now": "2001-01-01T00:00:00Z"}))
}

async fn poll(State(server): State<Server>, Json(request): Json<PollTasks>) -> Response {
    if let Err(refused) = server.admit("poll", request.boot).await {
        return refused;
    }
    for _ in 0..=u32::from(request.wait_secs.unwrap_or_default().min(2)) * 100 {
        let tasks: Vec<Value> = {
            let state = server.state();
            let is_new = |order: &&Value| {
                state.repeats_orders || !request.have.iter().any(|have| order["task_id"] == have.as_str())
            };
            state.orders.iter().filter(is_new).cloned().collect()
        };
        if !tasks.is_empty() {
            return server.respond("poll", json!({"tasks": tasks, "hint": "a field to come"}));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.respond("poll", json!({"tasks": []}))
}

async fn check_retention(State(server): State<Server>, Json(request): Json<RetentionRequest>) -> Response {
    if let Err(refused) = server.admit("kept", request.boot).await {
        return refused;
    }
    let (unused, needed) = {
        let mut state = server.state();
        state.retention_requests.push(request.clone());
        (state.unused.clone(), state.needed.clone())
    };
    let Some(unused) = unused else { return StatusCode::NOT_FOUND.into_response() };
    let reported: Vec<Value> = request
        .keeps
        .iter()
        .filter_map(|job| Some(json!({"job_id": job, "idle_secs": unused.get(job)?})))
        .collect();
    let gone: Vec<String> = request.removes.into_iter().filter(|job| !needed.contains(job)).collect();
    server.respond("kept", json!({"unused": reported, "gone": gone}))
}

async fn probe(State(server): State<Server>, Json(probe): Json<ReportProbe>) -> Response {
    server.state().probes.push(probe);
    StatusCode::NO_CONTENT.into_response()
}

async fn stage(
    State(server): State<Server>,
    Path(task): Path<String>,
    Json(report): Json<ReportStage>,
) -> Response {
    if let Err(refused) = server.admit("stage", report.boot).await {
        return refused;
    }
    let outcome = {
        let mut state = server.state();
        let entry = (task.clone(), report.stage);
        match (is_active(&state, &task), state.stages.contains(&entry)) {
            (false, _) => "stale",
            (true, true) => "duplicate",
            (true, false) => {
                state.stages.push(entry);
                "applied"
            }
        }
    };
    server.respond("stage", json!({"outcome": outcome}))
}

async fn result(
    State(server): State<Server>,
    Path(task): Path<String>,
    Json(report): Json<ReportResult>,
) -> Response {
    if let Err(refused) = server.admit("result", report.boot).await {
        return refused;
    }
    let outcome = {
        let mut state = server.state();
        let is_active = is_active(&state, &task);
        state.orders.retain(|order| order["task_id"] != task.as_str());
        let results = state.results.entry(task).or_default();
        results.push(report);
        match (is_active, results.len()) {
            (true, 1) => "applied",
            (false, 2..) => "duplicate",
            _ => "stale",
        }
    };
    server.respond("result", json!({"outcome": outcome}))
}

async fn logs(
    State(server): State<Server>,
    Path(task): Path<String>,
    Json(report): Json<ReportLog>,
) -> Response {
    if let Err(refused) = server.admit("logs", report.boot).await {
        return refused;
    }
    let lines = report.lines.into_iter().map(|line| format!("{}: {}", line.stream, line.text)).collect();
    // The first chunk with a number counts.
    server.state().logs.entry(task).or_default().entry(report.seq).or_insert(lines);
    server.respond("logs", json!({"outcome": "applied"}))
}
