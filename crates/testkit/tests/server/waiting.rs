//! Claims that wait, and callers that go away meanwhile.

use std::time::Duration;

use tidemill_api::server::Limits;
use tidemill_core::run::RunState;
use tidemill_testkit::door::Kind;
use tokio::io::AsyncWriteExt as _;

use crate::ground::{PATIENCE, Served, answer, claim, post};
use crate::on_both;

/// How long a claim that is woken may take on a busy machine. It would wait for a minute.
const WOKEN_MAX: Duration = Duration::from_secs(45);

on_both! {
    a_claim_whose_caller_has_gone_takes_nothing,
    a_claim_whose_answer_was_lost_gives_the_same_runs_again,
    a_run_wakes_a_claim_that_waits,
}

/// Waits until the steps of callers that have gone are over: the store brings a step to its end once it has begun.
async fn until_idle(served: &Served) {
    if served.stage.kind == Kind::Sqlite {
        // Its steps come one after the other.
        return;
    }
    let busy = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tidemill' \
                AND datname = current_database() AND state <> 'idle'";
    let began = tokio::time::Instant::now();
    let mut quiet = 0;
    while quiet < 3 {
        assert!(began.elapsed() < PATIENCE, "the store is never idle");
        // Behind all steps that still wait for a connection.
        served.engine.store().projects().await.expect("the store answers");
        let busy = served.stage.plain.number(busy).await.expect("the sessions are counted");
        quiet = if busy == 0 { quiet + 1 } else { 0 };
    }
}

/// Callers that wait and go away leave the run to the one that is there.
async fn a_claim_whose_caller_has_gone_takes_nothing(kind: Kind) {
    let served = Served::open(kind, Limits::default()).await;
    let mut gone = Vec::new();
    for number in 0..20 {
        let mut stream = served.connect().await;
        let text = post("/v1/claims", &claim(&format!("gone-{number}"), 30), "");
        stream.write_all(text.as_bytes()).await.expect("the claim is sent");
        gone.push(stream);
    }
    served.until_read(20).await;
    drop(gone);
    served.until_closed().await;
    until_idle(&served).await;
    let run = served.queue().await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(served.engine.run(&run).await.expect("it exists").status, RunState::Queued);
    let told = served.post("/v1/claims", &claim("here", 0)).await;
    assert_eq!(told.json()["runs"][0]["run_id"], run.as_str(), "{told:?}");
    served.stop().await;
}

/// A caller that goes away in the very moment of its claim finds the same runs when it asks again.
async fn a_claim_whose_answer_was_lost_gives_the_same_runs_again(kind: Kind) {
    let served = Served::open(kind, Limits::default()).await;
    let mut queued = Vec::new();
    for number in 0..30 {
        queued.push(served.queue().await.to_string());
        let mut stream = served.connect().await;
        let text = post("/v1/claims", &claim(&format!("claim-{number}"), 0), "");
        stream.write_all(text.as_bytes()).await.expect("the claim is sent");
        // Sometimes before the commit, sometimes after it.
        tokio::time::sleep(Duration::from_micros(number * 150)).await;
        drop(stream);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut found = Vec::new();
    for number in 0..30 {
        let told = served.post("/v1/claims", &claim(&format!("claim-{number}"), 0)).await.json();
        let runs = told["runs"].as_array().expect("a list").clone();
        found.extend(runs.iter().filter_map(|run| Some(run["run_id"].as_str()?.to_owned())));
    }
    found.sort();
    queued.sort();
    assert_eq!(found, queued, "each run is with exactly one of the claims");
    served.stop().await;
}

/// Somebody who waits is answered when there is something, long before the wait is over.
async fn a_run_wakes_a_claim_that_waits(kind: Kind) {
    let served = Served::open(kind, Limits::default()).await;
    let mut stream = served.connect().await;
    stream
        .write_all(post("/v1/claims", &claim("waits", 60), "").as_bytes())
        .await
        .expect("the claim is sent");
    served.until_read(1).await;
    let run = served.queue().await;
    let told = tokio::time::timeout(WOKEN_MAX, answer(&mut stream)).await.expect("it is woken");
    assert_eq!(told.json()["runs"][0]["run_id"], run.as_str(), "{told:?}");
    served.stop().await;
}
