//! What the commands did, as they wrote it down themselves, and the oracle that compares it with the database.

use std::collections::HashMap;
use std::fmt::Write as _;

use tidemill_core::RunId;
use tidemill_core::run::{QueueRun, RunState};

use crate::stage::Stage;

/// A command that writes down when it begins and when it is done, and finds out by itself whether an earlier try of
/// its request, or one of its processes, is still alive: they hold a lock, and their start is on record.
///
/// `$SECS` is how long it takes. `$FAILS_ONCE` makes the first try of the requests whose number ends in 7 fail.
pub(crate) const TASK: &str = r#"
note() {
  printf '%s %s %s %s %s\n' "$TIDEMILL_RUN_ID" "$1" "$$" "${EPOCHREALTIME/[.,]/}" "$TIDEMILL_GIT_REF" >>"$LEDGER"
}
started() {
  local fields
  read -r fields 2>/dev/null <"/proc/$1/stat" && fields=${fields##*) } && set -- $fields && start=${20}
}
place=$LEDGER.$TIDEMILL_GIT_REF
exec 9>>"$place.lock"
flock -n 9 || note overlap
if read -r pid since 2>/dev/null <"$place.last" && started "$pid" && [ "$start" = "$since" ]; then note alive; fi
started $$
printf '%s %s\n' "$$" "$start" >"$place.last"
note begun
echo "working on $TIDEMILL_GIT_REF"
sleep "${SECS:-0.1}" &
wait
if [ -n "${FAILS_ONCE:-}" ] && [[ $TIDEMILL_GIT_REF == *7 ]] && [ ! -e "$place.failed" ]; then
  : >"$place.failed"
  echo "this try fails" >&2
  exit 7
fi
note done
"#;

/// One line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) run: RunId,
    pub(crate) what: String,
    pub(crate) pid: i32,
    pub(crate) micros: u64,
    pub(crate) request: String,
}

/// The lines so far, in the order in which they were written.
pub(crate) fn entries(stage: &Stage) -> Vec<Entry> {
    let text = std::fs::read_to_string(stage.path("ledger")).unwrap_or_default();
    let parse = |line: &str| -> Option<Entry> {
        let mut words = line.split(' ');
        Some(Entry {
            run: words.next()?.parse().ok()?,
            what: words.next()?.to_owned(),
            pid: words.next()?.parse().ok()?,
            micros: words.next()?.parse().ok()?,
            request: words.next()?.to_owned(),
        })
    };
    let read = |line| parse(line).unwrap_or_else(|| panic!("not a line of the ledger: {line}"));
    text.lines().map(read).collect()
}

/// Queues requests `<name>-0`, `<name>-1` …; the first run of each. They may lose as many workers as there are.
pub(crate) fn requests(stage: &Stage, name: &str, count: usize) -> Vec<RunId> {
    let request = |number: usize| QueueRun {
        git_ref: Some(format!("{name}-{number}")),
        max_losses: 1_000,
        max_attempts: 100,
        backoff_secs: 0,
        ..QueueRun::new("shop", "staging")
    };
    (0..count).map(|number| stage.request(request(number))).collect()
}

/// What the oracle saw, for whoever reads along.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) requests: usize,
    pub(crate) tries: usize,
    pub(crate) begun: usize,
    pub(crate) done: usize,
}

/// Compares the ledger with the database: every request has ended with exactly one success; every success was done
/// exactly once by that try; no try began while another of the same request was alive.
pub(crate) fn verdict(stage: &Stage, requests: &[RunId]) -> Seen {
    let runs = stage.runs();
    let ledger = entries(stage);
    let next: HashMap<&RunId, _> =
        runs.iter().filter_map(|run| Some((run.retry_of.as_ref()?, run))).collect();
    let by_id: HashMap<&RunId, _> = runs.iter().map(|run| (&run.run_id, run)).collect();
    let count = |run: &RunId, what: &str| ledger.iter().filter(|e| e.run == *run && e.what == what).count();
    let mut faults = String::new();
    let mut seen = Seen { requests: requests.len(), ..Seen::default() };
    for request in requests {
        let mut tries = vec![by_id[request]];
        while let Some(run) = next.get(&tries[tries.len() - 1].run_id) {
            tries.push(run);
        }
        seen.tries += tries.len();
        let successes = tries.iter().filter(|run| run.status == RunState::Success).count();
        if successes != 1 || tries.iter().any(|run| !run.status.is_terminal()) {
            let states: Vec<_> = tries.iter().map(|run| (&run.run_id, run.status, run.end_cause)).collect();
            let _ = writeln!(faults, "request {request} has {successes} successes: {states:?}");
        }
        for run in &tries {
            let (begun, done) = (count(&run.run_id, "begun"), count(&run.run_id, "done"));
            (seen.begun, seen.done) = (seen.begun + begun, seen.done + done);
            let is_right = if run.status == RunState::Success { begun == 1 && done == 1 } else { begun <= 1 };
            if !is_right {
                let _ = writeln!(faults, "{} is {}: begun {begun}, done {done}", run.run_id, run.status);
            }
        }
        for pair in tries.windows(2) {
            let times =
                |run: &RunId| ledger.iter().filter(|e| e.run == *run).map(|e| e.micros).collect::<Vec<_>>();
            let (earlier, later) = (times(&pair[0].run_id), times(&pair[1].run_id));
            if earlier.iter().max() > later.iter().min() && !later.is_empty() {
                let _ = writeln!(faults, "{} wrote after {} began", pair[0].run_id, pair[1].run_id);
            }
        }
    }
    for entry in ledger.iter().filter(|entry| matches!(entry.what.as_str(), "overlap" | "alive")) {
        let _ = writeln!(faults, "an earlier try was alive when another began: {entry:?}");
    }
    assert!(faults.is_empty(), "{faults}");
    seen
}
