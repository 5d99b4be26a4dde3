//! The matrix of roles, routes and projects of the console. The table `access.tsv` states the expected answer of every
//! cell.

use crate::graph_fixture::{graphs, submit};
use crate::sample_data::{FEED, dead_letter, populate};
use crate::server::{ConsoleServer, WebClient};
use reqwest::{Method, Response, StatusCode};
use serde_json::json;
use std::collections::BTreeSet;
use tidemill_api::Permission;
use tidemill_core::access::{NewToken, Role};
use tidemill_core::agent::NewAgent;
use tidemill_core::project_set::ProjectSet;
use tidemill_core::queue::WORK_ITEMS;
use tidemill_core::records::Sync;
use tidemill_core::run::QueueRun;
use tidemill_core::task::job_id;
use tidemill_core::worker::NewWorker;
use tidemill_core::{RunId, WorkerId};
use tidemill_engine::clock::{Clock, host_now};
use tidemill_testkit::interface::Kind;
use uuid::Uuid;

const TABLE: &str = include_str!("access.tsv");
const FILE: &str = "crates/console/tests/console/access.tsv";

/// A row of the table.
#[derive(Debug)]
struct Row {
    method: Method,
    path: &'static str,
    /// Admitted roles; `None` if no session is needed.
    roles: Option<&'static [Role]>,
    subject: &'static str,
    calls: &'static str,
}

fn rows() -> Vec<Row> {
    let lines = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let parts: Vec<&'static str> = line.split('\t').collect();
            let [method, path, permission, subject, calls] = parts[..] else {
                panic!("{FILE}: `{line}` has {} columns and needs five", parts.len())
            };
            let roles = match permission {
                "open" => None,
                "anyone" => Some(Permission::Anyone.roles()),
                "read" => Some(Permission::Read.roles()),
                "operate" => Some(Permission::Operate.roles()),
                "admin" => Some(Permission::Admin.roles()),
                other => panic!("{FILE}: `{other}` is not a permission: {line}"),
            };
            assert!(["project", "part", "installation", "none"].contains(&subject), "{FILE}: {line}");
            Row { method: method.parse().expect("a method"), path, roles, subject, calls }
        })
        .collect()
}

#[test]
fn table_has_exactly_one_row_for_each_route() {
    let stated: Vec<String> = rows().iter().map(|row| format!("{} {}", row.method, row.path)).collect();
    let routes: BTreeSet<String> =
        tidemill_console::route_list().iter().map(|(method, path)| format!("{method} {path}")).collect();
    let unstated: Vec<&String> = routes.iter().filter(|route| !stated.contains(route)).collect();
    assert!(unstated.is_empty(), "{FILE} has no row for {unstated:?}: decide who may use it, and add one");
    let stale: Vec<&String> = stated.iter().filter(|route| !routes.contains(*route)).collect();
    assert!(stale.is_empty(), "{FILE} has rows for {stale:?}, which are no routes");
    assert_eq!(stated.len(), routes.len(), "{FILE} has two rows for one route");
}

/// A form grants nothing of its own: the roles of its row are those of the API route that it calls.
#[test]
fn every_form_calls_an_api_route_with_the_same_roles() {
    let endpoints = tidemill_api::endpoints();
    for row in rows().iter().filter(|row| row.calls != "-") {
        let found = endpoints.iter().find(|one| format!("{} {}", one.method, one.path) == row.calls);
        let endpoint = found.unwrap_or_else(|| panic!("{} is no route of the API: {row:?}", row.calls));
        assert_eq!(row.roles, endpoint.permission.map(Permission::roles), "{row:?}");
    }
    let silent: Vec<Row> = rows().into_iter().filter(|row| row.calls == "-").collect();
    assert!(silent.iter().all(|row| row.method == Method::GET), "a form without an API call: {silent:?}");
}

/// Items that a request names.
struct Subjects {
    project: &'static str,
    feed: &'static str,
    schedule: &'static str,
    run: String,
    sync: String,
    graph: String,
    job: String,
    agent: String,
    token: String,
    worker: String,
    letter: String,
}

impl Subjects {
    /// Creates new items of the project `shop`. Its feed and its schedule are those of the sample data.
    async fn create(server: &ConsoleServer) -> Self {
        let engine = server.engine();
        let run = engine.queue(QueueRun::new("shop", "staging")).await.expect("a run").run_id;
        let graph = submit(server, "version: 1\njobs:\n  press:\n    run: echo pressed\n").await;
        let projects = ProjectSet::of(Some("shop"));
        let new = NewToken { name: "x".to_owned(), role: Role::Viewer, projects, expires_in_secs: None };
        let token = engine.create_token(new, "test").await.expect("a token").0.token_id.to_string();
        let worker = NewWorker {
            worker_id: WorkerId(Uuid::new_v4()),
            name: "w".to_owned(),
            host: "h".to_owned(),
            pid: 1,
            labels: vec![],
            version: "0".to_owned(),
        };
        let letter = format!("letter-{}", Uuid::new_v4());
        dead_letter(server, &letter).await;
        let subjects = Self {
            project: "shop",
            feed: FEED,
            schedule: "nightly",
            run: run.to_string(),
            sync: sync(server).await.to_string(),
            job: job_id(&graph, "press"),
            graph: graph.to_string(),
            agent: agent(server).await.to_string(),
            token,
            worker: worker.worker_id.0.to_string(),
            letter,
        };
        engine.store().register_worker(worker, None).await.expect("a worker");
        subjects
    }

    /// Returns items that do not exist.
    fn missing() -> Self {
        let run = || Clock::Database.run_id().to_string();
        Self {
            project: "nope",
            feed: "nopes6",
            schedule: "nope-55",
            run: run(),
            sync: Uuid::new_v4().to_string(),
            graph: run(),
            job: "nope5nope5nope55".to_owned(),
            agent: Uuid::new_v4().to_string(),
            token: Uuid::new_v4().to_string(),
            worker: Uuid::new_v4().to_string(),
            letter: "none".to_owned(),
        }
    }

    fn path(&self, path: &str) -> String {
        let run = if path.starts_with("/graphs/") { &self.graph } else { &self.run };
        let parameters = [
            ("{run}", run.as_str()),
            ("{sync}", &self.sync),
            ("{job}", &self.job),
            ("{agent}", &self.agent),
            ("{token}", &self.token),
            ("{worker}", &self.worker),
            ("{feed}", self.feed),
            ("{schedule}", self.schedule),
            ("{queue}", WORK_ITEMS),
            ("{name}", "console.css"),
        ];
        let fill = |path: String, (name, value): (&str, &str)| path.replace(name, value);
        let filled = parameters.into_iter().fold(path.to_owned(), fill);
        assert!(!filled.contains('{'), "{path} has a parameter that no item fills in");
        filled
    }

    /// Returns the fields of every form; a form ignores those that it does not know.
    fn form(&self, path: &str) -> Vec<(&'static str, String)> {
        let flag_scope = format!("project:{}", self.project);
        let mut fields = vec![
            ("back", "/".to_owned()),
            ("sure", "yes".to_owned()),
            ("act", "cancel".to_owned()),
            ("run", self.run.clone()),
            ("job", "press".to_owned()),
            ("id", self.letter.clone()),
            ("draining", "no".to_owned()),
            ("reason", "r".to_owned()),
            ("force", "yes".to_owned()),
            ("flag", "paused".to_owned()),
            ("scope", flag_scope),
            ("role", "viewer".to_owned()),
            ("project", self.project.to_owned()),
            ("name", "narrow".to_owned()),
            ("size", "2".to_owned()),
        ];
        if path == "/sign-in" {
            fields.push(("token", "tm_none".to_owned()));
        }
        fields
    }

    /// Returns a text without the names of the items.
    fn hidden_in(&self, text: &str) -> String {
        let names = [
            &self.run,
            &self.graph,
            &self.sync,
            &self.job,
            &self.agent,
            &self.token,
            &self.worker,
            &self.letter,
        ];
        let text = names.into_iter().fold(text.to_owned(), |text, name| text.replace(name.as_str(), "…"));
        // The name of the project is part of other names.
        [self.feed, self.schedule, self.project].into_iter().fold(text, |text, name| text.replace(name, "…"))
    }
}

async fn agent(server: &ConsoleServer) -> Uuid {
    let new = NewAgent {
        agent_id: Uuid::new_v4(),
        name: "agent".to_owned(),
        host: "h".to_owned(),
        labels: vec![],
        capacity: 1,
        version: "0".to_owned(),
        projects: ProjectSet::of(Some("shop")),
        token_id: None,
        boot_id: Uuid::new_v4(),
        secret_hash: "0".repeat(64),
        next_secret_hash: "0".repeat(64),
        dir_lock: None,
        isolation: None,
    };
    let id = new.agent_id;
    graphs(server).register(new).await.expect("the agent is registered");
    id
}

/// Creates a failed sync of the sample feed.
async fn sync(server: &ConsoleServer) -> Uuid {
    let run: RunId = server.engine().queue(QueueRun::new("shop", "staging")).await.expect("a run").run_id;
    let (id, now) = (Uuid::new_v4(), host_now());
    let sync = json!({
        "run_id": id, "ops_run_id": run, "feed": FEED, "run_type": "full", "state": "failed", "trace_id": "t",
        "expected_workers": 1, "completed_workers": 0, "failed_workers": 1, "watermark_before": null,
        "watermark_after": null, "updated_from": null, "updated_to": now, "page_size": 100,
        "granularity": 100, "predicted": 1, "count_calls": 1, "scan_ms": 1, "heatmap": [], "generation": 0,
        "rules_version": null, "forced": false, "advance": false, "error": null, "started_at": now,
        "completed_at": null, "consolidation_started_at": null, "consolidation_completed_at": null,
        "consolidation_processed": 0, "consolidation_errors": 0, "consolidation_total": 0, "deleted": 0,
        "delete_note": null, "updated_at": now,
    });
    let sync: Sync = serde_json::from_value(sync).expect("a sync");
    let write = server.fixture.store.write(move |mut tx| {
        let sync = sync.clone();
        Box::pin(async move { tx.insert_sync(&sync, None).await })
    });
    assert!(write.await.expect("a sync is stored"));
    id
}

async fn request(row: &Row, reader: &WebClient, csrf: Option<&str>, subjects: &Subjects) -> Response {
    let request = reader.request(row.method.clone(), &subjects.path(row.path));
    if row.method == Method::GET {
        return request.send().await.expect("a response");
    }
    let mut form = subjects.form(row.path);
    form.extend(csrf.map(|csrf| ("csrf", csrf.to_owned())));
    request.form(&form).send().await.expect("a response")
}

/// Checks the routes of one session, whose user sees `project` or, without one, all projects.
async fn check_session(server: &ConsoleServer, role: Role, project: Option<&str>) {
    let reader = server.signed_in(role, project).await;
    let csrf = reader.csrf().await;
    let (subjects, missing) = (Subjects::create(server).await, Subjects::missing());
    // The end of the session comes last.
    let (last, others): (Vec<Row>, Vec<Row>) =
        rows().into_iter().filter(|row| row.roles.is_some()).partition(|row| row.path == "/sign-out");
    for row in others.iter().chain(&last) {
        let response = request(row, &reader, Some(&csrf), &subjects).await;
        let status = response.status();
        let cell = format!("{role} of {project:?}: {} {}: {status}", row.method, row.path);
        let page = response.text().await.expect("a text");
        let admitted = row.roles.is_some_and(|roles| roles.contains(&role));
        // A form that reads its item first finds none before its role matters.
        let hidden = row.subject == "project" && project == Some("bank");
        match (admitted, row.subject, project) {
            _ if hidden && (admitted || status == StatusCode::NOT_FOUND) => {
                assert_eq!(status, StatusCode::NOT_FOUND, "{cell}");
                let absent = request(row, &reader, Some(&csrf), &missing).await;
                assert_eq!(absent.status(), status, "{cell}");
                let absent = absent.text().await.expect("a text");
                assert_eq!(subjects.hidden_in(&page), missing.hidden_in(&absent), "{cell}");
            }
            (false, _, _) | (true, "installation", Some(_)) => {
                assert_eq!(status, StatusCode::FORBIDDEN, "{cell}");
            }
            (true, _, Some("bank")) => {
                assert!(status.is_success() || status == StatusCode::SEE_OTHER, "{cell}");
                let ids = [&subjects.run, &subjects.agent, &subjects.job, &subjects.token];
                // The audit log contains refused calls with the ids that the caller itself sent.
                for name in ids.into_iter().filter(|_| row.path != "/audit") {
                    assert!(!page.contains(name.as_str()), "{cell} shows {name}");
                }
            }
            (true, _, _) => {
                let refused = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::NOT_FOUND];
                assert!(!refused.contains(&status) && !status.is_server_error(), "{cell}: {page}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn every_route_answers_each_role_and_project_as_stated() {
    let server = ConsoleServer::with_tokens_on(Kind::Sqlite).await;
    populate(&server).await;
    for role in [Role::Viewer, Role::Operator, Role::Admin] {
        for project in [None, Some("shop"), Some("bank")] {
            check_session(&server, role, project).await;
        }
    }
}

/// Without a session, every page and form leads to the sign-in page. A token of a machine opens no page.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn every_route_refuses_strangers_and_machines() {
    let server = ConsoleServer::with_tokens_on(Kind::Sqlite).await;
    populate(&server).await;
    let (stranger, subjects) = (server.reader(), Subjects::create(&server).await);
    for row in rows().iter().filter(|row| row.roles.is_some()) {
        let response = request(row, &stranger, None, &subjects).await;
        let location = response.headers().get("location").and_then(|value| value.to_str().ok());
        let cell = format!("{} {}: {} to {location:?}", row.method, row.path, response.status());
        assert_eq!(response.status(), StatusCode::SEE_OTHER, "{cell}");
        assert!(location.is_some_and(|location| location.starts_with("/sign-in")), "{cell}");
    }
    for role in [Role::Worker, Role::Agent] {
        let token = server.token(role, None).await;
        for row in rows().iter().filter(|row| row.roles.is_some_and(|roles| !roles.contains(&role))) {
            let path = subjects.path(row.path);
            let mut request = server.reader().request(row.method.clone(), &path).bearer_auth(&token);
            if row.method == Method::POST {
                request = request.form(&subjects.form(row.path));
            }
            let response = request.send().await.expect("a response");
            assert_eq!(response.status(), StatusCode::FORBIDDEN, "{role}: {} {path}", row.method);
        }
    }
}
