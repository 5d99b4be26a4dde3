//! A server of a newer release that sends unknown fields, task kinds and outcomes.
//!
//! The agent continues, reports unknown fields, and refuses only tasks that it cannot execute.

use std::collections::BTreeSet;
use std::sync::Mutex;

use serde_json::{Value, json};
use tidemill_core::run::RunState;

use super::fixture::{GraphFixture, TIMEOUT, graph};
use super::proxy::HoldingProxy;
use crate::fixture::{Fixture, on_both, wait_until_within};
use crate::process::is_alive;

on_both!(
    unknown_fields_are_reported_and_ignored,
    unknown_task_kind_fails_without_affecting_other_tasks,
    unknown_outcome_is_retried,
    order_with_unknown_semantics_is_refused_with_a_reason,
);

/// Orders in the response to this path.
fn orders<'v>(path: &str, answer: &'v mut Value) -> impl Iterator<Item = &'v mut Value> {
    let tasks = path.ends_with("/poll").then(|| answer["tasks"].as_array_mut()).flatten();
    tasks.into_iter().flatten()
}

/// Waits until the agent has removed all tasks from its disk.
fn wait_until_clean(graphs: &GraphFixture<'_>) {
    let tasks = graphs.dir("ann").join("tasks");
    wait_until_within("the agent has removed all tasks", TIMEOUT, || {
        std::fs::read_dir(&tasks).expect("the directory is read").next().is_none().then_some(())
    });
}

fn unknown_fields_are_reported_and_ignored(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let proxy = HoldingProxy::with_change(&graphs.url, |path, answer| {
        for order in orders(path, answer) {
            order["priority"] = json!({"class": "gold"});
            if order["work"].is_object() {
                order["work"]["gpu"] = json!({"count": 2});
                order["work"]["limits"]["disk_bytes"] = json!(5);
                for input in order["work"]["inputs"].as_array_mut().into_iter().flatten() {
                    input["licence"] = json!("none");
                }
            }
        }
        if answer.is_object() {
            answer["colour"] = json!("blue");
            answer["advice"] = json!([{"kind": "rest", "secs": 7}]);
        }
    });
    let _agent = graphs.agent_at("ann", &proxy.url(), &["--grace", "1s"]);
    let run = graphs.submit(&graph(&[
        graphs.step("make", &[], "echo made > made.txt", "outputs: {made: made.txt}"),
        graphs.step("use", &["make"], "cat made.txt", ""),
        graphs.step("stopped", &[], "sleep 600", ""),
    ]));
    graphs.wait_for_code(&run, "use", "succeeded");
    graphs.wait_for_line("begin stopped");
    let pid = graphs.ledger().pid("stopped");
    fixture.ok(&["graph", "cancel", run.as_str(), "--job", "stopped"]);
    assert_eq!(graphs.wait_for_end(&run), RunState::Cancelled);
    assert_eq!(fixture.ok(&["graph", "logs", run.as_str(), "use"]).trim(), "made");
    let unknown = |name: &str| -> BTreeSet<String> {
        let task = graphs.job(&run, name)["tasks"][0].clone();
        let named = task["unknown"].as_array().expect("names").iter();
        named.map(|name| name.as_str().expect("a name").to_owned()).collect()
    };
    let same = ["priority", "work.gpu", "work.limits.disk_bytes"].map(str::to_owned);
    assert_eq!(unknown("make"), BTreeSet::from(same.clone()));
    let mut more = BTreeSet::from(same);
    more.insert("work.inputs.licence".to_owned());
    assert_eq!(unknown("use"), more);
    graphs.check(&run);
    assert!(!is_alive(pid), "the cancel task is executed, too");
    wait_until_clean(&graphs);
}

fn unknown_task_kind_fails_without_affecting_other_tasks(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let is_first = Mutex::new(true);
    let proxy = HoldingProxy::with_change(&graphs.url, move |path, answer| {
        for order in orders(path, answer) {
            if order["work"]["job"] == json!("strange") {
                order["kind"] = json!("POLISHJOB");
            }
        }
        if path.ends_with("/poll") && std::mem::take(&mut *is_first.lock().expect("the lock is not poisoned"))
        {
            // An order of an unknown kind, one without an id, and one that is not an object.
            let tasks = answer["tasks"].as_array_mut().expect("orders");
            tasks.push(json!({"task_id": "unknown-001", "kind": "DANCE", "job_id": "unknown", "tempo": 3}));
            tasks.push(json!({"kind": "RUNJOB", "job_id": "unknown"}));
            tasks.push(json!(42));
        }
    });
    let _agent = graphs.agent_at("ann", &proxy.url(), &[]);
    let run = graphs
        .submit(&graph(&[graphs.step("strange", &[], "true", ""), graphs.step("plain", &[], "true", "")]));
    assert_eq!(graphs.wait_for_end(&run), RunState::Failed);
    let codes = graphs.codes(&run);
    assert_eq!((codes["strange"].as_str(), codes["plain"].as_str()), ("job_error", "succeeded"), "{codes:?}");
    let message = fixture.ok(&["job", "why", &format!("{run}/strange")]);
    let version = env!("CARGO_PKG_VERSION");
    let reason =
        format!("this agent (version {version}) does not support tasks of kind POLISHJOB: upgrade it");
    assert!(message.contains(&reason), "{message}");
    let ledger = graphs.ledger();
    assert_eq!((ledger.count("begin strange"), ledger.count("begin plain")), (0, 1), "{ledger:?}");
    graphs.check(&run);
    wait_until_clean(&graphs);
}

/// The first response to each report has an unknown outcome, so the agent repeats the report.
fn unknown_outcome_is_retried(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let received = Mutex::new(BTreeSet::new());
    let proxy = HoldingProxy::with_change(&graphs.url, move |path, answer| {
        let is_report = path.starts_with("/v1/tasks/");
        if is_report && received.lock().expect("the lock is not poisoned").insert(path.to_owned()) {
            *answer = json!({"outcome": "pondered", "until": "tomorrow"});
        }
    });
    let _agent = graphs.agent_at("ann", &proxy.url(), &[]);
    let run = graphs.submit(&graph(&[
        graphs.step("make", &[], "echo printed; echo made > made.txt", "outputs: {made: made.txt}"),
        graphs.step("use", &["make"], "cat made.txt", ""),
    ]));
    assert_eq!(graphs.wait_for_end(&run), RunState::Success);
    let ledger = graphs.ledger();
    assert_eq!((ledger.count("begin make"), ledger.count("begin use")), (1, 1), "{ledger:?}");
    assert_eq!(fixture.ok(&["graph", "logs", run.as_str(), "make"]).trim(), "printed");
    assert_eq!(fixture.ok(&["graph", "logs", run.as_str(), "use"]).trim(), "made");
    graphs.check(&run);
    wait_until_clean(&graphs);
}

/// An agent that does not know the rule for lost agents cannot guarantee that its command is dead in time.
fn order_with_unknown_semantics_is_refused_with_a_reason(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let proxy = HoldingProxy::with_change(&graphs.url, |path, answer| {
        for order in orders(path, answer) {
            match order["work"]["job"].as_str() {
                Some("promised") => order["work"]["on_agent_lost"] = json!({"rerun_at_once": true}),
                Some("contained") => order["work"]["run"] = json!({"container": "image", "args": []}),
                Some(_) | None => {}
            }
        }
    });
    let _agent = graphs.agent_at("ann", &proxy.url(), &[]);
    let run = graphs.submit(&graph(&[
        graphs.step("promised", &[], "true", ""),
        graphs.step("contained", &[], "true", ""),
        graphs.step("plain", &[], "true", ""),
    ]));
    assert_eq!(graphs.wait_for_end(&run), RunState::Failed);
    assert_eq!(graphs.codes(&run)["plain"], "succeeded");
    for name in ["promised", "contained"] {
        assert_eq!(graphs.codes(&run)[name], "job_error");
        let message = fixture.ok(&["job", "why", &format!("{run}/{name}")]);
        assert!(message.contains("this agent could not parse the order"), "{message}");
        assert_eq!(graphs.ledger().count(&format!("begin {name}")), 0);
    }
    graphs.check(&run);
    wait_until_clean(&graphs);
}
