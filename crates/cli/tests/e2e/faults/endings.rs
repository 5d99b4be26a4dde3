//! Several reasons to end a command at once: the command is dead before its concurrency key goes to the next run.

use rustix::process::Signal;
use tidemill_core::RunId;
use tidemill_core::run::{EndCause, QueueRun, RunState};

use crate::process::{Process, is_alive};
use crate::stage::{PATIENCE, Stage, on_both, until};

on_both!(command_is_dead_before_its_key_moves_whichever_reasons_meet);

/// Only SIGKILL ends it. It writes down its process id under the name of its case.
const STUBBORN: &str = r#"
trap '' TERM
echo $$ >"$LEDGER.$TIDEMILL_GIT_REF.new"; mv "$LEDGER.$TIDEMILL_GIT_REF.new" "$LEDGER.$TIDEMILL_GIT_REF"
while :; do sleep 0.1; done
"#;

/// The next run of the same key. It says whether the command before it is still there.
const NEXT: &str = r#"
state=$(cut -d' ' -f3 "/proc/$(cat "$LEDGER.$TIDEMILL_GIT_REF")/stat" 2>/dev/null)
case "$state" in ''|Z|X) ;; *) echo "$TIDEMILL_GIT_REF overlap" >>"$LEDGER" ;; esac
"#;

/// Each case: its name, the time limit of its run, and what happens to it, in this order.
const CASES: [(&str, Option<i32>, &[Blow]); 6] = [
    ("shutdown-cancel", None, &[Blow::Terminate, Blow::Cancel]),
    ("cancel-shutdown", None, &[Blow::Cancel, Blow::Terminate]),
    ("shutdown-timeout", Some(1), &[Blow::Terminate]),
    ("timeout-cancel", Some(1), &[Blow::Cancel]),
    ("drain-cancel", None, &[Blow::Drain, Blow::Cancel]),
    // A frozen worker loses its lease.
    ("shutdown-lost", None, &[Blow::Terminate, Blow::Freeze]),
];

#[derive(Clone, Copy)]
enum Blow {
    Terminate,
    Cancel,
    Drain,
    Freeze,
}

/// One case while it runs.
struct Case {
    name: &'static str,
    worker: Process,
    first: RunId,
    next: RunId,
}

impl Case {
    fn begin(stage: &Stage, name: &'static str, timeout_secs: Option<i32>) -> Self {
        let queue = |label: &str, timeout_secs| {
            stage.request(QueueRun {
                git_ref: Some(name.to_owned()),
                concurrency_key: Some(name.to_owned()),
                labels: vec![label.to_owned()],
                timeout_secs,
                // A successor would take the key before the next run does.
                max_losses: 0,
                ..QueueRun::new("shop", "staging")
            })
        };
        let (first, next) = (queue(name, timeout_secs), queue("next", None));
        let worker = Process::worker(stage, name, &["--grace", "120s", "--label", name], STUBBORN);
        Self { name, worker, first, next }
    }

    fn suffer(&mut self, stage: &Stage, blow: Blow) {
        match blow {
            Blow::Terminate => self.worker.signal(Signal::TERM),
            Blow::Freeze => self.worker.signal(Signal::STOP),
            Blow::Cancel => drop(stage.ok(&["run", "cancel", self.first.as_str()])),
            Blow::Drain => drop(stage.ok(&["worker", "drain", self.name])),
        }
    }
}

fn command_is_dead_before_its_key_moves_whichever_reasons_meet(stage: &Stage) {
    let mut cases: Vec<Case> =
        CASES.iter().map(|(name, timeout, _)| Case::begin(stage, name, *timeout)).collect();
    let pids: Vec<i32> = cases
        .iter()
        .map(|case| {
            let file = stage.path(&format!("ledger.{}", case.name));
            until("the command runs", || std::fs::read_to_string(&file).ok()?.trim().parse().ok())
        })
        .collect();
    let mut successor = Process::worker(stage, "next", &["--label", "next", "--slots", "6"], NEXT);
    for (case, (_, _, blows)) in cases.iter_mut().zip(CASES) {
        for blow in blows {
            case.suffer(stage, *blow);
        }
    }
    for case in &cases {
        stage.until(&case.next, RunState::Success);
    }
    let ledger = std::fs::read_to_string(stage.path("ledger")).unwrap_or_default();
    assert_eq!(ledger, "", "two commands ran under one key");
    assert!(!pids.into_iter().any(is_alive), "a command outlived its run");
    for case in &mut cases {
        let cause = stage.run(&case.first).end_cause;
        let is_reported = case.name.ends_with("cancel") || case.name.starts_with("cancel");
        assert!(!is_reported || cause == Some(EndCause::Cancelled), "{}: {cause:?}", case.name);
        case.worker.signal(Signal::CONT);
        case.worker.signal(Signal::TERM);
        assert_eq!(case.worker.ended_within(PATIENCE), Some(0), "{}", case.name);
    }
    successor.signal(Signal::TERM);
    assert_eq!(successor.ended_within(PATIENCE), Some(0));
}
