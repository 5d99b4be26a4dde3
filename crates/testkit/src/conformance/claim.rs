//! Claim: each run once, in order, and only runs that the worker can execute.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tidemill_core::RunId;
use tidemill_core::run::{QueueRun, RunState};
use tidemill_store::{ClaimRuns, RefusalCode};

use super::at_once;
use crate::interface::{Fixture, at, refused, request};

/// Lets workers claim concurrently with these limits until every run is claimed; returns the runs of each worker.
async fn race(fixture: &Fixture, runs: usize, limits: &'static [usize]) -> Vec<Vec<RunId>> {
    let taken = Arc::new(AtomicUsize::new(0));
    at_once(limits.len(), |number| {
        let (fixture, taken) = (fixture.clone(), taken.clone());
        async move {
            let mut mine = Vec::new();
            // A claim may be empty while other workers hold locks on the remaining runs. The loop is bounded, so that a
            // lost run does not hang the test.
            for _ in 0..1_000 {
                if taken.load(Ordering::SeqCst) >= runs {
                    break;
                }
                let ask = ClaimRuns { limit: limits[number], ..ClaimRuns::one(format!("worker-{number}")) };
                let claims = fixture.claim_as(ask, at(100)).await;
                taken.fetch_add(claims.len(), Ordering::SeqCst);
                mine.extend(claims.into_iter().map(|claim| claim.run_id));
            }
            mine
        }
    })
    .await
}

async fn check_each_once(fixture: &Fixture, queued: &BTreeSet<RunId>, claimed: &[Vec<RunId>]) {
    let all: Vec<&RunId> = claimed.iter().flatten().collect();
    let unique: BTreeSet<RunId> = all.iter().map(|&run| run.clone()).collect();
    assert_eq!((all.len(), &unique), (queued.len(), queued), "every run once");
    for (number, runs) in claimed.iter().enumerate() {
        for id in runs {
            let run = fixture.run(id).await;
            assert_eq!((run.status, run.epoch), (RunState::Claimed, 1));
            assert_eq!(run.claimed_by, Some(format!("worker-{number}")));
            let claims =
                fixture.messages(id).await.iter().filter(|text| *text == "Run claimed by worker").count();
            assert_eq!(claims, 1, "the record has one claim");
        }
    }
}

/// Returns a request for one of several label sets: two projects, with and without a label.
fn scattered(number: usize) -> QueueRun {
    let project = if number.is_multiple_of(3) { "bank" } else { "shop" };
    let mut request = QueueRun::new(project, "staging");
    request.priority = i32::try_from(number % 4).unwrap_or_default();
    request
}

async fn queue_scattered(fixture: &Fixture, count: usize) -> BTreeSet<RunId> {
    let mut queued = BTreeSet::new();
    for number in 0..count {
        let second = i64::try_from(number).unwrap_or_default();
        queued.insert(fixture.queue(scattered(number), at(second)).await);
    }
    queued
}

pub async fn racing_workers_claim_each_run_once(fixture: Fixture) {
    let queued = queue_scattered(&fixture, 60).await;
    let claimed = race(&fixture, queued.len(), &[1; 8]).await;
    check_each_once(&fixture, &queued, &claimed).await;
}

/// Workers that claim many runs at a time race with workers that claim one.
pub async fn racing_batches_and_single_claims_claim_each_run_once(fixture: Fixture) {
    let queued = queue_scattered(&fixture, 120).await;
    let claimed = race(&fixture, queued.len(), &[1, 7, 1, 30, 1, 7, 1, 30]).await;
    check_each_once(&fixture, &queued, &claimed).await;
}

/// The order is priority first, then age, over all projects and label sets.
pub async fn claims_are_ordered_by_priority_then_age(fixture: Fixture) {
    let mut expected = Vec::new();
    for (second, project, labels, priority) in [
        (0, "shop", vec![], 0),
        (1, "bank", vec![], 5),
        (2, "shop", vec!["arm"], 5),
        (3, "shop", vec![], 5),
        (4, "bank", vec!["gpu", "arm"], -1),
        (5, "shop", vec!["arm"], 9),
        (6, "bank", vec![], 0),
        (7, "shop", vec![], 0),
    ] {
        let labels = labels.into_iter().map(str::to_owned).collect();
        let request = QueueRun { priority, labels, ..QueueRun::new(project, "staging") };
        expected.push((-priority, second, fixture.queue(request, at(second)).await));
    }
    expected.sort();
    let offers = || vec!["arm".to_owned(), "gpu".to_owned(), "linux".to_owned()];
    for (_, second, run) in expected {
        let ask = ClaimRuns { labels: offers(), ..ClaimRuns::one("worker-001") };
        let claimed: Vec<_> =
            fixture.claim_as(ask, at(10)).await.into_iter().map(|claim| claim.run_id).collect();
        assert_eq!(claimed, [run], "queued at second {second}");
    }
    assert_eq!(fixture.claim("worker-001", at(10)).await, None);
}

/// A batch equals the same number of single claims.
pub async fn batch_claim_merges_all_label_sets_in_order(fixture: Fixture) {
    let mut order = Vec::new();
    for number in 0..30_usize {
        let second = i64::try_from(number).unwrap_or_default();
        let request = scattered(number);
        order.push((-request.priority, second, fixture.queue(request, at(second)).await));
    }
    order.sort();
    let mut rest = order.into_iter().map(|(_, _, run)| run);
    for limit in [1, 4, 10, 15] {
        let ask = ClaimRuns { limit, ..ClaimRuns::one("worker-001") };
        let claimed: BTreeSet<_> =
            fixture.claim_as(ask, at(60)).await.into_iter().map(|claim| claim.run_id).collect();
        assert_eq!(claimed, rest.by_ref().take(limit).collect(), "a batch of {limit}");
    }
    assert_eq!(fixture.claim("worker-001", at(60)).await, None);
}

/// A run requires all of its labels; the worker may offer more.
pub async fn f13_worker_claims_only_runs_that_match_its_labels(fixture: Fixture) {
    let needs = |labels: &[&str]| QueueRun {
        labels: labels.iter().map(|&label| label.to_owned()).collect(),
        ..request()
    };
    let both = fixture.queue(needs(&["gpu", "arm"]), at(0)).await;
    let arm = fixture.queue(needs(&["arm"]), at(1)).await;
    let any = fixture.queue(needs(&[]), at(2)).await;
    let offer = |labels: &[&str]| ClaimRuns {
        labels: labels.iter().map(|&label| label.to_owned()).collect(),
        ..ClaimRuns::one("worker-001")
    };
    let first = async |ask: ClaimRuns| fixture.claim_as(ask, at(5)).await.pop().map(|claim| claim.run_id);
    assert_eq!(first(offer(&["gpu"])).await, Some(any), "half of what it needs is not enough");
    assert_eq!(first(offer(&["gpu"])).await, None);
    assert_eq!(first(offer(&["arm"])).await, Some(arm));
    assert_eq!(first(offer(&["arm"])).await, None);
    assert_eq!(first(offer(&["linux", "arm", "gpu"])).await, Some(both.clone()));
    assert_eq!(fixture.run(&both).await.labels, ["arm", "gpu"], "sorted, as they are compared");
}

pub async fn worker_claims_only_runs_of_its_projects(fixture: Fixture) {
    let shop = fixture.queue(request(), at(0)).await;
    let bank = fixture.queue(QueueRun::new("bank", "staging"), at(1)).await;
    let of = |projects: &[&str]| ClaimRuns {
        projects: Some(projects.iter().map(|&project| project.to_owned()).collect()),
        limit: 10,
        ..ClaimRuns::one("worker-001")
    };
    assert!(fixture.claim_as(of(&[]), at(2)).await.is_empty());
    assert!(fixture.claim_as(of(&["nobody"]), at(2)).await.is_empty());
    let claimed = fixture.claim_as(of(&["bank"]), at(2)).await;
    assert_eq!(claimed.iter().map(|claim| &claim.run_id).collect::<Vec<_>>(), [&bank]);
    let claimed = fixture.claim_as(of(&["shop", "bank"]), at(2)).await;
    assert_eq!(claimed.iter().map(|claim| &claim.run_id).collect::<Vec<_>>(), [&shop]);
}

/// After a lost answer, the same request id returns the same runs and claims no others.
pub async fn repeated_claim_returns_the_same_runs(fixture: Fixture) {
    for second in 0..6 {
        fixture.queue(request(), at(second)).await;
    }
    let ask = |request_id: &str, limit| ClaimRuns {
        limit,
        request_id: Some(request_id.to_owned()),
        ..ClaimRuns::one("worker-001")
    };
    let ids = async |ask: ClaimRuns, second| -> BTreeSet<RunId> {
        fixture.claim_as(ask, at(second)).await.into_iter().map(|claim| claim.run_id).collect()
    };
    let one = ids(ask("a", 1), 10).await;
    let batch = ids(ask("b", 3), 11).await;
    assert_eq!((one.len(), batch.len()), (1, 3));
    assert!(one.is_disjoint(&batch));
    let before = fixture.tables().await;
    assert_eq!(ids(ask("b", 3), 12).await, batch);
    assert_eq!(ids(ask("a", 1), 13).await, one);
    fixture.unchanged(&before).await;
    for run in &one {
        fixture.succeed(run, at(14)).await;
    }
    let next = ids(ask("a", 1), 15).await;
    assert!(next.is_disjoint(&one) && next.is_disjoint(&batch), "an ended run is not claimed again");
}

/// Several equal requests at one instant, as after a late answer, make one claim that all of them receive.
pub async fn simultaneous_equal_claim_requests_claim_once(fixture: Fixture) {
    const REQUESTS: usize = 24;
    const CALLS: usize = 3;
    queue_scattered(&fixture, REQUESTS * 4).await;
    let answers = at_once(REQUESTS * CALLS, |number| {
        let fixture = fixture.clone();
        async move {
            let request = number / CALLS;
            let ask = ClaimRuns {
                limit: 2,
                request_id: Some(format!("request-{request}")),
                ..ClaimRuns::one("worker-001")
            };
            let claims = fixture.claim_as(ask, at(100)).await;
            (request, claims.into_iter().map(|claim| claim.run_id).collect::<BTreeSet<RunId>>())
        }
    })
    .await;
    let mut claimed = 0;
    for request in 0..REQUESTS {
        let returned: BTreeSet<_> =
            answers.iter().filter(|(of, _)| *of == request).map(|(_, runs)| runs).collect();
        // A claim is empty while others hold locks on the first runs. Such a request has not been executed yet.
        let returned: Vec<_> = returned.into_iter().filter(|runs| !runs.is_empty()).collect();
        assert!(returned.len() <= 1, "request {request} claimed twice: {returned:?}");
        claimed += returned.first().map_or(0, |runs| runs.len());
    }
    assert!(claimed > REQUESTS, "most of them changed something");
    let held = fixture.plain.number("SELECT count(*) FROM {ops}.runs WHERE status = 'claimed'").await;
    assert_eq!(held.ok(), i64::try_from(claimed).ok(), "every claimed run was returned to a caller");
}

pub async fn claim_request_id_is_scoped_to_its_worker(fixture: Fixture) {
    fixture.queue(request(), at(0)).await;
    fixture.queue(request(), at(1)).await;
    let ask = |worker: &str| ClaimRuns { request_id: Some("1".to_owned()), ..ClaimRuns::one(worker) };
    let one = fixture.claim_as(ask("worker-001"), at(2)).await;
    let other = fixture.claim_as(ask("worker-002"), at(2)).await;
    assert_eq!((one.len(), other.len()), (1, 1));
    assert_ne!(one[0].run_id, other[0].run_id);
}

/// A repeated request may overlap the first. The next one finds the runs of both.
pub async fn simultaneous_repeated_claims_lose_no_run(fixture: Fixture) {
    for second in 0..40 {
        fixture.queue(request(), at(second)).await;
    }
    let ask = || ClaimRuns { limit: 2, request_id: Some("1".to_owned()), ..ClaimRuns::one("worker-001") };
    let answers = at_once(8, |_| {
        let (fixture, ask) = (fixture.clone(), ask());
        async move {
            let claims = fixture.claim_as(ask, at(50)).await;
            claims.into_iter().map(|claim| claim.run_id).collect::<BTreeSet<_>>()
        }
    })
    .await;
    let held: BTreeSet<_> =
        fixture.claim_as(ask(), at(51)).await.into_iter().map(|claim| claim.run_id).collect();
    assert!(answers.iter().all(|answer| answer.is_subset(&held)), "{answers:?} and later {held:?}");
    let claimed = fixture.plain.number("SELECT count(*) FROM {ops}.runs WHERE status = 'claimed'").await;
    assert_eq!(claimed.ok(), i64::try_from(held.len()).ok(), "the worker learns of every run that it holds");
}

pub async fn claim_returns_the_request_of_the_run(fixture: Fixture) {
    let mut wanted = request();
    wanted.git_sha = Some("abc123def456".to_owned());
    wanted.git_ref = Some("main".to_owned());
    wanted.metadata = json!({"trigger": "webhook", "nested": {"list": [1, 2.5, null, "x"]}});
    wanted.timeout_secs = Some(90);
    let run = fixture.queue(wanted, at(0)).await;
    let ask = ClaimRuns { lease_secs: Some(60), ..ClaimRuns::one("worker-001") };
    let claims = fixture.claim_as(ask, at(15)).await;
    assert_eq!(claims.len(), 1);
    let claim = &claims[0];
    assert_eq!(
        (&claim.run_id, claim.project_id.as_str(), claim.env_id.as_str()),
        (&run, "shop", "shop/staging")
    );
    assert_eq!((claim.git_sha.as_deref(), claim.git_ref.as_deref()), (Some("abc123def456"), Some("main")));
    assert_eq!(claim.metadata, json!({"trigger": "webhook", "nested": {"list": [1, 2.5, null, "x"]}}));
    assert_eq!((claim.epoch, claim.attempt, claim.timeout_secs), (1, 1, Some(90)));
    assert_eq!(claim.lease_until, at(75));
    let stored = fixture.run(&run).await;
    assert_eq!((stored.status, stored.gate), (RunState::Claimed, None));
    assert_eq!((stored.claimed_by.as_deref(), stored.started_at), (Some("worker-001"), Some(at(15))));
    assert_eq!(
        (stored.lease_until, stored.deadline_at),
        (Some(at(75)), None),
        "the time to run begins with the start"
    );
}

/// An empty claim writes nothing, and an empty worker name is refused.
pub async fn empty_claim_writes_nothing(fixture: Fixture) {
    let before = fixture.tables().await;
    assert_eq!(fixture.claim("worker-001", at(0)).await, None);
    refused(fixture.interface.claim(ClaimRuns::one(""), at(0)).await, RefusalCode::BadValue);
    fixture.unchanged(&before).await;
}

/// A large limit is capped, and a limit of 0 claims one.
pub async fn claim_batch_is_limited(fixture: Fixture) {
    for second in 0..3 {
        fixture.queue(request(), at(second)).await;
    }
    let ask = |limit| ClaimRuns { limit, ..ClaimRuns::one("worker-001") };
    assert_eq!(fixture.claim_as(ask(0), at(5)).await.len(), 1);
    assert_eq!(fixture.claim_as(ask(usize::MAX), at(5)).await.len(), 2);
}

/// Runs blocked by a start time, a key, a label or a pause do not hide claimable runs.
pub async fn blocked_runs_do_not_block_other_claims(fixture: Fixture) {
    let blocked = QueueRun { priority: 9, ..request() };
    let keyed = QueueRun { concurrency_key: Some("deploy".to_owned()), ..blocked.clone() };
    let holder = fixture.claimed(keyed.clone(), "worker-001", at(0)).await;
    for second in 1..15 {
        fixture.queue(keyed.clone(), at(second)).await;
        fixture.queue(QueueRun { available_at: Some(at(9_000)), ..blocked.clone() }, at(second)).await;
        fixture.queue(QueueRun { labels: vec!["gpu".to_owned()], ..blocked.clone() }, at(second)).await;
    }
    let free = fixture.queue(request(), at(20)).await;
    let ask = ClaimRuns { limit: 100, ..ClaimRuns::one("worker-002") };
    let claimed: Vec<_> = fixture.claim_as(ask, at(21)).await.into_iter().map(|claim| claim.run_id).collect();
    assert_eq!(claimed, [free]);
    assert_eq!(fixture.status(&holder.run_id).await, RunState::Claimed);
}
