//! Ids that a caller chose. They contain no time, or a wrong one: retention, statistics, filters and the order of lists
//! use the time columns.

use serde_json::json;
use tidemill_core::run::{FinalStatus, RunCursor, RunFilter};
use tidemill_core::{RunId, Timestamp};
use tidemill_store::{PruneCounts, RefusalCode};

use crate::interface::{Fixture, at, info, new_run_id, refused, request};

/// UUIDs of version 4, a word, and UUIDs of version 7 whose times are in 1970, in 2024 and in the year 10889. Their
/// order differs from the order in which the cases queue them.
const IDS: [&str; 6] = [
    "run-f81d4fae-7dec-41d0-a765-00a0c91e6bf6",
    "run-00000000-1111-4111-8111-000000000001",
    "run-uuid-1234",
    "run-ffffffff-ffff-7fff-bfff-ffffffffffff",
    "run-00000000-0000-7000-8000-000000000000",
    "run-018f3c5e-0000-7000-8000-00000000c000",
];
const DAY: i64 = 24 * 3_600;

fn chosen() -> Vec<RunId> {
    IDS.map(|id| RunId::from_database(id.to_owned())).to_vec()
}

/// Queues a run under each id, one second apart.
async fn queue(fixture: &Fixture, begin: i64) {
    for (run, second) in chosen().into_iter().zip(begin..) {
        let queued = fixture.interface.queue(request(), run.clone(), at(second)).await;
        assert!(queued.is_ok_and(|queued| queued.created && queued.run_id == run), "{run} is not queued");
    }
}

/// Claims and ends the oldest runs, one second apart; returns their ids in order.
async fn end(fixture: &Fixture, status: FinalStatus, begin: i64) -> Vec<RunId> {
    let mut ended = Vec::new();
    for second in begin..begin + 6 {
        let Some(run) = fixture.claim_id("worker-001", at(second)).await else { panic!("no run is ready") };
        fixture.finish(&run, status, json!({}), at(second)).await;
        ended.push(run);
    }
    ended
}

async fn listed(fixture: &Fixture, filter: RunFilter) -> Vec<RunId> {
    let runs = fixture.store.runs(RunFilter { limit: 100, ..filter }).await;
    let Ok(runs) = runs else { panic!("runs are not listed: {runs:?}") };
    runs.into_iter().map(|run| run.run_id).collect()
}

fn newest_first(mut runs: Vec<RunId>) -> Vec<RunId> {
    runs.reverse();
    runs
}

async fn run_count(fixture: &Fixture) -> Option<i64> {
    fixture.plain.number("SELECT count(*) FROM {ops}.runs").await.ok()
}

pub async fn runs_with_chosen_ids_are_claimed_oldest_first(fixture: Fixture) {
    queue(&fixture, 0).await;
    assert_eq!(end(&fixture, FinalStatus::Success, 10).await, chosen());
}

pub async fn runs_with_chosen_ids_are_pruned_by_their_end_time(fixture: Fixture) {
    queue(&fixture, 0).await;
    let alive = RunId::from_database("run-uuid-alive".to_owned());
    let ended = end(&fixture, FinalStatus::Success, 60 * DAY).await;
    assert!(fixture.interface.queue(request(), alive.clone(), at(1)).await.is_ok());
    let prune = async |before: Timestamp| fixture.store.prune(before, 100).await.map(|done| done.runs).ok();
    assert_eq!(prune(at(60 * DAY)).await, Some(0), "no run ended before");
    assert_eq!(prune(at(60 * DAY + 4)).await, Some(4));
    for (run, expected) in ended.iter().zip([false, false, false, false, true, true]) {
        let found = fixture.store.run(run.clone()).await.ok().flatten();
        assert_eq!((run, found.is_some()), (run, expected));
    }
    assert_eq!(prune(at(61 * DAY)).await, Some(2));
    assert_eq!(run_count(&fixture).await, Some(1));
    assert_eq!(fixture.run(&alive).await.run_id, alive);
    let left = "SELECT (SELECT count(*) FROM {ops}.run_events) + (SELECT count(*) FROM {ops}.removed_runs)";
    assert_eq!(fixture.plain.number(left).await.ok(), Some(1), "only the queued run has an event");
}

/// A plain INSERT may choose every time.
pub async fn imported_runs_are_pruned_by_their_end_time(fixture: Fixture) {
    let time = |secs: i64| match &fixture.plain {
        crate::interface::PlainSql::Sqlite(_) => at(secs).timestamp_micros().to_string(),
        crate::interface::PlainSql::Postgres(_) => format!("to_timestamp({})", at(secs).timestamp()),
    };
    for (number, finished) in [0, 10, 20].into_iter().enumerate() {
        // created_at is the time of the import.
        let insert = format!(
            "INSERT INTO {{ops}}.runs (run_id, project_id, env_id, status, gate, claimed_by, finished_at, end_cause) \
             VALUES ('run-import-{number}', 'shop', 'shop/staging', 'success', NULL, 'w', {}, 'statement')",
            time(finished)
        );
        assert_eq!(fixture.plain.execute(&insert).await.ok(), Some(1));
    }
    assert_eq!(fixture.store.prune(at(11), 100).await.map(|done| done.runs).ok(), Some(2));
    assert_eq!(listed(&fixture, RunFilter::default()).await.len(), 1);
}

pub async fn runs_with_chosen_ids_are_counted_by_statistics(fixture: Fixture) {
    queue(&fixture, -30 * DAY).await;
    end(&fixture, FinalStatus::Success, -30 * DAY + 10).await;
    let Ok(old) = fixture.store.stats(Some(at(0))).await else { panic!("there are no metrics") };
    assert_eq!((old.success_count, old.failed_count, old.durations.len()), (0, 0, 0));
    // Retention frees the ids.
    assert!(fixture.store.prune(at(-20 * DAY), 100).await.is_ok());
    queue(&fixture, -60).await;
    end(&fixture, FinalStatus::Failed, -30).await;
    let Ok(stats) = fixture.store.stats(Some(at(0))).await else { panic!("there are no metrics") };
    assert_eq!((stats.success_count, stats.failed_count), (0, 6));
    let counts = |durations: &[tidemill_core::stats::MeanDuration]| {
        durations.iter().map(|mean| mean.runs).collect::<Vec<_>>()
    };
    assert_eq!((counts(&stats.durations), counts(&stats.durations_day)), (vec![6], vec![6]));
}

pub async fn runs_with_chosen_ids_are_filtered_by_time(fixture: Fixture) {
    queue(&fixture, 0).await;
    end(&fixture, FinalStatus::Failed, 10).await;
    let between = |since, until| RunFilter { since, until, ..RunFilter::default() };
    for (filter, expected) in [
        (between(None, None), 0..6),
        (between(Some(at(2)), None), 2..6),
        (between(None, Some(at(2))), 0..2),
        (between(Some(at(1)), Some(at(4))), 1..4),
        (between(Some(at(6)), None), 6..6),
    ] {
        let expected = newest_first(chosen()[expected].to_vec());
        assert_eq!(listed(&fixture, filter.clone()).await, expected, "{filter:?}");
        let failed = RunFilter { status: Some(tidemill_core::run::RunState::Failed), ..filter.clone() };
        assert_eq!(listed(&fixture, failed).await, expected, "{filter:?}");
        let env = RunFilter { project: Some("shop".to_owned()), ..filter.clone() };
        assert_eq!(listed(&fixture, env).await, expected, "{filter:?}");
        let failures = fixture.store.failures(RunFilter { limit: 100, ..filter.clone() }).await;
        let failures = failures.map(|page| page.items.into_iter().map(|run| run.run_id).collect::<Vec<_>>());
        assert_eq!(failures.ok(), Some(expected), "{filter:?}");
    }
    let prefix = RunFilter { id_prefix: Some("run-0000".to_owned()), ..RunFilter::default() };
    assert_eq!(listed(&fixture, prefix).await, [chosen()[4].clone(), chosen()[1].clone()]);
}

/// Several runs have the same time, and the run at the end of a page is removed before the next one is read.
pub async fn pages_of_runs_with_chosen_ids_lose_and_repeat_nothing(fixture: Fixture) {
    queue(&fixture, 0).await;
    for number in 0..6 {
        let run = RunId::from_database(format!("run-tie-{number}"));
        assert!(fixture.interface.queue(request(), run, at(3)).await.is_ok());
    }
    let mut expected = newest_first(chosen()[4..].to_vec());
    let mut same_time: Vec<RunId> = listed(&fixture, RunFilter::default()).await[2..9].to_vec();
    same_time.sort();
    expected.extend(newest_first(same_time));
    expected.extend(newest_first(chosen()[..3].to_vec()));
    assert_eq!(expected.len(), 12);
    for project in [None, Some("shop".to_owned())] {
        for size in [1, 5] {
            let mut seen: Vec<RunId> = Vec::new();
            let mut filter = RunFilter { project: project.clone(), limit: size, ..RunFilter::default() };
            while let Some(page) =
                fixture.store.runs(filter.clone()).await.ok().filter(|page| !page.is_empty())
            {
                filter.before = page.last().map(RunCursor::at);
                seen.extend(page.into_iter().map(|run| run.run_id));
            }
            assert_eq!(seen, expected);
        }
    }
    let mut waiting = RunFilter { limit: 5, ..RunFilter::default() };
    let mut seen: Vec<RunId> = Vec::new();
    while let Some(page) =
        fixture.store.waiting_runs(waiting.clone()).await.ok().filter(|page| !page.is_empty())
    {
        waiting.before = page.last().map(RunCursor::at);
        seen.extend(page.into_iter().map(|run| run.run_id));
    }
    assert_eq!(newest_first(seen), expected);
    // A cursor with its time outlives its run; the id of a run that exists is a cursor too.
    let gone = RunCursor { created_at: Some(at(3)), run_id: RunId::from_database("run-tie-2a".to_owned()) };
    let rest = listed(&fixture, RunFilter { before: Some(gone), ..RunFilter::default() }).await;
    assert_eq!(rest.first().map(RunId::as_str), Some("run-tie-2"));
    let by_id = RunFilter {
        before: Some(RunId::from_database("run-tie-2".to_owned()).into()),
        ..RunFilter::default()
    };
    assert_eq!(listed(&fixture, by_id).await, rest[1..]);
    let unknown = RunFilter { before: Some(new_run_id(at(0)).into()), ..RunFilter::default() };
    assert!(listed(&fixture, unknown).await.is_empty());
}

/// Also if the id looks as if it were made in the future.
pub async fn chosen_id_of_a_removed_run_is_refused_while_it_has_events(fixture: Fixture) {
    for id in chosen() {
        assert!(fixture.interface.queue(request(), id.clone(), at(0)).await.is_ok());
        assert_eq!(fixture.claim_id("worker-001", at(0)).await.as_ref(), Some(&id));
        for number in 0..20 {
            fixture.append_event(&id, info(&format!("line {number}")), at(1)).await;
        }
        fixture.succeed(&id, at(2)).await;
        let step = async || fixture.store.prune_within(at(1_000), 100, 10).await.unwrap_or_default();
        assert_eq!(step().await.runs, 1);
        let again = async || fixture.interface.queue(request(), id.clone(), at(7_200)).await;
        refused(again().await, RefusalCode::KeyConflict);
        let many = vec![(request(), new_run_id(at(7_200))), (request(), id.clone())];
        refused(fixture.interface.queue_many(many, at(7_200)).await, RefusalCode::KeyConflict);
        while step().await != PruneCounts::default() {}
        assert_eq!(run_count(&fixture).await, Some(0));
    }
}

pub async fn created_at_of_a_run_cannot_change(fixture: Fixture) {
    let run = fixture.queue(request(), at(0)).await;
    let change = format!(
        "UPDATE {{ops}}.runs SET created_at = queued_at, updated_at = updated_at WHERE run_id = '{run}'"
    );
    assert_eq!(fixture.plain.execute(&change).await.ok(), Some(1), "an equal value is no change");
    let past = match &fixture.plain {
        crate::interface::PlainSql::Sqlite(_) => "created_at - 1000000",
        crate::interface::PlainSql::Postgres(_) => "created_at - interval '1 second'",
    };
    let change = format!("UPDATE {{ops}}.runs SET created_at = {past} WHERE run_id = '{run}'");
    refused(fixture.plain.execute(&change).await, RefusalCode::Frozen);
}
