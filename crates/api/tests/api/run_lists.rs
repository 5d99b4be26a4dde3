//! Lists of runs: each filter, combinations, and pages while runs are added.

use std::collections::BTreeSet;

use crate::fixture::ApiFixture;
use tidemill_core::run::{FinalStatus, Lane, QueueRun, RunState};
use tidemill_core::{RunId, Timestamp};
use tidemill_store::{ClaimRuns, FinishRun};
use tidemill_testkit::interface::{Fixture, Kind, at, new_run_id};
use tidemill_wire::runs::ListRuns;

/// Queues a run at this time.
async fn queue(base: &Fixture, request: QueueRun, now: Timestamp) -> RunId {
    let queued = base.store.queue_run(request, new_run_id(now), Some(now)).await;
    queued.expect("a run is queued").run_id
}

fn on(sha: &str, git_ref: &str) -> QueueRun {
    QueueRun {
        git_sha: Some(sha.to_owned()),
        git_ref: Some(git_ref.to_owned()),
        ..QueueRun::new("shop", "production")
    }
}

/// Claims the oldest run, and ends it with this status.
async fn end(base: &Fixture, status: FinalStatus) -> RunId {
    let claims = base.store.claim_runs(ClaimRuns::one("w"), Some(at(50))).await.expect("a claim");
    let run_id = claims[0].run_id.clone();
    let end = FinishRun { run_id: run_id.clone(), status, metadata: serde_json::json!({}), epoch: None };
    base.store.finish_runs(vec![end], Some("w".to_owned()), Some(at(51))).await.expect("it is finished");
    run_id
}

struct RunListFixture {
    failed: RunId,
    done: RunId,
    held: RunId,
    main: RunId,
    release: RunId,
    bank: RunId,
    sync: RunId,
}

/// Queues one run of each kind, one second apart.
async fn fixture(api: &ApiFixture) -> RunListFixture {
    let base = &api.base;
    for second in 0..3 {
        let request = QueueRun { kind: "email".to_owned(), ..QueueRun::new("shop", "staging") };
        queue(base, request, at(second)).await;
    }
    let failed = end(base, FinalStatus::Failed).await;
    let done = end(base, FinalStatus::Success).await;
    let held = base.store.claim_runs(ClaimRuns::one("w"), Some(at(52))).await.expect("a claim");
    let main = queue(base, on("abcd1234", "refs/heads/main"), at(10)).await;
    let release = queue(base, on("abce9999", "refs/heads/release/1_0"), at(11)).await;
    let bank = QueueRun { kind: "email".to_owned(), ..QueueRun::new("bank", "staging") };
    let bank = queue(base, bank, at(12)).await;
    let mut request = QueueRun::new("bank", "staging");
    request.concurrency_key = Some("feed:gems".to_owned());
    let sync = queue(base, request, at(13)).await;
    let id = sync.clone();
    base.store
        .write(move |mut tx| Box::pin(async move { tx.mark_sync_run(&id).await }))
        .await
        .expect("it is a sync's run");
    RunListFixture { failed, done, held: held[0].run_id.clone(), main, release, bank, sync }
}

async fn listed(api: &ApiFixture, request: ListRuns) -> Vec<RunId> {
    let page = api.admin.runs(&request).await.expect("runs are listed");
    page.items.into_iter().map(|run| run.run_id).collect()
}

#[expect(clippy::unnecessary_wraps, reason = "the filtered value may be missing")]
fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

pub(crate) async fn every_filter_lists_exactly_the_matching_runs(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let RunListFixture { failed, done, held, main, release, bank, sync } = fixture(&api).await;
    let none = ListRuns::default;
    let all = [&sync, &bank, &release, &main, &held, &done, &failed].map(Clone::clone);
    assert_eq!(listed(&api, none()).await, all);
    let state = |status| ListRuns { status: Some(status), ..none() };
    assert_eq!(listed(&api, state(RunState::Failed)).await, std::slice::from_ref(&failed));
    assert_eq!(listed(&api, state(RunState::Success)).await, std::slice::from_ref(&done));
    assert_eq!(listed(&api, state(RunState::Claimed)).await, std::slice::from_ref(&held));
    assert!(listed(&api, state(RunState::Running)).await.is_empty());
    assert!(listed(&api, state(RunState::Cancelled)).await.is_empty());
    let queued = [&sync, &bank, &release, &main].map(Clone::clone);
    assert_eq!(listed(&api, state(RunState::Queued)).await, queued);
    let cases: Vec<(ListRuns, Vec<&RunId>)> = vec![
        (ListRuns { project: text("bank"), ..none() }, vec![&sync, &bank]),
        (ListRuns { env: text("production"), ..none() }, vec![&release, &main]),
        (ListRuns { project: text("bank"), env: text("staging"), ..none() }, vec![&sync, &bank]),
        (ListRuns { project: text("bank"), env: text("production"), ..none() }, vec![]),
        (ListRuns { kind: text("email"), ..none() }, vec![&bank, &held, &done, &failed]),
        (ListRuns { kind: text("mail"), ..none() }, vec![]),
        (ListRuns { lane: Some(Lane::Sync), ..none() }, vec![&sync]),
        (ListRuns { lane: Some(Lane::Graph), ..none() }, vec![]),
        (ListRuns { feed: text("gems"), ..none() }, vec![&sync]),
        (ListRuns { feed: text("gem"), ..none() }, vec![]),
        (ListRuns { since: Some(at(12)), ..none() }, vec![&sync, &bank]),
        (ListRuns { until: Some(at(1)), ..none() }, vec![&failed]),
        (ListRuns { since: Some(at(10)), until: Some(at(12)), ..none() }, vec![&release, &main]),
        (ListRuns { id_prefix: text(main.as_str()), ..none() }, vec![&main]),
        (ListRuns { sha_prefix: text("abcd"), ..none() }, vec![&main]),
        (ListRuns { sha_prefix: text("abcf"), ..none() }, vec![]),
        (ListRuns { ref_prefix: text("refs/heads/"), ..none() }, vec![&release, &main]),
        (ListRuns { ref_prefix: text("refs/heads/release/1_"), ..none() }, vec![&release]),
        // LIKE wildcards have no meaning here.
        (ListRuns { ref_prefix: text("refs/heads/%"), ..none() }, vec![]),
    ];
    for (request, expected) in cases {
        let found = listed(&api, request.clone()).await;
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{request:?}");
    }
    // Deleted runs are not listed.
    api.base.store.prune(at(1_000), 100).await.expect("ended runs are pruned");
    assert!(listed(&api, state(RunState::Failed)).await.is_empty());
}

pub(crate) async fn filters_can_be_combined(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let RunListFixture { failed, done, held, main, bank, sync, .. } = fixture(&api).await;
    let request = ListRuns {
        project: text("shop"),
        env: text("production"),
        status: Some(RunState::Queued),
        lane: Some(Lane::Ops),
        since: Some(at(0)),
        until: Some(at(11)),
        id_prefix: text("run-"),
        sha_prefix: text("abc"),
        ref_prefix: text("refs/"),
        ..ListRuns::default()
    };
    assert_eq!(crate::fixture::refused(api.admin.runs(&request).await), (422, "invalid".to_owned()));
    let request = ListRuns { sha_prefix: text("abcd"), ..request };
    assert_eq!(listed(&api, request.clone()).await, [main]);
    assert!(listed(&api, ListRuns { project: text("bank"), ..request.clone() }).await.is_empty());
    assert!(listed(&api, ListRuns { feed: text("gems"), ..request }).await.is_empty());
    let request = ListRuns { status: Some(RunState::Failed), env: text("staging"), ..ListRuns::default() };
    assert_eq!(listed(&api, request).await, std::slice::from_ref(&failed));
    for (status, expected) in [
        (RunState::Queued, &bank),
        (RunState::Claimed, &held),
        (RunState::Success, &done),
        (RunState::Failed, &failed),
    ] {
        let request = ListRuns { kind: text("email"), status: Some(status), ..ListRuns::default() };
        assert_eq!(listed(&api, request.clone()).await, std::slice::from_ref(expected));
        let wrong = ListRuns { sha_prefix: text("abcd"), ..request };
        assert!(listed(&api, wrong).await.is_empty());
    }
    let request = ListRuns { kind: text("email"), project: text("bank"), ..ListRuns::default() };
    assert_eq!(listed(&api, request.clone()).await, [bank]);
    assert!(listed(&api, ListRuns { lane: Some(Lane::Sync), ..request }).await.is_empty());
    let request = ListRuns { lane: Some(Lane::Sync), project: text("bank"), ..ListRuns::default() };
    assert_eq!(listed(&api, request).await, [sync]);
}

pub(crate) async fn pages_lose_and_repeat_nothing_while_runs_are_added(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let base = &api.base;
    let mut first = BTreeSet::new();
    for second in 0..23 {
        let env = if second % 2 == 0 { "staging" } else { "production" };
        first.insert(queue(base, QueueRun::new("shop", env), at(second)).await);
    }
    for project in [None, text("shop")] {
        let mut request = ListRuns { project, limit: Some(5), ..ListRuns::default() };
        let mut seen: Vec<RunId> = Vec::new();
        let mut newer = 100;
        loop {
            let page = api.admin.runs(&request).await.expect("runs are listed");
            seen.extend(page.items.into_iter().map(|run| run.run_id));
            queue(base, QueueRun::new("shop", "staging"), at(newer)).await;
            newer += 1;
            let Some(next) = page.next else { break };
            request.after = Some(next.parse().expect("a cursor is the id of a run"));
        }
        let unique: BTreeSet<RunId> = seen.iter().cloned().collect();
        assert_eq!(unique.len(), seen.len(), "no event is repeated");
        assert!(first.is_subset(&unique), "no row is lost");
        assert!(seen.is_sorted_by(|one, other| one > other), "the youngest first");
    }
}

/// With many branches a page of each would cost too much, so runs are read by age instead.
pub(crate) async fn many_spellings_of_a_filter_value_are_all_listed(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    for number in 0..300 {
        queue(&api.base, on(&format!("{number:04}ffff"), &format!("pull/{number}")), at(number)).await;
    }
    queue(&api.base, on("ffffffff", "main"), at(400)).await;
    let request = ListRuns { ref_prefix: text("pull/"), limit: Some(1_000), ..ListRuns::default() };
    assert_eq!(listed(&api, request.clone()).await.len(), 300);
    let request = ListRuns { ref_prefix: text("pull/29"), ..request };
    assert_eq!(listed(&api, request).await.len(), 11);
}
