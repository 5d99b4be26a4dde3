//! A process that is frozen within a write to the SQLite file: the others wait, name it, and continue after it.

use rustix::process::Signal;
use tidemill_core::RunId;
use tidemill_core::run::{QueueRun, RunState};

use crate::fixture::{Fixture, Kind, TIMEOUT, wait_until};
use crate::ledger::{self, TASK};
use crate::process::{Process, is_alive};

/// The first attempt writes lines without a pause until it is killed or the test lets it end.
const NOISY: &str = r#"
if [ "$TIDEMILL_ATTEMPT" = 1 ]; then
  echo "$$" >noisy.new; mv noisy.new noisy
  while [ ! -e go ]; do seq 200; done
fi
"#;
/// Runs that wait while the file is locked.
const WAITING: usize = 4;

#[test]
fn writer_frozen_in_a_write_loses_nothing_after_it_continues() {
    blocked_processes_continue_after(Signal::CONT);
}

#[test]
fn writer_frozen_in_a_write_loses_nothing_after_it_is_killed() {
    blocked_processes_continue_after(Signal::KILL);
}

fn blocked_processes_continue_after(end: Signal) {
    let fixture = Fixture::new(Kind::Sqlite);
    let request = |label: &str| QueueRun {
        git_ref: Some(label.to_owned()),
        labels: vec![label.to_owned()],
        max_losses: 1_000,
        backoff_secs: 0,
        ..QueueRun::new("shop", "staging")
    };
    let (noisy, long) = (fixture.request(request("noisy")), fixture.request(request("task")));
    let mut frozen = Process::worker(&fixture, "frozen", &["--label", "noisy", "--no-upkeep"], NOISY);
    let options = ["--label", "task", "--slots", "2"];
    let mut other = Process::worker_with(&fixture, "other", &options, TASK, &[("SECS", "3")]);
    let read_pid = || std::fs::read_to_string(fixture.path("noisy")).ok()?.trim().parse::<i32>().ok();
    let command = wait_until("the noisy command runs", read_pid);
    fixture.wait_for_state(&noisy, RunState::Running);
    wait_until("the other command has begun", || (!ledger::entries(&fixture).is_empty()).then_some(()));

    frozen.freeze_in_write(&fixture);
    let before = fixture.runs();
    let mut queueing = start_queueing(&fixture);
    let (pid, file) = (frozen.pid(), fixture.url.clone());
    let holder = format!("process {pid} (tidemill) is stopped and holds the write lock of `{file}`");
    other.wait_for_stderr(&holder, 1);
    assert!(other.stderr().contains(&format!("see kill -CONT {pid}")), "{}", other.stderr());
    let checked = fixture.tidemill(&["doctor"]);
    assert!(checked.code == Some(3) && checked.stdout.contains(&holder), "{checked:?}");
    // Readers are not blocked, and nothing has changed.
    assert_eq!(fixture.runs(), before);
    assert!(queueing.iter_mut().all(Process::is_running), "a command did not wait for the lock");

    fixture.write("go", "");
    frozen.signal(end);
    for process in &mut queueing {
        assert_eq!(process.wait_for_exit(TIMEOUT), Some(0), "{}", process.stderr());
    }
    let queued = queueing.iter().map(|process| process.stdout().trim().parse::<RunId>());
    let mut requests: Vec<RunId> = queued.map(|id| id.expect("the output is a run id")).collect();
    requests.push(long);
    if end == Signal::KILL {
        assert_eq!(frozen.wait_for_exit(TIMEOUT), None);
        frozen = Process::worker(&fixture, "frozen", &["--label", "noisy", "--no-upkeep"], NOISY);
    }
    for request in requests.iter().chain([&noisy]) {
        wait_until("the request succeeds", || {
            (fixture.tries(request).last()?.status == RunState::Success).then_some(())
        });
    }
    assert_eq!(fixture.runs().iter().filter(|run| run.retry_of.is_none()).count(), WAITING + 2);
    assert!(!is_alive(command), "the noisy command outlived its run");
    for worker in [&mut frozen, &mut other] {
        worker.signal(Signal::TERM);
        assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0), "{}", worker.stderr());
    }
    ledger::check(&fixture, &requests);
}

/// Starts commands that queue a run each.
fn start_queueing(fixture: &Fixture) -> Vec<Process> {
    let start = |number| {
        let name = format!("queued-{number}");
        let args = ["run", "queue", "--project", "shop", "--env", "staging", "--label", "task"];
        let mut command = fixture.command(&args);
        command.args(["--git-ref", &name, "--idempotency-key", &name]);
        Process::start(fixture, &name, &mut command)
    };
    (0..WAITING).map(start).collect()
}
