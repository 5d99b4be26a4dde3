//! Worker processes: draining, and the reasons of empty claims.

use crate::fixture::{ApiFixture, refused};
use http::{Method, StatusCode};
use serde_json::json;
use std::time::{Duration, Instant};
use tidemill_core::WorkerId;
use tidemill_core::worker::NewWorker;
use tidemill_testkit::interface::{Kind, at, new_worker, request};
use tidemill_wire::claims::{ClaimReason, ClaimRequest, ClaimResponse};

/// Wait of a claim, if its worker is not drained.
const WAIT_SECS: u16 = 60;
/// Time limit for an immediate answer on a busy machine.
const SOON: Duration = Duration::from_secs(30);

async fn registered(api: &ApiFixture, name: &str) -> WorkerId {
    let worker: NewWorker = new_worker(name);
    let id = worker.worker_id;
    api.admin.register(worker).await.expect("the worker is registered");
    id
}

/// Every call for a run that a sweep took away is refused as stale and names the state of the run.
pub(crate) async fn stale_call_reports_the_current_state_of_the_run(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let long_after = at(1_000_000);
    let started = api.base.running(request(), "ann", at(0)).await;
    api.base.sweep(long_after).await;
    let successor = api.base.claim("bob", long_after).await.expect("its successor");
    api.base.succeed(&successor.run_id, long_after).await;
    let only_claimed = api.base.claimed(request(), "ann", at(0)).await;
    api.base.sweep(long_after).await;
    for (claim, state) in [(started, "failed"), (only_claimed, "cancelled")] {
        let run = &claim.run_id;
        assert_eq!(api.base.status(run).await.as_str(), state, "the sweep ended it");
        let hold = json!({"worker": "ann", "epoch": claim.epoch});
        let with = |name: &str, value: serde_json::Value| {
            let mut body = hold.clone();
            body[name] = value;
            body
        };
        let before = api.base.run(run).await;
        for (verb, body) in [
            ("start", hold.clone()),
            ("heartbeat", hold.clone()),
            ("events", with("events", json!([{"level": "info", "message": "still here"}]))),
            ("finish", with("status", json!("success"))),
        ] {
            let path = format!("/v1/runs/{run}/{verb}");
            let (status, response) = api.raw(Method::POST, &path, &body.to_string()).await;
            assert_eq!(
                (status, &response["code"]),
                (StatusCode::CONFLICT, &json!("stale")),
                "{verb}: {response}"
            );
            assert_eq!(response["current"], json!(state), "{verb}: {response}");
            let said = response["message"].as_str().unwrap_or_default();
            assert!(said.contains(run.as_str()) && said.contains(state), "{verb}: {response}");
        }
        assert_eq!(api.base.run(run).await.status, before.status);
    }
}

fn waiting(name: &str, worker: WorkerId) -> ClaimRequest {
    ClaimRequest { worker_id: Some(worker), wait_secs: Some(WAIT_SECS), ..ClaimRequest::one(name) }
}

pub(crate) async fn drained_worker_gets_empty_claims_with_the_reason(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let worker = registered(&api, "worker-001").await;
    let run = api.syncs.engine().queue(request()).await.expect("a run").run_id;
    let drained = api.admin.drain_worker(worker, true).await.expect("it drains");
    assert_eq!((drained.worker_id, drained.draining, drained.ended_at), (worker, true, None));
    let listed = api.admin.workers().await.expect("workers are listed").items;
    assert_eq!(listed, [drained]);
    assert!(
        api.admin.heartbeat_worker(worker, Vec::new()).await.expect("the heartbeat is answered").draining
    );

    let began = Instant::now();
    let ClaimResponse { runs, reason, .. } =
        api.admin.claim(&waiting("worker-001", worker)).await.expect("an answer");
    assert_eq!((runs.len(), reason), (0, Some(ClaimReason::Draining)));
    assert!(began.elapsed() < SOON, "there is nothing to wait for");
    let body = json!({"worker": "worker-001", "worker_id": worker}).to_string();
    let (status, said) = api.raw(Method::POST, "/v1/claims", &body).await;
    assert_eq!((status, &said["runs"], &said["reason"]), (StatusCode::OK, &json!([]), &json!("draining")));

    let undone = api.admin.drain_worker(worker, false).await.expect("it works again");
    assert!(!undone.draining);
    let (_, said) = api.raw(Method::POST, "/v1/claims", &body).await;
    assert_eq!(said["runs"][0]["run_id"], json!(run));
    assert_eq!(said.get("reason"), None, "{said}");
}

pub(crate) async fn waiting_claim_ends_when_its_worker_is_drained(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let worker = registered(&api, "worker-001").await;
    let (client, ask) = (api.admin.clone(), waiting("worker-001", worker));
    let began = Instant::now();
    let waits = tokio::spawn(async move { client.claim(&ask).await });
    api.admin.drain_worker(worker, true).await.expect("it drains");
    let claimed = waits.await.expect("the claim is not dropped").expect("it is answered");
    assert_eq!((claimed.runs.len(), claimed.reason), (0, Some(ClaimReason::Draining)));
    assert!(began.elapsed() < SOON, "it was answered after {:?}", began.elapsed());
}

pub(crate) async fn drain_requires_a_live_worker_and_access_to_all_projects(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let worker = registered(&api, "worker-001").await;
    let shop = api.of_project("shop");
    assert_eq!(refused(shop.admin.drain_worker(worker, true).await), (403, "forbidden".to_owned()));
    let nobody = new_worker("nobody").worker_id;
    assert_eq!(refused(api.admin.drain_worker(nobody, true).await), (404, "unknown_worker".to_owned()));
    let (status, said) = api.raw(Method::POST, &format!("/v1/workers/{worker}/drain"), "{}").await;
    assert_eq!((status, &said["draining"]), (StatusCode::OK, &json!(true)), "drain is meant");
    api.admin.retire(worker).await.expect("it shuts down");
    assert_eq!(refused(api.admin.drain_worker(worker, false).await), (404, "unknown_worker".to_owned()));
}
