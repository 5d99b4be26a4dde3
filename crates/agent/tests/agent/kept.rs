//! What jobs left goes when the server has agreed, and never before.

use crate::server::Known;
use crate::stage::{Ground, order, until, well};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use tidemill_agent::{Keep, Settings};

/// Jobs that leave a file of 100 bytes each, carried out.
async fn left(ground: &Ground, jobs: &[&str]) {
    for job in jobs {
        let mut order = order(ground, job, "head -c 100 /dev/zero > file");
        order["work"]["outputs"] = json!({"all": "file"});
        ground.server.order(order);
        assert_eq!(ground.result(&format!("{job}-001")).await, well());
        assert!(is_kept(ground, job));
    }
    ground.until_clean().await;
}

fn is_kept(ground: &Ground, job: &str) -> bool {
    ground.home().join("workspaces/main").join(job).join("file").exists()
}

fn settings(ground: &Ground, time: Option<u64>, bytes: Option<u64>) -> Settings {
    let keep = Keep { time: time.map(Duration::from_secs), bytes, every: Duration::from_millis(20) };
    Settings { keep, ..ground.settings() }
}

/// Nobody needs what these jobs left, and for how long.
fn unused(ground: &Ground, jobs: &[(&str, Option<u64>)]) {
    let jobs: BTreeMap<String, Option<u64>> =
        jobs.iter().map(|(job, idle)| ((*job).to_owned(), *idle)).collect();
    ground.server.known().unused = Some(jobs);
}

/// Waits until the agent has asked about everything once more.
async fn asked_again(ground: &Ground) {
    let asked = |known: &Known| known.kept.iter().filter(|ask| !ask.keeps.is_empty()).count();
    let before = asked(&ground.server.known());
    until("the agent asks", || asked(&ground.server.known()) > before + 1).await;
}

#[tokio::test]
async fn what_nobody_needs_goes_and_the_rest_stays() {
    let ground = Ground::new().await;
    unused(&ground, &[]);
    let _agent = ground.agent_with(settings(&ground, Some(60), None));
    left(&ground, &["lost", "needed", "old", "young"]).await;
    asked_again(&ground).await;
    assert!(["lost", "needed", "old", "young"].iter().all(|job| is_kept(&ground, job)));
    unused(&ground, &[("lost", None), ("old", Some(60)), ("young", Some(59))]);
    until("what may go is gone", || !is_kept(&ground, "lost") && !is_kept(&ground, "old")).await;
    asked_again(&ground).await;
    assert!(is_kept(&ground, "needed") && is_kept(&ground, "young"));
    for ask in &ground.server.known().kept {
        assert!(ask.removes.iter().all(|job| job == "lost" || job == "old"), "{ask:?}");
    }
}

#[tokio::test]
async fn what_is_too_much_goes_by_how_long_nobody_needed_it() {
    let ground = Ground::new().await;
    unused(&ground, &[]);
    let _agent = ground.agent_with(settings(&ground, None, Some(300)));
    left(&ground, &["first", "second", "third", "needed"]).await;
    // Somebody has come to need the first since the agent asked: it stays, and the next one goes when that is told.
    ground.server.known().needed.insert("first".to_owned());
    unused(&ground, &[("first", Some(30)), ("second", Some(20)), ("third", Some(10))]);
    asked_again(&ground).await;
    assert!(is_kept(&ground, "first"));
    unused(&ground, &[("second", Some(20)), ("third", Some(10))]);
    until("the second is gone", || !is_kept(&ground, "second")).await;
    asked_again(&ground).await;
    assert!(["first", "third", "needed"].iter().all(|job| is_kept(&ground, job)));
}

#[tokio::test]
async fn a_server_that_does_not_know_the_question_has_not_agreed() {
    let ground = Ground::new().await;
    let agent = ground.agent_with(settings(&ground, Some(0), Some(0)));
    left(&ground, &["a"]).await;
    asked_again(&ground).await;
    assert!(is_kept(&ground, "a"));
    // The answer is lost after the server has agreed: it is asked again, and agrees again.
    ground.server.known().lost.insert("kept", 2);
    unused(&ground, &[("a", Some(0))]);
    until("it is gone", || !is_kept(&ground, "a")).await;
    agent.stop().await.unwrap();
}
