//! A server that is killed while a thousand claims are in flight.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidemill_client::{Client, Error};
use tidemill_core::RunId;
use tidemill_core::run::{Applied, FinalStatus, QueueRun};
use tidemill_wire::claims::Ask;
use tidemill_wire::runs::Finish;
use tokio::task::JoinSet;

use crate::stage::{Stage, on_both, until};

use super::server::Server;

const CLIENTS: usize = 1_000;

on_both!(every_run_is_finished_once_though_the_server_died_with_a_thousand_claims);

/// Asks until there is an answer, each time the same.
async fn settled<T, F>(call: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, Error>>,
{
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.is_transient(), "the server said no: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// One worker: it claims one run under one request id, and finishes it.
async fn work(client: Client, number: usize) -> (RunId, Applied) {
    let name = format!("worker-{number}");
    let request_id = Some(format!("request-{number}"));
    let ask = Ask { request_id, wait_secs: Some(60), ..Ask::one(&name) };
    let claim = loop {
        if let Some(claim) = settled(|| client.claim(&ask)).await.runs.pop() {
            break claim;
        }
    };
    let finish = Finish {
        status: FinalStatus::Success,
        metadata: serde_json::json!({"by": number}),
        worker: Some(name),
        epoch: Some(claim.epoch),
    };
    (claim.run_id.clone(), settled(|| client.finish_run(&claim.run_id, &finish)).await)
}

/// A thousand connections are more than a process may have open by default.
fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("the limit is raised");
}

fn every_run_is_finished_once_though_the_server_died_with_a_thousand_claims(stage: &Stage) {
    raise_limit();
    let mut server = Server::start(stage);
    let client = server.client();
    let mut workers = JoinSet::new();
    stage.block(async {
        for number in 0..CLIENTS {
            workers.spawn(work(client.clone(), number));
        }
    });
    until("a thousand claims are at the server", || (server.connections() >= CLIENTS).then_some(()));
    let count = |text: &str| -> usize {
        stage.sql(text).expect("the runs are counted")[0].parse().expect("a count is a number")
    };
    let claimed = "SELECT CAST(count(*) AS text) FROM ops.run_events WHERE message = 'Run claimed by worker'";
    for kill in 1..=3 {
        let queued = CLIENTS / 4;
        for _ in 0..queued {
            stage.request(QueueRun::new("shop", "staging"));
        }
        until("claims are answered", || (count(claimed) > (kill - 1) * queued).then_some(()));
        server.kill();
        server.resume(stage);
    }
    for _ in 0..CLIENTS / 4 {
        stage.request(QueueRun::new("shop", "staging"));
    }
    let done = stage.block(async { tokio::time::timeout(Duration::from_mins(3), workers.join_all()).await });
    let done = done.expect("every worker ends");

    let runs: BTreeSet<&RunId> = done.iter().map(|(run, _)| run).collect();
    assert_eq!(runs.len(), CLIENTS, "no two workers got the same run");
    assert!(done.iter().all(|(_, applied)| *applied != Applied::Stale), "every report counted");
    assert_eq!(
        count("SELECT CAST(count(*) AS text) FROM ops.runs"),
        CLIENTS,
        "nothing was lost and followed"
    );
    assert_eq!(count("SELECT CAST(count(*) AS text) FROM ops.runs WHERE status = 'success'"), CLIENTS);
    assert_eq!(count(claimed), CLIENTS, "each was claimed once");
    let ended = "SELECT CAST(count(*) AS text) FROM ops.run_events WHERE message = 'Run succeeded'";
    assert_eq!(count(ended), CLIENTS, "each was finished once");
    let again = done.iter().filter(|(_, applied)| *applied == Applied::Duplicate).count();
    println!("{CLIENTS} claims, 3 deaths of the server, {again} reports asked again");
}
