//! Worker processes: they are drained, and their claims say why there is nothing.

use crate::doorway::{Doorway, refused};
use http::{Method, StatusCode};
use serde_json::json;
use std::time::{Duration, Instant};
use tidemill_core::WorkerId;
use tidemill_core::worker::NewWorker;
use tidemill_testkit::door::{Kind, at, new_worker, request};
use tidemill_wire::claims::{Ask, ClaimReason, Claimed};

/// How long a claim would wait, if nobody drained its worker.
const WAIT_SECS: u16 = 60;
/// What counts as an answer at once, on a machine that is busy.
const SOON: Duration = Duration::from_secs(30);

async fn registered(door: &Doorway, name: &str) -> WorkerId {
    let worker: NewWorker = new_worker(name);
    let id = worker.worker_id;
    door.admin.register(worker).await.expect("the worker is registered");
    id
}

/// Whatever a worker asks for a run that a sweep took from it, it hears that it is too late, and where the run is.
pub(crate) async fn a_call_for_a_run_that_was_taken_away_is_told_where_the_run_is(kind: Kind) {
    let door = Doorway::open(kind).await;
    let long_after = at(1_000_000);
    let started = door.stage.running(request(), "ann", at(0)).await;
    door.stage.sweep(long_after).await;
    let successor = door.stage.claim("bob", long_after).await.expect("its successor");
    door.stage.succeed(&successor.run_id, long_after).await;
    let only_claimed = door.stage.claimed(request(), "ann", at(0)).await;
    door.stage.sweep(long_after).await;
    for (claim, state) in [(started, "failed"), (only_claimed, "cancelled")] {
        let run = &claim.run_id;
        assert_eq!(door.stage.status(run).await.as_str(), state, "the sweep ended it");
        let hold = json!({"worker": "ann", "epoch": claim.epoch});
        let with = |name: &str, value: serde_json::Value| {
            let mut body = hold.clone();
            body[name] = value;
            body
        };
        let before = door.stage.run(run).await;
        for (verb, body) in [
            ("start", hold.clone()),
            ("heartbeat", hold.clone()),
            ("events", with("events", json!([{"level": "info", "message": "still here"}]))),
            ("finish", with("status", json!("success"))),
        ] {
            let path = format!("/v1/runs/{run}/{verb}");
            let (status, told) = door.raw(Method::POST, &path, &body.to_string()).await;
            assert_eq!((status, &told["code"]), (StatusCode::CONFLICT, &json!("stale")), "{verb}: {told}");
            assert_eq!(told["current"], json!(state), "{verb}: {told}");
            let said = told["message"].as_str().unwrap_or_default();
            assert!(said.contains(run.as_str()) && said.contains(state), "{verb}: {told}");
        }
        assert_eq!(door.stage.run(run).await.status, before.status);
    }
}

fn waiting(name: &str, worker: WorkerId) -> Ask {
    Ask { worker_id: Some(worker), wait_secs: Some(WAIT_SECS), ..Ask::one(name) }
}

pub(crate) async fn a_worker_is_drained_and_its_claims_say_why_they_are_empty(kind: Kind) {
    let door = Doorway::open(kind).await;
    let worker = registered(&door, "worker-001").await;
    let run = door.syncs.engine().queue(request()).await.expect("a run").run_id;
    let drained = door.admin.drain_worker(worker, true).await.expect("it drains");
    assert_eq!((drained.worker_id, drained.draining, drained.ended_at), (worker, true, None));
    let listed = door.admin.workers().await.expect("workers are listed").items;
    assert_eq!(listed, [drained]);
    assert!(door.admin.beat(worker, Vec::new()).await.expect("the beat is answered").draining);

    let began = Instant::now();
    let Claimed { runs, reason, .. } =
        door.admin.claim(&waiting("worker-001", worker)).await.expect("an answer");
    assert_eq!((runs.len(), reason), (0, Some(ClaimReason::Draining)));
    assert!(began.elapsed() < SOON, "there is nothing to wait for");
    let body = json!({"worker": "worker-001", "worker_id": worker}).to_string();
    let (status, said) = door.raw(Method::POST, "/v1/claims", &body).await;
    assert_eq!((status, &said["runs"], &said["reason"]), (StatusCode::OK, &json!([]), &json!("draining")));

    let undone = door.admin.drain_worker(worker, false).await.expect("it works again");
    assert!(!undone.draining);
    let (_, said) = door.raw(Method::POST, "/v1/claims", &body).await;
    assert_eq!(said["runs"][0]["run_id"], json!(run));
    assert_eq!(said.get("reason"), None, "{said}");
}

pub(crate) async fn a_claim_that_waits_ends_when_its_worker_is_drained(kind: Kind) {
    let door = Doorway::open(kind).await;
    let worker = registered(&door, "worker-001").await;
    let (client, ask) = (door.admin.clone(), waiting("worker-001", worker));
    let began = Instant::now();
    let waits = tokio::spawn(async move { client.claim(&ask).await });
    door.admin.drain_worker(worker, true).await.expect("it drains");
    let claimed = waits.await.expect("the claim is not dropped").expect("it is answered");
    assert_eq!((claimed.runs.len(), claimed.reason), (0, Some(ClaimReason::Draining)));
    assert!(began.elapsed() < SOON, "it was answered after {:?}", began.elapsed());
}

pub(crate) async fn only_those_who_see_every_project_drain_a_worker_that_lives(kind: Kind) {
    let door = Doorway::open(kind).await;
    let worker = registered(&door, "worker-001").await;
    let shop = door.of_project("shop");
    assert_eq!(refused(shop.admin.drain_worker(worker, true).await), (403, "forbidden".to_owned()));
    let nobody = new_worker("nobody").worker_id;
    assert_eq!(refused(door.admin.drain_worker(nobody, true).await), (404, "unknown_worker".to_owned()));
    let (status, said) = door.raw(Method::POST, &format!("/v1/workers/{worker}/drain"), "{}").await;
    assert_eq!((status, &said["draining"]), (StatusCode::OK, &json!(true)), "to drain is what is meant");
    door.admin.retire(worker).await.expect("it says goodbye");
    assert_eq!(refused(door.admin.drain_worker(worker, false).await), (404, "unknown_worker".to_owned()));
}
