//! Random sequences of submits, reports, cancels, flags, silence, and controller crashes between read and write. The
//! oracle is what the scripted agents run: they start only allowed tasks, and a supervisor ends those without contact
//! for too long.

use std::collections::{BTreeMap, HashMap};

use chrono::TimeDelta;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tidemill_core::graph::definition::OnAgentLost;
use tidemill_core::graph::record::Order;
use tidemill_core::project::{FlagName, SITE_SCOPE};
use tidemill_core::run::ChangeOutcome;
use tidemill_core::task::{Stage, TaskKind, TaskResult};
use tidemill_core::{RunId, Timestamp};
use tidemill_engine::graph::TaskProgress;
use tidemill_testkit::interface::Kind;

use crate::fixture::{GraphFixture, ScriptedAgent, ended, failed, settle};
use crate::transitions::site;

/// Number of sequences on each store.
const CASES: u32 = 8;
/// Number of events in one sequence.
const LENGTH: usize = 50;
/// Seconds of silence after which a job of these graphs is lost.
const LOST: i64 = 60;

const GRAPHS: [&str; 3] = [
    "version: 1\nworkspace: w\njobs:\n\
     \x20 a: {run: x, on-agent-lost: rerun after 1m}\n\
     \x20 b: {run: x, needs: [a], retries: 1, on-agent-lost: rerun after 1m}\n\
     \x20 c: {run: x, needs: [a], weight: 2, on-agent-lost: rerun after 1m}\n",
    "version: 1\njobs:\n\
     \x20 d: {run: x, pool: database, weight: 2}\n\
     \x20 e: {run: x, pool: database, weight: 2}\n\
     \x20 f: {run: x, needs: [d, e], pool: database}\n",
    "version: 1\nworkspace: v\njobs:\n\
     \x20 g: {run: x, retries: 2}\n\
     \x20 h: {run: x, needs: [g]}\n",
];

#[derive(Debug, Clone)]
enum Step {
    Submit(usize),
    Act,
    /// The controller decides and dies before it writes; another takes over.
    Crash,
    Poll(usize),
    /// An agent continues one of its tasks, successfully or not.
    Progress(usize, usize, u8),
    /// An agent repeats an old report.
    Repeat(usize, usize),
    Beat(usize),
    Offline(usize, bool),
    Cancel(usize),
    Flag(bool, bool),
    Advance(i64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..GRAPHS.len()).prop_map(Step::Submit),
        8 => Just(Step::Act),
        1 => Just(Step::Crash),
        6 => (0..2_usize).prop_map(Step::Poll),
        12 => (0..2_usize, any::<usize>(), any::<u8>())
            .prop_map(|(agent_state, which, how)| Step::Progress(agent_state, which, how)),
        2 => (0..2_usize, any::<usize>()).prop_map(|(agent_state, which)| Step::Repeat(agent_state, which)),
        4 => (0..2_usize).prop_map(Step::Beat),
        2 => (0..2_usize, any::<bool>()).prop_map(|(agent_state, off)| Step::Offline(agent_state, off)),
        1 => any::<usize>().prop_map(Step::Cancel),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(reboot, on)| Step::Flag(reboot, on)),
        4 => (1..40_i64).prop_map(Step::Advance),
    ];
    prop::collection::vec(step, LENGTH)
}

#[expect(clippy::unused_async, reason = "the test awaits every case")]
pub(crate) async fn random_sequences_end_every_job_and_run_none_twice(kind: Kind) {
    let handle = tokio::runtime::Handle::current();
    tokio::task::block_in_place(|| {
        let config =
            Config { cases: CASES, max_shrink_iters: 0, failure_persistence: None, ..Config::default() };
        let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
        let played = runner.run(&steps(), |steps| {
            handle.block_on(World::play(kind, steps));
            Ok(())
        });
        assert!(played.is_ok(), "{played:?}");
    });
}

/// A task that an agent runs.
struct Running {
    job: String,
    weight: i32,
    pool: Option<String>,
    rerun: bool,
    stage: usize,
}

struct AgentState {
    agent: ScriptedAgent,
    capacity: i32,
    online: bool,
    contact: Timestamp,
    running: HashMap<String, Running>,
    /// Earlier tasks, for repeated reports.
    past: Vec<String>,
}

struct World {
    fixture: GraphFixture,
    agent_states: Vec<AgentState>,
    runs: Vec<RunId>,
}

impl World {
    async fn play(kind: Kind, steps: Vec<Step>) {
        let fixture = GraphFixture::open(kind).await;
        let mut agent_states = Vec::new();
        for capacity in [3, 2] {
            let agent = fixture.agent(&format!("bot-{capacity}"), capacity).await;
            let contact = fixture.now();
            agent_states.push(AgentState {
                agent,
                capacity,
                online: true,
                contact,
                running: HashMap::new(),
                past: Vec::new(),
            });
        }
        let mut world = Self { fixture, agent_states, runs: Vec::new() };
        for step in steps {
            world.apply(step).await;
            world.check().await;
        }
        world.end().await;
    }

    async fn apply(&mut self, step: Step) {
        match step {
            Step::Submit(which) => self.runs.push(self.fixture.submit(GRAPHS[which]).await),
            Step::Act => self.fixture.act().await,
            Step::Crash => {
                let _ = self.fixture.controller.draft().await.expect("it decides");
                self.advance(16);
                self.fixture.controller = self.fixture.graphs.controller("next");
                settle(&mut self.fixture.controller).await;
            }
            Step::Poll(agent_state) => self.poll(agent_state).await,
            Step::Progress(agent_state, which, how) => self.progress(agent_state, which, how).await,
            Step::Repeat(agent_state, which) => self.repeat(agent_state, which).await,
            Step::Beat(agent_state) => self.beat(agent_state).await,
            Step::Offline(agent_state, off) => self.agent_states[agent_state].online = !off,
            Step::Cancel(which) => {
                if !self.runs.is_empty() {
                    let run = self.runs[which % self.runs.len()].clone();
                    self.fixture.graphs.cancel(&run, &[], "ann", None).await.expect("it is cancelled");
                }
            }
            Step::Flag(reboot, on) => {
                let flag = if reboot { FlagName::Reboot } else { FlagName::Maintenance };
                if on {
                    self.fixture.graphs.set_flag(site(&self.fixture, flag)).await.expect("the flag is set");
                } else {
                    self.fixture.graphs.clear_flag(flag, SITE_SCOPE).await.expect("the flag is cleared");
                }
            }
            Step::Advance(secs) => self.advance(secs),
        }
    }

    /// Moves the clock; supervisors end commands without contact for too long.
    fn advance(&mut self, secs: i64) {
        self.fixture.advance(secs);
        let now = self.fixture.now();
        for agent_state in &mut self.agent_states {
            let cut = now - agent_state.contact > TimeDelta::seconds(LOST);
            agent_state.running.retain(|_, running| !(cut && running.rerun));
        }
    }

    async fn poll(&mut self, agent_state: usize) {
        let now = self.fixture.now();
        let agent_state = &mut self.agent_states[agent_state];
        if !agent_state.online {
            return;
        }
        agent_state.contact = now;
        for order in agent_state.agent.poll().await {
            agent_state.past.push(order.task_id.clone());
            agent_state.take(order).await;
        }
    }

    async fn progress(&mut self, agent_state: usize, which: usize, how: u8) {
        let now = self.fixture.now();
        let agent_state = &mut self.agent_states[agent_state];
        let mut tasks: Vec<String> = agent_state.running.keys().cloned().collect();
        tasks.sort_unstable();
        if !agent_state.online || tasks.is_empty() {
            return;
        }
        agent_state.contact = now;
        agent_state.continue_task(&tasks[which % tasks.len()], how).await;
    }

    async fn repeat(&mut self, agent_state: usize, which: usize) {
        let agent_state = &mut self.agent_states[agent_state];
        if !agent_state.online || agent_state.past.is_empty() {
            return;
        }
        let task = agent_state.past[which % agent_state.past.len()].clone();
        if !agent_state.running.contains_key(&task) && !task.ends_with("-cancel") {
            // The task no longer runs: regardless of the answer, the agent starts nothing.
            agent_state.agent.stage(&task, "executing").await;
            agent_state.agent.result(&task, TaskResult::Stopped).await;
        }
    }

    async fn beat(&mut self, agent_state: usize) {
        let now = self.fixture.now();
        let agent_state = &mut self.agent_states[agent_state];
        if !agent_state.online {
            return;
        }
        agent_state.contact = now;
        let holding = |task: &String| TaskProgress { task_id: task.clone(), stage: Some(Stage::Executing) };
        let holding: Vec<TaskProgress> = agent_state.running.keys().map(holding).collect();
        let beaten = agent_state
            .agent
            .graphs
            .heartbeat(&agent_state.agent.who, &holding)
            .await
            .expect("the heartbeat is received");
        for task in beaten.over {
            agent_state.running.remove(&task);
        }
    }

    async fn check(&self) {
        let mut jobs: HashMap<&str, usize> = HashMap::new();
        let mut pools: BTreeMap<&str, i32> = BTreeMap::new();
        for agent_state in &self.agent_states {
            let mut used = 0;
            for running in agent_state.running.values() {
                *jobs.entry(&running.job).or_default() += 1;
                used += running.weight;
                if let Some(pool) = &running.pool {
                    *pools.entry(pool).or_default() += running.weight;
                }
            }
            assert!(used <= agent_state.capacity, "{used} of {}", agent_state.capacity);
        }
        assert!(jobs.values().all(|count| *count == 1), "a job runs twice at once: {jobs:?}");
        assert!(pools.get("database").copied().unwrap_or(0) <= 4, "{pools:?}");
        let twice = "SELECT count(*) FROM (SELECT job_id FROM {ops}.tasks WHERE active AND kind = 'RUNJOB' \
                     GROUP BY job_id HAVING count(*) > 1) AS t";
        assert_eq!(self.fixture.number(twice).await, 0);
    }

    /// Clears flags and brings agents back; then everything must end.
    async fn end(&mut self) {
        for flag in [FlagName::Reboot, FlagName::Maintenance] {
            self.fixture.graphs.clear_flag(flag, SITE_SCOPE).await.expect("the flag is cleared");
        }
        for _ in 0..400 {
            for agent_state in 0..self.agent_states.len() {
                self.agent_states[agent_state].online = true;
                self.beat(agent_state).await;
                self.poll(agent_state).await;
                let tasks: Vec<String> = self.agent_states[agent_state].running.keys().cloned().collect();
                for task in tasks {
                    self.agent_states[agent_state].continue_task(&task, 0).await;
                }
                self.check().await;
            }
            self.fixture.act().await;
            self.check().await;
            let left = self.fixture.number("SELECT count(*) FROM {ops}.tasks WHERE active").await;
            let live = self
                .fixture
                .number("SELECT count(*) FROM {ops}.jobs WHERE ended_at IS NULL OR stopping")
                .await;
            if left == 0 && live == 0 {
                let open = "SELECT count(*) FROM {ops}.runs WHERE finished_at IS NULL";
                assert_eq!(self.fixture.number(open).await, 0, "a run is open without a live job");
                return;
            }
            self.advance(10);
        }
        let left = "SELECT job_id || ' ' || code FROM {ops}.jobs WHERE ended_at IS NULL OR stopping";
        panic!("not everything ends: {:?}", self.fixture.base.plain.texts(left).await);
    }
}

impl AgentState {
    /// Handles an order: starts an allowed task, or stops one.
    async fn take(&mut self, order: Order) {
        if order.kind == TaskKind::CancelJob {
            self.running.remove(&order.cancels.clone().unwrap_or_default());
            self.agent.result(&order.task_id, TaskResult::Stopped).await;
            return;
        }
        let work = order.work.expect("it is work");
        if self.agent.stage(&order.task_id, "preparing").await == ChangeOutcome::Stale {
            return;
        }
        let running = Running {
            job: order.job_id,
            weight: work.spec.weight,
            pool: work.spec.pool,
            rerun: work.spec.on_agent_lost != OnAgentLost::Wait,
            stage: 0,
        };
        self.running.insert(order.task_id, running);
    }

    /// Continues a task with its next stage or its end.
    async fn continue_task(&mut self, task: &str, how: u8) {
        const STAGES: [&str; 3] = ["prepared", "executing", "executed"];
        let Some(running) = self.running.get_mut(task) else { return };
        if running.stage < STAGES.len() && how < 200 {
            let heard = self.agent.stage(task, STAGES[running.stage]).await;
            running.stage += 1;
            if heard == ChangeOutcome::Stale {
                self.running.remove(task);
            }
            return;
        }
        // The task must not run any more when its result is reported.
        self.running.remove(task);
        let result = match how % 4 {
            0 | 1 => ended(0),
            2 => ended(1),
            _ => failed("the disk is full"),
        };
        self.agent.result(task, result).await;
    }
}
