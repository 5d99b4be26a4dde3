//! Several reasons to stop a command at once: it is dead before its concurrency key goes to the next run.

use rustix::process::Signal;
use tidemill_core::RunId;
use tidemill_core::run::{EndCause, QueueRun, RunState};

use crate::fixture::{Fixture, TIMEOUT, on_both, wait_until};
use crate::process::{Process, is_alive};

on_both!(command_is_dead_before_its_key_moves_for_all_reasons);

/// Ends only with SIGKILL. Writes its process id to a file of its case.
const STUBBORN: &str = r#"
trap '' TERM
echo $$ >"$LEDGER.$TIDEMILL_GIT_REF.new"; mv "$LEDGER.$TIDEMILL_GIT_REF.new" "$LEDGER.$TIDEMILL_GIT_REF"
while :; do sleep 0.1; done
"#;

/// The next run of the same key, which reports whether the previous command is still alive.
const NEXT: &str = r#"
state=$(cut -d' ' -f3 "/proc/$(cat "$LEDGER.$TIDEMILL_GIT_REF")/stat" 2>/dev/null)
case "$state" in ''|Z|X) ;; *) echo "$TIDEMILL_GIT_REF overlap" >>"$LEDGER" ;; esac
"#;

/// Heartbeats of these workers: a stall of the disk must not take a run away before its case has begun.
const PATIENT: [(&str, &str); 2] = [("TIDEMILL_WORKER_BEAT", "1s"), ("TIDEMILL_WORKER_DEAD_AFTER", "15s")];

/// Name of the case, time limit of its run, and the actions in their order.
const CASES: [(&str, Option<i32>, &[Action]); 6] = [
    ("shutdown-cancel", None, &[Action::Terminate, Action::Cancel]),
    ("cancel-shutdown", None, &[Action::Cancel, Action::Terminate]),
    ("shutdown-timeout", Some(1), &[Action::Terminate]),
    ("timeout-cancel", Some(1), &[Action::Cancel]),
    ("drain-cancel", None, &[Action::Drain, Action::Cancel]),
    // A frozen worker loses its lease.
    ("shutdown-lost", None, &[Action::Terminate, Action::Freeze]),
];

#[derive(Clone, Copy)]
enum Action {
    Terminate,
    Cancel,
    Drain,
    Freeze,
}

struct Case {
    name: &'static str,
    worker: Process,
    first: RunId,
    next: RunId,
}

impl Case {
    fn begin(fixture: &Fixture, name: &'static str, timeout_secs: Option<i32>) -> Self {
        let queue = |label: &str, timeout_secs| {
            fixture.request(QueueRun {
                git_ref: Some(name.to_owned()),
                concurrency_key: Some(name.to_owned()),
                labels: vec![label.to_owned()],
                timeout_secs,
                // A successor would take the key before the next run.
                max_losses: 0,
                ..QueueRun::new("shop", "staging")
            })
        };
        let (first, next) = (queue(name, timeout_secs), queue("next", None));
        let options = ["--grace", "120s", "--label", name];
        let worker = Process::worker_with(fixture, name, &options, STUBBORN, &PATIENT);
        Self { name, worker, first, next }
    }

    fn apply(&mut self, fixture: &Fixture, action: Action) {
        match action {
            Action::Terminate => self.worker.signal(Signal::TERM),
            Action::Freeze => self.worker.freeze(fixture),
            Action::Cancel => drop(fixture.ok(&["run", "cancel", self.first.as_str()])),
            Action::Drain => drop(fixture.ok(&["worker", "drain", self.name])),
        }
    }
}

fn command_is_dead_before_its_key_moves_for_all_reasons(fixture: &Fixture) {
    let options = ["--label", "next", "--slots", "6"];
    let mut successor = Process::worker_with(fixture, "next", &options, NEXT, &PATIENT);
    let mut pids = Vec::new();
    let mut cases = Vec::new();
    for (name, timeout_secs, actions) in CASES {
        let mut case = Case::begin(fixture, name, timeout_secs);
        let file = fixture.path(&format!("ledger.{name}"));
        let read_pid = || std::fs::read_to_string(&file).ok()?.trim().parse::<i32>().ok();
        pids.push(wait_until("the command runs", read_pid));
        // At once: a time limit kills its command 26 s after the start.
        for action in actions {
            case.apply(fixture, *action);
        }
        cases.push(case);
    }
    for case in &cases {
        fixture.wait_for_state(&case.next, RunState::Success);
    }
    let ledger = std::fs::read_to_string(fixture.path("ledger")).unwrap_or_default();
    assert_eq!(ledger, "", "two commands of one key overlapped");
    assert!(!pids.into_iter().any(is_alive), "a command outlived its run");
    for case in &mut cases {
        let cause = fixture.run(&case.first).end_cause;
        let is_cancelled = case.name.ends_with("cancel") || case.name.starts_with("cancel");
        assert!(!is_cancelled || cause.is_some_and(ends_a_cancel), "{}: {cause:?}", case.name);
        case.worker.signal(Signal::CONT);
        case.worker.signal(Signal::TERM);
        assert_eq!(case.worker.wait_for_exit(TIMEOUT), Some(0), "{}", case.name);
    }
    successor.signal(Signal::TERM);
    assert_eq!(successor.wait_for_exit(TIMEOUT), Some(0));
}

/// Whether a cancelled run can end with this cause. The worker kills a stubborn command 5 s before the grace period
/// ends; on a stalled machine the database ends the run before the worker's confirmation arrives.
fn ends_a_cancel(cause: EndCause) -> bool {
    matches!(cause, EndCause::Cancelled | EndCause::CancelGrace)
}
