//! Lists of runs: each filter, filters together, and pages while runs are added.

use std::collections::BTreeSet;

use crate::doorway::Doorway;
use tidemill_core::run::{FinalStatus, Lane, QueueRun, RunState};
use tidemill_core::{RunId, Timestamp};
use tidemill_store::{ClaimRuns, FinishRun};
use tidemill_testkit::door::{Kind, Stage, at, new_run_id};
use tidemill_wire::runs::ListRuns;

/// Queues a run at a time.
async fn queue(stage: &Stage, request: QueueRun, now: Timestamp) -> RunId {
    let queued = stage.store.queue_run(request, new_run_id(now), Some(now)).await;
    queued.expect("a run is queued").run_id
}

fn on(sha: &str, git_ref: &str) -> QueueRun {
    QueueRun {
        git_sha: Some(sha.to_owned()),
        git_ref: Some(git_ref.to_owned()),
        ..QueueRun::new("shop", "production")
    }
}

/// Claims the oldest run, and ends it so.
async fn end(stage: &Stage, status: FinalStatus) -> RunId {
    let claims = stage.store.claim_runs(ClaimRuns::one("w"), Some(at(50))).await.expect("a claim");
    let run_id = claims[0].run_id.clone();
    let end = FinishRun { run_id: run_id.clone(), status, metadata: serde_json::json!({}), epoch: None };
    stage.store.finish_runs(vec![end], Some("w".to_owned()), Some(at(51))).await.expect("it is finished");
    run_id
}

struct Scene {
    failed: RunId,
    done: RunId,
    held: RunId,
    main: RunId,
    release: RunId,
    bank: RunId,
    sync: RunId,
}

/// One run of each kind, each a second after the one before.
async fn scene(door: &Doorway) -> Scene {
    let stage = &door.stage;
    for second in 0..3 {
        queue(stage, QueueRun::new("shop", "staging"), at(second)).await;
    }
    let failed = end(stage, FinalStatus::Failed).await;
    let done = end(stage, FinalStatus::Success).await;
    let held = stage.store.claim_runs(ClaimRuns::one("w"), Some(at(52))).await.expect("a claim");
    let main = queue(stage, on("abcd1234", "refs/heads/main"), at(10)).await;
    let release = queue(stage, on("abce9999", "refs/heads/release/1_0"), at(11)).await;
    let bank = queue(stage, QueueRun::new("bank", "staging"), at(12)).await;
    let mut request = QueueRun::new("bank", "staging");
    request.concurrency_key = Some("feed:gems".to_owned());
    let sync = queue(stage, request, at(13)).await;
    let id = sync.clone();
    stage
        .store
        .write(move |mut tx| Box::pin(async move { tx.mark_sync_run(&id).await }))
        .await
        .expect("it is a sync's run");
    Scene { failed, done, held: held[0].run_id.clone(), main, release, bank, sync }
}

async fn listed(door: &Doorway, asked: ListRuns) -> Vec<RunId> {
    let page = door.admin.runs(&asked).await.expect("runs are listed");
    page.items.into_iter().map(|run| run.run_id).collect()
}

#[expect(clippy::unnecessary_wraps, reason = "what a filter asks for may be missing")]
fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

pub(crate) async fn each_filter_lists_what_fits_and_nothing_else(kind: Kind) {
    let door = Doorway::open(kind).await;
    let Scene { failed, done, held, main, release, bank, sync } = scene(&door).await;
    let none = ListRuns::default;
    let all = [&sync, &bank, &release, &main, &held, &done, &failed].map(Clone::clone);
    assert_eq!(listed(&door, none()).await, all);
    let state = |status| ListRuns { status: Some(status), ..none() };
    assert_eq!(listed(&door, state(RunState::Failed)).await, std::slice::from_ref(&failed));
    assert_eq!(listed(&door, state(RunState::Success)).await, std::slice::from_ref(&done));
    assert_eq!(listed(&door, state(RunState::Claimed)).await, std::slice::from_ref(&held));
    assert!(listed(&door, state(RunState::Running)).await.is_empty());
    assert!(listed(&door, state(RunState::Cancelled)).await.is_empty());
    let queued = [&sync, &bank, &release, &main].map(Clone::clone);
    assert_eq!(listed(&door, state(RunState::Queued)).await, queued);
    let cases: Vec<(ListRuns, Vec<&RunId>)> = vec![
        (ListRuns { project: text("bank"), ..none() }, vec![&sync, &bank]),
        (ListRuns { env: text("production"), ..none() }, vec![&release, &main]),
        (ListRuns { project: text("bank"), env: text("staging"), ..none() }, vec![&sync, &bank]),
        (ListRuns { project: text("bank"), env: text("production"), ..none() }, vec![]),
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
        // What means something in a pattern elsewhere means nothing here.
        (ListRuns { ref_prefix: text("refs/heads/%"), ..none() }, vec![]),
    ];
    for (asked, expected) in cases {
        let found = listed(&door, asked.clone()).await;
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{asked:?}");
    }
    // What is removed is not listed either.
    door.stage.store.prune(at(1_000), 100).await.expect("ended runs are pruned");
    assert!(listed(&door, state(RunState::Failed)).await.is_empty());
}

pub(crate) async fn filters_can_be_joined(kind: Kind) {
    let door = Doorway::open(kind).await;
    let Scene { failed, main, sync, .. } = scene(&door).await;
    let asked = ListRuns {
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
    assert_eq!(crate::doorway::refused(door.admin.runs(&asked).await), (422, "invalid".to_owned()));
    let asked = ListRuns { sha_prefix: text("abcd"), ..asked };
    assert_eq!(listed(&door, asked.clone()).await, [main]);
    assert!(listed(&door, ListRuns { project: text("bank"), ..asked.clone() }).await.is_empty());
    assert!(listed(&door, ListRuns { feed: text("gems"), ..asked }).await.is_empty());
    let asked = ListRuns { status: Some(RunState::Failed), env: text("staging"), ..ListRuns::default() };
    assert_eq!(listed(&door, asked).await, [failed]);
    let asked = ListRuns { lane: Some(Lane::Sync), project: text("bank"), ..ListRuns::default() };
    assert_eq!(listed(&door, asked).await, [sync]);
}

pub(crate) async fn pages_lose_nothing_and_repeat_nothing_while_runs_are_added(kind: Kind) {
    let door = Doorway::open(kind).await;
    let stage = &door.stage;
    let mut first = BTreeSet::new();
    for second in 0..23 {
        let env = if second % 2 == 0 { "staging" } else { "production" };
        first.insert(queue(stage, QueueRun::new("shop", env), at(second)).await);
    }
    for project in [None, text("shop")] {
        let mut asked = ListRuns { project, limit: Some(5), ..ListRuns::default() };
        let mut seen: Vec<RunId> = Vec::new();
        let mut newer = 100;
        loop {
            let page = door.admin.runs(&asked).await.expect("runs are listed");
            seen.extend(page.items.into_iter().map(|run| run.run_id));
            queue(stage, QueueRun::new("shop", "staging"), at(newer)).await;
            newer += 1;
            let Some(next) = page.next else { break };
            asked.after = Some(next.parse().expect("a cursor is the id of a run"));
        }
        let unique: BTreeSet<RunId> = seen.iter().cloned().collect();
        assert_eq!(unique.len(), seen.len(), "nothing comes twice");
        assert!(first.is_subset(&unique), "nothing is lost");
        assert!(seen.is_sorted_by(|one, other| one > other), "the youngest first");
    }
}

/// So many branches that a page of each would be too much: runs are read by age instead, and found all the same.
pub(crate) async fn more_spellings_than_are_looked_up_one_by_one_are_listed_too(kind: Kind) {
    let door = Doorway::open(kind).await;
    for number in 0..300 {
        queue(&door.stage, on(&format!("{number:04}ffff"), &format!("pull/{number}")), at(number)).await;
    }
    queue(&door.stage, on("ffffffff", "main"), at(400)).await;
    let asked = ListRuns { ref_prefix: text("pull/"), limit: Some(1_000), ..ListRuns::default() };
    assert_eq!(listed(&door, asked.clone()).await.len(), 300);
    let asked = ListRuns { ref_prefix: text("pull/29"), ..asked };
    assert_eq!(listed(&door, asked).await.len(), 11);
}
