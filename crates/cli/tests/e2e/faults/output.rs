//! Input and output of commands: nothing is lost, and no secret leaks.

use rustix::process::Signal;
use serde_json::Value;
use tidemill_core::RunId;
use tidemill_core::event::{Event, EventKind};
use tidemill_core::run::RunState;

use crate::fixture::{Fixture, Kind, TIMEOUT, on_both};
use crate::process::{Process, run};
use crate::server::server;

on_both!(
    ten_thousand_equal_lines_are_stored_in_order,
    binary_output_is_stored_with_replacement_characters,
    line_of_a_megabyte_is_split_into_joinable_parts,
    output_through_a_server_is_stored_completely,
    command_gets_the_run_and_no_database_access,
);

fn output(fixture: &Fixture, id: &RunId, stream: &str) -> Vec<Event> {
    let events = fixture.events(id).into_iter().filter(|event| event.kind == EventKind::Log);
    events.filter(|event| event.payload["stream"] == stream).collect()
}

/// Executes a run, with the database or with a server.
fn execute(fixture: &Fixture, remote: Option<&str>, script: &str) -> RunId {
    let id = fixture.queue(&[]);
    let mut command = fixture.command(&["work", "--drain", "--", "bash", "-c", script]);
    if let Some(url) = remote {
        command.env_remove("TIDEMILL_DATABASE").env("TIDEMILL_SERVER", url);
    }
    let ran = run(&mut command);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(fixture.run(&id).status, RunState::Success, "{ran:?}");
    id
}

fn ten_thousand_equal_lines_are_stored_in_order(fixture: &Fixture) {
    ten_thousand_equal_lines(fixture, None);
}

fn ten_thousand_equal_lines(fixture: &Fixture, remote: Option<&str>) {
    let id = execute(fixture, remote, "yes the same | head -n 10000; seq 500 >&2");
    let lines = output(fixture, &id, "stdout");
    assert_eq!(lines.len(), 10_000);
    assert!(lines.iter().all(|event| event.message == "the same"));
    assert!(lines.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    let errors: Vec<String> = output(fixture, &id, "stderr").into_iter().map(|event| event.message).collect();
    assert_eq!(errors, (1..=500).map(|number| number.to_string()).collect::<Vec<_>>());
}

fn binary_output_is_stored_with_replacement_characters(fixture: &Fixture) {
    output_that_is_no_text(fixture, None);
}

fn output_that_is_no_text(fixture: &Fixture, remote: Option<&str>) {
    let script = r"printf 'bad \377\376 bytes\r\nnul \000 here\n\n\303\n\033[31mred\nüñí 😀\n'
        head -c 3000 /dev/urandom | tr -d '\n'; echo; printf 'no newline'";
    let id = execute(fixture, remote, script);
    let lines: Vec<String> = output(fixture, &id, "stdout").into_iter().map(|event| event.message).collect();
    let head = ["bad \u{FFFD}\u{FFFD} bytes", "nul \u{FFFD} here", "", "\u{FFFD}", "\u{1b}[31mred", "üñí 😀"];
    assert_eq!(lines[..6], head);
    assert_eq!(lines.last().map(String::as_str), Some("no newline"));
    let shown = fixture.ok(&["run", "events", id.as_str()]);
    assert!(!shown.contains('\u{1b}'), "escape codes of a command are not printed");
}

fn line_of_a_megabyte_is_split_into_joinable_parts(fixture: &Fixture) {
    a_line_of_a_megabyte(fixture, None);
}

fn a_line_of_a_megabyte(fixture: &Fixture, remote: Option<&str>) {
    let script = "printf 'x%.0s' $(seq 1000000) >line; echo before; cat line; echo
        printf 'é😀%.0s' $(seq 20000); echo; echo after";
    let id = execute(fixture, remote, script);
    let (mut lines, mut is_continued): (Vec<String>, bool) = (Vec::new(), false);
    for event in output(fixture, &id, "stdout") {
        assert!(event.message.len() <= 8 * 1024, "an event of {} bytes", event.message.len());
        match lines.last_mut().filter(|_| is_continued) {
            Some(line) => line.push_str(&event.message),
            None => lines.push(event.message),
        }
        is_continued = event.payload["part"] == "piece";
    }
    assert_eq!(lines.len(), 4);
    assert!(lines[1] == "x".repeat(1_000_000), "the long line has {} bytes", lines[1].len());
    assert!(lines[2] == "é😀".repeat(20_000), "the other long line has {} bytes", lines[2].len());
    assert_eq!((lines[0].as_str(), lines[3].as_str()), ("before", "after"));
}

/// A server limits the size of a request, so large output is sent in several. Control characters take six bytes in
/// JSON, which the limit must count.
fn output_through_a_server_is_stored_completely(fixture: &Fixture) {
    let (mut server, address) = server(fixture, &["server"], &[]);
    let url = format!("http://{address}");
    ten_thousand_equal_lines(fixture, Some(&url));
    output_that_is_no_text(fixture, Some(&url));
    a_line_of_a_megabyte(fixture, Some(&url));
    let script = r"head -c 4000000 /dev/zero | tr '\0' '\001' | fold -b -w 8000";
    let id = execute(fixture, Some(&url), script);
    let lines = output(fixture, &id, "stdout");
    assert_eq!(lines.len(), 500);
    assert!(lines.iter().all(|event| event.message.len() == 8_000));
    server.signal(Signal::TERM);
    assert_eq!(server.wait_for_exit(TIMEOUT), Some(0));
}

fn command_gets_the_run_and_no_database_access(fixture: &Fixture) {
    let id = fixture.queue(&[
        "--git-sha",
        "abc",
        "--git-ref",
        "main",
        "--kind",
        "email",
        "--metadata",
        r#"{"deep": {"ü": [1, null]}}"#,
    ]);
    let secret = "s3cr3t-wort";
    let mut command = fixture.command(&[
        "work",
        "--worker",
        "builder",
        "--drain",
        "--",
        "bash",
        "-c",
        "cat; env -0 | tr '\\n\\0' ' \\n'",
    ]);
    for name in ["PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE", "DATABASE_URL", "TIDEMILL_TOKEN"] {
        command.env(name, format!("{secret}-{name}"));
    }
    let ran = run(command.env("KEPT", "yes").env("TIDEMILL_SCHEMA", "ops").env("TIDEMILL_LOG", "debug"));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let lines: Vec<String> = output(fixture, &id, "stdout").into_iter().map(|event| event.message).collect();
    let given: Value = serde_json::from_str(&lines[0]).expect("the run is JSON");
    assert_eq!(
        (given["run_id"].as_str(), &given["metadata"]["deep"]["ü"][0]),
        (Some(id.as_str()), &1.into())
    );
    for field in
        ["project_id", "env_id", "git_sha", "git_ref", "epoch", "attempt", "timeout_secs", "lease_until"]
    {
        assert!(given.get(field).is_some(), "{field}: {given}");
    }
    for variable in [
        &format!("TIDEMILL_RUN_ID={id}"),
        "TIDEMILL_PROJECT=shop",
        "TIDEMILL_ENV=staging",
        "TIDEMILL_ATTEMPT=1",
        "TIDEMILL_EPOCH=1",
        "TIDEMILL_RUN_KIND=email",
        "TIDEMILL_GIT_SHA=abc",
        "TIDEMILL_GIT_REF=main",
        "KEPT=yes",
    ] {
        assert!(lines.iter().any(|line| line == variable), "{variable}: {lines:?}");
    }
    let known = ["RUN_ID", "RUN_KIND", "PROJECT", "ENV", "ATTEMPT", "EPOCH", "GIT_SHA", "GIT_REF"]
        .map(|name| format!("TIDEMILL_{name}="));
    let ours = lines.iter().filter(|line| line.starts_with("TIDEMILL_"));
    let leaks: Vec<_> = ours.filter(|line| !known.iter().any(|name| line.starts_with(name))).collect();
    assert!(leaks.is_empty(), "{leaks:?}");
    let all = format!("{:?}", fixture.events(&id));
    assert!(!all.contains(secret) && !all.contains(&fixture.url), "a secret is in an event");
    assert!(!ran.stderr.contains(secret), "a secret is in the log");
    if fixture.kind == Kind::Postgres {
        assert!(!ran.stderr.contains(&fixture.url), "the address is in the log");
    }
}

/// The output of an endless command is stored, and the command can be cancelled.
#[test]
fn command_with_endless_output_can_be_cancelled() {
    let fixture = Fixture::new(Kind::Sqlite);
    let id = fixture.queue(&[]);
    let mut worker = Process::worker(&fixture, "builder", &["--grace", "1s"], "yes");
    fixture.wait_for_state(&id, RunState::Running);
    crate::fixture::wait_until("output is stored", || (fixture.events(&id).len() > 2_000).then_some(()));
    fixture.ok(&["run", "cancel", id.as_str()]);
    fixture.wait_for_state(&id, RunState::Cancelled);
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0));
}

/// Output beyond the limit is dropped with one event. The exit code and the last lines of standard error are kept.
#[test]
fn output_beyond_the_limit_keeps_the_run_result() {
    let fixture = Fixture::new(Kind::Sqlite);
    let id = fixture.queue(&[]);
    let script = "yes $(printf 'x%.0s' $(seq 8000)) | head -n 6900; echo the last line >&2; exit 7";
    let ran = run(&mut fixture.command(&["work", "--drain", "--", "bash", "-c", script]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let events = fixture.events(&id);
    let bytes: usize = events.iter().map(|event| event.message.len()).sum();
    assert!(bytes <= 50 * 1024 * 1024, "{bytes} bytes of output are stored");
    assert!(bytes > 49 * 1024 * 1024, "only {bytes} bytes of output are stored");
    let limit_event = "Output is larger than 50 MB; the rest is not recorded";
    assert_eq!(events.iter().filter(|event| event.message == limit_event).count(), 1);
    let ended = fixture.run(&id);
    assert_eq!((ended.status, &ended.metadata["exit_code"]), (RunState::Failed, &7.into()));
    assert_eq!(ended.metadata["stderr"], "the last line");
}
