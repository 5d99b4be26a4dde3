//! Runs by name prefix: matches, combinations with other filters, pages, and index use.

use crate::fixture::ApiFixture;
use tidemill_core::run::{Lane, QueueRun, RunFilter, RunState};
use tidemill_core::{RunId, Timestamp};
use tidemill_store::NewGraph;
use tidemill_testkit::interface::{Fixture, Kind, at, new_run_id};
use tidemill_wire::runs::ListRuns;

/// Number of runs for query plans.
const RUNS: u32 = 20_000;

async fn queue(fixture: &Fixture, request: QueueRun, now: Timestamp) -> RunId {
    let queued = fixture.store.queue_run(request, new_run_id(now), Some(now)).await;
    queued.expect("a run is queued").run_id
}

/// Queues a graph without jobs; only its name matters here.
async fn graph(fixture: &Fixture, request: QueueRun, name: Option<&str>, now: Timestamp) -> RunId {
    let project_id = request.project.clone();
    let run_id = queue(fixture, request, now).await;
    let new = NewGraph {
        run_id: run_id.clone(),
        project_id,
        name: name.map(str::to_owned),
        workspace: "default".to_owned(),
        digest: "0".repeat(64),
        only: Vec::new(),
        rerun_needed: false,
        submitted_by: "ann".to_owned(),
    };
    let write = fixture.store.write(move |mut tx| {
        let new = new.clone();
        Box::pin(async move {
            tx.mark_graph_run(&new.run_id).await?;
            tx.add_graph(&new).await
        })
    });
    write.await.expect("it is a graph's run");
    run_id
}

async fn sync(fixture: &Fixture, feed: &str, now: Timestamp) -> RunId {
    let mut request = QueueRun::new("bank", "staging");
    request.concurrency_key = Some(format!("feed:{feed}"));
    let run_id = queue(fixture, request, now).await;
    let id = run_id.clone();
    let write = fixture.store.write(move |mut tx| {
        let id = id.clone();
        Box::pin(async move { tx.mark_sync_run(&id).await })
    });
    write.await.expect("it is a sync's run");
    run_id
}

fn shop() -> QueueRun {
    QueueRun::new("shop", "staging")
}

#[expect(clippy::unnecessary_wraps, reason = "the filtered value may be missing")]
fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn named(prefix: &str) -> ListRuns {
    ListRuns { name_prefix: text(prefix), ..ListRuns::default() }
}

async fn listed(api: &ApiFixture, request: ListRuns) -> Vec<RunId> {
    let page = api.admin.runs(&request).await.expect("runs are listed");
    page.items.into_iter().map(|run| run.run_id).collect()
}

pub(crate) async fn name_prefix_finds_only_matching_graphs_and_syncs(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let fixture = &api.base;
    let old = graph(fixture, shop(), Some("nightly"), at(0)).await;
    let new = graph(fixture, shop(), Some("nightly"), at(1)).await;
    let odd = graph(fixture, shop(), Some("night%_' build"), at(2)).await;
    let high = graph(fixture, shop(), Some("Nightly"), at(3)).await;
    let wide = graph(fixture, shop(), Some("österreich \u{10ffff}"), at(4)).await;
    graph(fixture, shop(), None, at(5)).await;
    let gems = sync(fixture, "night-gems", at(6)).await;
    let same = sync(fixture, "nightly", at(7)).await;
    // Values that only look like names: an idempotency key, and a graph name in the metadata of another run.
    let mut key = shop();
    key.concurrency_key = text("feed:nightly");
    key.metadata = serde_json::json!({"graph": {"name": "nightly"}});
    queue(fixture, key, at(8)).await;

    let cases: Vec<(&str, Vec<&RunId>)> = vec![
        ("night", vec![&same, &gems, &odd, &new, &old]),
        ("nightly", vec![&same, &new, &old]),
        ("nightly ", vec![]),
        ("Night", vec![&high]),
        ("night-", vec![&gems]),
        ("night%", vec![&odd]),
        ("night%_'", vec![&odd]),
        ("night_", vec![]),
        ("%", vec![]),
        ("ö", vec![&wide]),
        ("österreich \u{10ffff}", vec![&wide]),
        ("\u{10ffff}", vec![]),
        ("feed:", vec![]),
    ];
    for (prefix, expected) in cases {
        assert_eq!(listed(&api, named(prefix)).await.iter().collect::<Vec<_>>(), expected, "{prefix}");
    }
    let bank = api.of_project("bank");
    assert_eq!(listed(&bank, named("night")).await, [same, gems], "a caller of one project sees its own");
    let gone = crate::fixture::refused(api.admin.runs(&named(&"n".repeat(129))).await);
    assert_eq!(gone, (422, "invalid".to_owned()));
}

pub(crate) async fn name_prefix_combines_with_every_other_filter(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let fixture = &api.base;
    let on = |sha: &str, git_ref: &str| QueueRun { git_sha: text(sha), git_ref: text(git_ref), ..shop() };
    let one = graph(fixture, on("abcd1111", "main"), Some("nightly"), at(0)).await;
    let two = graph(fixture, on("abcd2222", "release/1"), Some("nightly"), at(1)).await;
    let elsewhere = QueueRun::new("shop", "production");
    let three = graph(fixture, elsewhere, Some("nightly"), at(2)).await;
    let other = graph(fixture, on("abcd1111", "main"), Some("weekly"), at(3)).await;
    let gems = sync(fixture, "nightgems", at(4)).await;
    queue(fixture, on("abcd1111", "main"), at(5)).await;
    fixture
        .store
        .cancel_run(gems.clone(), "ann".to_owned(), None, Some(at(9)))
        .await
        .expect("it is cancelled");

    let night = || named("night");
    let cases: Vec<(ListRuns, Vec<&RunId>)> = vec![
        (night(), vec![&gems, &three, &two, &one]),
        (ListRuns { lane: Some(Lane::Graph), ..night() }, vec![&three, &two, &one]),
        (ListRuns { lane: Some(Lane::Sync), ..night() }, vec![&gems]),
        (ListRuns { lane: Some(Lane::Ops), ..night() }, vec![]),
        (ListRuns { project: text("shop"), ..night() }, vec![&three, &two, &one]),
        (ListRuns { env: text("staging"), ..night() }, vec![&gems, &two, &one]),
        (ListRuns { project: text("shop"), env: text("production"), ..night() }, vec![&three]),
        (ListRuns { status: Some(RunState::Cancelled), ..night() }, vec![&gems]),
        (ListRuns { status: Some(RunState::Queued), ..night() }, vec![&three, &two, &one]),
        (ListRuns { status: Some(RunState::Running), ..night() }, vec![]),
        (ListRuns { feed: text("nightgems"), ..night() }, vec![&gems]),
        (ListRuns { feed: text("nightgems"), ..named("weekly") }, vec![]),
        (ListRuns { since: Some(at(2)), ..night() }, vec![&gems, &three]),
        (ListRuns { until: Some(at(1)), ..night() }, vec![&one]),
        (ListRuns { id_prefix: text(two.as_str()), ..night() }, vec![&two]),
        (ListRuns { id_prefix: text(other.as_str()), ..night() }, vec![]),
        (ListRuns { sha_prefix: text("abcd"), ..night() }, vec![&two, &one]),
        (ListRuns { sha_prefix: text("abcd1111"), ..night() }, vec![&one]),
        (ListRuns { sha_prefix: text("abcd1111"), ..named("week") }, vec![&other]),
        (ListRuns { ref_prefix: text("main"), ..night() }, vec![&one]),
        (ListRuns { ref_prefix: text("rel"), ..named("week") }, vec![]),
        (ListRuns { after: Some(three.clone().into()), ..night() }, vec![&two, &one]),
        (ListRuns { after: Some(three.clone().into()), limit: Some(1), ..night() }, vec![&two]),
    ];
    for (request, expected) in cases {
        let found = listed(&api, request.clone()).await;
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{request:?}");
    }
}

/// One name of many runs, a few names, and more names than are looked up one by one: every run once.
pub(crate) async fn pages_by_name_prefix_lose_and_repeat_nothing(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let fixture = &api.base;
    let mut all: Vec<(String, RunId)> = Vec::new();
    for second in 0..300_u32 {
        let now = at(i64::from(second));
        let name = if second % 3 == 0 { "build".to_owned() } else { format!("build-{second}") };
        let request = QueueRun { git_ref: Some(format!("pull/{second}")), ..shop() };
        let graph = graph(fixture, request, Some(&name), now).await;
        all.push((name, graph));
        if second % 50 == 0 {
            let feed = format!("build-feed-{}", second % 100);
            all.push((feed.clone(), sync(fixture, &feed, now + chrono::TimeDelta::milliseconds(500)).await));
        }
    }
    for second in 300..400 {
        graph(fixture, shop(), Some(&format!("test-{second}")), at(second)).await;
    }
    for (prefix, git_ref) in [("build", None), ("build-", None), ("build-f", None), ("b", text("pull/"))] {
        let fits = |name: &str| name.starts_with(prefix) && (git_ref.is_none() || !name.contains("feed"));
        let expected: Vec<&RunId> =
            all.iter().rev().filter(|(name, _)| fits(name)).map(|(_, id)| id).collect();
        assert!(!expected.is_empty());
        let mut request = ListRuns { ref_prefix: git_ref.clone(), limit: Some(7), ..named(prefix) };
        let (mut seen, mut newer) = (Vec::new(), 1_000);
        loop {
            let page = api.admin.runs(&request).await.expect("runs are listed");
            seen.extend(page.items.into_iter().map(|run| run.run_id));
            // A run added meanwhile is newer, and not on a later page.
            graph(fixture, shop(), Some("build-late"), at(newer)).await;
            newer += 1;
            let Some(next) = page.next else { break };
            request.after = Some(next.parse().expect("a cursor is the id of a run"));
        }
        let seen: Vec<&RunId> = seen.iter().filter(|id| all.iter().any(|(_, one)| one == *id)).collect();
        assert_eq!(seen, expected, "{prefix} {git_ref:?}");
    }
}

/// Fills the tables with ended runs. Half of them are graphs; most of these share one name, and some have unique names.
async fn fill(api: &ApiFixture) {
    let is_sqlite = api.base.kind == Kind::Sqlite;
    let moment = if is_sqlite { "1000000" } else { "now()" };
    let (series, id) = if is_sqlite {
        let series = format!(
            "(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {RUNS}) SELECT n FROM s)"
        );
        (series, "'run-018f3c5e-0000-7000-8000-0000' || printf('%08d', n)")
    } else {
        let id = "'run-018f3c5e-0000-7000-8000-0000' || lpad(n::text, 8, '0')";
        (format!("generate_series(1, {RUNS}) AS s(n)"), id)
    };
    let runs = format!(
        "INSERT INTO {{ops}}.runs (run_id, project_id, env_id, lane, status, gate, claimed_by, finished_at, end_cause) \
         SELECT {id}, 'shop', 'shop/staging', CASE WHEN n % 2 = 0 THEN 'graph' ELSE 'ops' END, 'success', NULL, 'w', \
                {moment}, 'reported' FROM {series}"
    );
    let graphs = format!(
        "INSERT INTO {{ops}}.graphs (run_id, project_id, name, workspace, digest, submitted_by, created_at) \
         SELECT {id}, 'shop', CASE WHEN n % 4000 = 0 THEN 'rare' WHEN n % 10 = 0 THEN 'pull-' || n ELSE 'nightly' END, \
                'default', 'd', 'ann', {moment} FROM {series} WHERE n % 2 = 0"
    );
    for insert in [runs, graphs] {
        api.base.plain.execute(&insert).await.expect("the tables are filled");
    }
    if !is_sqlite {
        api.base.plain.script("ANALYZE ops.runs; ANALYZE ops.graphs").await.expect("they are analysed");
    }
}

pub(crate) async fn rare_and_frequent_names_use_an_index(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    fill(&api).await;
    let by_age = if kind == Kind::Sqlite { "sqlite_autoindex_graphs_1" } else { "graphs" };
    let cases = [("rare", 5, "graphs_of_name"), ("nightly", 50, "graphs_of_name"), ("pull-", 50, by_age)];
    for (prefix, count, index) in cases {
        for status in [None, Some(RunState::Failed)] {
            let filter = RunFilter { name_prefix: text(prefix), status, limit: 50, ..RunFilter::default() };
            let found = api.base.store.runs(filter.clone()).await.expect("runs are listed");
            let expected = if status.is_some() { 0 } else { count };
            assert_eq!(found.len(), expected, "{prefix}");
            let plan = api.base.store.explain_runs(filter).await.expect("the plan is told").join("\n");
            assert!(plan.contains(index), "{prefix} is not found by {index}:\n{plan}");
            for walk in
                ["Seq Scan", "Merge Join", "Hash Join", "SCAN r\n", "SCAN runs", "SCAN g\n", "SCAN o\n"]
            {
                assert!(!format!("{plan}\n").contains(walk), "{prefix} walks a table:\n{plan}");
            }
        }
    }
}
