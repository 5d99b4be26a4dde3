//! Properties of runs under random events, and of requests under random ends of their attempts.

use chrono::{TimeDelta, TimeZone as _, Utc};
use proptest::prelude::*;
use tidemill_core::limits::{ATTEMPTS_MAX, BACKOFF_SECS_MAX};
use tidemill_core::request::micros;
use tidemill_core::retry::{RetryDecision, Successor, backoff, decide_retry};
use tidemill_core::run::{EndCause, Lane, QueueRun, Run, RunEvent, RunState, next, pairs};
use tidemill_core::{EnvId, Json, RunId, Timestamp};
use uuid::Uuid;

fn moment() -> Timestamp {
    Utc.with_ymd_and_hms(2026, 2, 14, 10, 30, 0).unwrap()
}

fn id(entropy: u128) -> RunId {
    RunId::new(moment(), Uuid::from_u128(entropy))
}

/// A running run with these budgets.
fn run(run_id: RunId, spent: Spent, budget: Budget) -> Run {
    Run {
        run_id,
        project_id: "shop".to_owned(),
        env_id: EnvId::new("shop", "staging"),
        lane: Lane::Ops,
        kind: String::new(),
        status: RunState::Running,
        gate: None,
        git_sha: None,
        git_ref: None,
        metadata: Json::Null,
        idempotency_key: None,
        priority: 0,
        labels: Vec::new(),
        concurrency_key: None,
        available_at: None,
        expires_at: None,
        timeout_secs: None,
        attempt: spent.attempt,
        failures: spent.failures,
        losses: spent.losses,
        max_attempts: budget.attempts,
        max_losses: budget.losses,
        backoff_secs: budget.backoff_secs,
        retry_of: None,
        claimed_by: Some("worker-001".to_owned()),
        worker_id: None,
        epoch: 1,
        lease_until: None,
        deadline_at: None,
        cancel_requested_at: None,
        cancel_requested_by: None,
        cancel_reason: None,
        stalled_at: None,
        end_cause: None,
        queued_at: moment(),
        started_at: Some(moment()),
        finished_at: None,
        created_at: moment(),
        updated_at: moment(),
    }
}

/// The used budgets of earlier attempts.
#[derive(Debug, Clone, Copy)]
struct Spent {
    attempt: i32,
    failures: i32,
    losses: i32,
}

const NOTHING_SPENT: Spent = Spent { attempt: 1, failures: 0, losses: 0 };

/// The budgets of a request.
#[derive(Debug, Clone, Copy)]
struct Budget {
    attempts: i32,
    losses: i32,
    backoff_secs: i32,
}

fn budgets() -> impl Strategy<Value = Budget> {
    (1..=ATTEMPTS_MAX, 0..=ATTEMPTS_MAX, 0..=BACKOFF_SECS_MAX)
        .prop_map(|(attempts, losses, backoff_secs)| Budget { attempts, losses, backoff_secs })
}

fn events() -> impl Strategy<Value = Vec<RunEvent>> {
    prop::collection::vec(prop::sample::select(RunEvent::ALL), 0..40)
}

/// Generates the possible ends of a run: every cause with its final states.
fn ends() -> impl Strategy<Value = (RunState, EndCause)> {
    use {EndCause as C, RunState as S};
    let statuses = |cause| match cause {
        C::Reported => vec![S::Success, S::Failed],
        C::Cancelled | C::CancelGrace | C::Expired | C::Stale => vec![S::Cancelled],
        C::Lost | C::TimedOut => vec![S::Failed],
        C::Quarantined | C::Interrupted => vec![S::Failed, S::Cancelled],
        C::Statement => vec![S::Success, S::Failed, S::Cancelled],
    };
    let ends = EndCause::ALL
        .iter()
        .flat_map(|&cause| statuses(cause).into_iter().map(move |status| (status, cause)));
    prop::sample::select(ends.collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_events_obey_the_lifecycle(events in events()) {
        let mut life = vec![RunState::Queued];
        for event in events {
            let before = *life.last().unwrap();
            if let Some(after) = next(before, event) {
                prop_assert!(!before.is_terminal(), "{} left the final state {}", event, before);
                prop_assert!(pairs().contains(&(before, after)));
                life.push(after);
            }
        }
        let times = |state| life.iter().filter(|&&other| other == state).count();
        prop_assert!(RunState::ALL.iter().all(|&state| times(state) <= 1), "a state is entered twice: {:?}", life);
        let position = |state| life.iter().position(|&other| other == state);
        prop_assert!(position(RunState::Running).is_none() || position(RunState::Claimed).is_some());
        for reported in [RunState::Success, RunState::Failed] {
            prop_assert!(position(reported).is_none() || position(RunState::Running).is_some(), "{:?}", life);
        }
        let ends = life.iter().filter(|state| state.is_terminal()).count();
        prop_assert!(ends <= 1, "more than one end: {:?}", life);
    }

    #[test]
    fn live_run_can_end_within_three_events(events in events()) {
        let state = events.into_iter().fold(RunState::Queued, |state, event| next(state, event).unwrap_or(state));
        let step = |states: Vec<RunState>| -> Vec<RunState> {
            states.iter().flat_map(|&from| RunEvent::ALL.iter().filter_map(move |&event| next(from, event))).collect()
        };
        let mut reach = vec![state];
        for _ in 0..3 {
            if reach.iter().any(|state| state.is_terminal()) {
                return Ok(());
            }
            reach = step(reach);
        }
        prop_assert!(reach.iter().any(|state| state.is_terminal()), "{} cannot end", state);
    }

    #[test]
    fn successor_costs_one_budget_unless_interrupted(
        entropy: u128, budget in budgets(), (status, cause) in ends(), failures in 0..ATTEMPTS_MAX,
        losses in 0..=ATTEMPTS_MAX,
    ) {
        let spent = Spent { attempt: failures + losses + 1, failures, losses };
        let ended = run(id(entropy), spent, budget);
        if let RetryDecision::Successor(successor) = decide_retry(&ended, status, cause, moment()) {
            let cost = (successor.failures - failures) + (successor.losses - losses);
            let expected = i32::from(cause != EndCause::Interrupted);
            prop_assert_eq!((successor.attempt, cost), (ended.attempt + 1, expected));
            prop_assert!(successor.failures < budget.attempts || successor.failures == failures);
            prop_assert!(successor.losses <= budget.losses || successor.losses == losses);
            prop_assert_ne!(status, RunState::Success);
            prop_assert_eq!(successor.available_at.is_some(), successor.failures > failures);
            prop_assert!(successor.available_at.is_none_or(|at| at >= moment()));
        }
    }

    #[test]
    fn cancelled_run_gets_no_successor(
        entropy: u128, budget in budgets(), (status, cause) in ends(),
    ) {
        let mut ended = run(id(entropy), NOTHING_SPENT, budget);
        ended.cancel_requested_at = Some(moment());
        prop_assert_eq!(decide_retry(&ended, status, cause, moment()), RetryDecision::Nothing);
    }

    /// The sum of both budgets bounds the number of attempts, in any order of failures and losses.
    #[test]
    fn request_ends_after_a_bounded_number_of_attempts(
        attempts in 1..20, losses in 0..20, ends in prop::collection::vec(prop::bool::ANY, 60),
    ) {
        let budget = Budget { attempts, losses, backoff_secs: 5 };
        let mut spent = NOTHING_SPENT;
        let mut count = 1;
        for worker_reports in ends {
            let cause = if worker_reports { EndCause::Reported } else { EndCause::Lost };
            let ended = run(id(u128::from(spent.attempt.unsigned_abs())), spent, budget);
            match decide_retry(&ended, RunState::Failed, cause, moment()) {
                RetryDecision::Successor(Successor { attempt, failures, losses, .. }) => {
                    spent = Spent { attempt, failures, losses };
                    count += 1;
                }
                RetryDecision::Quarantine => {
                    prop_assert!(!worker_reports && spent.losses == losses, "{:?}", spent);
                    return Ok(());
                }
                RetryDecision::Nothing => {
                    prop_assert!(worker_reports && spent.failures + 1 == attempts, "{:?}", spent);
                    return Ok(());
                }
            }
            prop_assert!(count <= attempts + losses, "{} attempts", count);
        }
        prop_assert!(count <= 60, "the request did not end");
    }

    #[test]
    fn backoff_doubles_with_jitter_and_is_capped(
        entropy: u128, base in 0..=BACKOFF_SECS_MAX, failures in 0..2_000,
    ) {
        let run = id(entropy);
        let wait = backoff(base, failures, &run);
        prop_assert_eq!(wait, backoff(base, failures, &run), "the back-off is deterministic");
        let exact = (i64::from(base) << failures.min(20)).min(i64::from(BACKOFF_SECS_MAX));
        prop_assert!(wait >= TimeDelta::milliseconds(exact * 800), "{}", wait);
        prop_assert!(wait <= TimeDelta::milliseconds(exact * 1_200), "{}", wait);
        prop_assert!(backoff(base, failures + 1, &run) >= wait);
    }

    #[test]
    fn jitter_is_a_fraction(entropy: u128) {
        prop_assert!((0.0..1.0).contains(&id(entropy).jitter()));
    }

    #[test]
    fn older_run_has_a_smaller_id(a: u128, b: u128, apart_ms in 1_i64..1_000_000) {
        let early = RunId::new(moment(), Uuid::from_u128(a));
        let late = RunId::new(moment() + TimeDelta::milliseconds(apart_ms), Uuid::from_u128(b));
        prop_assert!(early < late);
        prop_assert_eq!(early.as_str().parse::<RunId>(), Ok(early.clone()));
    }

    #[test]
    fn normalized_is_idempotent_and_keeps_validity(
        labels in prop::collection::vec("[a-c,]{0,2}", 0..5), priority: i32, attempts in -1..3,
        available_ns in prop::option::of(0_i64..5_000_000_000),
    ) {
        let mut request = QueueRun::new("shop", "staging");
        request.labels = labels;
        request.priority = priority;
        request.max_attempts = attempts;
        request.available_at = available_ns.map(|ns| moment() + TimeDelta::nanoseconds(ns));
        let normal = request.clone().normalized();
        prop_assert_eq!(normal.clone().normalized(), normal.clone());
        prop_assert_eq!(normal.available_at, normal.available_at.map(micros));
        prop_assert_eq!(request.check().is_ok(), normal.check().is_ok());
    }
}
