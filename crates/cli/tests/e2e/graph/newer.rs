//! A server of a later release: it sends fields, kinds of tasks and words that this agent does not know. The agent
//! works on, says what it did not understand, and refuses only what it cannot do.

use std::collections::BTreeSet;
use std::sync::Mutex;

use serde_json::{Value, json};
use tidemill_core::run::RunState;

use super::gate::Gate;
use super::ground::{PATIENCE, Site, graph};
use crate::process::is_alive;
use crate::stage::{Stage, on_both, until_within};

on_both!(
    fields_that_nobody_knows_are_named_and_change_nothing,
    an_unknown_kind_of_task_is_reported_and_the_others_go_on,
    an_unknown_word_in_an_answer_is_no_answer_and_no_end,
    an_order_that_cannot_be_kept_in_full_is_refused_with_a_reason,
);

/// The orders in an answer to this path.
fn orders<'v>(path: &str, answer: &'v mut Value) -> impl Iterator<Item = &'v mut Value> {
    let tasks = path.ends_with("/poll").then(|| answer["tasks"].as_array_mut()).flatten();
    tasks.into_iter().flatten()
}

/// Waits until the agent keeps nothing on its disk.
fn until_clean(site: &Site<'_>) {
    let tasks = site.dir("ann").join("tasks");
    until_within("the agent keeps nothing", PATIENCE, || {
        std::fs::read_dir(&tasks).expect("the directory is read").next().is_none().then_some(())
    });
}

fn fields_that_nobody_knows_are_named_and_change_nothing(stage: &Stage) {
    let site = Site::start(stage);
    let gate = Gate::changing(&site.url, |path, answer| {
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
    let _agent = site.agent_at("ann", &gate.url(), &["--grace", "1s"]);
    let run = site.submit(&graph(&[
        site.step("make", &[], "echo made > made.txt", "outputs: {made: made.txt}"),
        site.step("use", &["make"], "cat made.txt", ""),
        site.step("stopped", &[], "sleep 600", ""),
    ]));
    site.until_code(&run, "use", "succeeded");
    site.until_written("begin stopped");
    let pid = site.ledger().pid("stopped");
    stage.ok(&["graph", "cancel", run.as_str(), "--job", "stopped"]);
    assert_eq!(site.until_ended(&run), RunState::Cancelled);
    assert_eq!(stage.ok(&["graph", "logs", run.as_str(), "use"]).trim(), "made");
    let unknown = |name: &str| -> BTreeSet<String> {
        let task = site.job(&run, name)["tasks"][0].clone();
        let named = task["unknown"].as_array().expect("names").iter();
        named.map(|name| name.as_str().expect("a name").to_owned()).collect()
    };
    let same = ["priority", "work.gpu", "work.limits.disk_bytes"].map(str::to_owned);
    assert_eq!(unknown("make"), BTreeSet::from(same.clone()));
    let mut more = BTreeSet::from(same);
    more.insert("work.inputs.licence".to_owned());
    assert_eq!(unknown("use"), more);
    site.check(&run);
    assert!(!is_alive(pid), "the order to stop is understood too");
    until_clean(&site);
}

fn an_unknown_kind_of_task_is_reported_and_the_others_go_on(stage: &Stage) {
    let site = Site::start(stage);
    let is_first = Mutex::new(true);
    let gate = Gate::changing(&site.url, move |path, answer| {
        for order in orders(path, answer) {
            if order["work"]["job"] == json!("strange") {
                order["kind"] = json!("POLISHJOB");
            }
        }
        if path.ends_with("/poll") && std::mem::take(&mut *is_first.lock().expect("nobody panics with it")) {
            // Orders of which nobody knows, one of which has no name, and one that is none at all.
            let tasks = answer["tasks"].as_array_mut().expect("orders");
            tasks.push(json!({"task_id": "nobodys-001", "kind": "DANCE", "job_id": "nobodys", "tempo": 3}));
            tasks.push(json!({"kind": "RUNJOB", "job_id": "nobodys"}));
            tasks.push(json!(42));
        }
    });
    let _agent = site.agent_at("ann", &gate.url(), &[]);
    let run =
        site.submit(&graph(&[site.step("strange", &[], "true", ""), site.step("plain", &[], "true", "")]));
    assert_eq!(site.until_ended(&run), RunState::Failed);
    let codes = site.codes(&run);
    assert_eq!((codes["strange"].as_str(), codes["plain"].as_str()), ("job_error", "succeeded"), "{codes:?}");
    let told = stage.ok(&["job", "why", &format!("{run}/strange")]);
    let version = env!("CARGO_PKG_VERSION");
    let reason = format!("this agent, version {version}, does not know tasks of kind POLISHJOB: upgrade it");
    assert!(told.contains(&reason), "{told}");
    let ledger = site.ledger();
    assert_eq!((ledger.count("begin strange"), ledger.count("begin plain")), (0, 1), "{ledger:?}");
    site.check(&run);
    until_clean(&site);
}

/// The first answer to everything that is reported is a word that nobody knows: it is neither a yes nor a no, so the
/// agent asks again.
fn an_unknown_word_in_an_answer_is_no_answer_and_no_end(stage: &Stage) {
    let site = Site::start(stage);
    let heard = Mutex::new(BTreeSet::new());
    let gate = Gate::changing(&site.url, move |path, answer| {
        let is_report = path.starts_with("/v1/tasks/");
        if is_report && heard.lock().expect("nobody panics with it").insert(path.to_owned()) {
            *answer = json!({"outcome": "pondered", "until": "tomorrow"});
        }
    });
    let _agent = site.agent_at("ann", &gate.url(), &[]);
    let run = site.submit(&graph(&[
        site.step("make", &[], "echo said; echo made > made.txt", "outputs: {made: made.txt}"),
        site.step("use", &["make"], "cat made.txt", ""),
    ]));
    assert_eq!(site.until_ended(&run), RunState::Success);
    let ledger = site.ledger();
    assert_eq!((ledger.count("begin make"), ledger.count("begin use")), (1, 1), "{ledger:?}");
    assert_eq!(stage.ok(&["graph", "logs", run.as_str(), "make"]).trim(), "said");
    assert_eq!(stage.ok(&["graph", "logs", run.as_str(), "use"]).trim(), "made");
    site.check(&run);
    until_clean(&site);
}

/// Whoever does not understand when another agent may run the command cannot promise that it is dead by then.
fn an_order_that_cannot_be_kept_in_full_is_refused_with_a_reason(stage: &Stage) {
    let site = Site::start(stage);
    let gate = Gate::changing(&site.url, |path, answer| {
        for order in orders(path, answer) {
            match order["work"]["job"].as_str() {
                Some("promised") => order["work"]["on_agent_lost"] = json!({"rerun_at_once": true}),
                Some("contained") => order["work"]["run"] = json!({"container": "image", "args": []}),
                Some(_) | None => {}
            }
        }
    });
    let _agent = site.agent_at("ann", &gate.url(), &[]);
    let run = site.submit(&graph(&[
        site.step("promised", &[], "true", ""),
        site.step("contained", &[], "true", ""),
        site.step("plain", &[], "true", ""),
    ]));
    assert_eq!(site.until_ended(&run), RunState::Failed);
    assert_eq!(site.codes(&run)["plain"], "succeeded");
    for name in ["promised", "contained"] {
        assert_eq!(site.codes(&run)[name], "job_error");
        let told = stage.ok(&["job", "why", &format!("{run}/{name}")]);
        assert!(told.contains("this agent does not understand the order"), "{told}");
        assert_eq!(site.ledger().count(&format!("begin {name}")), 0);
    }
    site.check(&run);
    until_clean(&site);
}
