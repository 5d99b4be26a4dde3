//! Random sequences of verbs on PostgreSQL and on SQLite, side by side: every answer, every row and every event must
//! be the same.
//!
//! Both sides get the same times and the same ids. The ids of successors are made by the databases; they are matched
//! by the run that they follow, and shown as `run#7`. What chance decides besides (jitter, and which of two successors
//! of one moment comes first) is checked where there is a rule, and then made equal on both sides. A failure prints
//! its seed: `TIDEMILL_SEED=… cargo test -p tidemill-testkit --test differential` shows it again.

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use serde_json::json;
use tidemill_core::artifact::NewArtifact;
use tidemill_core::event::{Level, NewEvent};
use tidemill_core::project::{Flag, FlagName};
use tidemill_core::retry::backoff;
use tidemill_core::run::{FinalStatus, Gate, QueueRun};
use tidemill_core::worker::NewWorker;
use tidemill_core::{Json, RunId, Timestamp, WorkerId};
use tidemill_store::{ClaimRuns, Error, FinishRun, Holder};
use tidemill_testkit::door::{Kind, Plain, Stage, Tables, at, new_worker};
use uuid::Uuid;

/// How long the ordinary test goes on.
const TIME_BOX: Duration = Duration::from_secs(20);
/// Steps of one sequence, and after how many of them all tables are compared.
const STEPS: usize = 160;
const COMPARE_EVERY: usize = 40;

#[tokio::test]
async fn postgres_and_sqlite_answer_and_keep_the_same() {
    go_on_for(TIME_BOX).await;
}

#[tokio::test]
#[ignore = "takes as many minutes as TIDEMILL_SOAK_MINUTES says; cargo xtask soak runs it"]
async fn soak_postgres_and_sqlite_answer_and_keep_the_same() {
    let minutes =
        std::env::var("TIDEMILL_SOAK_MINUTES").ok().and_then(|text| text.parse().ok()).unwrap_or(10);
    go_on_for(Duration::from_secs(minutes * 60)).await;
}

/// Runs sequences until the time is over; or the one of `TIDEMILL_SEED`.
async fn go_on_for(time: Duration) {
    if let Ok(seed) = std::env::var("TIDEMILL_SEED") {
        return sequence(seed.parse().expect("TIDEMILL_SEED is a number")).await;
    }
    let began = Instant::now();
    let mut seed = u64::from(Uuid::new_v4().as_fields().0) << 20;
    println!("seeds from {seed} on");
    while began.elapsed() < time {
        sequence(seed).await;
        seed += 1;
    }
    println!("up to {seed}");
}

/// Numbers that depend on the seed alone.
struct Chance(u64);

impl Chance {
    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap_or_default()
    }

    fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn one_of<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    fn uuid(&mut self) -> Uuid {
        Uuid::from_u64_pair(self.next(), self.next())
    }
}

/// A call, with runs by their numbers.
#[derive(Debug, Clone)]
enum Verb {
    Queue(Box<QueueRun>, RunId),
    Claim(ClaimRuns),
    Start(usize, Holder),
    Append(usize, Vec<NewEvent>, Holder),
    Heartbeat(usize, Holder),
    Finish(Vec<(usize, FinalStatus, Json, Option<i32>)>, Option<String>),
    Cancel(usize, Option<String>),
    Retry(usize),
    Artifact(usize, NewArtifact),
    Register(NewWorker),
    Beat(WorkerId, Vec<usize>),
    Retire(WorkerId),
    Sweep,
    Pause(String, Option<Timestamp>),
    Resume(String),
    Prune(Timestamp),
}

/// One of the two databases, with the ids of its runs by their numbers.
struct Side {
    stage: Stage,
    ids: Vec<RunId>,
}

impl Side {
    async fn open(kind: Kind) -> Self {
        Self { stage: Stage::open(kind).await, ids: Vec::new() }
    }

    fn id(&self, run: usize) -> RunId {
        self.ids[run].clone()
    }

    fn ids(&self, runs: &[usize]) -> Vec<RunId> {
        runs.iter().map(|&run| self.id(run)).collect()
    }

    /// Makes the call; its answer as JSON, or the rule that refused it.
    async fn call(&self, verb: &Verb, now: Timestamp) -> String {
        let answer = self.answer(verb.clone(), now).await;
        self.shown(&match answer {
            Ok(json) => json.to_string(),
            Err(error) => match error.refusal_code() {
                Some(code) => format!("refused as {}: {error}", code.as_str()),
                None => format!("failed: {error:?}"),
            },
        })
    }

    async fn answer(&self, verb: Verb, now: Timestamp) -> Result<Json, Error> {
        let door = &self.stage.door;
        let store = &self.stage.store;
        Ok(match verb {
            Verb::Queue(request, run) => json!(door.queue(*request, run, now).await?),
            Verb::Claim(ask) => {
                // Which of them are claimed is the contract, not in which order they are told.
                let claims = door.claim(ask, now).await?;
                let mut claims: Vec<_> =
                    claims.into_iter().map(|claim| (self.number(&claim.run_id), claim)).collect();
                claims.sort_by_key(|(number, _)| *number);
                json!(claims)
            }
            Verb::Start(run, holder) => json!(door.start(self.id(run), holder, now).await?),
            Verb::Append(run, events, holder) => json!(door.append(self.id(run), events, holder, now).await?),
            Verb::Heartbeat(run, holder) => json!(door.heartbeat(self.id(run), holder, now).await?),
            Verb::Finish(ends, worker) => {
                let end = |(run, status, metadata, epoch)| FinishRun {
                    run_id: self.id(run),
                    status,
                    metadata,
                    epoch,
                };
                json!(door.finish(ends.into_iter().map(end).collect(), worker, now).await?)
            }
            Verb::Cancel(run, reason) => {
                json!(door.cancel(self.id(run), "ann".to_owned(), reason, now).await?)
            }
            Verb::Retry(run) => {
                // The successor gets its number afterwards: only whether it is new can be told here.
                json!(door.retry(self.id(run), "ann".to_owned(), now).await?.created)
            }
            Verb::Artifact(run, artifact) => {
                door.add_artifact(self.id(run), artifact, now).await?;
                json!("recorded")
            }
            Verb::Register(worker) => json!(door.register(worker, now).await?),
            Verb::Beat(worker, runs) => json!(door.beat(worker, self.ids(&runs), now).await?),
            Verb::Retire(worker) => json!(door.retire(worker, now).await?),
            Verb::Sweep => {
                let swept = door.sweep(500, 20.0, now).await?.into_iter();
                let mut swept: Vec<_> = swept
                    .map(|one| (self.number(&one.run_id), one.action.as_str(), one.successor.is_some()))
                    .collect();
                swept.sort_unstable();
                json!(swept)
            }
            Verb::Pause(scope, until_at) => {
                let flag = FlagName::Paused;
                json!(
                    store
                        .set_flag(Flag { flag, scope, note: None, since: now, until_at, set_by: None })
                        .await?
                )
            }
            Verb::Resume(scope) => json!(store.clear_flag(FlagName::Paused, scope).await?),
            Verb::Prune(before) => json!(store.prune(before, 100).await?),
        })
    }

    /// The number of a run; -1 for one that nobody has counted.
    fn number(&self, run: &RunId) -> i64 {
        let place = self.ids.iter().position(|id| id == run);
        place.and_then(|place| i64::try_from(place).ok()).unwrap_or(-1)
    }

    /// A text with numbers for ids.
    fn shown(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (number, id) in self.ids.iter().enumerate() {
            if text.contains(&id.as_str()[4..]) {
                text = text.replace(id.as_str(), &format!("run#{number}"));
                text = text.replace(&format!("evt-{}-", &id.as_str()[4..]), &format!("evt#{number}-"));
            }
        }
        text
    }

    /// Successors that have no number yet, by the number of the run that they follow.
    async fn new_successors(&self) -> Vec<(i64, RunId)> {
        let text = "SELECT run_id || ' ' || retry_of FROM {ops}.runs WHERE retry_of IS NOT NULL";
        let rows = self.stage.plain.texts(text).await.expect("the successors are read");
        let mut new = Vec::new();
        for row in rows {
            let (run, before) = row.split_once(' ').expect("two ids");
            let (run, before): (RunId, RunId) = (run.parse().expect("an id"), before.parse().expect("an id"));
            if !self.ids.contains(&run) {
                new.push((self.number(&before), run));
            }
        }
        new.sort();
        new
    }

    /// Checks a successor's wait against the rule, and takes the chance out of it: no jitter, and a place of its own
    /// among those of the same moment.
    async fn settle(&self, run: &RunId, before: &RunId, now: Timestamp, place: i64) {
        let next = self.stage.run(run).await;
        let mut ready = now;
        if let Some(available_at) = next.available_at {
            let failures = next.failures - 1;
            assert_eq!(
                available_at,
                now + backoff(next.backoff_secs, failures, before),
                "the wait after {before}"
            );
            let exact = (i64::from(next.backoff_secs) << failures).min(3_600);
            ready = now + TimeDelta::seconds(exact);
        }
        ready += TimeDelta::microseconds(place);
        let moment = match self.stage.plain {
            Plain::Postgres(_) => format!("'{}'", ready.to_rfc3339()),
            Plain::Sqlite(_) => ready.timestamp_micros().to_string(),
        };
        let available =
            if next.gate == Some(Gate::Time) { format!(", available_at = {moment}") } else { String::new() };
        let text = format!("UPDATE {{ops}}.runs SET ready_at = {moment}{available} WHERE run_id = '{run}'");
        assert_eq!(self.stage.plain.execute(&text).await.ok(), Some(1));
    }

    /// Everything that is kept, as both sides should have it.
    async fn kept(&self) -> Tables {
        let mut tables = self.stage.tables().await;
        // A shelf is known by its labels; its number depends on who tried to make it.
        let shelves: Vec<(Json, String)> = tables["shelves"]
            .iter()
            .map(|shelf| (shelf["shelf_id"].clone(), format!("{} {}", shelf["project_id"], shelf["labels"])))
            .collect();
        for (table, rows) in &mut tables {
            for row in rows.iter_mut() {
                if let Some(shelf) = shelves.iter().find(|(id, _)| row.get("shelf_id") == Some(id)) {
                    row["shelf_id"] = json!(shelf.1);
                }
                let fields = row.as_object_mut().expect("a row is an object");
                // Made by chance, by who is logged in, or from another digest.
                fields.retain(|name, _| {
                    !["artifact_id", "actor"].contains(&name.as_str()) && !name.starts_with("scan_")
                });
                if fields.get("same_as").and_then(Json::as_str).is_some_and(|same| same.starts_with("h:")) {
                    fields.insert("same_as".to_owned(), json!("h:"));
                }
                if table == "runs" && fields["available_at"].is_null() && fields["retry_of"].is_string() {
                    fields.remove("available_at");
                }
            }
            let text = self.shown(&Json::Array(std::mem::take(rows)).to_string());
            *rows = serde_json::from_str(&text).expect("it was JSON before");
            rows.sort_by_key(ToString::to_string);
        }
        tables
    }
}

/// Both sides, and what the generator remembers.
struct Pair {
    postgres: Side,
    sqlite: Side,
    chance: Chance,
    seed: u64,
    now: Timestamp,
    workers: Vec<(String, WorkerId)>,
    asked: Vec<(QueueRun, RunId)>,
    log: Vec<String>,
}

/// One random sequence on fresh databases.
async fn sequence(seed: u64) {
    let (postgres, sqlite) = (Side::open(Kind::Postgres).await, Side::open(Kind::Sqlite).await);
    let chance = Chance(seed);
    let mut pair = Pair {
        postgres,
        sqlite,
        chance,
        seed,
        now: at(0),
        workers: Vec::new(),
        asked: Vec::new(),
        log: Vec::new(),
    };
    for step in 1..=STEPS {
        pair.tick();
        let verb = pair.verb().await;
        pair.step(verb).await;
        if step % COMPARE_EVERY == 0 {
            pair.compare_tables().await;
        }
    }
    pair.postgres.stage.close().await;
    pair.sqlite.stage.close().await;
}

impl Pair {
    /// Lets some time pass, at least a millisecond: ids of two steps must sort alike.
    fn tick(&mut self) {
        let micros = match self.chance.below(100) {
            0..=69 => self.chance.below(900_000),
            70..=91 => self.chance.below(5_000_000),
            92..=96 => self.chance.below(40_000_000),
            _ => self.chance.below(400_000_000),
        };
        self.now += TimeDelta::microseconds(i64::try_from(micros.max(1_000)).unwrap_or(1_000));
    }

    async fn step(&mut self, verb: Verb) {
        let now = self.now;
        self.log.push(format!("{} {verb:?}", now.format("%H:%M:%S%.6f")));
        let answers = (self.postgres.call(&verb, now).await, self.sqlite.call(&verb, now).await);
        self.log.push(format!("        {}", answers.0));
        self.agree("the answers differ", &answers.0, &answers.1);
        if let Verb::Queue(request, run) = verb
            && answers.0.contains(r#""created":true"#)
        {
            self.postgres.ids.push(run.clone());
            self.sqlite.ids.push(run.clone());
            self.asked.push((*request, run));
        }
        let (new, other) = (self.postgres.new_successors().await, self.sqlite.new_successors().await);
        let numbers =
            |new: &[(i64, RunId)]| format!("{:?}", new.iter().map(|(before, _)| before).collect::<Vec<_>>());
        self.agree("other runs were followed", &numbers(&new), &numbers(&other));
        for (place, ((before, one), (_, two))) in (1..).zip(new.into_iter().zip(other)) {
            let before = usize::try_from(before).expect("what is followed has a number");
            self.postgres.settle(&one, &self.postgres.id(before), now, place).await;
            self.sqlite.settle(&two, &self.sqlite.id(before), now, place).await;
            self.postgres.ids.push(one);
            self.sqlite.ids.push(two);
        }
    }

    async fn compare_tables(&self) {
        let (postgres, sqlite) = (self.postgres.kept().await, self.sqlite.kept().await);
        let names = |tables: &Tables| format!("{:?}", tables.keys().collect::<Vec<_>>());
        self.agree("the tables differ", &names(&postgres), &names(&sqlite));
        for (table, rows) in &postgres {
            let others = &sqlite[table];
            self.agree(
                &format!("{table} differ in number"),
                &rows.len().to_string(),
                &others.len().to_string(),
            );
            for (row, other) in rows.iter().zip(others) {
                self.agree(&format!("{table} differ"), &row.to_string(), &other.to_string());
            }
        }
    }

    #[track_caller]
    fn agree(&self, what: &str, postgres: &str, sqlite: &str) {
        if postgres != sqlite {
            let from = self.log.len().saturating_sub(60);
            let log = self.log[from..].join("\n");
            let seed = self.seed;
            panic!(
                "{log}\n\n{what}; replay with TIDEMILL_SEED={seed}\n  postgres: {postgres}\n    sqlite: {sqlite}"
            );
        }
    }
}

/// What to do next.
impl Pair {
    async fn verb(&mut self) -> Verb {
        if self.postgres.ids.is_empty() || self.chance.percent(16) {
            return self.queue();
        }
        match self.chance.below(100) {
            0..=19 => Verb::Claim(self.ask()),
            20..=23 => {
                let (run, holder) = self.held().await;
                Verb::Start(run, holder)
            }
            24..=38 => {
                let (run, holder) = self.held().await;
                let count = 1 + self.chance.below(3);
                Verb::Append(run, (0..count).map(|_| self.event()).collect(), holder)
            }
            39..=43 => {
                let (run, holder) = self.held().await;
                Verb::Heartbeat(run, holder)
            }
            44..=65 if self.chance.percent(60) => self.finish().await,
            44..=65 => Verb::Claim(self.ask()),
            66..=70 => {
                let reason = self.chance.percent(50).then(|| "why not".to_owned());
                let run = if self.chance.percent(60) { self.held().await.0 } else { self.any_run() };
                Verb::Cancel(run, reason)
            }
            71..=74 => Verb::Retry(self.any_run()),
            75..=76 => self.artifact(),
            77..=79 => self.register(),
            80..=86 => self.beat(),
            87..=88 => match self.a_worker() {
                Some((_, worker)) => Verb::Retire(worker),
                None => self.register(),
            },
            89..=96 => Verb::Sweep,
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

    /// The later ones more often: they are the ones that live.
    fn any_run(&mut self) -> usize {
        let count = self.postgres.ids.len();
        let back = self.chance.below(count).min(self.chance.below(count));
        count - 1 - back
    }

    /// A run, held if one is at hand, and what a caller believes of it: mostly the truth.
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

    async fn read(&self, run: usize) -> Option<tidemill_core::run::Run> {
        self.sqlite.stage.store.run(self.sqlite.id(run)).await.expect("the run is read")
    }

    fn queue(&mut self) -> Verb {
        let (chance, now) = (&mut self.chance, self.now);
        if !self.asked.is_empty() && chance.percent(12) {
            // Asked again: the same call, the same key under another id, or another request under the same.
            let (mut request, mut run) = chance.one_of(&self.asked);
            match chance.below(4) {
                0 => run = RunId::new(now, chance.uuid()),
                1 => request.priority += 1,
                2 => request.project = "bank".to_owned(),
                _ => {}
            }
            return Verb::Queue(Box::new(request), run);
        }
        let soon = |chance: &mut Chance| {
            now + TimeDelta::microseconds(i64::try_from(chance.below(60_000_000)).unwrap())
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
        match chance.below(40) {
            0 => request.metadata = json!([]),
            1 => request.project = "nobody".to_owned(),
            2 => request.env = "nowhere".to_owned(),
            3 => request.max_attempts = 0,
            4 => request.git_ref = Some("r".repeat(2_000)),
            _ => {}
        }
        let run = if chance.percent(5) {
            format!("run-by-hand-{}", chance.next()).parse().expect("an id")
        } else {
            RunId::new(now, chance.uuid())
        };
        Verb::Queue(Box::new(request), run)
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
        ask.lease_secs = chance.one_of(&[300, 300, 10]);
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
        // The last ones more often: they are the ones that live.
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
