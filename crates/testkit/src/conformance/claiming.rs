//! Claims: each run once, the right one first, and only what the worker can do.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tidemill_core::RunId;
use tidemill_core::run::{QueueRun, RunState};
use tidemill_store::{ClaimRuns, RefusalCode};

use super::at_once;
use crate::door::{Stage, at, refused, request};

/// Lets workers claim with these limits, all at once, until everything is claimed; what each of them got.
async fn race(stage: &Stage, runs: usize, limits: &'static [usize]) -> Vec<Vec<RunId>> {
    let taken = Arc::new(AtomicUsize::new(0));
    at_once(limits.len(), |number| {
        let (stage, taken) = (stage.clone(), taken.clone());
        async move {
            let mut mine = Vec::new();
            // A claim may come back empty while others hold what is left; bounded, so that a loss is no hang.
            for _ in 0..1_000 {
                if taken.load(Ordering::SeqCst) >= runs {
                    break;
                }
                let ask = ClaimRuns { limit: limits[number], ..ClaimRuns::one(format!("worker-{number}")) };
                let claims = stage.claim_as(ask, at(100)).await;
                taken.fetch_add(claims.len(), Ordering::SeqCst);
                mine.extend(claims.into_iter().map(|claim| claim.run_id));
            }
            mine
        }
    })
    .await
}

async fn check_each_once(stage: &Stage, queued: &BTreeSet<RunId>, claimed: &[Vec<RunId>]) {
    let all: Vec<&RunId> = claimed.iter().flatten().collect();
    let unique: BTreeSet<RunId> = all.iter().map(|&run| run.clone()).collect();
    assert_eq!((all.len(), &unique), (queued.len(), queued), "every run once");
    for (number, runs) in claimed.iter().enumerate() {
        for id in runs {
            let run = stage.run(id).await;
            assert_eq!((run.status, run.epoch), (RunState::Claimed, 1));
            assert_eq!(run.claimed_by, Some(format!("worker-{number}")));
            let claims =
                stage.messages(id).await.iter().filter(|text| *text == "Run claimed by worker").count();
            assert_eq!(claims, 1, "the record has one claim");
        }
    }
}

/// A request of one of several shelves: two projects, with and without a label.
fn scattered(number: usize) -> QueueRun {
    let project = if number.is_multiple_of(3) { "bank" } else { "shop" };
    let mut request = QueueRun::new(project, "staging");
    request.priority = i32::try_from(number % 4).unwrap_or_default();
    request
}

async fn queue_scattered(stage: &Stage, count: usize) -> BTreeSet<RunId> {
    let mut queued = BTreeSet::new();
    for number in 0..count {
        let second = i64::try_from(number).unwrap_or_default();
        queued.insert(stage.queue(scattered(number), at(second)).await);
    }
    queued
}

/// Eight workers and sixty runs: every run goes to exactly one of them.
pub async fn each_run_is_claimed_once_by_workers_that_race(stage: Stage) {
    let queued = queue_scattered(&stage, 60).await;
    let claimed = race(&stage, queued.len(), &[1; 8]).await;
    check_each_once(&stage, &queued, &claimed).await;
}

/// Workers that take many at a time beside workers that take one.
pub async fn each_run_is_claimed_once_by_batches_beside_singles(stage: Stage) {
    let queued = queue_scattered(&stage, 120).await;
    let claimed = race(&stage, queued.len(), &[1, 7, 1, 30, 1, 7, 1, 30]).await;
    check_each_once(&stage, &queued, &claimed).await;
}

/// One at a time, over projects and labels: priority decides first, age second, the shelf never.
pub async fn the_highest_priority_comes_first_and_then_the_oldest(stage: Stage) {
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
        expected.push((-priority, second, stage.queue(request, at(second)).await));
    }
    expected.sort();
    let offers = || vec!["arm".to_owned(), "gpu".to_owned(), "linux".to_owned()];
    for (_, second, run) in expected {
        let ask = ClaimRuns { labels: offers(), ..ClaimRuns::one("worker-001") };
        let claimed: Vec<_> =
            stage.claim_as(ask, at(10)).await.into_iter().map(|claim| claim.run_id).collect();
        assert_eq!(claimed, [run], "queued at second {second}");
    }
    assert_eq!(stage.claim("worker-001", at(10)).await, None);
}

/// A batch is what as many single claims would have been.
pub async fn a_batch_takes_what_comes_first_of_all_shelves(stage: Stage) {
    let mut order = Vec::new();
    for number in 0..30_usize {
        let second = i64::try_from(number).unwrap_or_default();
        let request = scattered(number);
        order.push((-request.priority, second, stage.queue(request, at(second)).await));
    }
    order.sort();
    let mut rest = order.into_iter().map(|(_, _, run)| run);
    for limit in [1, 4, 10, 15] {
        let ask = ClaimRuns { limit, ..ClaimRuns::one("worker-001") };
        let claimed: BTreeSet<_> =
            stage.claim_as(ask, at(60)).await.into_iter().map(|claim| claim.run_id).collect();
        assert_eq!(claimed, rest.by_ref().take(limit).collect(), "a batch of {limit}");
    }
    assert_eq!(stage.claim("worker-001", at(60)).await, None);
}

/// A run is for workers that offer all it needs; others leave it alone. A worker may offer more.
pub async fn f13_a_worker_gets_only_what_its_labels_offer(stage: Stage) {
    let needs = |labels: &[&str]| QueueRun {
        labels: labels.iter().map(|&label| label.to_owned()).collect(),
        ..request()
    };
    let both = stage.queue(needs(&["gpu", "arm"]), at(0)).await;
    let arm = stage.queue(needs(&["arm"]), at(1)).await;
    let any = stage.queue(needs(&[]), at(2)).await;
    let offer = |labels: &[&str]| ClaimRuns {
        labels: labels.iter().map(|&label| label.to_owned()).collect(),
        ..ClaimRuns::one("worker-001")
    };
    let first = async |ask: ClaimRuns| stage.claim_as(ask, at(5)).await.pop().map(|claim| claim.run_id);
    assert_eq!(first(offer(&["gpu"])).await, Some(any), "half of what it needs is not enough");
    assert_eq!(first(offer(&["gpu"])).await, None);
    assert_eq!(first(offer(&["arm"])).await, Some(arm));
    assert_eq!(first(offer(&["arm"])).await, None);
    assert_eq!(first(offer(&["linux", "arm", "gpu"])).await, Some(both.clone()));
    assert_eq!(stage.run(&both).await.labels, ["arm", "gpu"], "sorted, as they are compared");
}

/// A worker that names its projects gets runs of no other.
pub async fn a_worker_claims_only_for_the_projects_that_it_names(stage: Stage) {
    let shop = stage.queue(request(), at(0)).await;
    let bank = stage.queue(QueueRun::new("bank", "staging"), at(1)).await;
    let of = |projects: &[&str]| ClaimRuns {
        projects: Some(projects.iter().map(|&project| project.to_owned()).collect()),
        limit: 10,
        ..ClaimRuns::one("worker-001")
    };
    assert!(stage.claim_as(of(&[]), at(2)).await.is_empty());
    assert!(stage.claim_as(of(&["nobody"]), at(2)).await.is_empty());
    let claimed = stage.claim_as(of(&["bank"]), at(2)).await;
    assert_eq!(claimed.iter().map(|claim| &claim.run_id).collect::<Vec<_>>(), [&bank]);
    let claimed = stage.claim_as(of(&["shop", "bank"]), at(2)).await;
    assert_eq!(claimed.iter().map(|claim| &claim.run_id).collect::<Vec<_>>(), [&shop]);
}

/// The answer was lost: the same request id gives the same runs and claims nothing more.
pub async fn a_claim_asked_again_gives_the_same_runs(stage: Stage) {
    for second in 0..6 {
        stage.queue(request(), at(second)).await;
    }
    let ask = |request_id: &str, limit| ClaimRuns {
        limit,
        request_id: Some(request_id.to_owned()),
        ..ClaimRuns::one("worker-001")
    };
    let ids = async |ask: ClaimRuns, second| -> BTreeSet<RunId> {
        stage.claim_as(ask, at(second)).await.into_iter().map(|claim| claim.run_id).collect()
    };
    let one = ids(ask("a", 1), 10).await;
    let batch = ids(ask("b", 3), 11).await;
    assert_eq!((one.len(), batch.len()), (1, 3));
    assert!(one.is_disjoint(&batch));
    let before = stage.tables().await;
    assert_eq!(ids(ask("b", 3), 12).await, batch);
    assert_eq!(ids(ask("a", 1), 13).await, one);
    stage.unchanged(&before).await;
    for run in &one {
        stage.succeed(run, at(14)).await;
    }
    let next = ids(ask("a", 1), 15).await;
    assert!(next.is_disjoint(&one) && next.is_disjoint(&batch), "what has ended is not claimed again");
}

/// The same request, asked several times at one instant, as when an answer is late: one claim, told to all who asked.
pub async fn the_same_request_at_the_same_instant_claims_once(stage: Stage) {
    const REQUESTS: usize = 24;
    const CALLS: usize = 3;
    queue_scattered(&stage, REQUESTS * 4).await;
    let answers = at_once(REQUESTS * CALLS, |number| {
        let stage = stage.clone();
        async move {
            let request = number / CALLS;
            let ask = ClaimRuns {
                limit: 2,
                request_id: Some(format!("request-{request}")),
                ..ClaimRuns::one("worker-001")
            };
            let claims = stage.claim_as(ask, at(100)).await;
            (request, claims.into_iter().map(|claim| claim.run_id).collect::<BTreeSet<RunId>>())
        }
    })
    .await;
    let mut claimed = 0;
    for request in 0..REQUESTS {
        let told: BTreeSet<_> =
            answers.iter().filter(|(of, _)| *of == request).map(|(_, runs)| runs).collect();
        // A claim comes back empty while others hold what comes first; then the request is still to be carried out.
        let told: Vec<_> = told.into_iter().filter(|runs| !runs.is_empty()).collect();
        assert!(told.len() <= 1, "request {request} claimed twice: {told:?}");
        claimed += told.first().map_or(0, |runs| runs.len());
    }
    assert!(claimed > REQUESTS, "most of them found something");
    let held = stage.plain.number("SELECT count(*) FROM {ops}.runs WHERE status = 'claimed'").await;
    assert_eq!(held.ok(), i64::try_from(claimed).ok(), "nothing was claimed that nobody was told of");
}

/// The same request id of another worker is another request.
pub async fn two_workers_may_use_the_same_request_id(stage: Stage) {
    stage.queue(request(), at(0)).await;
    stage.queue(request(), at(1)).await;
    let ask = |worker: &str| ClaimRuns { request_id: Some("1".to_owned()), ..ClaimRuns::one(worker) };
    let one = stage.claim_as(ask("worker-001"), at(2)).await;
    let other = stage.claim_as(ask("worker-002"), at(2)).await;
    assert_eq!((one.len(), other.len()), (1, 1));
    assert_ne!(one[0].run_id, other[0].run_id);
}

/// Asked again while the first call is still on its way: whatever either got is found by the next.
pub async fn a_claim_asked_twice_at_one_instant_loses_no_run(stage: Stage) {
    for second in 0..40 {
        stage.queue(request(), at(second)).await;
    }
    let ask = || ClaimRuns { limit: 2, request_id: Some("1".to_owned()), ..ClaimRuns::one("worker-001") };
    let answers = at_once(8, |_| {
        let (stage, ask) = (stage.clone(), ask());
        async move {
            let claims = stage.claim_as(ask, at(50)).await;
            claims.into_iter().map(|claim| claim.run_id).collect::<BTreeSet<_>>()
        }
    })
    .await;
    let held: BTreeSet<_> =
        stage.claim_as(ask(), at(51)).await.into_iter().map(|claim| claim.run_id).collect();
    assert!(answers.iter().all(|answer| answer.is_subset(&held)), "{answers:?} and later {held:?}");
    let claimed = stage.plain.number("SELECT count(*) FROM {ops}.runs WHERE status = 'claimed'").await;
    assert_eq!(
        claimed.ok(),
        i64::try_from(held.len()).ok(),
        "nothing is held that the worker does not learn of"
    );
}

/// A claim carries everything that the worker needs to begin.
pub async fn a_claim_tells_the_worker_what_to_do(stage: Stage) {
    let mut wanted = request();
    wanted.git_sha = Some("abc123def456".to_owned());
    wanted.git_ref = Some("main".to_owned());
    wanted.metadata = json!({"trigger": "webhook", "nested": {"list": [1, 2.5, null, "x"]}});
    wanted.timeout_secs = Some(90);
    let run = stage.queue(wanted, at(0)).await;
    let ask = ClaimRuns { lease_secs: Some(60), ..ClaimRuns::one("worker-001") };
    let claims = stage.claim_as(ask, at(15)).await;
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
    let kept = stage.run(&run).await;
    assert_eq!((kept.status, kept.gate), (RunState::Claimed, None));
    assert_eq!((kept.claimed_by.as_deref(), kept.started_at), (Some("worker-001"), Some(at(15))));
    assert_eq!(
        (kept.lease_until, kept.deadline_at),
        (Some(at(75)), None),
        "the time to run begins with the start"
    );
}

/// Nothing to claim is an answer, and leaves no trace; a worker without a name is refused.
pub async fn a_claim_of_nothing_is_empty_and_writes_nothing(stage: Stage) {
    let before = stage.tables().await;
    assert_eq!(stage.claim("worker-001", at(0)).await, None);
    refused(stage.door.claim(ClaimRuns::one(""), at(0)).await, RefusalCode::BadValue);
    stage.unchanged(&before).await;
}

/// However much is asked for, a batch is bounded; nothing asked for is one.
pub async fn a_batch_is_bounded(stage: Stage) {
    for second in 0..3 {
        stage.queue(request(), at(second)).await;
    }
    let ask = |limit| ClaimRuns { limit, ..ClaimRuns::one("worker-001") };
    assert_eq!(stage.claim_as(ask(0), at(5)).await.len(), 1);
    assert_eq!(stage.claim_as(ask(usize::MAX), at(5)).await.len(), 2);
}

/// What is blocked by a time, a key, a label or a pause does not hide what is not.
pub async fn what_is_blocked_stands_in_nobodys_way(stage: Stage) {
    let blocked = QueueRun { priority: 9, ..request() };
    let keyed = QueueRun { concurrency_key: Some("deploy".to_owned()), ..blocked.clone() };
    let holder = stage.claimed(keyed.clone(), "worker-001", at(0)).await;
    for second in 1..15 {
        stage.queue(keyed.clone(), at(second)).await;
        stage.queue(QueueRun { available_at: Some(at(9_000)), ..blocked.clone() }, at(second)).await;
        stage.queue(QueueRun { labels: vec!["gpu".to_owned()], ..blocked.clone() }, at(second)).await;
    }
    let free = stage.queue(request(), at(20)).await;
    let ask = ClaimRuns { limit: 100, ..ClaimRuns::one("worker-002") };
    let claimed: Vec<_> = stage.claim_as(ask, at(21)).await.into_iter().map(|claim| claim.run_id).collect();
    assert_eq!(claimed, [free]);
    assert_eq!(stage.status(&holder.run_id).await, RunState::Claimed);
}
