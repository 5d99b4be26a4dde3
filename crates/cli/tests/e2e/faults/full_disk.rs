//! A full disk of PostgreSQL: the messages report it, and workers wait for space.
//!
//! `bad_input::database` has a test for SQLite on a real disk.

use rustix::process::Signal;
use tidemill_core::run::RunState;

use crate::fixture::{Fixture, Kind, TIMEOUT, wait_until};
use crate::process::{Output, Process, run};
use crate::server::server;

const FULL: &str = "the disk of the database is full";
const HINT: &str = "hint: free space on the disk of the database, then repeat the command";

/// Checks the error of a command with the database.
#[track_caller]
fn assert_full(ran: &Output) {
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains(&format!("error: {FULL}; the database could not ")), "{ran:?}");
    assert!(ran.stderr.contains(HINT), "{ran:?}");
}

/// Checks the error of a command with a server.
#[track_caller]
fn assert_full_remotely(ran: &Output) {
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains(&format!("error: {FULL}; try again later")), "{ran:?}");
    assert!(ran.stderr.contains(HINT), "{ran:?}");
}

/// Raises PostgreSQL's error for a full disk when a run is recorded.
#[test]
fn full_postgres_disk_is_reported_and_recovered_from() {
    let fixture = Fixture::new(Kind::Postgres);
    let (mut remote, address) = server(&fixture, &["server"], &[]);
    let (begun, proxy) = (fixture.path("begun"), fixture.path("gate"));
    let script = "touch begun; until [ -e gate ]; do sleep 0.05; done";
    let mut worker = Process::worker(&fixture, "waiting", &[], script);
    let id = fixture.queue(&[]);
    wait_until("the command runs", || begun.exists().then_some(()));

    let fill = "CREATE FUNCTION ops.disk_full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                RAISE EXCEPTION 'could not extend file \"base/1/2\": No space left on device' \
                USING ERRCODE = 'disk_full', HINT = 'Check free disk space.'; END $$";
    fixture.sql(fill).expect("the function is created");
    let fill = "CREATE TRIGGER disk_full BEFORE INSERT ON ops.run_steps EXECUTE FUNCTION ops.disk_full()";
    fixture.sql(fill).expect("the trigger is created");
    let queue = ["run", "queue", "--project", "shop", "--env", "staging"];
    assert_full(&fixture.tidemill(&queue));
    let mut command = fixture.command(&queue);
    command.env_remove("TIDEMILL_DATABASE").env("TIDEMILL_SERVER", format!("http://{address}"));
    assert_full_remotely(&run(&mut command));

    std::fs::write(proxy, "").expect("the file is written");
    worker.wait_for_stderr(FULL, 1);
    fixture.sql("DROP TRIGGER disk_full ON ops.run_steps").expect("the trigger is dropped");
    fixture.wait_for_state(&id, RunState::Success);
    assert_eq!(fixture.tries(&id).len(), 1, "the worker waited; the run was not lost");
    fixture.queue(&[]);
    for process in [&mut worker, &mut remote] {
        process.signal(Signal::TERM);
        assert_eq!(process.wait_for_exit(TIMEOUT), Some(0), "{}", process.stderr());
    }
}
