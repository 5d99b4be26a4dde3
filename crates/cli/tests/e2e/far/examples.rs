//! The workers of `examples/` that speak HTTP: each works a queue to its end, whatever becomes of the server.

use std::path::PathBuf;
use std::process::Command;

use tidemill_core::RunId;
use tidemill_core::event::EventKind;
use tidemill_core::run::{QueueRun, RunState};

use crate::process::Process;
use crate::stage::{Kind, PATIENCE, Stage, until_moving};

use super::server::Server;

const RUNS: usize = 50;
/// Writes down that it was here; fails for every seventh request, and waits to be cancelled for one of them.
const TASK: &str = r#"
echo "$TIDEMILL_RUN_ID begun" >>"$LEDGER"
echo "working on $TIDEMILL_GIT_REF"
case $TIDEMILL_GIT_REF in
  slow) sleep 600 ;;
  *7) echo "this one fails" >&2; exit 7 ;;
esac
echo "$TIDEMILL_RUN_ID done" >>"$LEDGER"
"#;

#[test]
fn a_worker_in_python_works_a_queue_to_its_end() {
    works_a_queue_to_its_end("worker.py", Kind::Sqlite);
    works_a_queue_to_its_end("worker.py", Kind::Postgres);
}

#[test]
fn a_worker_in_bash_works_a_queue_to_its_end() {
    works_a_queue_to_its_end("worker-http.sh", Kind::Sqlite);
    works_a_queue_to_its_end("worker-http.sh", Kind::Postgres);
}

fn worker(stage: &Stage, file: &str, server: &Server) -> Process {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(file);
    let mut command = Command::new(path);
    stage.adopt(&mut command);
    command.args(["--name", "scribe", "--beat", "0.3", "--lease", "20", "--grace", "2", "--drain"]);
    command.args(["--", "bash", "-c", TASK]);
    command.env("TIDEMILL_SERVER", server.url()).env("LEDGER", stage.path("ledger"));
    command.env("TMPDIR", stage.path(""));
    Process::start(stage, "scribe", &mut command)
}

/// Fifty runs: some fail, one is cancelled, and the server is killed twice in the middle.
fn works_a_queue_to_its_end(file: &str, kind: Kind) {
    let stage = Stage::new(kind);
    let mut server = Server::start(&stage);
    let request = |number: usize| {
        let reference = if number == 5 { "slow".to_owned() } else { format!("r-{number}") };
        stage.request(QueueRun { git_ref: Some(reference), ..QueueRun::new("shop", "staging") })
    };
    let runs: Vec<RunId> = (0..RUNS).map(request).collect();
    let mut worker = worker(&stage, file, &server);

    stage.until(&runs[5], RunState::Running);
    assert_eq!(stage.tidemill(&["run", "cancel", &runs[5].to_string()]).code, Some(0));
    for ended in [15, 30] {
        until_moving("some runs are over", || {
            let over = stage.runs().iter().filter(|run| run.status.is_terminal()).count();
            (over, (over >= ended).then_some(()))
        });
        server.kill();
        std::thread::sleep(std::time::Duration::from_millis(700));
        server.resume(&stage);
    }
    until_moving("every run is over", || {
        let over = stage.runs().iter().filter(|run| run.status.is_terminal()).count();
        (over, (over == RUNS).then_some(()))
    });
    assert_eq!(worker.ended_within(PATIENCE), Some(0), "{}", worker.said());

    let ledger = std::fs::read_to_string(stage.path("ledger")).expect("there is a ledger");
    let count =
        |run: &RunId, what: &str| ledger.lines().filter(|line| *line == format!("{run} {what}")).count();
    assert_eq!(stage.runs().len(), RUNS, "nothing was lost, so nothing was followed");
    for (number, id) in runs.iter().enumerate() {
        let run = stage.run(id);
        let (expected, done) = match number {
            5 => (RunState::Cancelled, 0),
            number if number % 10 == 7 => (RunState::Failed, 0),
            _ => (RunState::Success, 1),
        };
        assert_eq!((run.status, count(id, "begun"), count(id, "done")), (expected, 1, done), "run {number}");
        let changes = stage.messages(id, EventKind::Transition);
        assert_eq!(changes.iter().filter(|text| *text == "Run claimed by worker").count(), 1, "{changes:?}");
        let said = stage.messages(id, EventKind::Log);
        let line = format!("working on {}", run.git_ref.unwrap_or_default());
        assert_eq!(said.iter().filter(|text| **text == line).count(), 1, "each line is kept once: {said:?}");
        match expected {
            RunState::Failed => assert_eq!(run.metadata["exit_code"], 7),
            RunState::Success => assert_eq!(run.metadata["exit_code"], 0),
            RunState::Queued | RunState::Claimed | RunState::Running | RunState::Cancelled => {}
        }
    }
}
