//! Lifecycle of runs: queue, list, show, work, watch, cancel and retry.

use rustix::process::Signal;
use tidemill_core::RunId;
use tidemill_core::run::{EndCause, RunCursor, RunState};

use super::{at, text};
use crate::fixture::{Fixture, Kind, TIMEOUT, on_both, wait_until};
use crate::process::Process;

on_both!(
    run_goes_from_queued_to_success,
    failed_run_is_retried_and_watched_across_attempts,
    watch_prints_events_while_the_run_executes,
    queued_run_is_cancelled_and_retried_once,
    running_run_is_cancelled,
    repeated_idempotency_key_returns_the_first_run,
    run_lists_and_events_are_paged,
    paused_project_waits_until_it_is_resumed,
    labels_priorities_and_times_control_claims,
    artifacts_are_recorded_once,
);

fn work(fixture: &Fixture, script: &str) -> String {
    fixture.tidemill(&["work", "--worker", "builder", "--drain", "--", "sh", "-c", script]).ok()
}

fn run_goes_from_queued_to_success(fixture: &Fixture) {
    let answer = fixture.json(&[
        "run",
        "queue",
        "--project",
        "shop",
        "--env",
        "staging",
        "--git-sha",
        "abc123",
        "--git-ref",
        "main",
        "--kind",
        "email",
        "--metadata",
        r#"{"trigger": "webhook"}"#,
    ]);
    let fields: Vec<&String> = answer.as_object().unwrap().keys().collect();
    for field in ["run_id", "status", "queued_at"] {
        assert!(fields.contains(&&field.to_owned()), "{answer}");
    }
    assert_eq!(text(&answer, "status"), "queued");
    let id = text(&answer, "run_id");

    let why = fixture.tidemill(&["run", "why", id]);
    assert!(why.stdout.contains("It waits for a worker, but no worker is running."), "{why:?}");
    let why = fixture.json(&["run", "why", id]);
    assert_eq!((text(&why, "code"), text(&why, "run_id")), ("no_workers", id));
    assert!(text(&why, "sentence").contains("no worker is running"));

    check_list(fixture, id);
    work(fixture, "cat; echo built; echo odd >&2");
    check_run(fixture, id);
    check_events(fixture, id);

    let watched = fixture.tidemill(&["run", "watch", id]);
    assert_eq!(watched.code, Some(0), "{watched:?}");
    assert!(watched.stdout.contains("built") && watched.stdout.contains("It succeeded"), "{watched:?}");
    let why = fixture.json(&["run", "why", id]);
    assert_eq!((text(&why, "code"), text(&why, "status")), ("ended", "success"));
}

/// Checks the filters of `run list` with one queued run.
fn check_list(fixture: &Fixture, id: &str) {
    let table = fixture.ok(&["run", "list"]);
    let mut lines = table.lines();
    assert!(lines.next().unwrap().starts_with("RUN "), "{table}");
    let row = lines.next().unwrap();
    assert!(table.lines().next().is_some_and(|header| header.contains(" KIND ")), "{table}");
    for word in [id, "queued", "email", "shop/staging", " ago", "main abc123"] {
        assert!(row.contains(word), "{word}: {row}");
    }
    assert_eq!(fixture.json(&["run", "list", "--status", "running"]).as_array().map(Vec::len), Some(0));
    let listed =
        |options: &[&str]| fixture.json(&[&["run", "list"], options].concat()).as_array().map(Vec::len);
    let prefix = &id[4..20];
    for options in [
        &["--lane", "ops", "--env", "staging", "--project", "shop", "--state", "queued"][..],
        &["--since", "1h", "--id", prefix, "--sha", "abc1", "--ref", "ma"],
        &["--id", id, "--until", "2100-01-01T00:00:00Z"],
        &["--kind", "email"],
        &["--kind", "email", "--status", "queued", "--env", "staging"],
    ] {
        assert_eq!(listed(options), Some(1), "{options:?}");
    }
    for options in [
        &["--lane", "graph"][..],
        &["--env", "production"],
        &["--kind", "mail"],
        &["--until", "1h"],
        &["--since", "2100-01-01T00:00:00Z"],
        &["--sha", "abd1"],
        &["--ref", "mb"],
        &["--id", "run-f"],
        &["--feed", "gems"],
    ] {
        assert_eq!(listed(options), Some(0), "{options:?}");
    }
    let page =
        fixture.tidemill(&["run", "list", "--limit", "1", "--lane", "ops", "--kind", "email", "--ref", "ma"]);
    let position = RunCursor::at(&fixture.run(&id.parse().expect("an id")));
    let older = format!("older runs: tidemill run list --lane ops --kind email --ref ma --before {position}");
    assert_eq!(page.stderr.trim(), older, "{page:?}");
}

/// Checks `run show` of the successful run.
fn check_run(fixture: &Fixture, id: &str) {
    let shown = fixture.json(&["run", "show", id]);
    assert_eq!((text(&shown, "status"), text(&shown, "claimed_by")), ("success", "builder"));
    assert_eq!((at(&shown, "metadata.trigger"), text(&shown, "kind")), (&"webhook".into(), "email"));
    assert_eq!(at(&shown, "metadata.exit_code"), 0);
    assert_eq!(text(&shown, "tries.0.run_id"), id);
    assert!(text(&shown, "tries.0.certainty").contains("committed once"));
    let page = fixture.ok(&["run", "show", id]);
    for word in
        [id, "success", "email", "shop/staging", "main abc123", "builder", "It succeeded", "CERTAINTY"]
    {
        assert!(page.contains(word), "{word}: {page}");
    }
}

/// Checks `run events` of the successful run.
fn check_events(fixture: &Fixture, id: &str) {
    let events = fixture.json(&["run", "events", id]);
    let events = events.as_array().unwrap();
    let messages: Vec<&str> = events.iter().map(|event| text(event, "message")).collect();
    assert_eq!(messages[..3], ["Run queued", "Run claimed by worker", "Run started"]);
    assert_eq!(messages.last(), Some(&"Run succeeded"));
    let given = events
        .iter()
        .find(|event| text(event, "message").starts_with('{'))
        .expect("the command printed the run");
    let given: serde_json::Value = serde_json::from_str(text(given, "message")).expect("it is JSON");
    assert_eq!((text(&given, "run_id"), text(&given, "metadata.trigger")), (id, "webhook"));
    assert_eq!(text(&given, "kind"), "email");
    let stream = |line: &str| {
        let event = events.iter().find(|event| text(event, "message") == line).expect("the line is there");
        (text(event, "level").to_owned(), text(event, "payload.stream").to_owned())
    };
    assert_eq!(stream("built"), ("info".to_owned(), "stdout".to_owned()));
    assert_eq!(stream("odd"), ("warn".to_owned(), "stderr".to_owned()));
    let lines = fixture.ok(&["run", "events", id, "--level", "warn"]);
    assert!(lines.contains("odd") && !lines.contains("built"), "{lines}");
}

fn failed_run_is_retried_and_watched_across_attempts(fixture: &Fixture) {
    let first = fixture.queue(&["--attempts", "2", "--backoff", "0s"]);
    work(fixture, r#"echo "try $TIDEMILL_ATTEMPT" >&2; [ "$TIDEMILL_ATTEMPT" = 2 ]"#);
    let tries = fixture.tries(&first);
    assert_eq!(tries.len(), 2);
    assert_eq!((tries[0].status, tries[1].status), (RunState::Failed, RunState::Success));
    assert_eq!(tries[0].metadata["exit_code"], 1);
    assert_eq!(tries[0].metadata["stderr"], "try 1");
    assert_eq!(tries[1].retry_of, Some(first.clone()));

    let watched = fixture.tidemill(&["run", "watch", first.as_str()]);
    assert_eq!(watched.code, Some(0), "{watched:?}");
    assert!(
        watched.stdout.contains(&format!("attempt 2 of the request: {}", tries[1].run_id)),
        "{watched:?}"
    );
    let why = fixture.ok(&["run", "why", first.as_str()]);
    assert!(why.contains("exit code 1") && why.contains(tries[1].run_id.as_str()), "{why}");

    let failing = fixture.queue(&[]);
    work(fixture, "exit 9");
    let watched = fixture.tidemill(&["run", "watch", failing.as_str()]);
    assert_eq!(watched.code, Some(3), "{watched:?}");
    let watched = fixture.tidemill(&["--json", "run", "watch", failing.as_str()]);
    assert_eq!(watched.code, Some(3), "{watched:?}");
    for line in watched.stdout.lines() {
        serde_json::from_str::<serde_json::Value>(line).expect("each line is JSON");
    }
    let missing = fixture.queue(&[]);
    fixture.tidemill(&["work", "--drain", "--", "/no/such/program"]).ok();
    let error = fixture.run(&missing).metadata["error"].to_string();
    assert!(error.contains("`/no/such/program` was not found"), "{error}");
}

/// A watch that starts before the run prints all events in order, and ends with the run.
fn watch_prints_events_while_the_run_executes(fixture: &Fixture) {
    let mut command = fixture.command(&["run", "queue", "--project", "shop", "--env", "staging", "--watch"]);
    let mut watch = Process::start(fixture, "watch", &mut command);
    wait_until("the run is queued", || (!fixture.runs().is_empty()).then_some(()));
    let release = fixture.path("release");
    let script = format!("echo first; while ! [ -e {} ]; do sleep 0.02; done; echo last", release.display());
    let mut worker = Process::worker(fixture, "builder", &[], &script);
    wait_until("the watch shows the first line", || watch.stdout().contains("first").then_some(()));
    assert!(watch.is_running() && !watch.stdout().contains("last"));
    std::fs::write(&release, "").unwrap();
    assert_eq!(watch.wait_for_exit(TIMEOUT), Some(0));
    let wrote = watch.stdout();
    assert!(wrote.find("first") < wrote.find("last") && wrote.contains("It succeeded"), "{wrote}");
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0));
}

fn queued_run_is_cancelled_and_retried_once(fixture: &Fixture) {
    let id = fixture.queue(&[]);
    let message = fixture.ok(&["run", "cancel", id.as_str(), "--reason", "not needed"]);
    assert!(message.contains("is cancelled"), "{message}");
    let run = fixture.run(&id);
    assert_eq!(run.status, RunState::Cancelled);
    assert_eq!(
        (&run.metadata["cancelled_by"], &run.metadata["reason"]),
        (&"ann".into(), &"not needed".into())
    );
    let again = fixture.tidemill(&["run", "cancel", id.as_str()]);
    assert_eq!(again.code, Some(3), "{again:?}");
    assert!(again.stderr.contains("has already ended: cancelled"), "{again:?}");

    let next: RunId = fixture.ok(&["run", "retry", id.as_str()]).trim().parse().unwrap();
    let same = fixture.tidemill(&["run", "retry", id.as_str()]);
    assert_eq!(same.stdout.trim(), next.as_str());
    assert!(same.stderr.contains("was already retried"), "{same:?}");
    assert_eq!(fixture.json(&["run", "retry", id.as_str()])["created"], false);
    let retried = fixture.run(&next);
    assert_eq!((retried.attempt, retried.retry_of), (2, Some(id.clone())));
    let again = fixture.tidemill(&["run", "cancel", id.as_str()]);
    assert!(again.stderr.contains(&format!("hint: tidemill run cancel {next}")), "{again:?}");
    let live = fixture.tidemill(&["run", "retry", next.as_str()]);
    assert_eq!(live.code, Some(3), "{live:?}");
    work(fixture, "true");
    assert_eq!(fixture.run(&next).status, RunState::Success);
}

fn running_run_is_cancelled(fixture: &Fixture) {
    let id = fixture.queue(&[]);
    let mut worker = Process::worker(fixture, "builder", &["--grace", "5s"], "echo up; sleep 600");
    wait_until("the command has started", || {
        fixture.events(&id).iter().any(|event| event.message == "up").then_some(())
    });
    let why = fixture.json(&["run", "why", id.as_str()]);
    assert_eq!((text(&why, "code"), text(&why, "last_event")), ("running", "up"));
    let answer = fixture.json(&["run", "cancel", id.as_str(), "--reason", "wrong branch"]);
    assert_eq!(text(&answer, "outcome"), "requested");
    let run = fixture.wait_for_state(&id, RunState::Cancelled);
    assert_eq!(run.metadata["cancelled_by"], "ann");
    assert_eq!(run.metadata["reason"], "wrong branch");
    let watched = fixture.tidemill(&["run", "watch", id.as_str()]);
    assert_eq!(watched.code, Some(3), "{watched:?}");
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0));
}

fn repeated_idempotency_key_returns_the_first_run(fixture: &Fixture) {
    let first = fixture.queue(&["--idempotency-key", "push-1", "--git-sha", "a"]);
    assert_eq!(fixture.queue(&["--idempotency-key", "push-1", "--git-sha", "a"]), first);
    let message = fixture.tidemill(&[
        "run",
        "queue",
        "--project",
        "shop",
        "--env",
        "staging",
        "--idempotency-key",
        "push-1",
        "--git-sha",
        "a",
    ]);
    assert!(message.stderr.contains("a run with this key exists already"), "{message:?}");
    fixture.ok(&["project", "create", "bank", "--env", "staging"]);
    let args = ["run", "queue", "--project", "bank", "--env", "staging", "--idempotency-key", "push-1"];
    assert_ne!(fixture.ok(&args).trim(), first.as_str());

    // Concurrent requests: one run, and each caller gets its id.
    let mut command = fixture.command(&["run", "queue", "--project", "shop", "--env", "staging"]);
    command.args(["--idempotency-key", "race"]);
    let answers: Vec<_> =
        (0..6).map(|_| command.stdout(std::process::Stdio::piped()).spawn().unwrap()).collect();
    let mut ids: Vec<_> = answers.into_iter().map(|child| child.wait_with_output().unwrap().stdout).collect();
    ids.dedup();
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert_eq!(fixture.runs().len(), 3);
}

fn run_lists_and_events_are_paged(fixture: &Fixture) {
    let ids: Vec<RunId> = (0..5).map(|_| fixture.queue(&[])).collect();
    let first = fixture.json(&["run", "list", "--limit", "3"]);
    let listed: Vec<&str> = (0..3).map(|index| text(&first[index], "run_id")).collect();
    assert_eq!(listed, [ids[4].as_str(), ids[3].as_str(), ids[2].as_str()]);
    let rest = fixture.json(&["run", "list", "--limit", "3", "--before", listed[2]]);
    assert_eq!(rest.as_array().map(Vec::len), Some(2));
    let message = fixture.tidemill(&["run", "list", "--limit", "3"]);
    let position = RunCursor::at(&fixture.run(&ids[2])).to_string();
    assert!(message.stderr.contains(&format!("--before {position}")), "{message:?}");
    assert_eq!(fixture.json(&["run", "list", "--limit", "3", "--before", &position]), rest);
    assert_eq!(fixture.json(&["run", "list", "--env", "production"]).as_array().map(Vec::len), Some(0));
    let empty = fixture.tidemill(&["run", "list", "--project", "default"]);
    assert!(empty.stdout.is_empty() && empty.stderr.contains("no runs match"), "{empty:?}");

    let id = ids[0].as_str();
    fixture.ok(&["work", "--drain", "--slots", "5", "--", "seq", "8"]);
    let page = fixture.json(&["run", "events", id, "--after", "4", "--limit", "3"]);
    let seqs: Vec<_> = page.as_array().unwrap().iter().map(|event| event["seq"].as_i64().unwrap()).collect();
    assert_eq!(seqs, [5, 6, 7]);
    let message = fixture.tidemill(&["run", "events", id, "--limit", "3"]);
    assert!(message.stderr.contains(&format!("run events {id} --after 3")), "{message:?}");
}

fn paused_project_waits_until_it_is_resumed(fixture: &Fixture) {
    let message = fixture.ok(&["project", "pause", "shop", "--note", "release freeze", "--until", "2h"]);
    assert!(message.contains("project shop is paused until "), "{message}");
    let id = fixture.queue(&[]);
    let why = fixture.json(&["run", "why", id.as_str()]);
    assert_eq!((text(&why, "code"), text(&why, "note")), ("paused", "release freeze"));
    let list = fixture.ok(&["project", "list"]);
    assert!(list.contains("paused, ends in ") && list.contains("release freeze"), "{list}");
    let mut worker = Process::worker(fixture, "builder", &[], "true");
    wait_until("the worker is waiting", || worker.stderr().contains("waits for runs").then_some(()));
    let other = {
        fixture.ok(&["project", "create", "bank", "--env", "staging"]);
        fixture.ok(&["run", "queue", "--project", "bank", "--env", "staging"]).trim().parse().unwrap()
    };
    fixture.wait_for_state(&other, RunState::Success);
    assert_eq!(fixture.run(&id).status, RunState::Queued, "a run of a paused project was claimed");
    assert_eq!(fixture.json(&["project", "resume", "shop"])["resumed"], true);
    fixture.wait_for_state(&id, RunState::Success);
    let message = fixture.ok(&["project", "resume", "shop"]);
    assert!(message.contains("was not paused"), "{message}");
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0));
}

fn labels_priorities_and_times_control_claims(fixture: &Fixture) {
    let later = fixture.queue(&["--at", "1h"]);
    let late = fixture.queue(&["--expires", "1ms"]);
    let heavy = fixture.queue(&["--label", "gpu"]);
    let low = fixture.queue(&["--priority", "-1"]);
    let high = fixture.queue(&["--priority", "5"]);
    let mut worker = Process::worker(fixture, "plain", &[], r#"echo "$TIDEMILL_RUN_ID" >>"$LEDGER""#);
    for id in [&low, &high] {
        fixture.wait_for_state(id, RunState::Success);
    }
    let order = std::fs::read_to_string(fixture.path("ledger")).unwrap();
    assert_eq!(order, format!("{high}\n{low}\n"));
    assert_eq!(text(&fixture.json(&["run", "why", heavy.as_str()]), "code"), "no_worker_fits");
    assert_eq!(text(&fixture.json(&["run", "why", later.as_str()]), "code"), "not_yet");
    assert_eq!(
        fixture.wait_for_state(&late, RunState::Cancelled).end_cause.map(EndCause::as_str),
        Some("expired")
    );
    let mut fitting = Process::worker(fixture, "fitting", &["--label", "gpu", "--label", "arm"], "true");
    assert_eq!(fixture.wait_for_state(&heavy, RunState::Success).claimed_by.as_deref(), Some("fitting"));
    for process in [&mut worker, &mut fitting] {
        process.signal(Signal::TERM);
        assert_eq!(process.wait_for_exit(TIMEOUT), Some(0));
    }
}

fn artifacts_are_recorded_once(fixture: &Fixture) {
    let id = fixture.queue(&["--metadata", r#"{"a": 1}"#]);
    let add =
        ["run", "artifact", "add", id.as_str(), "--type", "image", "--url", "oci://shop@1", "--size", "42"];
    let artifact = fixture.ok(&add);
    assert_eq!(fixture.ok(&add), artifact, "the same type and URL is the same artifact");
    fixture.ok(&[
        "run",
        "artifact",
        "add",
        id.as_str(),
        "--type",
        "sbom",
        "--url",
        "s3://x",
        "--digest",
        "sha256:1",
    ]);
    let list = fixture.json(&["run", "artifact", "list", id.as_str()]);
    assert_eq!(list.as_array().map(Vec::len), Some(2));
    assert_eq!((text(&list, "0.artifact_id"), &list[0]["size_bytes"]), (artifact.trim(), &42.into()));
    let table = fixture.ok(&["run", "artifact", "list", id.as_str()]);
    assert!(table.contains("42 B") && table.contains("sha256:1"), "{table}");
    assert!(fixture.ok(&["run", "show", id.as_str()]).contains("oci://shop@1"));
    assert_eq!(fixture.json(&["run", "show", id.as_str()])["artifacts"].as_array().map(Vec::len), Some(2));
}

#[test]
fn drained_worker_of_one_project_ignores_other_projects() {
    let fixture = Fixture::new(Kind::Sqlite);
    fixture.ok(&["project", "create", "bank", "--env", "staging"]);
    fixture.ok(&["run", "queue", "--project", "bank", "--env", "staging"]);
    let heavy = fixture.queue(&["--label", "gpu"]);
    let id = fixture.queue(&[]);
    fixture.ok(&["work", "--drain", "--project", "shop", "--", "true"]);
    assert_eq!(fixture.run(&id).status, RunState::Success);
    assert_eq!(fixture.run(&heavy).status, RunState::Queued);
}
