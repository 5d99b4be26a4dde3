//! An agent of another release that sends unknown fields and stages, repeats reports, and is late.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tidemill_core::run::RunState;

use super::fixture::{GraphFixture, TIMEOUT, graph};
use crate::fixture::{Fixture, on_both, wait_until_within};
use crate::server::request;

on_both!(reports_of_a_newer_agent_are_accepted, reports_of_an_older_process_or_attempt_are_refused,);

/// An agent that the test simulates over HTTP.
struct FakeAgent {
    address: SocketAddr,
    agent: String,
    boot: String,
}

impl FakeAgent {
    fn register(graphs: &GraphFixture<'_>, name: &str) -> Self {
        let address = graphs.url.trim_start_matches("http://").parse().expect("an address");
        let (agent, boot) = (uuid(name, 1), uuid(name, 2));
        let fake = Self { address, agent, boot };
        let (status, answer) = fake.send(
            "PUT",
            "",
            &json!({"name": name, "capacity": 2, "protocol": 2,
            "colour": "blue", "labels": [], "secret": "s".repeat(64), "next_secret": "s".repeat(64)}),
        );
        assert_eq!(status, 200, "{answer}");
        assert!(answer["beat_secs"].is_number(), "{answer}");
        fake
    }

    fn send(&self, method: &str, verb: &str, body: &Value) -> (u16, Value) {
        let mut body = body.clone();
        body["boot"] = json!(self.boot);
        request(self.address, method, &format!("/v1/agents/{}{verb}", self.agent), Some(&body))
    }

    fn report(&self, task: &str, verb: &str, body: &Value) -> (u16, Value) {
        let mut body = body.clone();
        body["boot"] = json!(self.boot);
        body["agent"] = json!(self.agent);
        request(self.address, "POST", &format!("/v1/tasks/{task}/{verb}"), Some(&body))
    }

    /// Waits for the first order.
    fn wait_for_order(&self) -> Value {
        wait_until_within("an order arrives", TIMEOUT, || {
            let (status, answer) = self.send("POST", "/poll", &json!({"wait_secs": 5, "mood": "good"}));
            assert_eq!(status, 200, "{answer}");
            answer["tasks"].get(0).cloned()
        })
    }
}

fn uuid(name: &str, number: u8) -> String {
    let digest = tidemill_core::digest::sha256_hex(format!("{name} {number}").as_bytes());
    format!(
        "{}-{}-4{}-8{}-{}",
        &digest[..8],
        &digest[8..12],
        &digest[13..16],
        &digest[17..20],
        &digest[20..32]
    )
}

fn reports_of_a_newer_agent_are_accepted(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let fake = FakeAgent::register(&graphs, "newer");
    let run = graphs.submit(&graph(&[graphs.step("work", &[], "true", "")]));
    let order = fake.wait_for_order();
    let task = order["task_id"].as_str().expect("a task").to_owned();
    assert_eq!(order["kind"], json!("RUNJOB"));
    let outcome = |(status, answer): (u16, Value)| {
        assert_eq!(status, 200, "{answer}");
        answer["outcome"].as_str().expect("an outcome").to_owned()
    };
    let stage_of = |word: &str| outcome(fake.report(&task, "stage", &json!({"stage": word, "why": "so"})));
    assert_eq!(stage_of("preparing"), "applied");
    assert_eq!(stage_of("preparing"), "duplicate");
    // An unknown stage and a late one have no effect.
    assert_eq!(stage_of("polishing"), "duplicate");
    assert_eq!(stage_of("executing"), "applied");
    assert_eq!(stage_of("prepared"), "duplicate");
    let piece = json!({"seq": 0, "lines": [{"stream": "stdout", "text": "héllo", "colour": "blue"}]});
    assert_eq!(outcome(fake.report(&task, "logs", &piece)), "applied");
    assert_eq!(outcome(fake.report(&task, "logs", &piece)), "duplicate");
    let (status, answer) = fake.send(
        "POST",
        "/beat",
        &json!({"holding": [
        {"task_id": task, "stage": "polishing", "mood": "good"}, {"task_id": "unknown-001"}]}),
    );
    assert_eq!((status, &answer["over"]), (200, &json!(["unknown-001"])), "{answer}");
    let result = json!({"result": {"kind": "ended", "exit_code": 0, "unmatched": [], "joules": 7},
        "unknown": ["work.priority"]});
    assert_eq!(outcome(fake.report(&task, "result", &result)), "applied");
    assert_eq!(graphs.wait_for_end(&run), RunState::Success);
    assert_eq!(outcome(fake.report(&task, "result", &result)), "duplicate");
    assert_eq!(outcome(fake.report(&task, "stage", &json!({"stage": "executing"}))), "stale");
    assert_eq!(fixture.ok(&["graph", "logs", run.as_str(), "work"]).trim(), "héllo");
    assert_eq!(graphs.job(&run, "work")["tasks"][0]["unknown"], json!(["work.priority"]));
    graphs.check(&run);
}

fn reports_of_an_older_process_or_attempt_are_refused(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let older = FakeAgent::register(&graphs, "twice");
    let run = graphs.submit(&graph(&[graphs.step("work", &[], "true", "")]));
    let task = older.wait_for_order()["task_id"].as_str().expect("a task").to_owned();
    assert_eq!(older.report(&task, "stage", &json!({"stage": "preparing"})).1["outcome"], json!("applied"));
    // The next process of the same agent replaces it.
    let registration = json!({"name": "twice", "capacity": 2,
        "secret": "s".repeat(64), "next_secret": "s".repeat(64)});
    let newer = FakeAgent { boot: uuid("twice", 3), agent: older.agent.clone(), address: older.address };
    assert_eq!(newer.send("PUT", "", &registration).0, 200);
    let (status, answer) = older.report(&task, "stage", &json!({"stage": "executing"}));
    assert_eq!((status, &answer["code"]), (409, &json!("stale")), "{answer}");
    assert!(
        answer["message"].as_str().is_some_and(|text| text.contains("another process of agent")),
        "{answer}"
    );
    // The attempt has failed, so later reports of it are refused.
    let failed = json!({"result": {"kind": "failed", "fatal": false, "message": "the disk was full"}});
    assert_eq!(newer.report(&task, "result", &failed).1["outcome"], json!("applied"));
    let second = wait_until_within("another attempt arrives", TIMEOUT, || {
        let given = newer.wait_for_order();
        let id = given["task_id"].as_str().expect("a task").to_owned();
        (id != task).then_some(id)
    });
    let good = json!({"result": {"kind": "ended", "exit_code": 0, "unmatched": []}});
    assert_eq!(newer.report(&task, "result", &good).1["outcome"], json!("stale"));
    assert_eq!(newer.report(&second, "result", &good).1["outcome"], json!("applied"));
    assert_eq!(graphs.wait_for_end(&run), RunState::Success);
    assert_eq!(graphs.job(&run, "work")["job"]["errors"], json!(1));
    graphs.check(&run);
}
