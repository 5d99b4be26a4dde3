//! A run's life on the command line: queued, listed, shown, worked, watched, cancelled, tried again.

use rustix::process::Signal;
use tidemill_core::RunId;
use tidemill_core::run::{EndCause, RunState};

use super::{at, text};
use crate::process::Process;
use crate::stage::{Kind, PATIENCE, Stage, on_both, until};

on_both!(
    a_run_goes_from_queued_to_done,
    a_failed_run_is_told_tried_again_and_watched_through_its_successors,
    a_run_is_watched_live,
    a_queued_run_is_cancelled_and_retried_once,
    a_running_run_is_cancelled,
    a_key_makes_asking_twice_the_same_as_asking_once,
    lists_and_records_are_read_page_by_page,
    a_paused_project_waits_and_goes_on,
    labels_and_priorities_and_times_decide_who_claims_what_and_when,
    artifacts_are_recorded_once,
);

fn work(stage: &Stage, script: &str) -> String {
    stage.tidemill(&["work", "--worker", "mill", "--drain", "--", "sh", "-c", script]).ok()
}

fn a_run_goes_from_queued_to_done(stage: &Stage) {
    let answer = stage.json(&[
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
        "--metadata",
        r#"{"trigger": "webhook"}"#,
    ]);
    let fields: Vec<&String> = answer.as_object().unwrap().keys().collect();
    for field in ["run_id", "status", "queued_at"] {
        assert!(fields.contains(&&field.to_owned()), "{answer}");
    }
    assert_eq!(text(&answer, "status"), "queued");
    let id = text(&answer, "run_id");

    let why = stage.tidemill(&["run", "why", id]);
    assert!(why.stdout.contains("It waits for a worker, and none is alive."), "{why:?}");
    let why = stage.json(&["run", "why", id]);
    assert_eq!((text(&why, "code"), text(&why, "run_id")), ("no_workers", id));
    assert!(text(&why, "sentence").contains("none is alive"));

    let table = stage.ok(&["run", "list"]);
    let mut lines = table.lines();
    assert!(lines.next().unwrap().starts_with("RUN "), "{table}");
    let row = lines.next().unwrap();
    for word in [id, "queued", "shop/staging", " ago", "main abc123"] {
        assert!(row.contains(word), "{word}: {row}");
    }
    assert_eq!(stage.json(&["run", "list", "--status", "running"]).as_array().map(Vec::len), Some(0));
    let listed =
        |options: &[&str]| stage.json(&[&["run", "list"], options].concat()).as_array().map(Vec::len);
    let prefix = &id[4..20];
    for options in [
        &["--lane", "ops", "--env", "staging", "--project", "shop", "--state", "queued"][..],
        &["--since", "1h", "--id", prefix, "--sha", "abc1", "--ref", "ma"],
        &["--id", id, "--until", "2100-01-01T00:00:00Z"],
    ] {
        assert_eq!(listed(options), Some(1), "{options:?}");
    }
    for options in [
        &["--lane", "graph"][..],
        &["--env", "production"],
        &["--until", "1h"],
        &["--since", "2100-01-01T00:00:00Z"],
        &["--sha", "abd1"],
        &["--ref", "mb"],
        &["--id", "run-f"],
        &["--feed", "gems"],
    ] {
        assert_eq!(listed(options), Some(0), "{options:?}");
    }
    let page = stage.tidemill(&["run", "list", "--limit", "1", "--lane", "ops", "--ref", "ma"]);
    let older = format!("older ones: tidemill run list --lane ops --ref ma --before {id}");
    assert_eq!(page.stderr.trim(), older, "{page:?}");

    work(stage, "cat; echo built; echo odd >&2");

    let shown = stage.json(&["run", "show", id]);
    assert_eq!((text(&shown, "status"), text(&shown, "claimed_by")), ("success", "mill"));
    assert_eq!(at(&shown, "metadata.trigger"), "webhook");
    assert_eq!(at(&shown, "metadata.exit_code"), 0);
    assert_eq!(text(&shown, "tries.0.run_id"), id);
    assert!(text(&shown, "tries.0.certainty").contains("committed once"));
    let page = stage.ok(&["run", "show", id]);
    for word in [id, "success", "shop/staging", "main abc123", "mill", "It succeeded", "WHAT IS CERTAIN"] {
        assert!(page.contains(word), "{word}: {page}");
    }

    let events = stage.json(&["run", "events", id]);
    let events = events.as_array().unwrap();
    let messages: Vec<&str> = events.iter().map(|event| text(event, "message")).collect();
    assert_eq!(messages[..3], ["Run queued", "Run claimed by worker", "Run started"]);
    assert_eq!(messages.last(), Some(&"Run succeeded"));
    let given =
        events.iter().find(|event| text(event, "message").starts_with('{')).expect("the run was given");
    let given: serde_json::Value = serde_json::from_str(text(given, "message")).expect("it is JSON");
    assert_eq!((text(&given, "run_id"), text(&given, "metadata.trigger")), (id, "webhook"));
    let stream = |line: &str| {
        let event = events.iter().find(|event| text(event, "message") == line).expect("the line is there");
        (text(event, "level").to_owned(), text(event, "payload.stream").to_owned())
    };
    assert_eq!(stream("built"), ("info".to_owned(), "stdout".to_owned()));
    assert_eq!(stream("odd"), ("warn".to_owned(), "stderr".to_owned()));
    let lines = stage.ok(&["run", "events", id, "--level", "warn"]);
    assert!(lines.contains("odd") && !lines.contains("built"), "{lines}");

    let watched = stage.tidemill(&["run", "watch", id]);
    assert_eq!(watched.code, Some(0), "{watched:?}");
    assert!(watched.stdout.contains("built") && watched.stdout.contains("It succeeded"), "{watched:?}");
    let why = stage.json(&["run", "why", id]);
    assert_eq!((text(&why, "code"), text(&why, "status")), ("ended", "success"));
}

fn a_failed_run_is_told_tried_again_and_watched_through_its_successors(stage: &Stage) {
    let first = stage.queue(&["--attempts", "2", "--backoff", "0s"]);
    work(stage, r#"echo "try $TIDEMILL_ATTEMPT" >&2; [ "$TIDEMILL_ATTEMPT" = 2 ]"#);
    let tries = stage.tries(&first);
    assert_eq!(tries.len(), 2);
    assert_eq!((tries[0].status, tries[1].status), (RunState::Failed, RunState::Success));
    assert_eq!(tries[0].metadata["exit_code"], 1);
    assert_eq!(tries[0].metadata["stderr"], "try 1");
    assert_eq!(tries[1].retry_of, Some(first.clone()));

    let watched = stage.tidemill(&["run", "watch", first.as_str()]);
    assert_eq!(watched.code, Some(0), "{watched:?}");
    assert!(watched.stdout.contains(&format!("try 2 of the request: {}", tries[1].run_id)), "{watched:?}");
    let why = stage.ok(&["run", "why", first.as_str()]);
    assert!(why.contains("exit code 1") && why.contains(tries[1].run_id.as_str()), "{why}");

    let hopeless = stage.queue(&[]);
    work(stage, "exit 9");
    let watched = stage.tidemill(&["run", "watch", hopeless.as_str()]);
    assert_eq!(watched.code, Some(3), "{watched:?}");
    let watched = stage.tidemill(&["--json", "run", "watch", hopeless.as_str()]);
    assert_eq!(watched.code, Some(3), "{watched:?}");
    for line in watched.stdout.lines() {
        serde_json::from_str::<serde_json::Value>(line).expect("each line is JSON");
    }
    let missing = stage.queue(&[]);
    stage.tidemill(&["work", "--drain", "--", "/no/such/program"]).ok();
    let error = stage.run(&missing).metadata["error"].to_string();
    assert!(error.contains("`/no/such/program` was not found"), "{error}");
}

/// A watch that is there first sees everything in order, and ends with the run.
fn a_run_is_watched_live(stage: &Stage) {
    let mut command = stage.command(&["run", "queue", "--project", "shop", "--env", "staging", "--watch"]);
    let mut watch = Process::start(stage, "watch", &mut command);
    until("the run is queued", || (!stage.runs().is_empty()).then_some(()));
    let release = stage.path("release");
    let script = format!("echo first; while ! [ -e {} ]; do sleep 0.02; done; echo last", release.display());
    let mut worker = Process::worker(stage, "mill", &[], &script);
    until("the watch shows the first line", || watch.wrote().contains("first").then_some(()));
    assert!(watch.is_running() && !watch.wrote().contains("last"));
    std::fs::write(&release, "").unwrap();
    assert_eq!(watch.ended_within(PATIENCE), Some(0));
    let wrote = watch.wrote();
    assert!(wrote.find("first") < wrote.find("last") && wrote.contains("It succeeded"), "{wrote}");
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended_within(PATIENCE), Some(0));
}

fn a_queued_run_is_cancelled_and_retried_once(stage: &Stage) {
    let id = stage.queue(&[]);
    let told = stage.ok(&["run", "cancel", id.as_str(), "--reason", "not needed"]);
    assert!(told.contains("is cancelled"), "{told}");
    let run = stage.run(&id);
    assert_eq!(run.status, RunState::Cancelled);
    assert_eq!(
        (&run.metadata["cancelled_by"], &run.metadata["reason"]),
        (&"ann".into(), &"not needed".into())
    );
    let again = stage.tidemill(&["run", "cancel", id.as_str()]);
    assert_eq!(again.code, Some(3), "{again:?}");
    assert!(again.stderr.contains("there is nothing to cancel"), "{again:?}");

    let next: RunId = stage.ok(&["run", "retry", id.as_str()]).trim().parse().unwrap();
    let same = stage.tidemill(&["run", "retry", id.as_str()]);
    assert_eq!(same.stdout.trim(), next.as_str());
    assert!(same.stderr.contains("tried again before"), "{same:?}");
    assert_eq!(stage.json(&["run", "retry", id.as_str()])["created"], false);
    let retried = stage.run(&next);
    assert_eq!((retried.attempt, retried.retry_of), (2, Some(id.clone())));
    let again = stage.tidemill(&["run", "cancel", id.as_str()]);
    assert!(again.stderr.contains(&format!("hint: its request goes on as {next}")), "{again:?}");
    let live = stage.tidemill(&["run", "retry", next.as_str()]);
    assert_eq!(live.code, Some(3), "{live:?}");
    work(stage, "true");
    assert_eq!(stage.run(&next).status, RunState::Success);
}

fn a_running_run_is_cancelled(stage: &Stage) {
    let id = stage.queue(&[]);
    let mut worker = Process::worker(stage, "mill", &["--grace", "5s"], "echo up; sleep 600");
    until("the command says that it is up", || {
        stage.events(&id).iter().any(|event| event.message == "up").then_some(())
    });
    let why = stage.json(&["run", "why", id.as_str()]);
    assert_eq!((text(&why, "code"), text(&why, "last_event")), ("running", "up"));
    let answer = stage.json(&["run", "cancel", id.as_str(), "--reason", "wrong branch"]);
    assert_eq!(text(&answer, "outcome"), "requested");
    let run = stage.until(&id, RunState::Cancelled);
    assert_eq!(run.metadata["cancelled_by"], "ann");
    assert_eq!(run.metadata["reason"], "wrong branch");
    let watched = stage.tidemill(&["run", "watch", id.as_str()]);
    assert_eq!(watched.code, Some(3), "{watched:?}");
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended_within(PATIENCE), Some(0));
}

fn a_key_makes_asking_twice_the_same_as_asking_once(stage: &Stage) {
    let first = stage.queue(&["--idempotency-key", "push-1", "--git-sha", "a"]);
    assert_eq!(stage.queue(&["--idempotency-key", "push-1", "--git-sha", "a"]), first);
    let told = stage.tidemill(&[
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
    assert!(told.stderr.contains("this key was used before"), "{told:?}");
    stage.ok(&["project", "create", "bank", "--env", "staging"]);
    let args = ["run", "queue", "--project", "bank", "--env", "staging", "--idempotency-key", "push-1"];
    assert_ne!(stage.ok(&args).trim(), first.as_str());

    // Many at the same instant: one run, and everybody gets it.
    let mut command = stage.command(&["run", "queue", "--project", "shop", "--env", "staging"]);
    command.args(["--idempotency-key", "race"]);
    let answers: Vec<_> =
        (0..6).map(|_| command.stdout(std::process::Stdio::piped()).spawn().unwrap()).collect();
    let mut ids: Vec<_> = answers.into_iter().map(|child| child.wait_with_output().unwrap().stdout).collect();
    ids.dedup();
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert_eq!(stage.runs().len(), 3);
}

fn lists_and_records_are_read_page_by_page(stage: &Stage) {
    let ids: Vec<RunId> = (0..5).map(|_| stage.queue(&[])).collect();
    let first = stage.json(&["run", "list", "--limit", "3"]);
    let listed: Vec<&str> = (0..3).map(|place| text(&first[place], "run_id")).collect();
    assert_eq!(listed, [ids[4].as_str(), ids[3].as_str(), ids[2].as_str()]);
    let rest = stage.json(&["run", "list", "--limit", "3", "--before", listed[2]]);
    assert_eq!(rest.as_array().map(Vec::len), Some(2));
    let told = stage.tidemill(&["run", "list", "--limit", "3"]);
    assert!(told.stderr.contains(&format!("--before {}", listed[2])), "{told:?}");
    assert_eq!(stage.json(&["run", "list", "--env", "production"]).as_array().map(Vec::len), Some(0));
    let empty = stage.tidemill(&["run", "list", "--project", "default"]);
    assert!(empty.stdout.is_empty() && empty.stderr.contains("no run fits"), "{empty:?}");

    let id = ids[0].as_str();
    stage.ok(&["work", "--drain", "--slots", "5", "--", "seq", "8"]);
    let page = stage.json(&["run", "events", id, "--after", "4", "--limit", "3"]);
    let seqs: Vec<_> = page.as_array().unwrap().iter().map(|event| event["seq"].as_i64().unwrap()).collect();
    assert_eq!(seqs, [5, 6, 7]);
    let told = stage.tidemill(&["run", "events", id, "--limit", "3"]);
    assert!(told.stderr.contains(&format!("run events {id} --after 3")), "{told:?}");
}

fn a_paused_project_waits_and_goes_on(stage: &Stage) {
    let told = stage.ok(&["project", "pause", "shop", "--note", "release freeze", "--until", "2h"]);
    assert!(told.contains("project shop is paused until "), "{told}");
    let id = stage.queue(&[]);
    let why = stage.json(&["run", "why", id.as_str()]);
    assert_eq!((text(&why, "code"), text(&why, "note")), ("paused", "release freeze"));
    let list = stage.ok(&["project", "list"]);
    assert!(list.contains("paused, ends in ") && list.contains("release freeze"), "{list}");
    let mut worker = Process::worker(stage, "mill", &[], "true");
    until("the worker waits", || worker.said().contains("waits for runs").then_some(()));
    let other = {
        stage.ok(&["project", "create", "bank", "--env", "staging"]);
        stage.ok(&["run", "queue", "--project", "bank", "--env", "staging"]).trim().parse().unwrap()
    };
    stage.until(&other, RunState::Success);
    assert_eq!(stage.run(&id).status, RunState::Queued, "a paused project's run was claimed");
    assert_eq!(stage.json(&["project", "resume", "shop"])["resumed"], true);
    stage.until(&id, RunState::Success);
    let told = stage.ok(&["project", "resume", "shop"]);
    assert!(told.contains("was not paused"), "{told}");
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended_within(PATIENCE), Some(0));
}

fn labels_and_priorities_and_times_decide_who_claims_what_and_when(stage: &Stage) {
    let later = stage.queue(&["--at", "1h"]);
    let late = stage.queue(&["--expires", "1ms"]);
    let heavy = stage.queue(&["--label", "gpu"]);
    let low = stage.queue(&["--priority", "-1"]);
    let high = stage.queue(&["--priority", "5"]);
    let mut worker = Process::worker(stage, "plain", &[], r#"echo "$TIDEMILL_RUN_ID" >>"$LEDGER""#);
    for id in [&low, &high] {
        stage.until(id, RunState::Success);
    }
    let order = std::fs::read_to_string(stage.path("ledger")).unwrap();
    assert_eq!(order, format!("{high}\n{low}\n"));
    assert_eq!(text(&stage.json(&["run", "why", heavy.as_str()]), "code"), "no_worker_fits");
    assert_eq!(text(&stage.json(&["run", "why", later.as_str()]), "code"), "not_yet");
    assert_eq!(stage.until(&late, RunState::Cancelled).end_cause.map(EndCause::as_str), Some("expired"));
    let mut fitting = Process::worker(stage, "fitting", &["--label", "gpu", "--label", "arm"], "true");
    assert_eq!(stage.until(&heavy, RunState::Success).claimed_by.as_deref(), Some("fitting"));
    for process in [&mut worker, &mut fitting] {
        process.signal(Signal::TERM);
        assert_eq!(process.ended_within(PATIENCE), Some(0));
    }
}

fn artifacts_are_recorded_once(stage: &Stage) {
    let id = stage.queue(&["--metadata", r#"{"a": 1}"#]);
    let add =
        ["run", "artifact", "add", id.as_str(), "--type", "image", "--url", "oci://shop@1", "--size", "42"];
    let artifact = stage.ok(&add);
    assert_eq!(stage.ok(&add), artifact, "the same type and URL is the same artifact");
    stage.ok(&[
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
    let list = stage.json(&["run", "artifact", "list", id.as_str()]);
    assert_eq!(list.as_array().map(Vec::len), Some(2));
    assert_eq!((text(&list, "0.artifact_id"), &list[0]["size_bytes"]), (artifact.trim(), &42.into()));
    let table = stage.ok(&["run", "artifact", "list", id.as_str()]);
    assert!(table.contains("42 B") && table.contains("sha256:1"), "{table}");
    assert!(stage.ok(&["run", "show", id.as_str()]).contains("oci://shop@1"));
    assert_eq!(stage.json(&["run", "show", id.as_str()])["artifacts"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_worker_of_one_project_is_drained_when_that_project_is() {
    let stage = Stage::new(Kind::Sqlite);
    stage.ok(&["project", "create", "bank", "--env", "staging"]);
    stage.ok(&["run", "queue", "--project", "bank", "--env", "staging"]);
    let heavy = stage.queue(&["--label", "gpu"]);
    let id = stage.queue(&[]);
    stage.ok(&["work", "--drain", "--project", "shop", "--", "true"]);
    assert_eq!(stage.run(&id).status, RunState::Success);
    assert_eq!(stage.run(&heavy).status, RunState::Queued);
}
