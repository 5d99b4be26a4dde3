//! The list of routes: each with its admitted roles and a valid request.

use http::Method;
use serde_json::{Value, json};
use tidemill_core::access::Role::{self, Admin, Agent, Operator, Viewer, Worker};
use tidemill_core::queue::WORK_ITEMS;

/// Items that a request names.
#[derive(Debug, Clone)]
pub(crate) struct Things {
    pub(crate) project: String,
    pub(crate) run: String,
    pub(crate) worker: String,
    pub(crate) token: String,
    pub(crate) feed: String,
    pub(crate) sync: String,
    pub(crate) schedule: String,
    pub(crate) hook: String,
    pub(crate) rule: String,
    /// Dead letter of the feed.
    pub(crate) letter: String,
    /// Run of a graph, its job, the job's task, and the agent that has it.
    pub(crate) graph: String,
    pub(crate) job: String,
    pub(crate) task: String,
    pub(crate) agent: String,
    /// Process that acts for the agent.
    pub(crate) boot: String,
}

/// Pool of every test. Pools are shared by all projects.
pub(crate) const POOL: &str = "presses";

impl Things {
    /// Returns the path with its parameters filled in. Queues are shared by all projects.
    pub(crate) fn path(&self, path: &str) -> String {
        let run = if path.starts_with("/v1/graphs/") { &self.graph } else { &self.run };
        let parameters = [
            ("{run}", run.as_str()),
            ("{worker}", &self.worker),
            ("{token}", &self.token),
            ("{project}", &self.project),
            ("{feed}", &self.feed),
            ("{sync}", &self.sync),
            ("{schedule}", &self.schedule),
            ("{hook}", &self.hook),
            ("{rule}", &self.rule),
            ("{queue}", WORK_ITEMS),
            ("{job}", &self.job),
            ("{task}", &self.task),
            ("{agent}", &self.agent),
            ("{pool}", POOL),
        ];
        let fill = |path: String, (name, value): (&str, &str)| path.replace(name, value);
        let filled = parameters.into_iter().fold(path.to_owned(), fill);
        assert!(!filled.contains('{'), "{path} has a parameter that no thing of the table fills in");
        filled
    }

    /// Returns a text without the names of the items.
    pub(crate) fn hidden_in(&self, text: &str) -> String {
        // The project name is part of other names, and a number may be part of any text.
        let rule = format!("rule {}", self.rule);
        let names = [
            &self.run,
            &self.graph,
            // The name of a task begins with that of its job.
            &self.task,
            &self.job,
            &self.agent,
            &self.worker,
            &self.token,
            &self.feed,
            &self.sync,
            &self.schedule,
            &self.hook,
            &rule,
            &self.project,
        ];
        names.into_iter().fold(text.to_owned(), |text, name| text.replace(name.as_str(), "…"))
    }
}

/// Callers that are admitted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Who {
    /// Everyone, without a token. Without valid credentials the response has this code, or is a success.
    Everybody(Option<&'static str>),
    /// Tokens of these roles.
    Roles(&'static [Role]),
}

/// Owner of the items of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// A project; for other projects the item must not exist.
    Projects,
    /// Shared, with a part per project; for other projects that part must be empty.
    Parts,
    /// The whole installation; tokens of one project are refused.
    Alls,
    /// The holder of the signing secret.
    Signers,
    /// None: the server itself, or the caller.
    Nobodys,
}

/// An entry of the list.
pub(crate) struct Row {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) who: Who,
    pub(crate) whose: Whose,
    pub(crate) query: fn(&Things) -> String,
    pub(crate) body: fn(&Things) -> Value,
}

const LOOK: Who = Who::Roles(&[Viewer, Operator, Admin]);
const LOOK_OR_WORK: Who = Who::Roles(&[Viewer, Operator, Worker, Admin]);
const WORK: Who = Who::Roles(&[Worker, Admin]);
const AGENT: Who = Who::Roles(&[Agent, Admin]);
const OPERATE: Who = Who::Roles(&[Operator, Admin]);
const ADMIN: Who = Who::Roles(&[Admin]);
const ANYONE: Who = Who::Roles(&[Viewer, Operator, Worker, Agent, Admin]);
const OPEN: Who = Who::Everybody(None);

fn row(method: Method, path: &'static str, who: Who, body: fn(&Things) -> Value) -> Row {
    Row { method, path, who, whose: Whose::Projects, query: |_| String::new(), body }
}

fn get(path: &'static str, who: Who) -> Row {
    row(Method::GET, path, who, |_| Value::Null)
}

fn post(path: &'static str, who: Who, body: fn(&Things) -> Value) -> Row {
    row(Method::POST, path, who, body)
}

fn put(path: &'static str, who: Who, body: fn(&Things) -> Value) -> Row {
    row(Method::PUT, path, who, body)
}

fn delete(path: &'static str, who: Who) -> Row {
    row(Method::DELETE, path, who, |_| Value::Null)
}

impl Row {
    fn of(self, whose: Whose) -> Self {
        Self { whose, ..self }
    }

    fn query(self, query: fn(&Things) -> String) -> Self {
        Self { query, ..self }
    }

    /// Returns whether agents use the route for themselves and their tasks.
    pub(crate) fn is_agents(&self) -> bool {
        matches!(self.who, Who::Roles(roles) if roles.contains(&Agent) && !roles.contains(&Viewer))
    }

    /// Returns whether the route is a list without parameters.
    pub(crate) fn is_list(&self) -> bool {
        let named = self.path.replace("{queue}", "");
        self.method == Method::GET
            && matches!(self.who, Who::Roles(_))
            && !named.contains('{')
            && self.path != "/v1/stream"
    }
}

pub(crate) fn rows() -> Vec<Row> {
    let groups = [
        server(),
        runs(),
        work(),
        graphs(),
        agents(),
        projects(),
        feeds(),
        syncs(),
        rules(),
        queues(),
        access(),
        hooks(),
    ];
    groups.into_iter().flatten().collect()
}

fn of_project(things: &Things) -> String {
    format!("?project={}", things.project)
}

fn of_feed(things: &Things) -> String {
    format!("?feed={}", things.feed)
}

fn server() -> Vec<Row> {
    vec![
        get("/v1/info", ANYONE).of(Whose::Nobodys),
        get("/openapi.json", OPEN).of(Whose::Nobodys),
        get("/docs", OPEN).of(Whose::Nobodys),
        get("/healthz", OPEN).of(Whose::Nobodys),
        get("/readyz", OPEN).of(Whose::Nobodys),
        get("/metrics", LOOK).of(Whose::Alls),
        get("/v1/stats", LOOK).of(Whose::Parts),
        get("/v1/stream", LOOK).query(of_project),
    ]
}

fn runs() -> Vec<Row> {
    vec![
        get("/v1/runs", LOOK).query(of_project),
        get("/v1/failures", LOOK).query(of_project),
        get("/v1/waiting", LOOK).query(of_project),
        post("/v1/runs", OPERATE, |things| json!({"project": things.project, "env": "staging"})),
        post(
            "/v1/runs/batch",
            OPERATE,
            |things| json!({"runs": [{"project": things.project, "env": "staging"}]}),
        ),
        get("/v1/runs/{run}", LOOK_OR_WORK),
        get("/v1/runs/{run}/detail", LOOK),
        get("/v1/runs/{run}/why", LOOK),
        get("/v1/runs/{run}/tries", LOOK),
        get("/v1/runs/{run}/artifacts", LOOK),
        get("/v1/runs/{run}/events", LOOK_OR_WORK),
        get("/v1/runs/{run}/tail", LOOK),
        get("/v1/runs/{run}/stream", LOOK_OR_WORK),
        post("/v1/runs/{run}/cancel", OPERATE, |_| json!({"reason": "r"})),
        post("/v1/runs/{run}/fail", OPERATE, |_| json!({"reason": "r", "retry": true})),
        post("/v1/runs/{run}/retry", OPERATE, |_| json!({})),
    ]
}

fn work() -> Vec<Row> {
    vec![
        post("/v1/runs/{run}/start", WORK, |_| json!({"worker": "w", "epoch": 1})),
        post(
            "/v1/runs/{run}/events",
            WORK,
            |_| json!({"events": [{"level": "info", "message": "m"}], "worker": "w", "epoch": 1}),
        ),
        post("/v1/runs/{run}/heartbeat", WORK, |_| json!({"worker": "w", "epoch": 1})),
        post("/v1/runs/{run}/finish", WORK, |_| json!({"status": "success", "worker": "w", "epoch": 1})),
        post(
            "/v1/runs/{run}/artifacts",
            WORK,
            |_| json!({"artifact_type": "log", "url": "https://x", "worker": "w", "epoch": 1}),
        ),
        post(
            "/v1/finishes",
            WORK,
            |things| json!({"worker": "w", "ends": [{"run_id": things.run, "status": "success", "epoch": 1}]}),
        ),
        post(
            "/v1/claims",
            WORK,
            |things| json!({"worker": "w", "request_id": "asked", "projects": [things.project]}),
        )
        .of(Whose::Parts),
        post("/v1/claims/left", WORK, |things| json!({"projects": [things.project]})).of(Whose::Parts),
        get("/v1/workers", LOOK).of(Whose::Parts),
        put("/v1/workers/{worker}", WORK, |_| json!({"name": "w", "host": "h", "pid": 1})).of(Whose::Parts),
        post("/v1/workers/{worker}/beat", WORK, |things| json!({"runs": [things.run]})),
        post("/v1/workers/{worker}/drain", OPERATE, |_| json!({})).of(Whose::Alls),
        delete("/v1/workers/{worker}", WORK).of(Whose::Parts),
    ]
}

fn graphs() -> Vec<Row> {
    vec![
        post("/v1/graphs/check", LOOK, |_| json!({"text": "version: 1"})).of(Whose::Nobodys),
        post(
            "/v1/graphs",
            OPERATE,
            |things| json!({"project": things.project, "env": "staging", "text": GRAPH}),
        ),
        get("/v1/graphs/{run}", LOOK),
        get("/v1/graphs/{run}/jobs", LOOK),
        get("/v1/graphs/{run}/needs", LOOK),
        post("/v1/graphs/{run}/cancel", OPERATE, |_| json!({"reason": "r"})),
        post("/v1/graphs/{run}/retry", OPERATE, |_| json!({})),
        get("/v1/jobs", LOOK).of(Whose::Parts),
        get("/v1/jobs/{job}", LOOK),
        get("/v1/jobs/{job}/why", LOOK),
        get("/v1/jobs/{job}/logs", LOOK),
        post("/v1/jobs/{job}/retry", OPERATE, |_| json!({})),
        get("/v1/pools", LOOK).of(Whose::Parts),
        put("/v1/pools/{pool}", OPERATE, |_| json!({"size": 2})).of(Whose::Alls),
        delete("/v1/pools/{pool}", OPERATE).of(Whose::Alls),
        get("/v1/reboot", LOOK).of(Whose::Alls),
        post("/v1/reboot", OPERATE, |_| json!({"note": "n"})).of(Whose::Alls),
        delete("/v1/reboot", OPERATE).of(Whose::Alls),
    ]
}

/// A graph of one job that any agent can take.
pub(crate) const GRAPH: &str = "version: 1\njobs:\n  press:\n    run: echo pressed\n";

fn agents() -> Vec<Row> {
    vec![
        get("/v1/agents", LOOK).of(Whose::Parts),
        post("/v1/agents/{agent}/drain", OPERATE, |_| json!({})),
        post("/v1/agents/{agent}/forget", OPERATE, |_| json!({})).query(|_| "?force=true".to_owned()),
        // Registering creates the agent, so this route has no response for an unknown one.
        put("/v1/agents/{agent}", AGENT, |things| registration(&things.boot, "a")).of(Whose::Nobodys),
        post("/v1/agents/{agent}/beat", AGENT, |things| json!({"boot": things.boot})),
        post("/v1/agents/{agent}/poll", AGENT, |things| json!({"boot": things.boot})),
        post("/v1/agents/{agent}/kept", AGENT, |things| json!({"boot": things.boot, "keeps": [things.job]})),
        post("/v1/agents/{agent}/probe", AGENT, |things| json!({"boot": things.boot, "maintenance": false})),
        delete("/v1/agents/{agent}", AGENT).query(|things| format!("?boot={}", things.boot)),
        post("/v1/tasks/{task}/stage", AGENT, |things| report(things, &json!({"stage": "preparing"}))),
        post("/v1/tasks/{task}/result", AGENT, |things| {
            report(things, &json!({"result": {"kind": "stopped"}}))
        }),
        post("/v1/tasks/{task}/logs", AGENT, |things| {
            report(things, &json!({"seq": 0, "lines": [{"stream": "stdout", "text": "pressed"}]}))
        }),
    ]
}

/// Returns a secret of an agent's directory.
pub(crate) fn secret_of(letter: char) -> String {
    letter.to_string().repeat(64)
}

/// Returns the registration of an agent process. Its directory keeps one secret.
pub(crate) fn registration(boot: &str, name: &str) -> Value {
    let secret = secret_of('5');
    json!({"boot": boot, "name": name, "capacity": 1000, "secret": secret, "next_secret": secret})
}

/// Returns a report of an agent about a task.
fn report(things: &Things, said: &Value) -> Value {
    let mut report = json!({"agent": things.agent, "boot": things.boot});
    for (field, value) in said.as_object().into_iter().flatten() {
        report[field] = value.clone();
    }
    report
}

fn projects() -> Vec<Row> {
    vec![
        get("/v1/projects", LOOK).of(Whose::Parts),
        get("/v1/projects/{project}", LOOK),
        put("/v1/projects/{project}", ADMIN, |_| json!({"environments": ["staging"]})).of(Whose::Alls),
        post("/v1/projects/{project}/pause", OPERATE, |_| json!({})),
        post("/v1/projects/{project}/resume", OPERATE, |_| Value::Null),
        get("/v1/flags", LOOK).of(Whose::Parts),
        put(
            "/v1/flags",
            OPERATE,
            |things| json!({"flag": "paused", "scope": format!("project:{}", things.project)}),
        ),
        delete("/v1/flags", OPERATE).query(|things| format!("?flag=paused&scope=feed:{}", things.feed)),
        get("/v1/schedules", LOOK).of(Whose::Parts),
        get("/v1/schedules/{schedule}", LOOK),
        put("/v1/schedules/{schedule}", OPERATE, schedule),
        delete("/v1/schedules/{schedule}", OPERATE),
        post("/v1/schedules/{schedule}/pause", OPERATE, |_| json!({"note": "n"})),
        post("/v1/schedules/{schedule}/resume", OPERATE, |_| Value::Null),
    ]
}

/// Returns the body for a schedule of the project.
pub(crate) fn schedule(things: &Things) -> Value {
    json!({"cron": "0 3 * * *", "request": {"project": things.project, "env": "staging"}})
}

/// Returns the body for a feed of the project.
pub(crate) fn feed(things: &Things) -> Value {
    json!({
        "project_id": things.project, "endpoint": "http://127.0.0.1:9/graphql", "username": "u",
        "password_env": "FEED_PASSWORD", "schedule": "0 4 * * *",
    })
}

/// Returns the body for a feed with a definition that leaves nothing open, so that no request is sent.
pub(crate) fn definition(things: &Things) -> Value {
    let (feed, table) = (&things.feed, things.feed.replace('-', "_"));
    let text = format!(
        "version: 1\nfeed: {feed}\nclient: {{base_url: 'http://127.0.0.1:9'}}\n\
         resource: {{path: /orders, primary_key: id, data_selector: items}}\npaginator: {{type: single_page}}\n\
         into: {{table: public.{table}, columns: {{id: {{path: id, type: text, nullable: false}}}}}}\n"
    );
    json!({"project_id": things.project, "kind": "rest", "definition": text})
}

/// Returns the body for a webhook of the project. The variable exists in every test, and no request here is signed with
/// its value.
pub(crate) fn hook(things: &Things) -> Value {
    json!({"project": things.project, "kind": "generic", "secret_env": "CARGO_PKG_NAME"})
}

fn feeds() -> Vec<Row> {
    vec![
        get("/v1/feeds", LOOK).of(Whose::Parts),
        get("/v1/feeds/{feed}", LOOK),
        put("/v1/feeds/{feed}", ADMIN, feed),
        post("/v1/feeds/{feed}/plan", ADMIN, definition),
        get("/v1/feeds/{feed}/table", LOOK),
        post("/v1/feeds/{feed}/table", ADMIN, |_| Value::Null),
        post("/v1/feeds/{feed}/syncs", OPERATE, |_| json!({"full": true})),
        post("/v1/feeds/{feed}/pause", OPERATE, |_| json!({})),
        post("/v1/feeds/{feed}/resume", OPERATE, |_| Value::Null),
        get("/v1/feeds/{feed}/watermark", LOOK),
        put("/v1/feeds/{feed}/watermark", OPERATE, |_| json!({"watermark": null, "note": "again"})),
        get("/v1/feeds/{feed}/heatmap", LOOK),
        post("/v1/feeds/{feed}/reprice", OPERATE, |_| Value::Null),
    ]
}

fn syncs() -> Vec<Row> {
    vec![
        get("/v1/syncs", LOOK).query(of_feed),
        get("/v1/syncs/{sync}", LOOK),
        get("/v1/syncs/{sync}/partitions", LOOK),
        get("/v1/syncs/{sync}/pace", LOOK),
        post("/v1/syncs/{sync}/retry", OPERATE, |_| json!({})),
        post("/v1/syncs/{sync}/cancel", OPERATE, |_| json!({"reason": "r"})),
        post("/v1/syncs/{sync}/consolidate", OPERATE, |_| json!({"force": true})),
        get("/v1/rejects", LOOK).query(of_feed),
        get("/v1/gaps", LOOK).query(of_feed),
    ]
}

fn rules() -> Vec<Row> {
    vec![
        get("/v1/rules", LOOK).of(Whose::Parts),
        post("/v1/rules", OPERATE, |things| json!({"markup": 11_000, "feed": things.feed})),
        post(
            "/v1/rules/import",
            OPERATE,
            |things| json!({"rules": [{"markup": 11_000, "feed": things.feed}], "replace": true}),
        ),
        post("/v1/rules/test", LOOK, |things| json!({"feed": things.feed, "price": 125_000, "points": 125})),
        delete("/v1/rules/{rule}", OPERATE),
    ]
}

fn queues() -> Vec<Row> {
    vec![
        get("/v1/queues", LOOK).of(Whose::Parts),
        get("/v1/queues/{queue}", LOOK).of(Whose::Parts),
        get("/v1/queues/{queue}/messages", LOOK).of(Whose::Parts),
        get("/v1/messages", LOOK).of(Whose::Parts),
        get("/v1/queues/{queue}/dead", LOOK).of(Whose::Parts),
        post("/v1/queues/{queue}/replay", OPERATE, |things| json!({"ids": [things.letter]})).of(Whose::Parts),
    ]
}

fn access() -> Vec<Row> {
    vec![
        get("/v1/tokens", ADMIN).query(of_project),
        post(
            "/v1/tokens",
            ADMIN,
            |things| json!({"name": "made", "role": "viewer", "projects": [things.project]}),
        ),
        delete("/v1/tokens/{token}", ADMIN),
        post("/v1/session", Who::Everybody(Some("unauthenticated")), |_| json!({"token": "tm_none"}))
            .of(Whose::Nobodys),
        // A server with tokens has no links, and says so to an admin.
        post("/v1/session/links", ADMIN, |_| Value::Null).of(Whose::Nobodys),
        get("/v1/session", ANYONE).of(Whose::Nobodys),
        delete("/v1/session", ANYONE).of(Whose::Nobodys),
        get("/v1/audit", ADMIN).query(of_project),
        get("/v1/audit/head", ADMIN).of(Whose::Alls),
        get("/v1/audit/seals", ADMIN).of(Whose::Alls),
        get("/v1/audit/unsealed", ADMIN).of(Whose::Alls),
    ]
}

fn hooks() -> Vec<Row> {
    vec![
        get("/v1/hooks", ADMIN).of(Whose::Parts),
        put("/v1/hooks/{hook}", ADMIN, hook),
        delete("/v1/hooks/{hook}", ADMIN),
        post("/v1/hooks/{hook}", Who::Everybody(Some("bad_signature")), |_| json!({})).of(Whose::Signers),
        get("/v1/alerts", LOOK).query(of_project),
        post("/v1/alerts/test", ADMIN, |_| json!({})).of(Whose::Alls),
    ]
}

#[test]
fn route_list_matches_the_router() {
    let mut routes: Vec<String> = tidemill_api::endpoints()
        .iter()
        .map(|endpoint| format!("{} {}", endpoint.method, endpoint.path))
        .collect();
    let mut rows: Vec<String> = rows().iter().map(|row| format!("{} {}", row.method, row.path)).collect();
    routes.sort();
    rows.sort();
    assert_eq!(routes, rows, "add the route with a request to crates/api/tests/access/route_list.rs");
}
