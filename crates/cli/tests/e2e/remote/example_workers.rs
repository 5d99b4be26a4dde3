//! The HTTP workers of `examples/`: each drains a queue although the server is killed.

use std::path::PathBuf;
use std::process::Command;

use tidemill_core::RunId;
use tidemill_core::event::EventKind;
use tidemill_core::run::{QueueRun, RunState};

use crate::fixture::{Fixture, TIMEOUT, on_both, token_dir, wait_while_progressing};
use crate::process::Process;

use super::server::Server;

const RUNS: usize = 50;
/// Writes ledger lines. Requests that end in 7 fail, and the request `slow` waits for its cancel.
const TASK: &str = r#"
echo "$TIDEMILL_RUN_ID begun" >>"$LEDGER"
echo "working on $TIDEMILL_GIT_REF"
case $TIDEMILL_GIT_REF in
  slow) sleep 600 ;;
  *7) echo "this one fails" >&2; exit 7 ;;
esac
echo "$TIDEMILL_RUN_ID done" >>"$LEDGER"
"#;

on_both! {
    python_example_worker_drains_a_queue,
    bash_example_worker_drains_a_queue,
}

fn python_example_worker_drains_a_queue(fixture: &Fixture) {
    drains_a_queue(fixture, "worker.py");
}

fn bash_example_worker_drains_a_queue(fixture: &Fixture) {
    drains_a_queue(fixture, "worker-http.sh");
}

fn worker(fixture: &Fixture, file: &str, server: &Server) -> Process {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(file);
    let mut command = Command::new(path);
    fixture.prepare(&mut command);
    command.args(["--name", "scribe", "--beat", "0.3", "--lease", "20", "--grace", "2", "--drain"]);
    command.args(["--", "bash", "-c", TASK]);
    command.env("TIDEMILL_SERVER", server.url()).env("LEDGER", fixture.path("ledger"));
    // The server writes another token after each restart.
    let file = token_dir().join(format!("127.0.0.1-{}.token", server.address().port()));
    command.env("TIDEMILL_TOKEN", format!("@{}", file.display()));
    command.env("TMPDIR", fixture.path(""));
    Process::start(fixture, "scribe", &mut command)
}

/// Fifty runs: some fail, one is cancelled, and the server is killed twice.
fn drains_a_queue(fixture: &Fixture, file: &str) {
    let mut server = Server::start(fixture);
    let request = |number: usize| {
        let reference = if number == 5 { "slow".to_owned() } else { format!("r-{number}") };
        fixture.request(QueueRun { git_ref: Some(reference), ..QueueRun::new("shop", "staging") })
    };
    let runs: Vec<RunId> = (0..RUNS).map(request).collect();
    let mut worker = worker(fixture, file, &server);

    fixture.wait_for_state(&runs[5], RunState::Running);
    assert_eq!(fixture.tidemill(&["run", "cancel", &runs[5].to_string()]).code, Some(0));
    for ended in [15, 30] {
        wait_while_progressing("some runs have ended", || {
            let over = fixture.runs().iter().filter(|run| run.status.is_terminal()).count();
            (over, (over >= ended).then_some(()))
        });
        server.kill();
        std::thread::sleep(std::time::Duration::from_millis(700));
        server.restart(fixture);
    }
    wait_while_progressing("every run has ended", || {
        let over = fixture.runs().iter().filter(|run| run.status.is_terminal()).count();
        (over, (over == RUNS).then_some(()))
    });
    assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0), "{}", worker.stderr());

    let ledger = std::fs::read_to_string(fixture.path("ledger")).expect("the ledger exists");
    let count =
        |run: &RunId, what: &str| ledger.lines().filter(|line| *line == format!("{run} {what}")).count();
    assert_eq!(fixture.runs().len(), RUNS, "no run was lost, so there is no successor");
    for (number, id) in runs.iter().enumerate() {
        let run = fixture.run(id);
        let (expected, done) = match number {
            5 => (RunState::Cancelled, 0),
            number if number % 10 == 7 => (RunState::Failed, 0),
            _ => (RunState::Success, 1),
        };
        assert_eq!((run.status, count(id, "begun"), count(id, "done")), (expected, 1, done), "run {number}");
        let changes = fixture.messages(id, EventKind::Transition);
        assert_eq!(changes.iter().filter(|text| *text == "Run claimed by worker").count(), 1, "{changes:?}");
        let printed = fixture.messages(id, EventKind::Log);
        let line = format!("working on {}", run.git_ref.unwrap_or_default());
        assert_eq!(
            printed.iter().filter(|text| **text == line).count(),
            1,
            "each line is stored once: {printed:?}"
        );
        match expected {
            RunState::Failed => assert_eq!(run.metadata["exit_code"], 7),
            RunState::Success => assert_eq!(run.metadata["exit_code"], 0),
            RunState::Queued | RunState::Claimed | RunState::Running | RunState::Cancelled => {}
        }
    }
}
