//! Waiting claims, and clients that disconnect meanwhile.

use std::time::Duration;

use tidemill_api::server::Limits;
use tidemill_core::run::RunState;
use tidemill_testkit::interface::Kind;
use tokio::io::AsyncWriteExt as _;

use crate::fixture::{ServerFixture, TIMEOUT, answer, claim, post};
use crate::on_both;

/// Time limit for a woken claim on a busy machine. Unwoken it would wait for a minute.
const WOKEN_MAX: Duration = Duration::from_secs(45);

on_both! {
    claim_of_a_disconnected_caller_takes_nothing,
    repeated_claim_after_lost_answer_returns_the_same_runs,
    queued_run_wakes_a_waiting_claim,
}

/// Waits until the transactions of disconnected clients are over, because the store completes them.
async fn until_idle(fixture: &ServerFixture) {
    if fixture.base.kind == Kind::Sqlite {
        // SQLite runs transactions one after the other.
        return;
    }
    let busy = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tidemill' \
                AND datname = current_database() AND state <> 'idle'";
    let began = tokio::time::Instant::now();
    let mut quiet = 0;
    while quiet < 3 {
        assert!(began.elapsed() < TIMEOUT, "the store is never idle");
        // Queued behind all calls that still wait for a connection.
        fixture.engine.store().projects().await.expect("the store answers");
        let busy = fixture.base.plain.number(busy).await.expect("the sessions are counted");
        quiet = if busy == 0 { quiet + 1 } else { 0 };
    }
}

/// The run goes to the client that is still connected.
async fn claim_of_a_disconnected_caller_takes_nothing(kind: Kind) {
    let fixture = ServerFixture::open(kind, Limits::default()).await;
    let mut gone = Vec::new();
    for number in 0..20 {
        let mut stream = fixture.connect().await;
        let text = post("/v1/claims", &claim(&format!("gone-{number}"), 30), "");
        stream.write_all(text.as_bytes()).await.expect("the claim is sent");
        gone.push(stream);
    }
    fixture.until_read(20).await;
    drop(gone);
    fixture.until_closed().await;
    until_idle(&fixture).await;
    let run = fixture.queue().await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(fixture.engine.run(&run).await.expect("it exists").status, RunState::Queued);
    let response = fixture.post("/v1/claims", &claim("here", 0)).await;
    assert_eq!(response.json()["runs"][0]["run_id"], run.as_str(), "{response:?}");
    fixture.stop().await;
}

/// A client that disconnects during its claim gets the same runs when it repeats the request.
async fn repeated_claim_after_lost_answer_returns_the_same_runs(kind: Kind) {
    let fixture = ServerFixture::open(kind, Limits::default()).await;
    let mut queued = Vec::new();
    for number in 0..30 {
        queued.push(fixture.queue().await.to_string());
        let mut stream = fixture.connect().await;
        let text = post("/v1/claims", &claim(&format!("claim-{number}"), 0), "");
        stream.write_all(text.as_bytes()).await.expect("the claim is sent");
        // Sometimes before the commit, sometimes after it.
        tokio::time::sleep(Duration::from_micros(number * 150)).await;
        drop(stream);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut found = Vec::new();
    for number in 0..30 {
        let response = fixture.post("/v1/claims", &claim(&format!("claim-{number}"), 0)).await.json();
        let runs = response["runs"].as_array().expect("a list").clone();
        found.extend(runs.iter().filter_map(|run| Some(run["run_id"].as_str()?.to_owned())));
    }
    found.sort();
    queued.sort();
    assert_eq!(found, queued, "each run is with exactly one of the claims");
    fixture.stop().await;
}

/// The answer arrives long before the wait is over.
async fn queued_run_wakes_a_waiting_claim(kind: Kind) {
    let fixture = ServerFixture::open(kind, Limits::default()).await;
    let mut stream = fixture.connect().await;
    stream
        .write_all(post("/v1/claims", &claim("waits", 60), "").as_bytes())
        .await
        .expect("the claim is sent");
    fixture.until_read(1).await;
    let run = fixture.queue().await;
    let response = tokio::time::timeout(WOKEN_MAX, answer(&mut stream)).await.expect("it is woken");
    assert_eq!(response.json()["runs"][0]["run_id"], run.as_str(), "{response:?}");
    fixture.stop().await;
}
