//! A model of one request with two workers, a sweeper, an operator and lost replies.
//!
//! The checker attempts every interleaving. Transitions come from `run::next` and successors from
//! `retry::decide_retry`; the model adds only the permitted calls and the fence. A zombie worker, which has lost its
//! run without knowing it, needs no action of its own: it is any worker whose belief is older than the store. The two
//! mutants at the end show that the properties can fail.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use chrono::{TimeZone as _, Utc};
use stateright::{Checker as _, Model, Property};
use tidemill_core::retry::{RetryDecision, decide_retry};
use tidemill_core::run::{EndCause, Lane, Run, RunEvent, RunState, next};
use tidemill_core::{EnvId, Json, RunId, Timestamp};
use uuid::Uuid;

const WORKERS: usize = 2;

/// Whether the store checks the holder of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fence {
    /// The store accepts a report only from the holder of a held run.
    Enforced,
    /// The store accepts every report.
    Missing,
}

/// The time at which the successor is queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SuccessorTiming {
    /// In the transaction that ends the previous attempt.
    WithEnd,
    /// After that transaction, by a process that may die first.
    Afterwards,
}

#[derive(Debug, Clone)]
struct Request {
    max_attempts: i32,
    max_losses: i32,
    fence: Fence,
    successor_timing: SuccessorTiming,
}

/// A stored attempt at the request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Attempt {
    state: RunState,
    holder: Option<usize>,
    failures: i32,
    losses: i32,
    cancel_requested: bool,
    /// Number of ends that the store accepted. Only for the properties.
    ends_counted: u8,
}

/// The belief of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Belief {
    Idle,
    /// It sent a claim and has not received the reply.
    Claiming,
    /// It executes this attempt.
    Executing(usize),
    /// It reported this end of this attempt and has not received the reply.
    Reported(usize, RunEvent),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    attempts: Vec<Attempt>,
    workers: [Belief; WORKERS],
    /// An ended attempt whose successor is not queued yet. Only the mutant has one.
    unsent: Option<usize>,
    cancelled_by_operator: bool,
    /// Number of worker shutdowns during the request. They cost no budget; the model allows one.
    interruptions: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reply {
    Arrives,
    IsLost,
}

#[derive(Debug, Clone, PartialEq)]
enum Action {
    Claim(usize, Reply),
    Start(usize),
    Report(usize, RunEvent, Reply),
    /// The worker loses its state by a restart.
    Restart(usize),
    /// The worker is shut down and signs off; the sweeper handles its run.
    Retire(usize),
    /// The sweeper finds an expired lease. The model has no clock, so this can happen at any time.
    Sweep,
    TimeOut,
    Cancel,
    CancelGrace,
    Send,
}

fn moment() -> Timestamp {
    Utc.with_ymd_and_hms(2026, 2, 14, 10, 30, 0).unwrap()
}

impl Request {
    /// Returns the attempt as a run of core.
    fn record(&self, world: &World, index: usize) -> Run {
        let at = &world.attempts[index];
        Run {
            run_id: RunId::new(moment(), Uuid::from_u128(index as u128)),
            project_id: String::new(),
            env_id: EnvId::new("shop", "staging"),
            lane: Lane::Ops,
            kind: String::new(),
            status: at.state,
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
            attempt: i32::try_from(index + 1).unwrap(),
            failures: at.failures,
            losses: at.losses,
            max_attempts: self.max_attempts,
            max_losses: self.max_losses,
            backoff_secs: 0,
            retry_of: None,
            claimed_by: None,
            worker_id: None,
            epoch: i32::from(at.holder.is_some()),
            lease_until: None,
            deadline_at: None,
            cancel_requested_at: at.cancel_requested.then(moment),
            cancel_requested_by: None,
            cancel_reason: None,
            stalled_at: None,
            end_cause: None,
            queued_at: moment(),
            started_at: None,
            finished_at: None,
            created_at: moment(),
            updated_at: moment(),
        }
    }

    /// Applies an event to an attempt and queues its successor. `None` if the event is illegal.
    fn step(&self, world: &World, index: usize, event: RunEvent, cause: EndCause) -> Option<World> {
        let to = next(world.attempts[index].state, event)?;
        let mut after = world.clone();
        after.attempts[index].state = to;
        if to.is_terminal() {
            after.attempts[index].ends_counted += 1;
            match self.successor_timing {
                SuccessorTiming::WithEnd => self.send(&mut after, index, cause),
                SuccessorTiming::Afterwards => after.unsent = Some(index),
            }
        }
        Some(after)
    }

    fn send(&self, world: &mut World, index: usize, cause: EndCause) {
        let record = self.record(world, index);
        if let RetryDecision::Successor(successor) = decide_retry(&record, record.status, cause, moment()) {
            world.attempts.push(Attempt {
                state: RunState::Queued,
                holder: None,
                failures: successor.failures,
                losses: successor.losses,
                cancel_requested: false,
                ends_counted: 0,
            });
        }
    }

    fn live(world: &World) -> Option<usize> {
        world.attempts.iter().position(|at| !at.state.is_terminal())
    }

    fn claim(&self, world: &World, worker: usize, reply: Reply) -> Option<World> {
        // A repeated claim with the same request id returns the run that the worker already holds.
        let mine = world.attempts.iter().position(|at| at.holder == Some(worker) && at.state.is_held());
        let (mut after, index) = match (world.workers[worker], mine) {
            (Belief::Claiming, Some(index)) => (world.clone(), index),
            (Belief::Idle | Belief::Claiming, None) => {
                let index =
                    Self::live(world).filter(|&index| world.attempts[index].state == RunState::Queued)?;
                let mut after = self.step(world, index, RunEvent::Claim, EndCause::Reported)?;
                after.attempts[index].holder = Some(worker);
                (after, index)
            }
            (Belief::Idle | Belief::Executing(_) | Belief::Reported(..), _) => return None,
        };
        after.workers[worker] = match reply {
            Reply::Arrives => Belief::Executing(index),
            Reply::IsLost => Belief::Claiming,
        };
        Some(after)
    }

    fn may_write(&self, world: &World, worker: usize, index: usize) -> bool {
        let at = &world.attempts[index];
        self.fence == Fence::Missing || (at.state.is_held() && at.holder == Some(worker))
    }

    fn report(&self, world: &World, worker: usize, event: RunEvent, reply: Reply) -> Option<World> {
        let index = match world.workers[worker] {
            Belief::Executing(index) => index,
            Belief::Reported(index, reported) if reported == event => index,
            Belief::Idle | Belief::Claiming | Belief::Reported(..) => return None,
        };
        let mut after = world.clone();
        if self.may_write(world, worker, index) {
            // Finishing a claimed run starts it first.
            let cause = if event == RunEvent::Cancel { EndCause::Cancelled } else { EndCause::Reported };
            if after.attempts[index].state == RunState::Claimed {
                after = self.step(&after, index, RunEvent::Start, cause)?;
            }
            if self.fence == Fence::Missing && after.attempts[index].state.is_terminal() {
                after.attempts[index].ends_counted += 1;
                after.attempts[index].state =
                    if event == RunEvent::Succeed { RunState::Success } else { RunState::Failed };
            } else {
                after = self.step(&after, index, event, cause)?;
            }
        }
        after.workers[worker] = match reply {
            Reply::Arrives => Belief::Idle,
            Reply::IsLost => Belief::Reported(index, event),
        };
        Some(after)
    }

    fn sweep(&self, world: &World) -> Option<World> {
        let index = Self::live(world)?;
        let (event, cause) = match (world.attempts[index].state, world.attempts[index].cancel_requested) {
            (RunState::Claimed | RunState::Running, true) => (RunEvent::Cancel, EndCause::CancelGrace),
            (RunState::Claimed, false) => (RunEvent::Expire, EndCause::Stale),
            (RunState::Running, false) => (RunEvent::Lose, EndCause::Lost),
            (RunState::Queued | RunState::Success | RunState::Failed | RunState::Cancelled, _) => {
                return None;
            }
        };
        self.step(world, index, event, cause)
    }

    fn retire(&self, world: &World, worker: usize) -> Option<World> {
        let index = Self::live(world).filter(|&index| world.attempts[index].holder == Some(worker))?;
        let mut gone = world.clone();
        gone.workers[worker] = Belief::Idle;
        gone.interruptions += 1;
        let (event, cause) = match (world.attempts[index].state, world.attempts[index].cancel_requested) {
            (_, true) => (RunEvent::Cancel, EndCause::CancelGrace),
            (RunState::Claimed, false) => (RunEvent::Expire, EndCause::Interrupted),
            (RunState::Running, false) => (RunEvent::Lose, EndCause::Interrupted),
            (RunState::Queued | RunState::Success | RunState::Failed | RunState::Cancelled, false) => {
                return None;
            }
        };
        self.step(&gone, index, event, cause)
    }

    fn cancel(&self, world: &World) -> Option<World> {
        let index = Self::live(world)?;
        let mut requested = world.clone();
        requested.cancelled_by_operator = true;
        requested.attempts[index].cancel_requested = true;
        if world.attempts[index].state == RunState::Queued {
            return self.step(&requested, index, RunEvent::Cancel, EndCause::Cancelled);
        }
        Some(requested)
    }

    /// Returns whether the request has no live attempt.
    fn is_over(world: &World) -> bool {
        Self::live(world).is_none()
    }

    /// Returns whether the request may end with the state of the last attempt.
    fn ended_legally(&self, world: &World) -> bool {
        let Some(last) = world.attempts.last() else { return false };
        match last.state {
            RunState::Success | RunState::Cancelled
                if last.cancel_requested || last.state == RunState::Success =>
            {
                true
            }
            RunState::Failed | RunState::Cancelled => {
                last.cancel_requested
                    || last.failures + 1 >= self.max_attempts
                    || last.losses >= self.max_losses
            }
            RunState::Queued | RunState::Claimed | RunState::Running | RunState::Success => false,
        }
    }
}

impl Model for Request {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let first = Attempt {
            state: RunState::Queued,
            holder: None,
            failures: 0,
            losses: 0,
            cancel_requested: false,
            ends_counted: 0,
        };
        let workers = [Belief::Idle; WORKERS];
        vec![World {
            attempts: vec![first],
            workers,
            unsent: None,
            cancelled_by_operator: false,
            interruptions: 0,
        }]
    }

    fn actions(&self, _: &World, actions: &mut Vec<Action>) {
        for worker in 0..WORKERS {
            for reply in [Reply::Arrives, Reply::IsLost] {
                actions.push(Action::Claim(worker, reply));
                for event in [RunEvent::Succeed, RunEvent::Fail] {
                    actions.push(Action::Report(worker, event, reply));
                }
            }
            actions.push(Action::Start(worker));
            actions.push(Action::Restart(worker));
            actions.push(Action::Retire(worker));
        }
        actions.extend([Action::Sweep, Action::TimeOut, Action::Cancel, Action::CancelGrace, Action::Send]);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        match action {
            Action::Claim(worker, reply) => self.claim(world, worker, reply),
            Action::Start(worker) => {
                let Belief::Executing(index) = world.workers[worker] else { return None };
                if !self.may_write(world, worker, index) {
                    return None;
                }
                self.step(world, index, RunEvent::Start, EndCause::Reported)
            }
            Action::Report(worker, event, reply) => self.report(world, worker, event, reply),
            Action::Restart(worker) => {
                let mut after = world.clone();
                after.workers[worker] = Belief::Idle;
                // The process that was about to queue the successor dies as well.
                after.unsent = None;
                Some(after)
            }
            Action::Retire(worker) if world.interruptions == 0 => self.retire(world, worker),
            Action::Sweep => self.sweep(world),
            Action::TimeOut => {
                let index = Self::live(world)?;
                self.step(world, index, RunEvent::TimeOut, EndCause::TimedOut)
            }
            Action::Cancel if !world.cancelled_by_operator => self.cancel(world),
            Action::CancelGrace => {
                let index = Self::live(world).filter(|&index| world.attempts[index].cancel_requested)?;
                self.step(world, index, RunEvent::Cancel, EndCause::CancelGrace)
            }
            Action::Send => {
                let index = world.unsent?;
                let mut after = world.clone();
                after.unsent = None;
                self.send(&mut after, index, EndCause::Lost);
                Some(after)
            }
            Action::Cancel | Action::Retire(_) => None,
        }
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("an attempt ends once", |_: &Self, world: &World| {
                world.attempts.iter().all(|at| at.ends_counted <= 1)
            }),
            Property::always("at most one success counts", |_: &Self, world: &World| {
                world.attempts.iter().filter(|at| at.state == RunState::Success).count() <= 1
            }),
            Property::always("at most one attempt is live", |_: &Self, world: &World| {
                world.attempts.iter().filter(|at| !at.state.is_terminal()).count() <= 1
            }),
            Property::always("a success is the last attempt", |_: &Self, world: &World| {
                world.attempts.iter().rev().skip(1).all(|at| at.state != RunState::Success)
            }),
            Property::always("the attempts stay within the budgets", |request: &Self, world: &World| {
                let allowed = usize::try_from(request.max_attempts + request.max_losses).unwrap();
                world.attempts.len() <= allowed + world.interruptions
            }),
            Property::always("a request is never lost", |request: &Self, world: &World| {
                !Self::is_over(world) || request.ended_legally(world)
            }),
            Property::always(
                "a live request can continue without its worker",
                |request: &Self, world: &World| {
                    let free = world.attempts.iter().any(|at| at.state == RunState::Queued);
                    Self::is_over(world) || free || request.sweep(world).is_some()
                },
            ),
            Property::sometimes("it succeeds", |_: &Self, world: &World| {
                world.attempts.iter().any(|at| at.state == RunState::Success)
            }),
            Property::sometimes("it succeeds after a loss and a failure", |_: &Self, world: &World| {
                world
                    .attempts
                    .iter()
                    .any(|at| at.state == RunState::Success && at.losses > 0 && at.failures > 0)
            }),
            Property::sometimes("it uses up both budgets", |request: &Self, world: &World| {
                let allowed = usize::try_from(request.max_attempts + request.max_losses).unwrap();
                world.attempts.len() == allowed && Self::is_over(world)
            }),
            Property::sometimes(
                "a zombie executes an attempt that has a successor",
                |_: &Self, world: &World| {
                    world.workers.iter().any(|belief| {
                    matches!(belief, Belief::Executing(index) if world.attempts[*index].state.is_terminal())
                }) && world.attempts.len() > 1
                },
            ),
            Property::sometimes("it is cancelled while a worker holds it", |_: &Self, world: &World| {
                world
                    .attempts
                    .iter()
                    .any(|at| at.cancel_requested && at.holder.is_some() && at.state == RunState::Cancelled)
            }),
        ]
    }
}

fn request(fence: Fence, successor_timing: SuccessorTiming) -> Request {
    Request { max_attempts: 2, max_losses: 1, fence, successor_timing }
}

#[test]
fn request_ends_once_in_every_interleaving() {
    let checker = request(Fence::Enforced, SuccessorTiming::WithEnd).checker().threads(2).spawn_bfs().join();
    checker.assert_properties();
    assert!(checker.unique_state_count() > 1_000, "{} states", checker.unique_state_count());
}

#[test]
fn missing_fence_lets_an_attempt_end_twice() {
    let checker =
        request(Fence::Missing, SuccessorTiming::WithEnd).checker().target_max_depth(9).spawn_bfs().join();
    assert!(checker.discovery("an attempt ends once").is_some());
    assert!(checker.discovery("at most one success counts").is_some());
}

#[test]
fn commit_then_send_can_lose_a_request() {
    let checker = request(Fence::Enforced, SuccessorTiming::Afterwards)
        .checker()
        .target_max_depth(9)
        .spawn_bfs()
        .join();
    assert!(checker.discovery("a request is never lost").is_some());
}
