//! The table: a row for each route, with who is let in and a request that is well formed.

use http::Method;
use serde_json::{Value, json};
use tidemill_core::access::Role::{self, Admin, Agent, Operator, Viewer, Worker};

/// Things that a request names.
#[derive(Debug, Clone)]
pub(crate) struct Things {
    pub(crate) project: String,
    pub(crate) run: String,
    pub(crate) worker: String,
    pub(crate) token: String,
}

impl Things {
    /// The path with its parameters filled in.
    pub(crate) fn path(&self, path: &str) -> String {
        let filled = path.replace("{run}", &self.run).replace("{worker}", &self.worker);
        let filled = filled.replace("{token}", &self.token).replace("{project}", &self.project);
        assert!(!filled.contains('{'), "{path} has a parameter that no thing of the table fills in");
        filled
    }

    /// A text without what names them.
    pub(crate) fn hidden_in(&self, text: &str) -> String {
        let names = [&self.run, &self.worker, &self.token, &self.project];
        names.into_iter().fold(text.to_owned(), |text, name| text.replace(name.as_str(), "…"))
    }
}

/// Who is let in.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Who {
    /// Everybody, without a token.
    Everybody,
    /// Tokens of these roles.
    Roles(&'static [Role]),
}

/// Whose thing a route is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// A project's: to others it must not exist.
    Projects,
    /// Nobody's: worker processes and the server itself belong to no project.
    Nobodys,
}

/// A row of the table.
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
const OPERATE: Who = Who::Roles(&[Operator, Admin]);
const ADMIN: Who = Who::Roles(&[Admin]);
const ANYONE: Who = Who::Roles(&[Viewer, Operator, Worker, Agent, Admin]);

fn row(method: Method, path: &'static str, who: Who, body: fn(&Things) -> Value) -> Row {
    Row { method, path, who, whose: Whose::Projects, query: |_| String::new(), body }
}

fn get(path: &'static str, who: Who) -> Row {
    row(Method::GET, path, who, |_| Value::Null)
}

fn post(path: &'static str, who: Who, body: fn(&Things) -> Value) -> Row {
    row(Method::POST, path, who, body)
}

impl Row {
    fn nobodys(self) -> Self {
        Self { whose: Whose::Nobodys, ..self }
    }

    fn query(self, query: fn(&Things) -> String) -> Self {
        Self { query, ..self }
    }
}

/// Every row.
pub(crate) fn rows() -> Vec<Row> {
    let of_project = |things: &Things| format!("?project={}", things.project);
    vec![
        get("/v1/info", ANYONE).nobodys(),
        get("/openapi.json", Who::Everybody).nobodys(),
        get("/v1/runs", LOOK).query(of_project),
        post("/v1/runs", OPERATE, |things| json!({"project": things.project, "env": "staging"})),
        get("/v1/runs/{run}", LOOK_OR_WORK),
        get("/v1/runs/{run}/detail", LOOK),
        get("/v1/runs/{run}/why", LOOK),
        get("/v1/runs/{run}/tries", LOOK),
        get("/v1/runs/{run}/artifacts", LOOK),
        get("/v1/runs/{run}/events", LOOK_OR_WORK),
        post("/v1/runs/{run}/start", WORK, |_| json!({"worker": "w"})),
        post("/v1/runs/{run}/events", WORK, |_| json!({"events": [{"level": "info", "message": "m"}]})),
        post("/v1/runs/{run}/heartbeat", WORK, |_| json!({})),
        post("/v1/runs/{run}/finish", WORK, |_| json!({"status": "success"})),
        post("/v1/runs/{run}/artifacts", WORK, |_| json!({"artifact_type": "log", "url": "https://x"})),
        post("/v1/runs/{run}/cancel", OPERATE, |_| json!({"reason": "r"})),
        post("/v1/runs/{run}/retry", OPERATE, |_| json!({})),
        post("/v1/finishes", WORK, |things| json!({"ends": [{"run_id": things.run, "status": "success"}]})),
        post(
            "/v1/claims",
            WORK,
            |things| json!({"worker": "w", "request_id": "asked", "projects": [things.project]}),
        ),
        get("/v1/workers", LOOK).nobodys(),
        row(Method::PUT, "/v1/workers/{worker}", WORK, |_| json!({"name": "w", "host": "h", "pid": 1}))
            .nobodys(),
        post("/v1/workers/{worker}/beat", WORK, |things| json!({"runs": [things.run]})),
        row(Method::DELETE, "/v1/workers/{worker}", WORK, |_| Value::Null).nobodys(),
        get("/v1/tokens", ADMIN).query(of_project),
        post(
            "/v1/tokens",
            ADMIN,
            |things| json!({"name": "made", "role": "viewer", "project": things.project}),
        ),
        row(Method::DELETE, "/v1/tokens/{token}", ADMIN, |_| Value::Null),
        post("/v1/session", Who::Everybody, |_| json!({"token": "tm_none"})).nobodys(),
        get("/v1/session", ANYONE).nobodys(),
        row(Method::DELETE, "/v1/session", ANYONE, |_| Value::Null).nobodys(),
        get("/v1/audit", ADMIN).query(of_project),
    ]
}

#[test]
fn every_route_has_one_row_and_every_row_a_route() {
    let mut routes: Vec<String> = tidemill_api::endpoints()
        .iter()
        .map(|endpoint| format!("{} {}", endpoint.method, endpoint.path))
        .collect();
    let mut rows: Vec<String> = rows().iter().map(|row| format!("{} {}", row.method, row.path)).collect();
    routes.sort();
    rows.sort();
    assert_eq!(
        routes, rows,
        "a route needs a row in crates/testkit/tests/access/rows.rs that says who is let in"
    );
}
