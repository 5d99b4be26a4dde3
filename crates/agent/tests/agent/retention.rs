//! Retained outputs are removed only after the server has agreed.

use crate::fixture::{Fixture, order, success, until};
use crate::server::ServerState;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use tidemill_agent::{RetentionPolicy, Settings};

/// Executes jobs with an output of 100 bytes each.
async fn produce(fixture: &Fixture, jobs: &[&str]) {
    for job in jobs {
        let mut order = order(fixture, job, "head -c 100 /dev/zero > file");
        order["work"]["outputs"] = json!({"all": "file"});
        fixture.server.order(order);
        assert_eq!(fixture.result(&format!("{job}-001")).await, success());
        assert!(is_retained(fixture, job));
    }
    fixture.until_clean().await;
}

fn is_retained(fixture: &Fixture, job: &str) -> bool {
    fixture.agent_dir().join("workspaces/main").join(job).join("file").exists()
}

fn settings(fixture: &Fixture, time: Option<u64>, bytes: Option<u64>) -> Settings {
    let retention =
        RetentionPolicy { time: time.map(Duration::from_secs), bytes, every: Duration::from_millis(20) };
    Settings { retention, ..fixture.settings() }
}

/// Sets the jobs whose outputs are unused, with their idle seconds.
fn set_unused(fixture: &Fixture, jobs: &[(&str, Option<u64>)]) {
    let jobs: BTreeMap<String, Option<u64>> =
        jobs.iter().map(|(job, idle)| ((*job).to_owned(), *idle)).collect();
    fixture.server.state().unused = Some(jobs);
}

/// Waits until the agent has queried all retained outputs once more.
async fn until_queried(fixture: &Fixture) {
    let queries = |state: &ServerState| {
        state.retention_requests.iter().filter(|request| !request.keeps.is_empty()).count()
    };
    let before = queries(&fixture.server.state());
    until("the agent sends retention requests", || queries(&fixture.server.state()) > before + 1).await;
}

#[tokio::test]
async fn unused_outputs_are_removed_by_age() {
    let fixture = Fixture::new().await;
    set_unused(&fixture, &[]);
    let _agent = fixture.agent_with(settings(&fixture, Some(60), None));
    produce(&fixture, &["lost", "needed", "old", "young"]).await;
    until_queried(&fixture).await;
    assert!(["lost", "needed", "old", "young"].iter().all(|job| is_retained(&fixture, job)));
    set_unused(&fixture, &[("lost", None), ("old", Some(60)), ("young", Some(59))]);
    until("the old outputs are removed", || !is_retained(&fixture, "lost") && !is_retained(&fixture, "old"))
        .await;
    until_queried(&fixture).await;
    assert!(is_retained(&fixture, "needed") && is_retained(&fixture, "young"));
    for request in &fixture.server.state().retention_requests {
        assert!(request.removes.iter().all(|job| job == "lost" || job == "old"), "{request:?}");
    }
}

#[tokio::test]
async fn longest_unused_outputs_are_removed_first() {
    let fixture = Fixture::new().await;
    set_unused(&fixture, &[]);
    let _agent = fixture.agent_with(settings(&fixture, None, Some(300)));
    produce(&fixture, &["first", "second", "third", "needed"]).await;
    // The first is needed again, so the server refuses its removal. The next one is removed when the server reports it.
    fixture.server.state().needed.insert("first".to_owned());
    set_unused(&fixture, &[("first", Some(30)), ("second", Some(20)), ("third", Some(10))]);
    until_queried(&fixture).await;
    assert!(is_retained(&fixture, "first"));
    set_unused(&fixture, &[("second", Some(20)), ("third", Some(10))]);
    until("the second output is removed", || !is_retained(&fixture, "second")).await;
    until_queried(&fixture).await;
    assert!(["first", "third", "needed"].iter().all(|job| is_retained(&fixture, job)));
}

#[tokio::test]
async fn server_without_the_endpoint_has_not_agreed() {
    let fixture = Fixture::new().await;
    let agent = fixture.agent_with(settings(&fixture, Some(0), Some(0)));
    produce(&fixture, &["a"]).await;
    until_queried(&fixture).await;
    assert!(is_retained(&fixture, "a"));
    // The response is lost after the server has agreed. The agent repeats the request.
    fixture.server.state().lost_responses.insert("kept", 2);
    set_unused(&fixture, &[("a", Some(0))]);
    until("the output is removed", || !is_retained(&fixture, "a")).await;
    agent.stop().await.unwrap();
}
