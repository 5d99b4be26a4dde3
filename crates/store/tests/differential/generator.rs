//! The generator of operations and values. Everything depends on the seed only.

use chrono::TimeDelta;
use serde_json::json;
use tidemill_core::artifact::NewArtifact;
use tidemill_core::event::{Level, NewEvent};
use tidemill_core::run::{FinalStatus, QueueRun, Run};
use tidemill_core::worker::NewWorker;
use tidemill_core::{Json, RunId, WorkerId};
use tidemill_store::{ClaimRuns, Holder};
use tidemill_testkit::interface::new_worker;
use uuid::Uuid;

use super::{Pair, Verb};

/// A random number generator with a seed.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    /// Returns the next number of SplitMix64.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap_or_default()
    }

    pub(crate) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn one_of<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    pub(crate) fn uuid(&mut self) -> Uuid {
        Uuid::from_u64_pair(self.next(), self.next())
    }
}

/// Generation of the next operation.
impl Pair {
    pub(crate) async fn verb(&mut self) -> Verb {
        if self.postgres.ids.is_empty() || self.chance.percent(16) {
            return if self.chance.percent(20) { self.queue_many() } else { self.queue() };
        }
        match self.chance.below(100) {
            0..=28 => Verb::Claim(self.ask()),
            29..=32 => {
                let (run, holder) = self.held().await;
                Verb::Start(run, holder)
            }
            33..=46 => {
                let (run, holder) = self.held().await;
                let count = 1 + self.chance.below(3);
                Verb::Append(run, (0..count).map(|_| self.event()).collect(), holder)
            }
            47..=50 => {
                let (run, holder) = self.held().await;
                Verb::Heartbeat(run, holder)
            }
            51..=64 => self.finish().await,
            65..=69 => {
                let reason = self.chance.percent(50).then(|| "why not".to_owned());
                let run = if self.chance.percent(60) { self.held().await.0 } else { self.any_run() };
                Verb::Cancel(run, reason)
            }
            70..=73 => Verb::Retry(self.any_run()),
            74..=75 => self.artifact(),
            76..=78 => self.register(),
            79..=85 => self.beat(),
            86..=87 => match self.a_worker() {
                Some((_, worker)) => Verb::Retire(worker),
                None => self.register(),
            },
            88..=94 => Verb::Sweep,
            95..=96 => match self.a_worker() {
                // Undrained more often than drained, so that some workers claim runs.
                Some((_, worker)) => Verb::Drain(worker, self.chance.percent(40)),
                None => self.register(),
            },
            97 => {
                let until = self.chance.percent(70).then(|| self.now + TimeDelta::seconds(5));
                Verb::Pause(self.scope(), until)
            }
            98 => Verb::Resume(self.scope()),
            _ => Verb::Prune(self.now - TimeDelta::seconds(600)),
        }
    }

    fn scope(&mut self) -> String {
        self.chance.one_of(&["project:shop", "project:bank", "lane:ops"]).to_owned()
    }

    /// Returns a run, later ones more often, because they are more likely live.
    fn any_run(&mut self) -> usize {
        let count = self.postgres.ids.len();
        let back = self.chance.below(count).min(self.chance.below(count));
        count - 1 - back
    }

    /// Returns a run, a held one if possible, and the expectations of a caller, mostly correct.
    async fn held(&mut self) -> (usize, Holder) {
        let mut run = self.any_run();
        for _ in 0..6 {
            if self.read(run).await.is_some_and(|found| found.status.is_held()) {
                break;
            }
            run = self.any_run();
        }
        let truth = self.read(run).await;
        let (worker, epoch) = truth.map_or((None, 0), |found| (found.claimed_by, found.epoch));
        let holder = match self.chance.below(10) {
            0..=4 => Holder { worker, epoch: Some(epoch) },
            5..=7 => Holder::default(),
            8 => Holder { worker: Some("somebody".to_owned()), epoch: None },
            _ => Holder { worker: None, epoch: Some(epoch + 1) },
        };
        (run, holder)
    }

    async fn read(&self, run: usize) -> Option<Run> {
        self.sqlite.fixture.store.run(self.sqlite.id(run)).await.expect("the run is read")
    }

    fn queue(&mut self) -> Verb {
        let (chance, now) = (&mut self.chance, self.now);
        if !self.asked.is_empty() && chance.percent(12) {
            // A repeated request: the same call, the same key with another id, or another request with the same key.
            let (mut request, mut run) = chance.one_of(&self.asked);
            match chance.below(5) {
                0 => run = RunId::new(now, chance.uuid()),
                1 => request.priority += 1,
                2 => "other".clone_into(&mut request.kind),
                3 => "bank".clone_into(&mut request.project),
                _ => {}
            }
            return Verb::Queue(Box::new(request), run);
        }
        let soon = |chance: &mut Rng| {
            now + TimeDelta::microseconds(i64::try_from(chance.below(60_000_000)).expect("a minute"))
        };
        let mut request = QueueRun::new(chance.one_of(&["shop", "shop", "bank"]), "staging");
        request.priority = chance.one_of(&[0, 0, 0, 1, -1]);
        request.metadata =
            chance.one_of(&[json!({}), json!({"a": 1}), json!({"b": [1.5, null], "a": {"x": "ä"}})]);
        request.git_sha = chance.percent(20).then(|| "abc".to_owned());
        request.idempotency_key = chance.percent(20).then(|| format!("key-{}", chance.below(4)));
        request.concurrency_key = chance.percent(40).then(|| format!("lock-{}", chance.below(2)));
        request.labels =
            if chance.percent(20) { vec!["gpu".to_owned(), "arm".to_owned()] } else { Vec::new() };
        request.available_at = chance.percent(20).then(|| soon(chance));
        request.expires_at = chance.percent(15).then(|| soon(chance) + TimeDelta::seconds(61));
        request.max_attempts = chance.one_of(&[1, 2, 3]);
        request.max_losses = chance.one_of(&[0, 1, 3]);
        request.backoff_secs = chance.one_of(&[0, 1, 9]);
        request.timeout_secs = chance.percent(20).then(|| chance.one_of(&[3, 60]));
        if chance.percent(30) {
            chance.one_of(&["email", "report"]).clone_into(&mut request.kind);
        }
        match chance.below(40) {
            0 => request.metadata = json!([]),
            1 => "nobody".clone_into(&mut request.project),
            2 => "nowhere".clone_into(&mut request.env),
            3 => request.max_attempts = 0,
            4 => request.git_ref = Some("r".repeat(2_000)),
            5 => request.kind = "k".repeat(101),
            6 => "a\nb".clone_into(&mut request.kind),
            _ => {}
        }
        let run = if chance.percent(5) {
            format!("run-by-hand-{}", chance.next()).parse().expect("an id")
        } else {
            RunId::new(now, chance.uuid())
        };
        Verb::Queue(Box::new(request), run)
    }

    /// Returns a batch, whose requests may repeat each other's keys.
    fn queue_many(&mut self) -> Verb {
        let mut requests: Vec<(QueueRun, RunId)> = Vec::new();
        for _ in 0..=self.chance.below(6) {
            let Verb::Queue(request, run) = self.queue() else { continue };
            if self.chance.percent(3) || requests.iter().all(|(_, other)| *other != run) {
                requests.push((*request, run));
            }
        }
        Verb::QueueMany(requests)
    }

    fn ask(&mut self) -> ClaimRuns {
        let worker = self.a_worker().filter(|_| self.chance.percent(50));
        let chance = &mut self.chance;
        let mut ask = ClaimRuns::one(chance.one_of(&["worker-001", "worker-002"]));
        if let Some((name, id)) = worker {
            (ask.worker, ask.worker_id) = (name, Some(id));
        }
        ask.limit = chance.one_of(&[1, 1, 2, 5]);
        ask.labels = if chance.percent(60) { vec!["arm".to_owned(), "gpu".to_owned()] } else { Vec::new() };
        ask.projects = chance.percent(15).then(|| vec!["bank".to_owned()]);
        ask.request_id = chance.percent(40).then(|| format!("claim-{}", chance.below(6)));
        ask.lease_secs = chance.one_of(&[Some(300), None, Some(10)]);
        ask
    }

    fn event(&mut self) -> NewEvent {
        let chance = &mut self.chance;
        let level = chance.one_of(&[Level::Debug, Level::Info, Level::Warn, Level::Error]);
        let mut event = NewEvent::new(level, chance.one_of(&["tick", "tock", "", "ä\u{1F600} 'x'"]));
        event.payload =
            chance.one_of(&[json!({}), json!({"a": 1}), json!([1, "x"]), json!("text"), json!(null)]);
        event.key = chance.percent(40).then(|| format!("event-{}", chance.below(4)));
        if chance.percent(1) {
            event.message = "m".repeat(9_000);
        }
        event
    }

    async fn finish(&mut self) -> Verb {
        let mut ends: Vec<(usize, FinalStatus, Json, Option<i32>)> = Vec::new();
        let mut worker = None;
        for _ in 0..self.chance.one_of(&[1, 1, 1, 2, 4]) {
            let (run, holder) = self.held().await;
            if ends.iter().any(|(other, ..)| *other == run) {
                continue;
            }
            let chance = &mut self.chance;
            let status = chance.one_of(&[
                FinalStatus::Success,
                FinalStatus::Failed,
                FinalStatus::Failed,
                FinalStatus::Cancelled,
            ]);
            let metadata = chance.one_of(&[
                json!({}),
                json!({"exit_code": 1}),
                json!({"a": {"y": 2}}),
                json!({"artifacts": [{"type": "image", "url": "u", "size_bytes": 7}, {"type": 1}, null]}),
                json!({"artifacts": [{"type": "log", "url": "v", "digest": "d", "size_bytes": 7.9}]}),
            ]);
            ends.push((run, status, metadata, holder.epoch));
            worker = holder.worker;
        }
        if self.chance.percent(2) {
            ends[0].2 = json!(7);
        }
        Verb::Finish(ends, worker)
    }

    fn artifact(&mut self) -> Verb {
        let artifact = NewArtifact {
            artifact_type: self.chance.one_of(&["image", "log", ""]).to_owned(),
            url: self.chance.one_of(&["u", "v"]).to_owned(),
            digest: self.chance.percent(50).then(|| "digest".to_owned()),
            size_bytes: self.chance.percent(50).then_some(12),
            metadata: json!({}),
        };
        Verb::Artifact(self.any_run(), artifact)
    }

    fn register(&mut self) -> Verb {
        let name = self.chance.one_of(&["worker-001", "worker-002", "worker-003"]);
        let worker = NewWorker { worker_id: WorkerId(self.chance.uuid()), ..new_worker(name) };
        self.workers.push((name.to_owned(), worker.worker_id));
        Verb::Register(worker)
    }

    fn a_worker(&mut self) -> Option<(String, WorkerId)> {
        // Later workers more often, because they are more likely live.
        let from = if self.chance.percent(80) { self.workers.len().saturating_sub(2) } else { 0 };
        if self.workers.is_empty() { None } else { Some(self.chance.one_of(&self.workers[from..])) }
    }

    fn beat(&mut self) -> Verb {
        let Some((_, worker)) = self.a_worker() else { return self.register() };
        let count = self.chance.below(4);
        let mut runs: Vec<usize> = (0..count).map(|_| self.any_run()).collect();
        runs.sort_unstable();
        runs.dedup();
        Verb::Beat(worker, runs)
    }
}
