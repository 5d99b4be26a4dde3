//! Plain SQL, past every verb: what has ended or was recorded stays, and what a statement changes is on record.

use std::slice;

use serde_json::json;
use tidemill_core::RunId;
use tidemill_core::event::EventKind;
use tidemill_core::run::{Applied, EndCause, FinalStatus, QueueRun, Retried, RunFilter, RunState};
use tidemill_store::{Error, RefusalCode};

use crate::door::{Kind, Stage, at, info, refused, request};

async fn update(stage: &Stage, run: &RunId, set: &str) -> Result<u64, Error> {
    stage.plain.execute(&format!("UPDATE {{ops}}.runs SET {set} WHERE run_id = '{run}'")).await
}

async fn ended(stage: &Stage, status: FinalStatus) -> RunId {
    let run = stage.running(request(), "worker-001", at(0)).await.run_id;
    stage.finish(&run, status, json!({"exit_code": 1}), at(1)).await;
    run
}

/// No column of a row that has ended can be changed, by anybody.
pub async fn a_row_that_has_ended_cannot_be_changed(stage: Stage) {
    for status in [FinalStatus::Success, FinalStatus::Failed, FinalStatus::Cancelled] {
        let run = ended(&stage, status).await;
        let before = stage.tables().await;
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
            refused(update(&stage, &run, set).await, RefusalCode::Frozen);
        }
        stage.unchanged(&before).await;
    }
}

/// The arrows of the diagram hold for statements too.
pub async fn a_statement_cannot_make_a_step_that_does_not_exist(stage: Stage) {
    let queued = stage.queue(request(), at(0)).await;
    let before = stage.tables().await;
    for state in ["running", "success", "failed"] {
        let set = format!("status = '{state}', claimed_by = 'w', finished_at = NULL");
        refused(update(&stage, &queued, &set).await, RefusalCode::Frozen);
    }
    stage.unchanged(&before).await;
    assert_eq!(stage.claim_id("worker-001", at(1)).await, Some(queued));
}

/// Nor can a run go back to an earlier state.
pub async fn a_statement_cannot_turn_a_run_back(stage: Stage) {
    let run = stage.running(request(), "worker-001", at(0)).await.run_id;
    let before = stage.tables().await;
    for set in ["status = 'claimed'", "status = 'queued', gate = 'open'"] {
        refused(update(&stage, &run, set).await, RefusalCode::Frozen);
    }
    assert!(update(&stage, &run, "status = 'unheard of'").await.is_err());
    assert!(update(&stage, &run, "gate = 'open'").await.is_err(), "only what waits has a gate");
    stage.unchanged(&before).await;
}

/// A run stays what it is a run of: events and lists name it so.
pub async fn a_run_keeps_its_id_its_project_and_its_environment(stage: Stage) {
    let run = stage.queue(request(), at(0)).await;
    let before = stage.tables().await;
    for set in ["run_id = 'run-other'", "project_id = 'bank'", "env_id = 'shop/production'"] {
        refused(update(&stage, &run, set).await, RefusalCode::Frozen);
    }
    stage.unchanged(&before).await;
    let same = "run_id = run_id, project_id = project_id, env_id = env_id";
    assert_eq!(update(&stage, &run, same).await.ok(), Some(1), "what does not change it is no move");
}

/// No statement leaves a run whose columns contradict each other, whatever it says of its events.
pub async fn a_statement_cannot_leave_a_run_in_two_states(stage: Stage) {
    let held = stage.running(request(), "worker-001", at(0)).await.run_id;
    let queued = stage.queue(request(), at(1)).await;
    let before = stage.tables().await;
    let raised = if stage.kind == Kind::Sqlite { "" } else { ", last_seq = last_seq + 1" };
    for raised in ["", raised] {
        for (run, set) in [
            (&queued, "finished_at = created_at"),
            (&queued, "gate = NULL"),
            (&held, "claimed_by = NULL"),
            (&held, "finished_at = created_at"),
            (&held, "gate = 'open'"),
        ] {
            let set = format!("{set}{raised}");
            assert!(update(&stage, run, &set).await.is_err(), "{set}");
        }
    }
    for values in
        ["'other-1', 'shop', 'shop/staging', 'queued'", "'run-1', 'shop', 'shop/staging', 'success'"]
    {
        let insert =
            format!("INSERT INTO {{ops}}.runs (run_id, project_id, env_id, status) VALUES ({values})");
        assert!(stage.plain.execute(&insert).await.is_err(), "{values}");
    }
    stage.unchanged(&before).await;
}

/// The record is only ever appended to.
pub async fn events_cannot_be_changed_or_deleted(stage: Stage) {
    let run = stage.running(request(), "worker-001", at(0)).await.run_id;
    stage.say(&run, info("hello"), at(1)).await;
    for live in [true, false] {
        if !live {
            stage.succeed(&run, at(2)).await;
        }
        let before = stage.tables().await;
        let mut attempts = vec![
            "UPDATE {ops}.run_events SET message = 'something else'",
            "UPDATE {ops}.run_events SET seq = seq + 100",
            "DELETE FROM {ops}.run_events",
            "DELETE FROM {ops}.run_events WHERE kind = 'log'",
        ];
        if stage.kind == Kind::Sqlite {
            attempts.push(
                "INSERT OR REPLACE INTO run_events (run_id, seq, level, message) \
                 SELECT run_id, seq, 'info', 'something else' FROM run_events",
            );
        } else {
            attempts.push("TRUNCATE {ops}.run_events");
        }
        for attempt in attempts {
            refused(stage.plain.execute(attempt).await, RefusalCode::Frozen);
        }
        stage.unchanged(&before).await;
    }
}

/// A run that has not ended cannot be deleted; one that has can, and its record with it.
pub async fn a_run_that_lives_cannot_be_deleted(stage: Stage) {
    let queued = stage.queue(request(), at(0)).await;
    let delete = format!("DELETE FROM {{ops}}.runs WHERE run_id = '{queued}'");
    refused(stage.plain.execute(&delete).await, RefusalCode::Frozen);
    stage.claim("worker-001", at(1)).await;
    refused(stage.plain.execute(&delete).await, RefusalCode::Frozen);
    stage.say(&queued, info("hello"), at(2)).await;
    refused(stage.plain.execute(&delete).await, RefusalCode::Frozen);
    stage.succeed(&queued, at(3)).await;
    assert_eq!(stage.plain.execute(&delete).await.ok(), Some(1));
    let events = format!("DELETE FROM {{ops}}.run_events WHERE run_id = '{queued}'");
    assert_eq!(stage.plain.execute(&events).await.ok(), Some(5));
}

/// The seed's own statement for stale runs works, is on record, and ends the run in every respect.
pub async fn the_seeds_plain_update_cancels_and_is_on_record(stage: Stage) {
    let run = stage.claimed(request(), "worker-001", at(0)).await.run_id;
    let waiting = stage.queue(request(), at(0)).await;
    let text = if stage.kind == Kind::Sqlite {
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
    assert_eq!(stage.plain.execute(text).await.map_err(|bad| bad.to_string()), Ok(1));
    let ended = stage.run(&run).await;
    assert_eq!((ended.status, ended.end_cause), (RunState::Cancelled, Some(EndCause::Statement)));
    assert!(ended.finished_at.is_some());
    assert_eq!(ended.metadata["cancelled_by"], "system");
    let events = stage.events(&run).await;
    let Some(last) = events.last() else { panic!("there is no record") };
    assert_eq!((last.kind, last.message.as_str()), (EventKind::Transition, "Run cancelled"));
    assert_eq!(last.payload, json!({"from": "claimed", "to": "cancelled", "cause": "statement"}));
    refused(update(&stage, &run, "metadata = '{}'").await, RefusalCode::Frozen);
    assert_eq!(stage.finish(&run, FinalStatus::Success, json!({}), at(9)).await, Applied::Stale);
    assert_eq!(stage.status(&waiting).await, RunState::Queued);
    // A retry begins with what was asked, not with what the statement wrote.
    let retried = stage.retry(&run, at(10)).await;
    assert_eq!(stage.run(&retried.run_id).await.metadata, json!({}));
}

/// The shortest statement that cancels: everything that it leaves out is filled in, from every live state.
pub async fn a_plain_update_is_completed(stage: Stage) {
    let queued = stage.queue(request(), at(0)).await;
    assert_eq!(update(&stage, &queued, "status = 'cancelled'").await.ok(), Some(1));
    let claimed = stage.claimed(request(), "worker-001", at(0)).await.run_id;
    assert_eq!(update(&stage, &claimed, "status = 'cancelled'").await.ok(), Some(1));
    let running = stage.running(request(), "worker-001", at(0)).await.run_id;
    assert_eq!(update(&stage, &running, "status = 'failed'").await.ok(), Some(1));
    for (run, from, to) in
        [(queued, "queued", "cancelled"), (claimed, "claimed", "cancelled"), (running, "running", "failed")]
    {
        let ended = stage.run(&run).await;
        assert_eq!(
            (ended.status.as_str(), ended.gate, ended.end_cause),
            (to, None, Some(EndCause::Statement))
        );
        assert!(ended.finished_at.is_some() && ended.updated_at > at(0));
        let events = stage.events(&run).await;
        let last = events.last().map(|event| event.payload.clone());
        assert_eq!(last, Some(json!({"from": from, "to": to, "cause": "statement"})));
    }
    assert_eq!(stage.claim("worker-001", at(9)).await, None);
    assert!(stage.sweep(at(9_999)).await.is_empty());
}

/// The seed's simplified claim, by hand: the run has a lease then, and the sweeper watches over it.
pub async fn a_run_that_is_claimed_by_hand_has_a_lease(stage: Stage) {
    let run = stage.queue(request(), at(0)).await;
    let set = "status = 'claimed', claimed_by = 'by-hand'";
    assert_eq!(update(&stage, &run, set).await.map_err(|bad| bad.to_string()), Ok(1));
    let claimed = stage.run(&run).await;
    assert_eq!((claimed.status, claimed.gate, claimed.epoch), (RunState::Claimed, None, 1));
    assert!(claimed.lease_until.is_some() && claimed.started_at.is_some());
    assert_eq!(stage.messages(&run).await, ["Run queued", "Run claimed by worker"]);
    let Some(lease) = claimed.lease_until else { return };
    assert!(stage.heartbeat(&run, lease).await.held);
    assert_eq!(stage.sweep(lease + chrono::TimeDelta::seconds(300)).await.len(), 1);
}

/// A run that is inserted by hand is a run like any other.
pub async fn a_run_that_is_inserted_by_hand_is_claimed(stage: Stage) {
    let insert = "INSERT INTO {ops}.runs (run_id, project_id, env_id, git_sha, metadata) \
                  VALUES ('run-by-hand', 'shop', 'shop/staging', 'abc', '{\"trigger\": \"psql\"}')";
    assert_eq!(stage.plain.execute(insert).await.map_err(|bad| bad.to_string()), Ok(1));
    let Some(claim) = stage.claim("worker-001", stage_now(&stage).await).await else {
        panic!("nobody sees it")
    };
    assert_eq!((claim.run_id.as_str(), claim.metadata["trigger"].as_str()), ("run-by-hand", Some("psql")));
    assert_eq!(stage.messages(&claim.run_id).await, ["Run queued", "Run claimed by worker"]);
    let elsewhere =
        "INSERT INTO {ops}.runs (run_id, project_id, env_id) VALUES ('run-x', 'shop', 'bank/staging')";
    refused(stage.plain.execute(elsewhere).await, RefusalCode::UnknownEnvironment);
    let odd = "INSERT INTO {ops}.runs (run_id, project_id, env_id) VALUES ('job-1', 'shop', 'shop/staging')";
    assert!(stage.plain.execute(odd).await.is_err(), "a run's id begins with run-");
}

/// An event that a statement appends is one of the run's events, and the verbs go on counting after it.
pub async fn a_statement_appends_an_event_and_the_verbs_count_on(stage: Stage) {
    let run = stage.running(request(), "worker-001", at(0)).await.run_id;
    let append = format!(
        "INSERT INTO {{ops}}.run_events (run_id, seq, level, message) VALUES ('{run}', 4, 'info', 'by hand')"
    );
    assert_eq!(stage.plain.execute(&append).await.map_err(|bad| bad.to_string()), Ok(1));
    assert!(stage.say(&run, info("hello"), at(1)).await.is_some());
    stage.succeed(&run, at(2)).await;
    let events = stage.events(&run).await;
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    let messages: Vec<&str> = events.iter().map(|event| event.message.as_str()).collect();
    assert_eq!(messages[3..], ["by hand", "hello", "Run succeeded"]);
    assert_eq!(events[3].event_id, format!("evt-{}-4", run.as_str().trim_start_matches("run-")));
    let again = append.replace(", 4,", ", 7,");
    assert_eq!(stage.plain.execute(&again).await.ok(), Some(1), "the record goes on after the end");
}

/// A statement that shortens a lease is noticed by the next sweep, as is one that sets an expiry.
pub async fn the_sweeper_sees_times_that_a_statement_sets(stage: Stage) {
    let held = stage.running(request(), "worker-001", at(0)).await.run_id;
    assert!(stage.sweep(at(10)).await.is_empty());
    assert_eq!(update(&stage, &held, "lease_until = started_at").await.ok(), Some(1));
    assert_eq!(stage.sweep(at(11)).await.len(), 1);
    let waiting = stage.queue(request(), at(12)).await;
    assert_eq!(update(&stage, &waiting, "expires_at = queued_at").await.ok(), Some(1));
    assert_eq!(stage.sweep(at(13)).await.len(), 1);
    assert_eq!(stage.status(&waiting).await, RunState::Cancelled);
}

/// The number of a run's events does not go down. Only PostgreSQL keeps one.
pub async fn the_number_of_events_does_not_go_down(stage: Stage) {
    if stage.kind == Kind::Sqlite {
        return;
    }
    let run = stage.running(request(), "worker-001", at(0)).await.run_id;
    let before = stage.tables().await;
    for set in ["last_seq = 0", "last_seq = 2, status = 'failed'"] {
        refused(update(&stage, &run, set).await, RefusalCode::Frozen);
    }
    stage.unchanged(&before).await;
    stage.succeed(&run, at(1)).await;
}

async fn marks(stage: &Stage) -> Vec<String> {
    let read =
        "SELECT kind || ' ' || value || ' ' || run_id FROM {ops}.run_marks ORDER BY kind, value, run_id";
    stage.plain.texts(read).await.unwrap_or_default()
}

async fn listed(stage: &Stage, filter: RunFilter) -> Vec<RunId> {
    let runs = stage.store.runs(RunFilter { limit: 10, ..filter }).await;
    runs.unwrap_or_default().into_iter().map(|run| run.run_id).collect()
}

/// Lists find a run by its commit, branch, lane and feed: as it was made, as a statement made it, and no more when it
/// is gone.
pub async fn a_run_is_listed_by_what_a_statement_says_of_it(stage: Stage) {
    let of_main = QueueRun { git_sha: Some("abc".to_owned()), git_ref: Some("main".to_owned()), ..request() };
    let run = stage.queue(of_main, at(0)).await;
    let insert = "INSERT INTO {ops}.runs (run_id, project_id, env_id, git_ref, lane, concurrency_key) \
                  VALUES ('run-by-hand', 'shop', 'shop/staging', 'side', 'sync', 'feed:gems')";
    assert_eq!(stage.plain.execute(insert).await.ok(), Some(1));
    let Ok(by_hand) = "run-by-hand".parse::<RunId>() else { panic!("it is an id") };
    let of_ref = |prefix: &str| RunFilter { ref_prefix: Some(prefix.to_owned()), ..RunFilter::default() };
    assert_eq!(listed(&stage, of_ref("ma")).await, slice::from_ref(&run));
    assert_eq!(listed(&stage, of_ref("si")).await, slice::from_ref(&by_hand));
    let of_gems = || RunFilter { feed: Some("gems".to_owned()), ..RunFilter::default() };
    assert_eq!(listed(&stage, of_gems()).await, slice::from_ref(&by_hand));
    let expected = ["feed feed:gems", "lane sync", "ref side"].map(|mark| format!("{mark} run-by-hand"));
    let mut all = vec![format!("ref main {run}"), format!("sha abc {run}")];
    all.extend(expected);
    all.sort();
    assert_eq!(marks(&stage).await, all);

    assert_eq!(update(&stage, &run, "git_ref = 'other', git_sha = NULL").await.ok(), Some(1));
    assert_eq!(update(&stage, &by_hand, "lane = 'ops', git_ref = 'other'").await.ok(), Some(1));
    assert!(listed(&stage, of_ref("ma")).await.is_empty() && listed(&stage, of_gems()).await.is_empty());
    assert_eq!(listed(&stage, of_ref("other")).await.len(), 2);
    assert_eq!(marks(&stage).await.len(), 2);

    for gone in [&run, &by_hand] {
        stage.cancel(gone, at(5)).await;
        let delete = format!("DELETE FROM {{ops}}.runs WHERE run_id = '{gone}'");
        assert_eq!(stage.plain.execute(&delete).await.map_err(|bad| bad.to_string()), Ok(1));
    }
    assert!(marks(&stage).await.is_empty());
}

/// A run that is not made is not listed: neither by a key that is known, nor by one that is refused. The try after a
/// run is listed as the run was.
pub async fn a_request_that_is_refused_or_known_leaves_no_mark(stage: Stage) {
    let keyed = |sha: &str| QueueRun {
        git_sha: Some(sha.to_owned()),
        idempotency_key: Some("once".to_owned()),
        ..request()
    };
    let first = stage.queue(keyed("abc"), at(0)).await;
    let again = stage.try_queue(keyed("abc"), at(1)).await.ok().map(|queued| (queued.run_id, queued.created));
    assert_eq!(again, Some((first.clone(), false)));
    refused(stage.try_queue(keyed("abd"), at(2)).await, RefusalCode::KeyConflict);
    assert_eq!(marks(&stage).await, [format!("sha abc {first}")]);
    let Some(claim) = stage.claim("worker-001", at(3)).await else { panic!("nobody sees it") };
    stage.start(&claim, "worker-001", at(3)).await;
    stage.finish(&first, FinalStatus::Failed, json!({}), at(4)).await;
    let Retried { run_id: next, .. } = stage.retry(&first, at(5)).await;
    let mut both = [format!("sha abc {first}"), format!("sha abc {next}")];
    both.sort();
    assert_eq!(marks(&stage).await, both);
}

/// The time of a row that was inserted with the database's own clock.
async fn stage_now(stage: &Stage) -> tidemill_core::Timestamp {
    stage.store.now(None).await.unwrap_or_else(|_| at(0))
}
