//! What a command says and what it is given: nothing is lost, nothing leaks.

use rustix::process::Signal;
use serde_json::Value;
use tidemill_core::RunId;
use tidemill_core::event::{Event, EventKind};
use tidemill_core::run::RunState;

use crate::process::{Process, run};
use crate::server::server;
use crate::stage::{Kind, PATIENCE, Stage, on_both};

on_both!(
    ten_thousand_equal_lines_arrive_in_order,
    output_that_is_no_text_arrives_as_far_as_it_can,
    a_line_of_a_megabyte_is_split_and_can_be_joined,
    what_is_said_through_a_server_arrives_whole,
    the_command_gets_the_run_and_no_way_to_the_database,
);

fn output(stage: &Stage, id: &RunId, stream: &str) -> Vec<Event> {
    let events = stage.events(id).into_iter().filter(|event| event.kind == EventKind::Log);
    events.filter(|event| event.payload["stream"] == stream).collect()
}

/// Carries a run out beside the database, or through a server.
fn carry_out(stage: &Stage, far: Option<&str>, script: &str) -> RunId {
    let id = stage.queue(&[]);
    let mut command = stage.command(&["work", "--drain", "--", "bash", "-c", script]);
    if let Some(url) = far {
        command.env_remove("TIDEMILL_DATABASE").env("TIDEMILL_SERVER", url);
    }
    let ran = run(&mut command);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(stage.run(&id).status, RunState::Success, "{ran:?}");
    id
}

fn ten_thousand_equal_lines_arrive_in_order(stage: &Stage) {
    ten_thousand_equal_lines(stage, None);
}

fn ten_thousand_equal_lines(stage: &Stage, far: Option<&str>) {
    let id = carry_out(stage, far, "yes the same | head -n 10000; seq 500 >&2");
    let lines = output(stage, &id, "stdout");
    assert_eq!(lines.len(), 10_000);
    assert!(lines.iter().all(|event| event.message == "the same"));
    assert!(lines.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    let errors: Vec<String> = output(stage, &id, "stderr").into_iter().map(|event| event.message).collect();
    assert_eq!(errors, (1..=500).map(|number| number.to_string()).collect::<Vec<_>>());
}

fn output_that_is_no_text_arrives_as_far_as_it_can(stage: &Stage) {
    output_that_is_no_text(stage, None);
}

fn output_that_is_no_text(stage: &Stage, far: Option<&str>) {
    let script = r"printf 'bad \377\376 bytes\r\nnul \000 here\n\n\303\n\033[31mred\nüñí 😀\n'
        head -c 3000 /dev/urandom | tr -d '\n'; echo; printf 'no newline'";
    let id = carry_out(stage, far, script);
    let lines: Vec<String> = output(stage, &id, "stdout").into_iter().map(|event| event.message).collect();
    let head = ["bad \u{FFFD}\u{FFFD} bytes", "nul \u{FFFD} here", "", "\u{FFFD}", "\u{1b}[31mred", "üñí 😀"];
    assert_eq!(lines[..6], head);
    assert_eq!(lines.last().map(String::as_str), Some("no newline"));
    let shown = stage.ok(&["run", "events", id.as_str()]);
    assert!(!shown.contains('\u{1b}'), "what a command said must not drive the terminal");
}

fn a_line_of_a_megabyte_is_split_and_can_be_joined(stage: &Stage) {
    a_line_of_a_megabyte(stage, None);
}

fn a_line_of_a_megabyte(stage: &Stage, far: Option<&str>) {
    let script = "printf 'x%.0s' $(seq 1000000) >line; echo before; cat line; echo
        printf 'é😀%.0s' $(seq 20000); echo; echo after";
    let id = carry_out(stage, far, script);
    let (mut lines, mut goes_on): (Vec<String>, bool) = (Vec::new(), false);
    for event in output(stage, &id, "stdout") {
        assert!(event.message.len() <= 8 * 1024, "an event of {} bytes", event.message.len());
        match lines.last_mut().filter(|_| goes_on) {
            Some(line) => line.push_str(&event.message),
            None => lines.push(event.message),
        }
        goes_on = event.payload["part"] == "piece";
    }
    assert_eq!(lines.len(), 4);
    assert!(lines[1] == "x".repeat(1_000_000), "the long line has {} bytes", lines[1].len());
    assert!(lines[2] == "é😀".repeat(20_000), "the other long line has {} bytes", lines[2].len());
    assert_eq!((lines[0].as_str(), lines[3].as_str()), ("before", "after"));
}

/// A server takes only so much in one call: what is said at once arrives in several, and nothing is dropped. Characters
/// that take six bytes on the way count as what they are there.
fn what_is_said_through_a_server_arrives_whole(stage: &Stage) {
    let (mut server, address) = server(stage, &["server"], &[]);
    let url = format!("http://{address}");
    ten_thousand_equal_lines(stage, Some(&url));
    output_that_is_no_text(stage, Some(&url));
    a_line_of_a_megabyte(stage, Some(&url));
    let script = r"head -c 4000000 /dev/zero | tr '\0' '\001' | fold -b -w 8000";
    let id = carry_out(stage, Some(&url), script);
    let lines = output(stage, &id, "stdout");
    assert_eq!(lines.len(), 500);
    assert!(lines.iter().all(|event| event.message.len() == 8_000));
    server.signal(Signal::TERM);
    assert_eq!(server.ended_within(PATIENCE), Some(0));
}

fn the_command_gets_the_run_and_no_way_to_the_database(stage: &Stage) {
    let id = stage.queue(&[
        "--git-sha",
        "abc",
        "--git-ref",
        "main",
        "--metadata",
        r#"{"deep": {"ü": [1, null]}}"#,
    ]);
    let secret = "s3cr3t-wort";
    let mut command = stage.command(&[
        "work",
        "--worker",
        "mill",
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
    let lines: Vec<String> = output(stage, &id, "stdout").into_iter().map(|event| event.message).collect();
    let given: Value = serde_json::from_str(&lines[0]).expect("the run is given as JSON");
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
        "TIDEMILL_GIT_SHA=abc",
        "TIDEMILL_GIT_REF=main",
        "KEPT=yes",
    ] {
        assert!(lines.iter().any(|line| line == variable), "{variable}: {lines:?}");
    }
    let known = ["RUN_ID", "PROJECT", "ENV", "ATTEMPT", "EPOCH", "GIT_SHA", "GIT_REF"]
        .map(|name| format!("TIDEMILL_{name}="));
    let ours = lines.iter().filter(|line| line.starts_with("TIDEMILL_"));
    let leaks: Vec<_> = ours.filter(|line| !known.iter().any(|name| line.starts_with(name))).collect();
    assert!(leaks.is_empty(), "{leaks:?}");
    let all = format!("{:?}", stage.events(&id));
    assert!(!all.contains(secret) && !all.contains(&stage.url), "a secret is in an event");
    assert!(!ran.stderr.contains(secret), "a secret is in the log");
    if stage.kind == Kind::Postgres {
        assert!(!ran.stderr.contains(&stage.url), "the address is in the log");
    }
}

/// A command that talks without end is heard, and can be cancelled: it waits for the database, not the other way round.
#[test]
fn a_command_that_talks_without_end_is_cancelled() {
    let stage = Stage::new(Kind::Sqlite);
    let id = stage.queue(&[]);
    let mut worker = Process::worker(&stage, "mill", &["--grace", "1s"], "yes");
    stage.until(&id, RunState::Running);
    crate::stage::until("it is heard", || (stage.events(&id).len() > 2_000).then_some(()));
    stage.ok(&["run", "cancel", id.as_str()]);
    stage.until(&id, RunState::Cancelled);
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended_within(PATIENCE), Some(0));
}

/// Output beyond the bound is dropped with one note; the exit code and the last lines of standard error still count.
#[test]
fn output_of_a_run_is_bounded_and_its_end_still_counts() {
    let stage = Stage::new(Kind::Sqlite);
    let id = stage.queue(&[]);
    let script = "yes $(printf 'x%.0s' $(seq 8000)) | head -n 6900; echo the last words >&2; exit 7";
    let ran = run(&mut stage.command(&["work", "--drain", "--", "bash", "-c", script]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let events = stage.events(&id);
    let kept: usize = events.iter().map(|event| event.message.len()).sum();
    assert!(kept <= 50 * 1024 * 1024, "{kept} bytes of output are kept");
    assert!(kept > 49 * 1024 * 1024, "only {kept} bytes of output are kept");
    let note = "Output is larger than 50 MB; the rest is not recorded";
    assert_eq!(events.iter().filter(|event| event.message == note).count(), 1);
    let ended = stage.run(&id);
    assert_eq!((ended.status, &ended.metadata["exit_code"]), (RunState::Failed, &7.into()));
    assert_eq!(ended.metadata["stderr"], "the last words");
}
