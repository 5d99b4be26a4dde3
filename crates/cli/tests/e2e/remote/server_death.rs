//! A server that is killed while it handles a thousand claims.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidemill_client::{Client, Error};
use tidemill_core::RunId;
use tidemill_core::run::{ChangeOutcome, FinalStatus, QueueRun};
use tidemill_wire::claims::ClaimRequest;
use tidemill_wire::runs::Finish;
use tokio::task::JoinSet;

use crate::fixture::{Fixture, on_both, wait_until};

use super::server::Server;

const CLIENTS: usize = 1_000;

on_both!(server_deaths_during_1000_claims_finish_every_run_once);

/// Repeats the same request until there is a response.
async fn retry<T, F>(call: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, Error>>,
{
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.is_transient(), "the server refused the request: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A worker that claims one run with one request id, and finishes it.
async fn work(client: Client, number: usize) -> (RunId, ChangeOutcome) {
    let name = format!("worker-{number}");
    let request_id = Some(format!("request-{number}"));
    let ask = ClaimRequest { request_id, wait_secs: Some(60), ..ClaimRequest::one(&name) };
    let claim = loop {
        if let Some(claim) = retry(|| client.claim(&ask)).await.runs.pop() {
            break claim;
        }
    };
    let finish = Finish {
        status: FinalStatus::Success,
        metadata: serde_json::json!({"by": number}),
        worker: name,
        epoch: claim.epoch,
    };
    (claim.run_id.clone(), retry(|| client.finish_run(&claim.run_id, &finish)).await)
}

/// Raises the limit of open files, because a thousand connections exceed the default.
fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("the limit is raised");
}

fn server_deaths_during_1000_claims_finish_every_run_once(fixture: &Fixture) {
    raise_limit();
    let mut server = Server::start(fixture);
    let client = server.client();
    let mut workers = JoinSet::new();
    fixture.block(async {
        for number in 0..CLIENTS {
            workers.spawn(work(client.clone(), number));
        }
    });
    wait_until("the server has a thousand claims", || (server.connections() >= CLIENTS).then_some(()));
    let count = |text: &str| -> usize {
        fixture.sql(text).expect("the runs are counted")[0].parse().expect("a count is a number")
    };
    let claimed = "SELECT CAST(count(*) AS text) FROM ops.run_events WHERE message = 'Run claimed by worker'";
    for kill in 1..=3 {
        let queued = CLIENTS / 4;
        for _ in 0..queued {
            fixture.request(QueueRun::new("shop", "staging"));
        }
        wait_until("claims are answered", || (count(claimed) > (kill - 1) * queued).then_some(()));
        server.kill();
        server.restart(fixture);
    }
    for _ in 0..CLIENTS / 4 {
        fixture.request(QueueRun::new("shop", "staging"));
    }
    let done =
        fixture.block(async { tokio::time::timeout(Duration::from_mins(3), workers.join_all()).await });
    let done = done.expect("every worker ends");

    let runs: BTreeSet<&RunId> = done.iter().map(|(run, _)| run).collect();
    assert_eq!(runs.len(), CLIENTS, "no two workers claimed the same run");
    assert!(done.iter().all(|(_, applied)| *applied != ChangeOutcome::Stale), "every report was accepted");
    assert_eq!(count("SELECT CAST(count(*) AS text) FROM ops.runs"), CLIENTS, "no run has a successor");
    assert_eq!(count("SELECT CAST(count(*) AS text) FROM ops.runs WHERE status = 'success'"), CLIENTS);
    assert_eq!(count(claimed), CLIENTS, "each was claimed once");
    let ended = "SELECT CAST(count(*) AS text) FROM ops.run_events WHERE message = 'Run succeeded'";
    assert_eq!(count(ended), CLIENTS, "each was finished once");
    let repeated = done.iter().filter(|(_, applied)| *applied == ChangeOutcome::Duplicate).count();
    println!("{CLIENTS} claims, 3 deaths of the server, {repeated} repeated reports");
}
