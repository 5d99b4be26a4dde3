//! Two builds share one database during an upgrade, under load.
//!
//! There is no release before this one, so the newer build is the store of this test with one more migration and one
//! more function. The older build is the real binary.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;
use tidemill_core::run::{QueueRun, RunState};
use tidemill_store::{Migration, Store};

use crate::fixture::{Fixture, Kind, TIMEOUT, on_both, wait_until, wait_while_progressing};
use crate::ledger::{self, TASK};
use crate::process::Process;

on_both!(older_and_newer_builds_share_a_database_under_load);

/// Requests before, during and after the migration, each.
const REQUESTS: usize = 30;

/// The migrations of the newer build: a column with a value for existing rows, and a table.
fn newer_migrations() -> &'static [Migration] {
    let more = Migration {
        version: 1_000,
        name: "synthetic",
        oldest_binary: "0.1.0",
        postgres: "ALTER TABLE {ops}.runs ADD COLUMN reviewed boolean NOT NULL DEFAULT false;
            CREATE TABLE {ops}.reviews (run_id text PRIMARY KEY, note text NOT NULL DEFAULT '');
            INSERT INTO {ops}.reviews (run_id) SELECT run_id FROM {ops}.runs",
        sqlite: "ALTER TABLE runs ADD COLUMN reviewed INTEGER NOT NULL DEFAULT 0;
            CREATE TABLE reviews (run_id TEXT PRIMARY KEY, note TEXT NOT NULL DEFAULT '');
            INSERT INTO reviews (run_id) SELECT run_id FROM runs",
    };
    Box::leak(Store::migrations().iter().copied().chain([more]).collect())
}

/// Creates the additional function or trigger of the newer build, and records it as `migrate` does.
fn add_newer_code(fixture: &Fixture) {
    let code = match fixture.kind {
        Kind::Postgres => "CREATE FUNCTION ops.newer() RETURNS int LANGUAGE sql RETURN 7",
        Kind::Sqlite => "CREATE TRIGGER newer AFTER INSERT ON reviews BEGIN SELECT 7; END",
    };
    for text in [
        code,
        "UPDATE ops.tidemill_settings SET value = value || char_newline || 'newer()' WHERE setting = 'functions'",
        "UPDATE ops.tidemill_settings SET value = 'newer' WHERE setting = 'code'",
    ] {
        let newline = if fixture.kind == Kind::Postgres { "chr(10)" } else { "char(10)" };
        fixture.sql(&text.replace("char_newline", newline)).expect("the newer code is recorded");
    }
}

fn has_newer_code(fixture: &Fixture) -> bool {
    let text = match fixture.kind {
        Kind::Postgres => "SELECT proname::text FROM pg_proc WHERE oid = to_regprocedure('ops.newer()')",
        Kind::Sqlite => "SELECT name FROM sqlite_master WHERE type = 'trigger' AND name = 'newer'",
    };
    fixture.sql(text).expect("the catalogue is read") == ["newer"]
}

fn older_and_newer_builds_share_a_database_under_load(fixture: &Fixture) {
    let mut requests = ledger::requests(fixture, "before", REQUESTS);
    let start = |name: &str| Process::worker_with(fixture, name, &["--slots", "3"], TASK, &[("SECS", "0.2")]);
    let mut older: Vec<Process> = ["older-1", "older-2"].map(start).into();
    let done = || ledger::entries(fixture).iter().filter(|entry| entry.what == "done").count();
    wait_until("the older workers have finished some runs", || (done() >= 5).then_some(()));

    // The newer build migrates while the older one works, and older callers queue at the same time.
    let is_over = AtomicBool::new(false);
    let during = std::thread::scope(|scope| {
        let callers = scope.spawn(|| {
            let mut queued = Vec::new();
            while !is_over.load(Ordering::Relaxed) || queued.len() < REQUESTS {
                let name = format!("during-{}", queued.len());
                queued.push(fixture.queue(&["--git-ref", &name, "--attempts", "3"]));
            }
            queued
        });
        let report = fixture.block(fixture.store().migrate_with(newer_migrations(), None));
        assert_eq!(report.expect("the newer build migrates").applied, ["1000_synthetic"]);
        add_newer_code(fixture);
        for _ in 0..3 {
            let message = fixture.ok(&["migrate"]);
            assert!(message.contains("which is newer"), "{message}");
            assert!(has_newer_code(fixture), "the older build replaced the code of the newer one");
        }
        is_over.store(true, Ordering::Relaxed);
        callers.join().expect("every call succeeds")
    });
    requests.extend(during);

    // A rolling restart, and a rollback of one process: older workers start on the newer database.
    older[0].signal(Signal::TERM);
    assert_eq!(older[0].wait_for_exit(TIMEOUT), Some(0), "{}", older[0].stderr());
    older[0] = start("older-3");
    let request = |number: usize| QueueRun {
        git_ref: Some(format!("after-{number}")),
        ..QueueRun::new("shop", "staging")
    };
    requests.extend((0..REQUESTS).map(|number| fixture.request(request(number))));
    wait_while_progressing("every request succeeds", || {
        let successes = fixture.runs().iter().filter(|run| run.status == RunState::Success).count();
        (successes, (successes >= requests.len()).then_some(()))
    });
    for worker in &mut older {
        worker.signal(Signal::TERM);
        assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0), "{}", worker.stderr());
    }
    ledger::check(fixture, &requests);
    assert!(has_newer_code(fixture));
    // The newer build takes over: it replaces its code again, and knows its migration.
    let again = fixture.block(fixture.store().migrate_with(newer_migrations(), None)).expect("it migrates");
    assert!(again.applied.is_empty() && again.code_replaced, "{again:?}");
}
