//! The ledger that commands write, and its comparison with the database.

use std::collections::HashMap;
use std::fmt::Write as _;

use tidemill_core::RunId;
use tidemill_core::run::{QueueRun, RunState};

use crate::fixture::Fixture;

/// A command that writes a ledger line at its start and at its end.
///
/// It also detects an earlier attempt of its request that is still alive, by a lock and by its recorded process.
///
/// `$SECS` is its duration.
/// `$FAILS_ONCE` fails the first attempt of requests whose number ends in 7.
pub(crate) const TASK: &str = r#"
record() {
  printf '%s %s %s %s %s\n' "$TIDEMILL_RUN_ID" "$1" "$$" "${EPOCHREALTIME/[.,]/}" "$TIDEMILL_GIT_REF" >>"$LEDGER"
}
started() {
  local fields
  read -r fields 2>/dev/null <"/proc/$1/stat" && fields=${fields##*) } && set -- $fields && start=${20}
}
prefix=$LEDGER.$TIDEMILL_GIT_REF
exec 9>>"$prefix.lock"
flock -n 9 || record overlap
if read -r pid since 2>/dev/null <"$prefix.last" && started "$pid" && [ "$start" = "$since" ]; then record alive; fi
started $$
printf '%s %s\n' "$$" "$start" >"$prefix.last"
record begun
echo "working on $TIDEMILL_GIT_REF"
sleep "${SECS:-0.1}" &
wait
if [ -n "${FAILS_ONCE:-}" ] && [[ $TIDEMILL_GIT_REF == *7 ]] && [ ! -e "$prefix.failed" ]; then
  : >"$prefix.failed"
  echo "this attempt fails" >&2
  exit 7
fi
record done
"#;

/// A line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) run: RunId,
    pub(crate) what: String,
    pub(crate) pid: i32,
    pub(crate) micros: u64,
    pub(crate) request: String,
}

/// Reads the lines so far, in the order in which they were written.
pub(crate) fn entries(fixture: &Fixture) -> Vec<Entry> {
    let text = std::fs::read_to_string(fixture.path("ledger")).unwrap_or_default();
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
    let read = |line| parse(line).unwrap_or_else(|| panic!("invalid ledger line: {line}"));
    text.lines().map(read).collect()
}

/// Queues requests `<name>-0`, `<name>-1` …, and returns the first run of each. Their loss limit is never reached.
pub(crate) fn requests(fixture: &Fixture, name: &str, count: usize) -> Vec<RunId> {
    let request = |number: usize| QueueRun {
        git_ref: Some(format!("{name}-{number}")),
        max_losses: 1_000,
        max_attempts: 100,
        backoff_secs: 0,
        ..QueueRun::new("shop", "staging")
    };
    (0..count).map(|number| fixture.request(request(number))).collect()
}

/// Counts of a checked ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LedgerSummary {
    pub(crate) requests: usize,
    pub(crate) tries: usize,
    pub(crate) begun: usize,
    pub(crate) done: usize,
}

/// Compares the ledger with the database.
///
/// Every request ended with exactly one success, every success was executed exactly once, and no attempt started while
/// another one of the same request was alive.
pub(crate) fn check(fixture: &Fixture, requests: &[RunId]) -> LedgerSummary {
    let runs = fixture.runs();
    let ledger = entries(fixture);
    let next: HashMap<&RunId, _> =
        runs.iter().filter_map(|run| Some((run.retry_of.as_ref()?, run))).collect();
    let by_id: HashMap<&RunId, _> = runs.iter().map(|run| (&run.run_id, run)).collect();
    let count = |run: &RunId, what: &str| ledger.iter().filter(|e| e.run == *run && e.what == what).count();
    let mut errors = String::new();
    let mut summary = LedgerSummary { requests: requests.len(), ..LedgerSummary::default() };
    for request in requests {
        let mut tries = vec![by_id[request]];
        while let Some(run) = next.get(&tries[tries.len() - 1].run_id) {
            tries.push(run);
        }
        summary.tries += tries.len();
        let successes = tries.iter().filter(|run| run.status == RunState::Success).count();
        if successes != 1 || tries.iter().any(|run| !run.status.is_terminal()) {
            let states: Vec<_> = tries.iter().map(|run| (&run.run_id, run.status, run.end_cause)).collect();
            let _ = writeln!(errors, "request {request} has {successes} successes: {states:?}");
        }
        for run in &tries {
            let (begun, done) = (count(&run.run_id, "begun"), count(&run.run_id, "done"));
            (summary.begun, summary.done) = (summary.begun + begun, summary.done + done);
            let is_right = if run.status == RunState::Success { begun == 1 && done == 1 } else { begun <= 1 };
            if !is_right {
                let _ = writeln!(errors, "{} is {}: begun {begun}, done {done}", run.run_id, run.status);
            }
        }
        for pair in tries.windows(2) {
            let times =
                |run: &RunId| ledger.iter().filter(|e| e.run == *run).map(|e| e.micros).collect::<Vec<_>>();
            let (earlier, later) = (times(&pair[0].run_id), times(&pair[1].run_id));
            if earlier.iter().max() > later.iter().min() && !later.is_empty() {
                let _ = writeln!(errors, "{} wrote after {} started", pair[0].run_id, pair[1].run_id);
            }
        }
    }
    for entry in ledger.iter().filter(|entry| matches!(entry.what.as_str(), "overlap" | "alive")) {
        let _ = writeln!(errors, "an earlier attempt was alive when another one started: {entry:?}");
    }
    assert!(errors.is_empty(), "{errors}");
    summary
}
