//! Plain SQL without the functions: ended runs and events are immutable, and changes are recorded.

use std::slice;

use serde_json::json;
use tidemill_core::RunId;
use tidemill_core::event::EventKind;
use tidemill_core::run::{ChangeOutcome, EndCause, FinalStatus, QueueRun, RetryOutcome, RunFilter, RunState};
use tidemill_store::{Error, RefusalCode};

use crate::interface::{Fixture, Kind, at, info, refused, request};

async fn update(fixture: &Fixture, run: &RunId, set: &str) -> Result<u64, Error> {
    fixture.plain.execute(&format!("UPDATE {{ops}}.runs SET {set} WHERE run_id = '{run}'")).await
}

async fn ended(fixture: &Fixture, status: FinalStatus) -> RunId {
    let run = fixture.running(request(), "worker-001", at(0)).await.run_id;
    fixture.finish(&run, status, json!({"exit_code": 1}), at(1)).await;
    run
}

pub async fn ended_run_cannot_be_changed(fixture: Fixture) {
    for status in [FinalStatus::Success, FinalStatus::Failed, FinalStatus::Cancelled] {
        let run = ended(&fixture, status).await;
        let before = fixture.tables().await;
        for set in [
            "status = 'queued', gate = 'open', finished_at = NULL",
            "status = 'running', finished_at = NULL",
            "status = 'success'",
            "status = 'failed'",
            "status = 'cancelled'",
            "metadata = '{}'",
            "finished_at = finished_at",
            "end_cause = 'lost'",
            "end_cause = NULL",
            "claimed_by = 'somebody'",
            "retry_of = 'run-1'",
            "attempt = 9",
        ] {
            refused(update(&fixture, &run, set).await, RefusalCode::Frozen);
        }
        fixture.unchanged(&before).await;
    }
}

/// The transitions of the state diagram also apply to plain statements.
pub async fn plain_update_to_an_illegal_state_is_refused(fixture: Fixture) {
    let queued = fixture.queue(request(), at(0)).await;
    let before = fixture.tables().await;
    for state in ["running", "success", "failed"] {
        let set = format!("status = '{state}', claimed_by = 'w', finished_at = NULL");
        refused(update(&fixture, &queued, &set).await, RefusalCode::Frozen);
    }
    fixture.unchanged(&before).await;
    assert_eq!(fixture.claim_id("worker-001", at(1)).await, Some(queued));
}

pub async fn plain_update_to_an_earlier_state_is_refused(fixture: Fixture) {
    let run = fixture.running(request(), "worker-001", at(0)).await.run_id;
    let before = fixture.tables().await;
    for set in ["status = 'claimed'", "status = 'queued', gate = 'open'"] {
        refused(update(&fixture, &run, set).await, RefusalCode::Frozen);
    }
    assert!(update(&fixture, &run, "status = 'unheard of'").await.is_err());
    assert!(update(&fixture, &run, "gate = 'open'").await.is_err(), "only queued runs have a gate");
    fixture.unchanged(&before).await;
}

/// Events and lists refer to these columns.
pub async fn run_id_project_and_environment_cannot_be_changed(fixture: Fixture) {
    let run = fixture.queue(request(), at(0)).await;
    let before = fixture.tables().await;
    for set in ["run_id = 'run-other'", "project_id = 'bank'", "env_id = 'shop/production'"] {
        refused(update(&fixture, &run, set).await, RefusalCode::Frozen);
    }
    fixture.unchanged(&before).await;
    let same = "run_id = run_id, project_id = project_id, env_id = env_id";
    assert_eq!(update(&fixture, &run, same).await.ok(), Some(1), "an update without change is no transition");
}

pub async fn plain_update_with_contradicting_columns_is_refused(fixture: Fixture) {
    let held = fixture.running(request(), "worker-001", at(0)).await.run_id;
    let queued = fixture.queue(request(), at(1)).await;
    let before = fixture.tables().await;
    let raised = if fixture.kind == Kind::Sqlite { "" } else { ", last_seq = last_seq + 1" };
    for raised in ["", raised] {
        for (run, set) in [
            (&queued, "finished_at = created_at"),
            (&queued, "gate = NULL"),
            (&held, "claimed_by = NULL"),
            (&held, "finished_at = created_at"),
            (&held, "gate = 'open'"),
        ] {
            let set = format!("{set}{raised}");
            assert!(update(&fixture, run, &set).await.is_err(), "{set}");
        }
    }
    for values in
        ["'other-1', 'shop', 'shop/staging', 'queued'", "'run-1', 'shop', 'shop/staging', 'success'"]
    {
        let insert =
            format!("INSERT INTO {{ops}}.runs (run_id, project_id, env_id, status) VALUES ({values})");
        assert!(fixture.plain.execute(&insert).await.is_err(), "{values}");
    }
    fixture.unchanged(&before).await;
}

pub async fn events_cannot_be_changed_or_deleted(fixture: Fixture) {
    let run = fixture.running(request(), "worker-001", at(0)).await.run_id;
    fixture.append_event(&run, info("hello"), at(1)).await;
    for live in [true, false] {
        if !live {
            fixture.succeed(&run, at(2)).await;
        }
        let before = fixture.tables().await;
        let mut attempts = vec![
            "UPDATE {ops}.run_events SET message = 'something else'",
            "UPDATE {ops}.run_events SET seq = seq + 100",
            "DELETE FROM {ops}.run_events",
            "DELETE FROM {ops}.run_events WHERE kind = 'log'",
        ];
        if fixture.kind == Kind::Sqlite {
            attempts.push(
                "INSERT OR REPLACE INTO run_events (run_id, seq, level, message) \
                 SELECT run_id, seq, 'info', 'something else' FROM run_events",
            );
        } else {
            attempts.push("TRUNCATE {ops}.run_log");
            attempts.push("TRUNCATE {ops}.run_steps");
            attempts.push("DELETE FROM {ops}.run_steps");
            attempts.push("UPDATE {ops}.run_log SET message = 'something else'");
        }
        for attempt in attempts {
            refused(fixture.plain.execute(attempt).await, RefusalCode::Frozen);
        }
        fixture.unchanged(&before).await;
    }
}

/// An ended run can be deleted, together with its events.
pub async fn live_run_cannot_be_deleted(fixture: Fixture) {
    let queued = fixture.queue(request(), at(0)).await;
    let delete = format!("DELETE FROM {{ops}}.runs WHERE run_id = '{queued}'");
    refused(fixture.plain.execute(&delete).await, RefusalCode::Frozen);
    fixture.claim("worker-001", at(1)).await;
    refused(fixture.plain.execute(&delete).await, RefusalCode::Frozen);
    fixture.append_event(&queued, info("hello"), at(2)).await;
    refused(fixture.plain.execute(&delete).await, RefusalCode::Frozen);
    fixture.succeed(&queued, at(3)).await;
    assert_eq!(fixture.plain.execute(&delete).await.ok(), Some(1));
    let events = format!("DELETE FROM {{ops}}.run_events WHERE run_id = '{queued}'");
    assert_eq!(fixture.plain.execute(&events).await.ok(), Some(5));
}

/// The seed's own statement for stale runs works, is recorded, and ends the run completely.
pub async fn plain_update_of_the_seed_cancels_and_records_an_event(fixture: Fixture) {
    let run = fixture.claimed(request(), "worker-001", at(0)).await.run_id;
    let waiting = fixture.queue(request(), at(0)).await;
    let text = if fixture.kind == Kind::Sqlite {
        "UPDATE runs SET status = 'cancelled', finished_at = 1771065000000000, \
         metadata = json_patch(metadata, '{\"cancelled_by\": \"system\", \
             \"reason\": \"Stale run (claimed for >5 minutes without events)\"}') \
         WHERE status = 'claimed' AND started_at < 1971065000000000"
    } else {
        "UPDATE ops.runs SET status = 'cancelled', finished_at = NOW(), metadata = metadata || '{ \
             \"cancelled_by\": \"system\", \
             \"reason\": \"Stale run (claimed for >5 minutes without events)\" }'::jsonb \
         WHERE status = 'claimed' AND started_at < NOW() - INTERVAL '5 minutes' + INTERVAL '100 years'"
    };
    assert_eq!(fixture.plain.execute(text).await.map_err(|bad| bad.to_string()), Ok(1));
    let ended = fixture.run(&run).await;
    assert_eq!((ended.status, ended.end_cause), (RunState::Cancelled, Some(EndCause::Statement)));
    assert!(ended.finished_at.is_some());
    assert_eq!(ended.metadata["cancelled_by"], "system");
    let events = fixture.events(&run).await;
    let Some(last) = events.last() else { panic!("there is no record") };
    assert_eq!((last.kind, last.message.as_str()), (EventKind::Transition, "Run cancelled"));
    assert_eq!(last.payload, json!({"from": "claimed", "to": "cancelled", "cause": "statement"}));
    refused(update(&fixture, &run, "metadata = '{}'").await, RefusalCode::Frozen);
    assert_eq!(fixture.finish(&run, FinalStatus::Success, json!({}), at(9)).await, ChangeOutcome::Stale);
    assert_eq!(fixture.status(&waiting).await, RunState::Queued);
    // A retry starts with the requested metadata, not with the values that the statement wrote.
    let retried = fixture.retry(&run, at(10)).await;
    assert_eq!(fixture.run(&retried.run_id).await.metadata, json!({}));
}

/// The shortest cancelling statement, in every live state: the trigger fills in all other columns.
pub async fn plain_update_is_completed_by_the_trigger(fixture: Fixture) {
    let queued = fixture.queue(request(), at(0)).await;
    assert_eq!(update(&fixture, &queued, "status = 'cancelled'").await.ok(), Some(1));
    let claimed = fixture.claimed(request(), "worker-001", at(0)).await.run_id;
    assert_eq!(update(&fixture, &claimed, "status = 'cancelled'").await.ok(), Some(1));
    let running = fixture.running(request(), "worker-001", at(0)).await.run_id;
    assert_eq!(update(&fixture, &running, "status = 'failed'").await.ok(), Some(1));
    for (run, from, to) in
        [(queued, "queued", "cancelled"), (claimed, "claimed", "cancelled"), (running, "running", "failed")]
    {
        let ended = fixture.run(&run).await;
        assert_eq!(
            (ended.status.as_str(), ended.gate, ended.end_cause),
            (to, None, Some(EndCause::Statement))
        );
        assert!(ended.finished_at.is_some() && ended.updated_at > at(0));
        let events = fixture.events(&run).await;
        let last = events.last().map(|event| event.payload.clone());
        assert_eq!(last, Some(json!({"from": from, "to": to, "cause": "statement"})));
    }
    assert_eq!(fixture.claim("worker-001", at(9)).await, None);
    assert!(fixture.sweep(at(9_999)).await.is_empty());
}

/// The seed's simplified claim: the run gets a lease, and the sweeper watches it.
pub async fn run_claimed_by_plain_sql_has_a_lease(fixture: Fixture) {
    let run = fixture.queue(request(), at(0)).await;
    let set = "status = 'claimed', claimed_by = 'by-hand'";
    assert_eq!(update(&fixture, &run, set).await.map_err(|bad| bad.to_string()), Ok(1));
    let claimed = fixture.run(&run).await;
    assert_eq!((claimed.status, claimed.gate, claimed.epoch), (RunState::Claimed, None, 1));
    assert!(claimed.lease_until.is_some() && claimed.started_at.is_some());
    assert_eq!(fixture.messages(&run).await, ["Run queued", "Run claimed by worker"]);
    let Some(lease) = claimed.lease_until else { return };
    assert!(fixture.heartbeat(&run, lease).await.held);
    assert_eq!(fixture.sweep(lease + chrono::TimeDelta::seconds(300)).await.len(), 1);
}

pub async fn run_inserted_by_plain_sql_is_claimed(fixture: Fixture) {
    let insert = "INSERT INTO {ops}.runs (run_id, project_id, env_id, git_sha, metadata) \
                  VALUES ('run-by-hand', 'shop', 'shop/staging', 'abc', '{\"trigger\": \"psql\"}')";
    assert_eq!(fixture.plain.execute(insert).await.map_err(|bad| bad.to_string()), Ok(1));
    let Some(claim) = fixture.claim("worker-001", inserted_at(&fixture).await).await else {
        panic!("it is invisible")
    };
    assert_eq!((claim.run_id.as_str(), claim.metadata["trigger"].as_str()), ("run-by-hand", Some("psql")));
    assert_eq!(fixture.messages(&claim.run_id).await, ["Run queued", "Run claimed by worker"]);
    let elsewhere =
        "INSERT INTO {ops}.runs (run_id, project_id, env_id) VALUES ('run-x', 'shop', 'bank/staging')";
    refused(fixture.plain.execute(elsewhere).await, RefusalCode::UnknownEnvironment);
    let odd = "INSERT INTO {ops}.runs (run_id, project_id, env_id) VALUES ('job-1', 'shop', 'shop/staging')";
    assert!(fixture.plain.execute(odd).await.is_err(), "a run's id begins with run-");
}

pub async fn event_inserted_by_plain_sql_continues_the_numbering(fixture: Fixture) {
    let run = fixture.running(request(), "worker-001", at(0)).await.run_id;
    let append = format!(
        "INSERT INTO {{ops}}.run_events (run_id, seq, level, message) VALUES ('{run}', 4, 'info', 'by hand')"
    );
    assert_eq!(fixture.plain.execute(&append).await.map_err(|bad| bad.to_string()), Ok(1));
    assert!(fixture.append_event(&run, info("hello"), at(1)).await.is_some());
    fixture.succeed(&run, at(2)).await;
    let events = fixture.events(&run).await;
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    let messages: Vec<&str> = events.iter().map(|event| event.message.as_str()).collect();
    assert_eq!(messages[3..], ["by hand", "hello", "Run succeeded"]);
    assert_eq!(events[3].event_id, format!("evt-{}-4", run.as_str().trim_start_matches("run-")));
    let again = append.replace(", 4,", ", 7,");
    assert_eq!(fixture.plain.execute(&again).await.ok(), Some(1), "events are added after the end");
}

/// Such an event would take a number of a later run with this id.
pub async fn event_of_an_unknown_run_is_refused(fixture: Fixture) {
    let append =
        "INSERT INTO {ops}.run_events (run_id, seq, level, message) VALUES ('run-x', 1, 'info', 'hello')";
    refused(fixture.plain.execute(append).await, RefusalCode::UnknownRun);
    assert_eq!(fixture.plain.number("SELECT count(*) FROM {ops}.run_events").await.ok(), Some(0));
}

/// The next sweep notices a shortened lease and a new expiry.
pub async fn sweeper_obeys_times_set_by_plain_sql(fixture: Fixture) {
    let held = fixture.running(request(), "worker-001", at(0)).await.run_id;
    assert!(fixture.sweep(at(10)).await.is_empty());
    assert_eq!(update(&fixture, &held, "lease_until = started_at").await.ok(), Some(1));
    assert_eq!(fixture.sweep(at(11)).await.len(), 1);
    let waiting = fixture.queue(request(), at(12)).await;
    assert_eq!(update(&fixture, &waiting, "expires_at = queued_at").await.ok(), Some(1));
    assert_eq!(fixture.sweep(at(13)).await.len(), 1);
    assert_eq!(fixture.status(&waiting).await, RunState::Cancelled);
}

/// Only PostgreSQL stores the number of events.
pub async fn event_counter_cannot_be_decreased(fixture: Fixture) {
    if fixture.kind == Kind::Sqlite {
        return;
    }
    let run = fixture.running(request(), "worker-001", at(0)).await.run_id;
    let before = fixture.tables().await;
    for set in ["last_seq = 0", "last_seq = 2, status = 'failed'"] {
        refused(update(&fixture, &run, set).await, RefusalCode::Frozen);
    }
    fixture.unchanged(&before).await;
    fixture.succeed(&run, at(1)).await;
}

async fn marks(fixture: &Fixture) -> Vec<String> {
    let read =
        "SELECT kind || ' ' || value || ' ' || run_id FROM {ops}.run_lookup ORDER BY kind, value, run_id";
    fixture.plain.texts(read).await.unwrap_or_default()
}

async fn listed(fixture: &Fixture, filter: RunFilter) -> Vec<RunId> {
    let runs = fixture.store.runs(RunFilter { limit: 10, ..filter }).await;
    runs.unwrap_or_default().into_iter().map(|run| run.run_id).collect()
}

/// Lists find a run by its commit, branch, lane and feed: after its creation, after a plain statement, and not after
/// its deletion.
pub async fn run_changed_by_plain_sql_is_listed_by_its_new_values(fixture: Fixture) {
    let of_main = QueueRun { git_sha: Some("abc".to_owned()), git_ref: Some("main".to_owned()), ..request() };
    let run = fixture.queue(of_main, at(0)).await;
    let insert = "INSERT INTO {ops}.runs (run_id, project_id, env_id, git_ref, lane, concurrency_key) \
                  VALUES ('run-by-hand', 'shop', 'shop/staging', 'side', 'sync', 'feed:gems')";
    assert_eq!(fixture.plain.execute(insert).await.ok(), Some(1));
    let Ok(by_hand) = "run-by-hand".parse::<RunId>() else { panic!("it is an id") };
    let of_ref = |prefix: &str| RunFilter { ref_prefix: Some(prefix.to_owned()), ..RunFilter::default() };
    assert_eq!(listed(&fixture, of_ref("ma")).await, slice::from_ref(&run));
    assert_eq!(listed(&fixture, of_ref("si")).await, slice::from_ref(&by_hand));
    let of_gems = || RunFilter { feed: Some("gems".to_owned()), ..RunFilter::default() };
    assert_eq!(listed(&fixture, of_gems()).await, slice::from_ref(&by_hand));
    let expected = ["feed feed:gems", "lane sync", "ref side"].map(|mark| format!("{mark} run-by-hand"));
    let mut all = vec![format!("ref main {run}"), format!("sha abc {run}")];
    all.extend(expected);
    all.sort();
    assert_eq!(marks(&fixture).await, all);

    assert_eq!(update(&fixture, &run, "git_ref = 'other', git_sha = NULL").await.ok(), Some(1));
    assert_eq!(update(&fixture, &by_hand, "lane = 'ops', git_ref = 'other'").await.ok(), Some(1));
    assert!(listed(&fixture, of_ref("ma")).await.is_empty() && listed(&fixture, of_gems()).await.is_empty());
    assert_eq!(listed(&fixture, of_ref("other")).await.len(), 2);
    assert_eq!(marks(&fixture).await.len(), 2);

    for gone in [&run, &by_hand] {
        fixture.cancel(gone, at(5)).await;
        let delete = format!("DELETE FROM {{ops}}.runs WHERE run_id = '{gone}'");
        assert_eq!(fixture.plain.execute(&delete).await.map_err(|bad| bad.to_string()), Ok(1));
    }
    assert!(marks(&fixture).await.is_empty());
}

/// The retry of a run is listed like the run.
pub async fn refused_or_repeated_request_leaves_no_run_mark(fixture: Fixture) {
    let keyed = |sha: &str| QueueRun {
        git_sha: Some(sha.to_owned()),
        idempotency_key: Some("once".to_owned()),
        ..request()
    };
    let first = fixture.queue(keyed("abc"), at(0)).await;
    let again =
        fixture.try_queue(keyed("abc"), at(1)).await.ok().map(|queued| (queued.run_id, queued.created));
    assert_eq!(again, Some((first.clone(), false)));
    refused(fixture.try_queue(keyed("abd"), at(2)).await, RefusalCode::KeyConflict);
    assert_eq!(marks(&fixture).await, [format!("sha abc {first}")]);
    let Some(claim) = fixture.claim("worker-001", at(3)).await else { panic!("it is invisible") };
    fixture.start(&claim, "worker-001", at(3)).await;
    fixture.finish(&first, FinalStatus::Failed, json!({}), at(4)).await;
    let RetryOutcome { run_id: next, .. } = fixture.retry(&first, at(5)).await;
    let mut all = [format!("retry_of {first} {next}"), format!("sha abc {first}"), format!("sha abc {next}")];
    all.sort();
    assert_eq!(marks(&fixture).await, all);
}

/// Returns the time of a row that was inserted with the database clock.
async fn inserted_at(fixture: &Fixture) -> tidemill_core::Timestamp {
    fixture.store.now(None).await.unwrap_or_else(|_| at(0))
}
