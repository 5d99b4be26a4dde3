//! Invalid requests of commands and SQL functions.

use tidemill_core::RunId;
use tidemill_core::event::EventKind;
use tidemill_core::limits::METADATA_BYTES_MAX;
use tidemill_core::run::RunState;

use super::{REFUSED, USAGE, must_refuse, refusal};
use crate::fixture::{Fixture, Kind, on_both};
use crate::process::run;

on_both!(
    invalid_queue_request_is_refused,
    metadata_is_read_from_a_file_or_standard_input,
    unknown_objects_are_refused,
    invalid_schedule_is_refused,
    invalid_arguments_are_usage_errors,
    ended_run_cannot_be_changed,
);

fn invalid_queue_request_is_refused(fixture: &Fixture) {
    let queue = |more: &[&str], expected| {
        let usual = ["run", "queue", "--project", "shop", "--env", "staging"];
        must_refuse(fixture, &[&usual, more].concat(), expected);
    };
    fixture.queue(&["--idempotency-key", "push-1", "--git-sha", "a"]);
    let queue_in = |project, env| ["run", "queue", "--project", project, "--env", env];
    let expected = refusal(REFUSED, "project `nope` does not exist");
    let expected = expected.hint("tidemill project create nope --env staging");
    must_refuse(fixture, &queue_in("nope", "staging"), expected);
    let expected = refusal(REFUSED, "project `shop` has no environment `nope`").hint("production, staging");
    must_refuse(fixture, &queue_in("shop", "nope"), expected);
    let expected = refusal(REFUSED, "idempotency key `push-1` belongs to run run-").hint("another key");
    queue(&["--idempotency-key", "push-1", "--git-sha", "b"], expected);

    let long = "x".repeat(1_025);
    let too_long = "is 1025 bytes long; at most 1024 are allowed";
    for option in ["--git-sha", "--git-ref", "--idempotency-key", "--concurrency-key"] {
        queue(&[option, &long], refusal(REFUSED, too_long));
    }
    queue(&["--git-ref", ""], refusal(REFUSED, "git ref must not be empty"));
    queue(&["--label", "a,b"], refusal(REFUSED, "label `a,b` must not contain a comma"));
    queue(&["--priority", "2000000"], refusal(REFUSED, "priority is 2000000; it must be between"));
    queue(&["--attempts", "0"], refusal(REFUSED, "max attempts is 0; it must be between 1 and 1000"));
    queue(&["--backoff", "2h"], refusal(REFUSED, "back-off seconds is 7200; it must be between 0 and 3600"));
    queue(&["--at", "2h", "--expires", "1h"], refusal(REFUSED, "expires at must be later than available at"));
    queue(&["--metadata", r#"{"a": "\u0000"}"#], refusal(REFUSED, "metadata contains a NUL character"));
    // All errors at once.
    let errors =
        "git sha must not be empty; priority is 2000000; it must be between -1000000 and 1000000; max ";
    queue(&["--git-sha", "", "--priority", "2000000", "--attempts", "0"], refusal(REFUSED, errors));
    // The system limits an argument to 128 KiB, half of the limit of metadata.
    let metadata = format!(r#"{{"a": "{}"}}"#, "x".repeat(120_000));
    fixture.queue(&["--metadata", &metadata]);
}

/// Metadata that is too large for an argument is read from a file or from standard input, with a size limit.
fn metadata_is_read_from_a_file_or_standard_input(fixture: &Fixture) {
    let text = format!(r#"{{"a": "{}"}}"#, "x".repeat(METADATA_BYTES_MAX - 10));
    let file = fixture.write("metadata.json", &format!("  {text}\n"));
    let given = format!("@{}", file.display());
    let id = fixture.queue(&["--metadata", &given]);
    let length = |id| fixture.run(id).metadata["a"].as_str().map(str::len);
    assert_eq!(length(&id), Some(METADATA_BYTES_MAX - 10));
    let queue = ["run", "queue", "--project", "shop", "--env", "staging", "--metadata"];
    let mut piped = fixture.command(&[&queue[..], &["@-"]].concat());
    let piped = run(piped.stdin(std::fs::File::open(&file).expect("the file opens")));
    assert_eq!(length(&piped.ok().trim().parse().expect("the output is a run id")), length(&id));

    let refuse = |given: &str, expected| must_refuse(fixture, &[&queue[..], &[given]].concat(), expected);
    fixture.write("large.json", &format!(r#"{{"a": "{}"}}"#, "x".repeat(METADATA_BYTES_MAX)));
    let sentence = "metadata is 262152 bytes long; at most 262144 are allowed";
    refuse("@large.json", refusal(REFUSED, sentence));
    refuse("@/dev/zero", refusal(USAGE, "it is larger than 1048576 bytes"));
    refuse("@nowhere.json", refusal(USAGE, "could not read it: No such file"));
    fixture.write("no.json", "[1]");
    refuse("@no.json", refusal(USAGE, "it must be a JSON object"));
    refuse("@-", refusal(USAGE, "it is not JSON"));
}

fn unknown_objects_are_refused(fixture: &Fixture) {
    let unknown = "run-00000000-0000-7000-8000-000000000000";
    let sentence = format!("run `{unknown}` does not exist");
    for verb in ["show", "events", "why", "watch", "cancel", "fail", "retry"] {
        must_refuse(fixture, &["run", verb, unknown], refusal(REFUSED, &sentence));
    }
    let add = ["run", "artifact", "add", unknown, "--type", "image", "--url", "oci://x"];
    must_refuse(fixture, &add, refusal(REFUSED, &sentence));
    must_refuse(fixture, &["run", "artifact", "list", unknown], refusal(REFUSED, &sentence));
    for verb in ["pause", "resume"] {
        let expected = refusal(REFUSED, "project `nope` does not exist");
        let expected = expected.hint("tidemill project create nope --env production");
        must_refuse(fixture, &["project", verb, "nope"], expected);
        let expected = refusal(REFUSED, "project `no;pe` does not exist").hint("tidemill project list");
        must_refuse(fixture, &["project", verb, "no;pe"], expected);
    }
    for verb in ["pause", "resume", "remove"] {
        must_refuse(fixture, &["schedule", verb, "nope"], refusal(REFUSED, "schedule `nope` does not exist"));
    }
    let create = ["project", "create", "Not A Name", "--env", "staging"];
    must_refuse(fixture, &create, refusal(REFUSED, "project `Not A Name` must be lower-case letters"));
    let create = ["project", "create", "bank", "--env", "../x"];
    must_refuse(fixture, &create, refusal(REFUSED, "environment `../x` must be lower-case letters"));
}

fn invalid_schedule_is_refused(fixture: &Fixture) {
    let add =
        |name: &str, cron: &str, zone: &str, target: (&str, &str), sentence: &str, hint: Option<&str>| {
            let args = [
                "schedule",
                "add",
                name,
                "--cron",
                cron,
                "--time-zone",
                zone,
                "--project",
                target.0,
                "--env",
                target.1,
            ];
            let expected = super::Refusal { hint, ..refusal(REFUSED, sentence) };
            must_refuse(fixture, &args, expected);
        };
    let target = ("shop", "staging");
    add("nightly", "61 * * * *", "UTC", target, "the minute field `61` of cron pattern", Some("0 to 59"));
    add("nightly", "every day", "UTC", target, "every day", Some(""));
    add("nightly", "", "UTC", target, "", Some(""));
    add("nightly", "0 2 * * *", "Mars/Olympus", target, "Mars/Olympus", Some(""));
    add("No Name", "0 2 * * *", "UTC", target, "schedule `No Name` must be lower-case letters", None);
    let (sentence, hint) = ("project `nope` does not exist", "tidemill project create nope --env staging");
    add("nightly", "0 2 * * *", "UTC", ("nope", "staging"), sentence, Some(hint));
    let sentence = "project `shop` has no environment `nope`";
    add("nightly", "0 2 * * *", "UTC", ("shop", "nope"), sentence, Some("production, staging"));
}

fn invalid_arguments_are_usage_errors(fixture: &Fixture) {
    let queue = ["run", "queue", "--project", "shop", "--env", "staging"];
    for (more, sentence) in [
        (&["--metadata", "{"][..], "it is not JSON"),
        (&["--metadata", "[1]"], "it must be a JSON object"),
        (&["--timeout", "soon"], "write a number and a unit"),
        (&["--at", "tomorrow"], "write a time such as"),
        (&["--priority", "high"], "invalid digit"),
        (&["--frobnicate"], "unexpected argument"),
    ] {
        must_refuse(fixture, &[&queue, more].concat(), refusal(USAGE, sentence));
    }
    must_refuse(fixture, &["run", "list", "--status", "done"], refusal(USAGE, "done"));
    must_refuse(fixture, &["run", "list", "--state", "done"], refusal(USAGE, "--state <"));
    must_refuse(fixture, &["run", "list", "--name", ""], refusal(USAGE, "give 1 to 128 characters of it"));
    must_refuse(fixture, &["run", "list", "--limit", "0"], refusal(USAGE, "0"));
    must_refuse(fixture, &["run", "list", "--lane", "fast"], refusal(USAGE, "fast"));
    must_refuse(fixture, &["run", "list", "--since", "monday"], refusal(USAGE, "write a time such as"));
    must_refuse(
        fixture,
        &["run", "list", "--id", "RUN 7"],
        refusal(USAGE, "a run id is `run-` followed by lower-case letters"),
    );
    must_refuse(
        fixture,
        &["run", "list", "--sha", "abc"],
        refusal(USAGE, "give at least 4 characters of it"),
    );
    must_refuse(fixture, &["run", "list", "--ref", ""], refusal(USAGE, "give 1 to 1024 characters of it"));
    let unknown = refusal(REFUSED, "feed `No Feed` does not exist").hint("tidemill feed list");
    must_refuse(fixture, &["run", "list", "--feed", "No Feed"], unknown);
    must_refuse(fixture, &["run", "show", "7"], refusal(USAGE, "7"));
    must_refuse(fixture, &["run", "events", "run-x", "--level", "loud"], refusal(USAGE, ""));
    let add = [
        "schedule",
        "add",
        "n",
        "--cron",
        "@daily",
        "--missed",
        "maybe",
        "--project",
        "shop",
        "--env",
        "staging",
    ];
    must_refuse(fixture, &add, refusal(USAGE, "maybe"));
    // Missing arguments produce an error of several lines.
    for args in [&["work"][..], &["run", "queue", "--project", "shop"], &["project", "create", "x"], &["run"]]
    {
        let before = fixture.dump();
        let ran = fixture.tidemill(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(USAGE), ""), "{ran:?}");
        let ran = fixture.tidemill(&[args, &["--json"]].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(USAGE), ""), "{ran:?}");
        let message: serde_json::Value = serde_json::from_str(&ran.stderr).expect("the error is JSON");
        assert_eq!(message["code"], "usage", "{message}");
        assert!(message["message"].as_str().is_some_and(|message| !message.is_empty()), "{message}");
        assert!(fixture.dump() == before);
    }
}

fn ended_run_cannot_be_changed(fixture: &Fixture) {
    let id = fixture.queue(&[]);
    fixture.ok(&["work", "--drain", "--", "true"]);
    let id = id.as_str();
    let expected = refusal(REFUSED, "has already ended: success");
    let before = fixture.dump();
    expected.check("cancel", &fixture.tidemill(&["run", "cancel", id]));
    let sentence = format!("run {id} is success, and only a failed or cancelled run can be retried");
    must_refuse(fixture, &["run", "retry", id], refusal(REFUSED, &sentence));
    assert!(fixture.dump() == before, "the database was changed");
    // Plain SQL is refused, too.
    for text in [
        format!("UPDATE ops.runs SET status = 'failed' WHERE run_id = '{id}'"),
        format!("UPDATE ops.runs SET git_ref = 'x' WHERE run_id = '{id}'"),
        format!("UPDATE ops.run_events SET message = 'x' WHERE run_id = '{id}'"),
        format!("DELETE FROM ops.run_events WHERE run_id = '{id}'"),
    ] {
        fixture.sql(&text).expect_err(&text);
    }
    assert!(fixture.dump() == before, "the database was changed");
}

/// The SQL functions report the same errors with their own codes. A finish of an ended run is recorded once.
#[test]
fn sql_functions_refuse_with_a_code_and_a_message() {
    let fixture = Fixture::new(Kind::Postgres);
    let id = fixture.queue(&[]);
    let big = "x".repeat(300_000);
    let before = fixture.dump();
    for (text, code, sentence) in [
        (
            "SELECT run_id FROM ops.queue_run('nope', 'staging', NULL, NULL)",
            "TM001",
            "project `nope` does not exist",
        ),
        (
            "SELECT run_id FROM ops.queue_run('shop', 'nope', NULL, NULL)",
            "TM002",
            "has no environment `nope`",
        ),
        ("SELECT ops.finish_run('run-x', 'success')::text", "TM003", "run `run-x` does not exist"),
        (&format!("SELECT ops.finish_run('{id}', 'done')::text"), "TM006", "`done` is not a final status"),
        (&format!("SELECT ops.append_event('{id}', 'loud', 'x')"), "TM006", "`loud` is not a level"),
        (
            &format!("SELECT ops.append_event('{id}', 'info', '{big}')"),
            "TM007",
            "the message is larger than 8192 bytes",
        ),
        (
            &format!("SELECT ops.append_event('{id}', 'info', 'x', jsonb_build_object('a', '{big}'))"),
            "TM007",
            "the payload is larger than 65536 bytes",
        ),
        (
            &format!(
                "SELECT run_id FROM ops.queue_run('shop', 'staging', NULL, NULL, jsonb_build_object('a', '{big}'))"
            ),
            "TM007",
            "metadata is larger than 262144 bytes",
        ),
        (
            &format!("SELECT ops.finish_run('{id}', 'success', jsonb_build_object('a', '{big}'))::text"),
            "TM007",
            "metadata is larger than 262144 bytes",
        ),
        (
            "SELECT run_id FROM ops.queue_run('shop', 'staging', NULL, NULL, '[]')",
            "TM006",
            "metadata must be a JSON object",
        ),
        (&format!("SELECT ops.add_artifact('{id}', '', 'x')"), "TM006", "artifact type and URL are required"),
        (&format!("SELECT ops.lease_guard('{id}', 1)::text"), "TM005", "is lost: the run is queued"),
        (&format!("UPDATE ops.runs SET status = 'success' WHERE run_id = '{id}'"), "TM008", ""),
        (&format!("UPDATE ops.runs SET status = 'done' WHERE run_id = '{id}'"), "TM008", ""),
    ] {
        let what = text.chars().take(90).collect::<String>();
        let error = fixture.sql(text).expect_err(&what);
        let error = error.as_database_error().expect("the database answered");
        assert_eq!(error.code().as_deref(), Some(code), "{what}: {error}");
        assert!(error.message().contains(sentence) && !error.message().contains('\n'), "{what}: {error}");
    }
    assert!(fixture.dump() == before, "the database was changed");
    refuse_late_calls(&fixture, &id);
}

/// Late calls of the SQL functions do not change an ended run, and are recorded once.
fn refuse_late_calls(fixture: &Fixture, id: &RunId) {
    fixture.ok(&["work", "--drain", "--", "sh", "-c", "exit 4"]);
    let ended = fixture.run(id);
    for status in ["success", "cancelled", "failed", "success"] {
        assert_eq!(
            fixture
                .sql(&format!("SELECT ops.finish_run('{id}', '{status}', '{{\"late\": 1}}')::text"))
                .unwrap(),
            ["false"]
        );
    }
    assert_eq!(fixture.sql(&format!("SELECT ops.append_event('{id}', 'info', 'late')")).unwrap(), [""]);
    assert_eq!(fixture.run(id), ended, "a late call changed the run");
    assert_eq!((ended.status, fixture.messages(id, EventKind::Refusal).len()), (RunState::Failed, 2));
}
