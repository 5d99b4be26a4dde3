//! A model of one request: two workers, a sweeper, a person, and replies that get lost.
//!
//! Every interleaving is tried. The model decides nothing of its own: what an event does to a run is core's `next`,
//! what follows an end is core's `retry::follow`; what stands here is only who may call what, and the fence. A worker
//! that was taken its run and does not know it, a zombie, needs no action of its own: it is any worker whose belief
//! is older than the store. The two mutants at the end show that the properties can fail.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use chrono::{TimeZone as _, Utc};
use stateright::{Checker as _, Model, Property};
use tidemill_core::retry::{Follow, follow};
use tidemill_core::run::{EndCause, Lane, Run, RunEvent, RunState, next};
use tidemill_core::{EnvId, Json, RunId, Timestamp};
use uuid::Uuid;

const WORKERS: usize = 2;

/// Who writes, as the store sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fence {
    /// A report counts only from the holder of a run that is held.
    Kept,
    /// A report is written, whoever sends it.
    Missing,
}

/// When the next try is queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sending {
    /// In the commit that ends the try before.
    WithTheEnd,
    /// After it, by a process that may be gone by then.
    Afterwards,
}

#[derive(Debug, Clone)]
struct Request {
    max_attempts: i32,
    max_losses: i32,
    fence: Fence,
    sending: Sending,
}

/// One try, as the store keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Try {
    state: RunState,
    holder: Option<usize>,
    failures: i32,
    losses: i32,
    cancel_requested: bool,
    /// Reports that the store took for an end of this try. Not stored: what the properties look at.
    ends_counted: u8,
}

/// What a worker believes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Belief {
    /// It has nothing to do.
    Idle,
    /// It asked for a run under one request id, and does not know the answer.
    Asked,
    /// It carries out this try.
    Works(usize),
    /// It reported this end of this try, and does not know the answer.
    Reported(usize, RunEvent),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    tries: Vec<Try>,
    workers: [Belief; WORKERS],
    /// An end whose successor is still to be queued. Only a broken store has such a thing.
    unsent: Option<usize>,
    cancelled_by_person: bool,
    /// Times that a worker was told to end with the request in hand. These cost no budget; the model allows one.
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
    /// The worker stops believing anything: it was restarted, or gives up.
    Restart(usize),
    /// The worker is told to end, says goodbye, and the sweeper finds what it had to leave.
    Retire(usize),
    /// The sweeper finds that the lease is over. When it does is not the model's business: it may be at any time.
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
    /// The try as core knows it.
    fn record(&self, world: &World, place: usize) -> Run {
        let at = &world.tries[place];
        Run {
            run_id: RunId::new(moment(), Uuid::from_u128(place as u128)),
            project_id: String::new(),
            env_id: EnvId::new("shop", "staging"),
            lane: Lane::Ops,
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
            attempt: i32::try_from(place + 1).unwrap(),
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

    /// Moves a try by an event, with what follows from its end. `None`: the event is illegal.
    fn step(&self, world: &World, place: usize, event: RunEvent, cause: EndCause) -> Option<World> {
        let to = next(world.tries[place].state, event)?;
        let mut after = world.clone();
        after.tries[place].state = to;
        if to.is_terminal() {
            after.tries[place].ends_counted += 1;
            match self.sending {
                Sending::WithTheEnd => self.send(&mut after, place, cause),
                Sending::Afterwards => after.unsent = Some(place),
            }
        }
        Some(after)
    }

    fn send(&self, world: &mut World, place: usize, cause: EndCause) {
        let record = self.record(world, place);
        if let Follow::Successor(successor) = follow(&record, record.status, cause, moment()) {
            world.tries.push(Try {
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
        world.tries.iter().position(|at| !at.state.is_terminal())
    }

    fn claim(&self, world: &World, worker: usize, reply: Reply) -> Option<World> {
        // Asked again under the same request id: what the worker holds already is the answer.
        let mine = world.tries.iter().position(|at| at.holder == Some(worker) && at.state.is_held());
        let (mut after, place) = match (world.workers[worker], mine) {
            (Belief::Asked, Some(place)) => (world.clone(), place),
            (Belief::Idle | Belief::Asked, None) => {
                let place =
                    Self::live(world).filter(|&place| world.tries[place].state == RunState::Queued)?;
                let mut after = self.step(world, place, RunEvent::Claim, EndCause::Reported)?;
                after.tries[place].holder = Some(worker);
                (after, place)
            }
            (Belief::Idle | Belief::Works(_) | Belief::Reported(..), _) => return None,
        };
        after.workers[worker] = match reply {
            Reply::Arrives => Belief::Works(place),
            Reply::IsLost => Belief::Asked,
        };
        Some(after)
    }

    fn may_write(&self, world: &World, worker: usize, place: usize) -> bool {
        let at = &world.tries[place];
        self.fence == Fence::Missing || (at.state.is_held() && at.holder == Some(worker))
    }

    fn report(&self, world: &World, worker: usize, event: RunEvent, reply: Reply) -> Option<World> {
        let place = match world.workers[worker] {
            Belief::Works(place) => place,
            Belief::Reported(place, reported) if reported == event => place,
            Belief::Idle | Belief::Asked | Belief::Reported(..) => return None,
        };
        let mut after = world.clone();
        if self.may_write(world, worker, place) {
            // Finishing a claimed run passes through running.
            let cause = if event == RunEvent::Cancel { EndCause::Cancelled } else { EndCause::Reported };
            if after.tries[place].state == RunState::Claimed {
                after = self.step(&after, place, RunEvent::Start, cause)?;
            }
            if self.fence == Fence::Missing && after.tries[place].state.is_terminal() {
                after.tries[place].ends_counted += 1;
                after.tries[place].state =
                    if event == RunEvent::Succeed { RunState::Success } else { RunState::Failed };
            } else {
                after = self.step(&after, place, event, cause)?;
            }
        }
        after.workers[worker] = match reply {
            Reply::Arrives => Belief::Idle,
            Reply::IsLost => Belief::Reported(place, event),
        };
        Some(after)
    }

    fn sweep(&self, world: &World) -> Option<World> {
        let place = Self::live(world)?;
        let (event, cause) = match (world.tries[place].state, world.tries[place].cancel_requested) {
            (RunState::Claimed | RunState::Running, true) => (RunEvent::Cancel, EndCause::CancelGrace),
            (RunState::Claimed, false) => (RunEvent::Expire, EndCause::Stale),
            (RunState::Running, false) => (RunEvent::Lose, EndCause::Lost),
            (RunState::Queued | RunState::Success | RunState::Failed | RunState::Cancelled, _) => {
                return None;
            }
        };
        self.step(world, place, event, cause)
    }

    fn retire(&self, world: &World, worker: usize) -> Option<World> {
        let place = Self::live(world).filter(|&place| world.tries[place].holder == Some(worker))?;
        let mut gone = world.clone();
        gone.workers[worker] = Belief::Idle;
        gone.interruptions += 1;
        let (event, cause) = match (world.tries[place].state, world.tries[place].cancel_requested) {
            (_, true) => (RunEvent::Cancel, EndCause::CancelGrace),
            (RunState::Claimed, false) => (RunEvent::Expire, EndCause::Interrupted),
            (RunState::Running, false) => (RunEvent::Lose, EndCause::Interrupted),
            (RunState::Queued | RunState::Success | RunState::Failed | RunState::Cancelled, false) => {
                return None;
            }
        };
        self.step(&gone, place, event, cause)
    }

    fn cancel(&self, world: &World) -> Option<World> {
        let place = Self::live(world)?;
        let mut asked = world.clone();
        asked.cancelled_by_person = true;
        asked.tries[place].cancel_requested = true;
        if world.tries[place].state == RunState::Queued {
            return self.step(&asked, place, RunEvent::Cancel, EndCause::Cancelled);
        }
        Some(asked)
    }

    /// What became of the request when nothing more can happen to it by itself.
    fn is_over(world: &World) -> bool {
        Self::live(world).is_none()
    }

    /// Whether the last try ended in a way that the request may end with.
    fn ended_rightly(&self, world: &World) -> bool {
        let Some(last) = world.tries.last() else { return false };
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
        let first = Try {
            state: RunState::Queued,
            holder: None,
            failures: 0,
            losses: 0,
            cancel_requested: false,
            ends_counted: 0,
        };
        let workers = [Belief::Idle; WORKERS];
        vec![World {
            tries: vec![first],
            workers,
            unsent: None,
            cancelled_by_person: false,
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
                let Belief::Works(place) = world.workers[worker] else { return None };
                if !self.may_write(world, worker, place) {
                    return None;
                }
                self.step(world, place, RunEvent::Start, EndCause::Reported)
            }
            Action::Report(worker, event, reply) => self.report(world, worker, event, reply),
            Action::Restart(worker) => {
                let mut after = world.clone();
                after.workers[worker] = Belief::Idle;
                // The process that was about to send is gone too, whichever it was.
                after.unsent = None;
                Some(after)
            }
            Action::Retire(worker) if world.interruptions == 0 => self.retire(world, worker),
            Action::Sweep => self.sweep(world),
            Action::TimeOut => {
                let place = Self::live(world)?;
                self.step(world, place, RunEvent::TimeOut, EndCause::TimedOut)
            }
            Action::Cancel if !world.cancelled_by_person => self.cancel(world),
            Action::CancelGrace => {
                let place = Self::live(world).filter(|&place| world.tries[place].cancel_requested)?;
                self.step(world, place, RunEvent::Cancel, EndCause::CancelGrace)
            }
            Action::Send => {
                let place = world.unsent?;
                let mut after = world.clone();
                after.unsent = None;
                self.send(&mut after, place, EndCause::Lost);
                Some(after)
            }
            Action::Cancel | Action::Retire(_) => None,
        }
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("a try is ended once", |_: &Self, world: &World| {
                world.tries.iter().all(|at| at.ends_counted <= 1)
            }),
            Property::always("at most one success counts", |_: &Self, world: &World| {
                world.tries.iter().filter(|at| at.state == RunState::Success).count() <= 1
            }),
            Property::always("at most one try is live", |_: &Self, world: &World| {
                world.tries.iter().filter(|at| !at.state.is_terminal()).count() <= 1
            }),
            Property::always("a success is the last try", |_: &Self, world: &World| {
                world.tries.iter().rev().skip(1).all(|at| at.state != RunState::Success)
            }),
            Property::always("the tries stay within the budgets", |request: &Self, world: &World| {
                let allowed = usize::try_from(request.max_attempts + request.max_losses).unwrap();
                world.tries.len() <= allowed + world.interruptions
            }),
            Property::always("a request is never lost", |request: &Self, world: &World| {
                !Self::is_over(world) || request.ended_rightly(world)
            }),
            Property::always("what is live can go on without its worker", |request: &Self, world: &World| {
                let free = world.tries.iter().any(|at| at.state == RunState::Queued);
                Self::is_over(world) || free || request.sweep(world).is_some()
            }),
            Property::sometimes("it succeeds", |_: &Self, world: &World| {
                world.tries.iter().any(|at| at.state == RunState::Success)
            }),
            Property::sometimes("it succeeds after a loss and a failure", |_: &Self, world: &World| {
                world.tries.iter().any(|at| at.state == RunState::Success && at.losses > 0 && at.failures > 0)
            }),
            Property::sometimes("it uses both budgets up", |request: &Self, world: &World| {
                let allowed = usize::try_from(request.max_attempts + request.max_losses).unwrap();
                world.tries.len() == allowed && Self::is_over(world)
            }),
            Property::sometimes(
                "a zombie believes in a try that somebody else followed",
                |_: &Self, world: &World| {
                    world.workers.iter().any(|belief| {
                    matches!(belief, Belief::Works(place) if world.tries[*place].state.is_terminal())
                }) && world.tries.len() > 1
                },
            ),
            Property::sometimes("it is cancelled while a worker holds it", |_: &Self, world: &World| {
                world
                    .tries
                    .iter()
                    .any(|at| at.cancel_requested && at.holder.is_some() && at.state == RunState::Cancelled)
            }),
        ]
    }
}

fn request(fence: Fence, sending: Sending) -> Request {
    Request { max_attempts: 2, max_losses: 1, fence, sending }
}

#[test]
fn one_request_ends_once_whatever_is_lost_killed_or_frozen() {
    let checker = request(Fence::Kept, Sending::WithTheEnd).checker().threads(2).spawn_bfs().join();
    checker.assert_properties();
    assert!(checker.unique_state_count() > 1_000, "{} states", checker.unique_state_count());
}

#[test]
fn without_the_fence_the_model_finds_a_try_that_is_ended_twice() {
    let checker =
        request(Fence::Missing, Sending::WithTheEnd).checker().target_max_depth(9).spawn_bfs().join();
    assert!(checker.discovery("a try is ended once").is_some());
    assert!(checker.discovery("at most one success counts").is_some());
}

#[test]
fn with_commit_then_send_the_model_finds_a_lost_request() {
    let checker = request(Fence::Kept, Sending::Afterwards).checker().target_max_depth(9).spawn_bfs().join();
    assert!(checker.discovery("a request is never lost").is_some());
}
