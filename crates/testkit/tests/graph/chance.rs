//! Whatever happens, in whatever order: submits, reports, cancels, flags, silence, crashes of the controller
//! between its look and its step. The oracle is what the scripted agents run: they begin only what they may, and a
//! supervisor ends what was out of contact for too long.

use std::collections::{BTreeMap, HashMap};

use chrono::TimeDelta;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tidemill_core::graph::definition::OnAgentLost;
use tidemill_core::graph::record::Order;
use tidemill_core::project::{FlagName, SITE_SCOPE};
use tidemill_core::run::Applied;
use tidemill_core::task::{Stage, TaskKind, TaskResult};
use tidemill_core::{RunId, Timestamp};
use tidemill_engine::graph::Holding;
use tidemill_testkit::door::Kind;

use crate::arrows::site;
use crate::scene::{Robot, Scene, ended, failed, settle};

/// Sequences on each store.
const CASES: u32 = 8;
/// Things that happen in one.
const LENGTH: usize = 50;
/// How long a job of these graphs lets its agent be silent.
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
enum Happening {
    Submit(usize),
    Act,
    /// The controller decides, and dies before it writes; another takes over.
    Crash,
    Poll(usize),
    /// An agent goes on with one of its tasks, well or badly.
    Progress(usize, usize, u8),
    /// An agent repeats something old.
    Repeat(usize, usize),
    Beat(usize),
    Offline(usize, bool),
    Cancel(usize),
    Flag(bool, bool),
    Advance(i64),
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let happening = prop_oneof![
        3 => (0..GRAPHS.len()).prop_map(Happening::Submit),
        8 => Just(Happening::Act),
        1 => Just(Happening::Crash),
        6 => (0..2_usize).prop_map(Happening::Poll),
        12 => (0..2_usize, any::<usize>(), any::<u8>())
            .prop_map(|(bot, which, how)| Happening::Progress(bot, which, how)),
        2 => (0..2_usize, any::<usize>()).prop_map(|(bot, which)| Happening::Repeat(bot, which)),
        4 => (0..2_usize).prop_map(Happening::Beat),
        2 => (0..2_usize, any::<bool>()).prop_map(|(bot, off)| Happening::Offline(bot, off)),
        1 => any::<usize>().prop_map(Happening::Cancel),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(reboot, on)| Happening::Flag(reboot, on)),
        4 => (1..40_i64).prop_map(Happening::Advance),
    ];
    prop::collection::vec(happening, LENGTH)
}

pub(crate) async fn whatever_happens_everything_ends_and_nothing_runs_twice(kind: Kind) {
    let handle = tokio::runtime::Handle::current();
    tokio::task::block_in_place(|| {
        let config =
            Config { cases: CASES, max_shrink_iters: 0, failure_persistence: None, ..Config::default() };
        let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
        let played = runner.run(&happenings(), |happenings| {
            handle.block_on(World::play(kind, happenings));
            Ok(())
        });
        assert!(played.is_ok(), "{played:?}");
    });
}

/// What an agent runs.
struct Running {
    job: String,
    weight: i32,
    pool: Option<String>,
    rerun: bool,
    stage: usize,
}

struct Bot {
    robot: Robot,
    capacity: i32,
    online: bool,
    contact: Timestamp,
    running: HashMap<String, Running>,
    /// What it was told and did, for repeating.
    past: Vec<String>,
}

struct World {
    scene: Scene,
    bots: Vec<Bot>,
    runs: Vec<RunId>,
}

impl World {
    async fn play(kind: Kind, happenings: Vec<Happening>) {
        let scene = Scene::open(kind).await;
        let mut bots = Vec::new();
        for capacity in [3, 2] {
            let robot = scene.agent(&format!("bot-{capacity}"), capacity).await;
            let contact = scene.now();
            bots.push(Bot {
                robot,
                capacity,
                online: true,
                contact,
                running: HashMap::new(),
                past: Vec::new(),
            });
        }
        let mut world = Self { scene, bots, runs: Vec::new() };
        for happening in happenings {
            world.happen(happening).await;
            world.check().await;
        }
        world.end().await;
    }

    async fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Submit(which) => self.runs.push(self.scene.submit(GRAPHS[which]).await),
            Happening::Act => self.scene.act().await,
            Happening::Crash => {
                let _ = self.scene.controller.draft().await.expect("it decides");
                self.advance(16);
                self.scene.controller = self.scene.graphs.controller("next");
                settle(&mut self.scene.controller).await;
            }
            Happening::Poll(bot) => self.poll(bot).await,
            Happening::Progress(bot, which, how) => self.progress(bot, which, how).await,
            Happening::Repeat(bot, which) => self.repeat(bot, which).await,
            Happening::Beat(bot) => self.beat(bot).await,
            Happening::Offline(bot, off) => self.bots[bot].online = !off,
            Happening::Cancel(which) => {
                if !self.runs.is_empty() {
                    let run = self.runs[which % self.runs.len()].clone();
                    self.scene.graphs.cancel(&run, &[], "ann", None).await.expect("it is cancelled");
                }
            }
            Happening::Flag(reboot, on) => {
                let flag = if reboot { FlagName::Reboot } else { FlagName::Maintenance };
                if on {
                    self.scene.graphs.set_flag(site(&self.scene, flag)).await.expect("the flag is set");
                } else {
                    self.scene.graphs.clear_flag(flag, SITE_SCOPE).await.expect("the flag is cleared");
                }
            }
            Happening::Advance(secs) => self.advance(secs),
        }
    }

    /// Time passes; supervisors end what was out of contact for too long.
    fn advance(&mut self, secs: i64) {
        self.scene.advance(secs);
        let now = self.scene.now();
        for bot in &mut self.bots {
            let cut = now - bot.contact > TimeDelta::seconds(LOST);
            bot.running.retain(|_, running| !(cut && running.rerun));
        }
    }

    async fn poll(&mut self, bot: usize) {
        let now = self.scene.now();
        let bot = &mut self.bots[bot];
        if !bot.online {
            return;
        }
        bot.contact = now;
        for order in bot.robot.poll().await {
            bot.past.push(order.task_id.clone());
            bot.take(order).await;
        }
    }

    async fn progress(&mut self, bot: usize, which: usize, how: u8) {
        let now = self.scene.now();
        let bot = &mut self.bots[bot];
        let mut tasks: Vec<String> = bot.running.keys().cloned().collect();
        tasks.sort_unstable();
        if !bot.online || tasks.is_empty() {
            return;
        }
        bot.contact = now;
        bot.go_on(&tasks[which % tasks.len()], how).await;
    }

    async fn repeat(&mut self, bot: usize, which: usize) {
        let bot = &mut self.bots[bot];
        if !bot.online || bot.past.is_empty() {
            return;
        }
        let task = bot.past[which % bot.past.len()].clone();
        if !bot.running.contains_key(&task) && !task.ends_with("-cancel") {
            // Of what it does not run any more: whatever the answer is, it begins nothing.
            bot.robot.stage(&task, "executing").await;
            bot.robot.result(&task, TaskResult::Stopped).await;
        }
    }

    async fn beat(&mut self, bot: usize) {
        let now = self.scene.now();
        let bot = &mut self.bots[bot];
        if !bot.online {
            return;
        }
        bot.contact = now;
        let holding = |task: &String| Holding { task_id: task.clone(), stage: Some(Stage::Executing) };
        let holding: Vec<Holding> = bot.running.keys().map(holding).collect();
        let beaten = bot.robot.graphs.beat(&bot.robot.who, &holding).await.expect("the beat is heard");
        for task in beaten.over {
            bot.running.remove(&task);
        }
    }

    /// What must always be so.
    async fn check(&self) {
        let mut jobs: HashMap<&str, usize> = HashMap::new();
        let mut pools: BTreeMap<&str, i32> = BTreeMap::new();
        for bot in &self.bots {
            let mut used = 0;
            for running in bot.running.values() {
                *jobs.entry(&running.job).or_default() += 1;
                used += running.weight;
                if let Some(pool) = &running.pool {
                    *pools.entry(pool).or_default() += running.weight;
                }
            }
            assert!(used <= bot.capacity, "{used} of {}", bot.capacity);
        }
        assert!(jobs.values().all(|count| *count == 1), "a job runs twice at once: {jobs:?}");
        assert!(pools.get("database").copied().unwrap_or(0) <= 4, "{pools:?}");
        let twice = "SELECT count(*) FROM (SELECT job_id FROM {ops}.tasks WHERE active AND kind = 'RUNJOB' \
                     GROUP BY job_id HAVING count(*) > 1) AS t";
        assert_eq!(self.scene.number(twice).await, 0);
    }

    /// Flags are cleared, agents come back, and everything has to end.
    async fn end(&mut self) {
        for flag in [FlagName::Reboot, FlagName::Maintenance] {
            self.scene.graphs.clear_flag(flag, SITE_SCOPE).await.expect("the flag is cleared");
        }
        for _ in 0..400 {
            for bot in 0..self.bots.len() {
                self.bots[bot].online = true;
                self.beat(bot).await;
                self.poll(bot).await;
                let tasks: Vec<String> = self.bots[bot].running.keys().cloned().collect();
                for task in tasks {
                    self.bots[bot].go_on(&task, 0).await;
                }
                self.check().await;
            }
            self.scene.act().await;
            self.check().await;
            let left = self.scene.number("SELECT count(*) FROM {ops}.tasks WHERE active").await;
            let live =
                self.scene.number("SELECT count(*) FROM {ops}.jobs WHERE ended_at IS NULL OR stopping").await;
            if left == 0 && live == 0 {
                let open = "SELECT count(*) FROM {ops}.runs WHERE finished_at IS NULL";
                assert_eq!(self.scene.number(open).await, 0, "a run is open without a live job");
                return;
            }
            self.advance(10);
        }
        let left = "SELECT job_id || ' ' || code FROM {ops}.jobs WHERE ended_at IS NULL OR stopping";
        panic!("not everything ends: {:?}", self.scene.stage.plain.texts(left).await);
    }
}

impl Bot {
    /// Takes an order: begins what it may begin, stops what it is to stop.
    async fn take(&mut self, order: Order) {
        if order.kind == TaskKind::CancelJob {
            self.running.remove(&order.cancels.clone().unwrap_or_default());
            self.robot.result(&order.task_id, TaskResult::Stopped).await;
            return;
        }
        let work = order.work.expect("it is work");
        if self.robot.stage(&order.task_id, "preparing").await == Applied::Stale {
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

    /// Goes on with a task: the next stage, or its end.
    async fn go_on(&mut self, task: &str, how: u8) {
        const STAGES: [&str; 3] = ["prepared", "executing", "executed"];
        let Some(running) = self.running.get_mut(task) else { return };
        if running.stage < STAGES.len() && how < 200 {
            let heard = self.robot.stage(task, STAGES[running.stage]).await;
            running.stage += 1;
            if heard == Applied::Stale {
                self.running.remove(task);
            }
            return;
        }
        // Nothing of it runs any more when its result is told.
        self.running.remove(task);
        let result = match how % 4 {
            0 | 1 => ended(0),
            2 => ended(1),
            _ => failed("the disk is full"),
        };
        self.robot.result(task, result).await;
    }
}
