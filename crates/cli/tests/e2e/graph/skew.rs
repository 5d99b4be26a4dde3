//! An agent of another release: it sends fields and words that this server does not know, repeats itself, and is late.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tidemill_core::run::RunState;

use super::ground::{PATIENCE, Site, graph};
use crate::server::ask;
use crate::stage::{Stage, on_both, until_within};

on_both!(
    what_an_agent_of_another_release_says_is_understood_as_far_as_it_can_be,
    an_older_process_and_an_older_attempt_are_refused,
);

/// An agent that is played by the test, over plain HTTP.
struct Player {
    address: SocketAddr,
    agent: String,
    boot: String,
}

impl Player {
    fn register(site: &Site<'_>, name: &str) -> Self {
        let address = site.url.trim_start_matches("http://").parse().expect("an address");
        let (agent, boot) = (uuid(name, 1), uuid(name, 2));
        let player = Self { address, agent, boot };
        let (status, answer) = player.say(
            "PUT",
            "",
            &json!({"name": name, "capacity": 2, "protocol": 2,
            "colour": "blue", "labels": []}),
        );
        assert_eq!(status, 200, "{answer}");
        assert!(answer["beat_secs"].is_number(), "{answer}");
        player
    }

    fn say(&self, method: &str, verb: &str, body: &Value) -> (u16, Value) {
        let mut body = body.clone();
        body["boot"] = json!(self.boot);
        ask(self.address, method, &format!("/v1/agents/{}{verb}", self.agent), Some(&body))
    }

    fn report(&self, task: &str, verb: &str, body: &Value) -> (u16, Value) {
        let mut body = body.clone();
        body["boot"] = json!(self.boot);
        body["agent"] = json!(self.agent);
        ask(self.address, "POST", &format!("/v1/tasks/{task}/{verb}"), Some(&body))
    }

    /// The first order that comes.
    fn order(&self) -> Value {
        until_within("an order comes", PATIENCE, || {
            let (status, answer) = self.say("POST", "/poll", &json!({"wait_secs": 5, "mood": "good"}));
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

fn what_an_agent_of_another_release_says_is_understood_as_far_as_it_can_be(stage: &Stage) {
    let site = Site::start(stage);
    let player = Player::register(&site, "newer");
    let run = site.submit(&graph(&[site.step("work", &[], "true", "")]));
    let order = player.order();
    let task = order["task_id"].as_str().expect("a task").to_owned();
    assert_eq!(order["kind"], json!("RUNJOB"));
    let outcome = |(status, answer): (u16, Value)| {
        assert_eq!(status, 200, "{answer}");
        answer["outcome"].as_str().expect("an outcome").to_owned()
    };
    let stage_of = |word: &str| outcome(player.report(&task, "stage", &json!({"stage": word, "why": "so"})));
    assert_eq!(stage_of("preparing"), "applied");
    assert_eq!(stage_of("preparing"), "duplicate");
    // A stage that nobody here knows changes nothing; one that is late does not either.
    assert_eq!(stage_of("polishing"), "duplicate");
    assert_eq!(stage_of("executing"), "applied");
    assert_eq!(stage_of("prepared"), "duplicate");
    let piece = json!({"seq": 0, "lines": [{"stream": "stdout", "text": "héllo", "colour": "blue"}]});
    assert_eq!(outcome(player.report(&task, "logs", &piece)), "applied");
    assert_eq!(outcome(player.report(&task, "logs", &piece)), "duplicate");
    let (status, answer) = player.say(
        "POST",
        "/beat",
        &json!({"holding": [
        {"task_id": task, "stage": "polishing", "mood": "good"}, {"task_id": "nobodys-001"}]}),
    );
    assert_eq!((status, &answer["over"]), (200, &json!(["nobodys-001"])), "{answer}");
    let result = json!({"result": {"kind": "ended", "exit_code": 0, "unmatched": [], "joules": 7},
        "unknown": ["work.priority"]});
    assert_eq!(outcome(player.report(&task, "result", &result)), "applied");
    assert_eq!(site.until_ended(&run), RunState::Success);
    assert_eq!(outcome(player.report(&task, "result", &result)), "duplicate");
    assert_eq!(outcome(player.report(&task, "stage", &json!({"stage": "executing"}))), "stale");
    assert_eq!(stage.ok(&["graph", "logs", run.as_str(), "work"]).trim(), "héllo");
    assert_eq!(site.job(&run, "work")["tasks"][0]["unknown"], json!(["work.priority"]));
    site.check(&run);
}

fn an_older_process_and_an_older_attempt_are_refused(stage: &Stage) {
    let site = Site::start(stage);
    let older = Player::register(&site, "twice");
    let run = site.submit(&graph(&[site.step("work", &[], "true", "")]));
    let task = older.order()["task_id"].as_str().expect("a task").to_owned();
    assert_eq!(older.report(&task, "stage", &json!({"stage": "preparing"})).1["outcome"], json!("applied"));
    // The next process of the same agent speaks from now on.
    let newer = Player { boot: uuid("twice", 3), agent: older.agent.clone(), address: older.address };
    assert_eq!(newer.say("PUT", "", &json!({"name": "twice", "capacity": 2})).0, 200);
    let (status, answer) = older.report(&task, "stage", &json!({"stage": "executing"}));
    assert_eq!((status, &answer["code"]), (409, &json!("stale")), "{answer}");
    assert!(
        answer["message"].as_str().is_some_and(|text| text.contains("another process speaks")),
        "{answer}"
    );
    // An attempt that came to nothing is over: what is reported of it later does not count.
    let failed = json!({"result": {"kind": "failed", "fatal": false, "message": "the disk was full"}});
    assert_eq!(newer.report(&task, "result", &failed).1["outcome"], json!("applied"));
    let second = until_within("another attempt", PATIENCE, || {
        let given = newer.order();
        let id = given["task_id"].as_str().expect("a task").to_owned();
        (id != task).then_some(id)
    });
    let good = json!({"result": {"kind": "ended", "exit_code": 0, "unmatched": []}});
    assert_eq!(newer.report(&task, "result", &good).1["outcome"], json!("stale"));
    assert_eq!(newer.report(&second, "result", &good).1["outcome"], json!("applied"));
    assert_eq!(site.until_ended(&run), RunState::Success);
    assert_eq!(site.job(&run, "work")["job"]["errors"], json!(1));
    site.check(&run);
}
