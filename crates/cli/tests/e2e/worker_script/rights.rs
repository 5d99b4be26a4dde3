//! Privileges of the worker role: only the documented functions.

use std::collections::BTreeSet;

use rustix::process::Signal;
use tidemill_core::run::RunState;

use super::Script;
use crate::fixture::{TIMEOUT, wait_until};
use crate::process::{Process, run};

/// Functions that the worker role may call, as listed in `docs/sql-functions.md`.
const FUNCTIONS: [&str; 22] = [
    "add_artifact",
    "append_event",
    "append_events",
    "beat_worker",
    "cancel_run",
    "claim_next_run",
    "declare_waiting",
    "finish_run",
    "finish_run_outcome",
    "finish_runs",
    "heartbeat",
    "is_draining",
    "lease_guard",
    "queue_run",
    "queue_runs",
    "register_worker",
    "retire_worker",
    "retry_run",
    "fail_run",
    "start_run",
    "wake",
    "work_left",
];

#[test]
fn worker_role_may_only_call_the_documented_functions() {
    let script = Script::new();
    let fixture = &script.fixture;
    let id = fixture.queue(&[]);
    let before = fixture.dump();
    let denied = |text: &str| {
        let error = fixture.sql_at(&script.url, text).expect_err(text);
        let code = error.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned));
        assert_eq!(code.as_deref(), Some("42501"), "{text}: {error}");
    };
    let tables = fixture
        .sql("SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'ops'::regnamespace");
    for table in tables.unwrap() {
        if !table.starts_with("tidemill_") {
            denied(&format!("SELECT 1::text FROM ops.{table}"));
        }
        denied(&format!("DELETE FROM ops.{table}"));
        denied(&format!("TRUNCATE ops.{table}"));
    }
    denied(&format!("UPDATE ops.runs SET status = 'cancelled' WHERE run_id = '{id}'"));
    denied("INSERT INTO ops.projects (project_id) VALUES ('mine')");
    denied("CREATE TABLE ops.mine (id integer)");
    denied("DROP FUNCTION ops.wake()");
    denied("DROP SCHEMA ops CASCADE");
    denied("SELECT * FROM ops.sweep()");
    denied(&format!("SELECT ops.end_run('{id}', 'failed', 'lost', '{{}}', now())::text"));

    let of_role = format!(
        "SELECT p.proname || '' FROM pg_proc p WHERE p.pronamespace = 'ops'::regnamespace \
         AND has_function_privilege('{}_login', p.oid, 'EXECUTE')",
        script.prefix
    );
    let may: BTreeSet<String> = fixture.sql(&of_role).unwrap().into_iter().collect();
    assert_eq!(may, FUNCTIONS.into_iter().map(str::to_owned).collect());
    let all =
        fixture.sql("SELECT proname || '' FROM pg_proc WHERE pronamespace = 'ops'::regnamespace").unwrap();
    let overloads: BTreeSet<&String> = all.iter().collect();
    assert_eq!(overloads.len(), all.len(), "exactly one function of each name exists");
    assert!(all.len() > FUNCTIONS.len() + 5, "there are functions that a worker may not call");
    assert_eq!(fixture.dump(), before, "the database was not changed");
}

/// `tidemill work` needs the same privileges as the script, except for its maintenance loops.
#[test]
fn binary_works_as_the_worker_role() {
    let script = Script::new();
    let fixture = &script.fixture;
    let (first, second) = (fixture.queue(&[]), fixture.queue(&["--attempts", "2", "--backoff", "0s"]));
    let mut command = fixture.command(&["work", "--worker", "builder", "--drain", "--", "sh", "-c"]);
    command.arg(r#"[ "$TIDEMILL_ATTEMPT" = 2 ] || [ -z "$(echo)" ]"#).env("TIDEMILL_DATABASE", &script.url);
    let ran = run(&mut command);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for id in [&first, &second] {
        assert_eq!(fixture.run(id).status, RunState::Success);
    }
    assert!(!ran.stderr.contains("pass-w"), "{ran:?}");
    let queued = run(fixture
        .command(&["run", "queue", "--project", "shop", "--env", "staging"])
        .env("TIDEMILL_DATABASE", &script.url));
    assert_eq!(queued.code, Some(0), "{queued:?}");

    // The worker receives a cancel, although it may not read the run.
    let id = queued.stdout.trim().parse().unwrap();
    let mut command = fixture.command(&["work", "--worker", "builder", "--", "sleep", "600"]);
    let mut worker = Process::start(fixture, "builder", command.env("TIDEMILL_DATABASE", &script.url));
    fixture.wait_for_state(&id, RunState::Running);
    fixture.ok(&["run", "cancel", id.as_str()]);
    fixture.wait_for_state(&id, RunState::Cancelled);
    wait_until("the failure is logged", || worker.stderr().contains("loop sweep failed").then_some(()));
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0));
    assert_eq!(worker.stderr().matches("loop sweep failed").count(), 1, "{}", worker.stderr());
}
