//! A PostgreSQL whose disk is full: the messages say so, and workers wait until there is room. SQLite has its own test,
//! on a real disk, in `bad_input`.

use rustix::process::Signal;
use tidemill_core::run::RunState;

use crate::process::{Process, Ran, run};
use crate::server::server;
use crate::stage::{Kind, PATIENCE, Stage, until};

const FULL: &str = "the disk of the database is full";
const HINT: &str = "hint: free space on the disk of the database, then repeat the command";

/// Compares the failure of a command beside the database.
#[track_caller]
fn says_full(ran: &Ran) {
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains(&format!("error: {FULL}; it could not ")), "{ran:?}");
    assert!(ran.stderr.contains(HINT), "{ran:?}");
}

/// Compares the failure of a command that asked a server.
#[track_caller]
fn says_full_from_far_away(ran: &Ran) {
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains(&format!("error: {FULL}; ask again when there is room")), "{ran:?}");
    assert!(ran.stderr.contains(HINT), "{ran:?}");
}

/// The server's own error for a full disk, raised where a run is recorded.
#[test]
fn postgres_on_a_full_disk_is_said_to_be_full_and_goes_on_with_room() {
    let stage = Stage::new(Kind::Postgres);
    let (mut far, address) = server(&stage, &["server"], &[]);
    let (begun, gate) = (stage.path("begun"), stage.path("gate"));
    let script = "touch begun; until [ -e gate ]; do sleep 0.05; done";
    let mut worker = Process::worker(&stage, "patient", &[], script);
    let id = stage.queue(&[]);
    until("the command runs", || begun.exists().then_some(()));

    let fill = "CREATE FUNCTION ops.disk_full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                RAISE EXCEPTION 'could not extend file \"base/1/2\": No space left on device' \
                USING ERRCODE = 'disk_full', HINT = 'Check free disk space.'; END $$";
    stage.sql(fill).expect("the function is made");
    let fill = "CREATE TRIGGER disk_full BEFORE INSERT ON ops.run_events EXECUTE FUNCTION ops.disk_full()";
    stage.sql(fill).expect("the trigger is made");
    let queue = ["run", "queue", "--project", "shop", "--env", "staging"];
    says_full(&stage.tidemill(&queue));
    let mut command = stage.command(&queue);
    command.env_remove("TIDEMILL_DATABASE").env("TIDEMILL_SERVER", format!("http://{address}"));
    says_full_from_far_away(&run(&mut command));

    std::fs::write(gate, "").expect("the gate opens");
    worker.until_said(FULL, 1);
    stage.sql("DROP TRIGGER disk_full ON ops.run_events").expect("there is room");
    stage.until(&id, RunState::Success);
    assert_eq!(stage.tries(&id).len(), 1, "the worker waited; the run was not lost");
    stage.queue(&[]);
    for process in [&mut worker, &mut far] {
        process.signal(Signal::TERM);
        assert_eq!(process.ended_within(PATIENCE), Some(0), "{}", process.said());
    }
}
