//! The isolation that agents report, and the limits that their orders name.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::fixture::{GraphFixture, TIMEOUT, graph};
use crate::fixture::{Fixture, on_both, wait_until_within};
use crate::server::request;

on_both!(isolation_of_agents_is_listed_and_checked, order_names_the_limits_of_its_job);

const MECHANISMS: [&str; 7] =
    ["user_ids", "pid_namespace", "mount_namespace", "cgroup_kill", "memory", "processes", "cpu"];

/// Registers a simulated agent, and returns its path and the response.
fn register(graphs: &GraphFixture<'_>, number: u8, name: &str, isolation: &Value) -> (String, u16, Value) {
    let path = format!("/v1/agents/{}", uuid(number));
    let body = json!({"name": name, "capacity": 1, "boot": uuid(number), "version": "9.9", "isolation": isolation,
        "secret": "s".repeat(64), "next_secret": "s".repeat(64)});
    let (status, answer) = request(address(graphs), "PUT", &path, Some(&body));
    (path, status, answer)
}

fn address(graphs: &GraphFixture<'_>) -> SocketAddr {
    graphs.url.trim_start_matches("http://").parse().expect("an address")
}

fn uuid(number: u8) -> String {
    format!("00000000-0000-4000-8000-0000000000{number:02}")
}

/// A report in which every mechanism has this value.
fn report(value: &str) -> Value {
    MECHANISMS.iter().map(|name| ((*name).to_owned(), json!(value))).collect::<serde_json::Map<_, _>>().into()
}

fn isolation_of_agents_is_listed_and_checked(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let mut limited = report("yes");
    limited["memory"] = json!("the memory controller is not delegated");
    // An agent that is not root: a missing user id alone is a warning.
    let mut open = report("yes");
    open["user_ids"] = json!("same user\u{1b}[2J as the agent");
    let agents = [
        ("complete", report("yes")),
        ("limited", limited.clone()),
        ("open", open),
        ("bare", report("not root")),
        ("older", Value::Null),
    ];
    // Agents that have been silent for a while are not checked, so each check follows their registration.
    let check = |count: usize, words: &[&str], findings: usize| {
        wait_until_within("doctor reports the agents", TIMEOUT, || {
            for (number, (name, isolation)) in (1..).zip(&agents[..count]) {
                let (_, status, answer) = register(&graphs, number, name, isolation);
                assert_eq!(status, 200, "{answer}");
            }
            let checked = fixture.tidemill(words);
            let lines = checked.stdout.lines().filter(|line| line.contains(" isolation "));
            (lines.count() == findings).then_some(checked)
        })
    };
    let remote = ["doctor", "--server", graphs.url.as_str()];
    let mended = check(2, &remote, 1);
    assert_eq!(mended.code, Some(0), "missing limits alone are no warning: {mended:?}");
    assert!(mended.stdout.contains("no memory limit: the memory controller is not delegated"), "{mended:?}");
    // One line per agent that is not fully isolated, through the server and beside the database.
    for words in [&remote[..], &["doctor"]] {
        let checked = check(5, words, 4);
        assert_eq!(checked.code, Some(3), "{checked:?}");
        let has =
            |parts: &[&str]| checked.stdout.lines().any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(has(&["ok", "agent limited is partial"]), "{checked:?}");
        assert!(
            has(&["warning", "agent open is partial", "no user ids: same user", "docs/agents.md"]),
            "{checked:?}"
        );
        assert!(has(&["warning", "agent bare is none"]), "{checked:?}");
        assert!(has(&["warning", "agent older (version 9.9)", "upgrade it"]), "{checked:?}");
        assert!(!checked.stdout.contains('\u{1b}'), "{checked:?}");
    }
    check_list(fixture, &limited);
    for bad in [json!("yes"), json!({"user_ids": 1}), json!({"user_ids": "yes"})] {
        let (_, status, answer) = register(&graphs, 6, "bad", &bad);
        assert!((400..500).contains(&status), "{bad}: {status} {answer}");
    }
    let (path, status, answer) = register(&graphs, 7, "a\r\nb", &Value::Null);
    assert!((400..500).contains(&status), "{path}: {status} {answer}");
}

fn check_list(fixture: &Fixture, limited: &Value) {
    let listed = fixture.ok(&["agent", "list"]);
    let level = |name: &str| {
        let row = listed.lines().find(|line| line.starts_with(&format!("{name} "))).expect(name);
        let words = ["full", "partial", "none", "unknown"];
        words.into_iter().find(|word| row.contains(&format!(" {word} "))).expect(name)
    };
    let levels = ["complete", "limited", "open", "bare", "older"].map(level);
    assert_eq!(levels, ["full", "partial", "partial", "none", "unknown"], "{listed}");
    let agents = fixture.json(&["agent", "list"]);
    let of = |name: &str| {
        let all = agents.as_array().expect("a list");
        all.iter().find(|agent| agent["name"] == name).expect(name)["isolation"].clone()
    };
    assert_eq!((&of("limited"), of("older")), (limited, Value::Null));
}

/// An agent of an earlier release reports every field that it does not know. An order names only limits that are set.
fn order_names_the_limits_of_its_job(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let (path, status, answer) = register(&graphs, 1, "ann", &Value::Null);
    assert_eq!(status, 200, "{answer}");
    let order_of = |limits: &str| -> Value {
        graphs.submit(&graph(&[graphs.step("only", &[], "true", limits)]));
        let body = json!({"boot": uuid(1), "wait_secs": 5});
        let order = wait_until_within("an order arrives", TIMEOUT, || {
            // An agent that has been silent for a while gets no tasks.
            assert_eq!(register(&graphs, 1, "ann", &Value::Null).1, 200);
            let (status, answer) = request(address(&graphs), "POST", &format!("{path}/poll"), Some(&body));
            assert_eq!(status, 200, "{answer}");
            answer["tasks"].get(0).cloned()
        });
        let task = order["task_id"].as_str().expect("a task");
        let result = json!({"agent": uuid(1), "boot": uuid(1), "unknown": ["work.limits.processes"],
            "result": {"kind": "ended", "exit_code": 0, "unmatched": []}});
        for (verb, body) in
            [("stage", json!({"agent": uuid(1), "boot": uuid(1), "stage": "preparing"})), ("result", result)]
        {
            let (status, answer) =
                request(address(&graphs), "POST", &format!("/v1/tasks/{task}/{verb}"), Some(&body));
            assert_eq!(status, 200, "{answer}");
        }
        order["work"]["limits"].clone()
    };
    let plain = order_of("");
    assert_eq!(plain, json!({"cpu_secs": null, "memory_bytes": null, "output_bytes": null}));
    let limited =
        order_of("limits: {memory: 512MiB, processes: 64, cpu: 1.5, cpu-time: 1m, file-size: 1GiB}");
    let expected = json!({"cpu_secs": 60, "memory_bytes": 512 << 20, "output_bytes": 1 << 30, "processes": 64,
        "cpu_percent": 150});
    assert_eq!(limited, expected);
    let run = fixture.runs().pop().expect("a run").run_id;
    let shown = fixture.ok(&["job", "show", &format!("{run}/only")]);
    assert!(shown.contains("memory 512MiB, processes 64, cpu 150%, cpu-time 1m, file-size 1GiB"), "{shown}");
    assert!(shown.contains("does not support work.limits.processes, upgrade it"), "{shown}");
}
