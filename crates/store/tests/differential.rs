//! Random sequences of operations on PostgreSQL and on SQLite in parallel: every answer, every row and every event must
//! be the same.
//!
//! Both sides get the same times and the same ids. The databases make the ids of successors; they are matched by the
//! run that they retry, and shown as `run#7`. Other random values (jitter, and the order of two successors of one
//! moment) are checked against their rules, and then made equal on both sides. A failure prints its seed:
//! `TIDEMILL_SEED=… cargo test -p tidemill-testkit --test differential` repeats it.
#![expect(clippy::expect_used, clippy::print_stdout, reason = "a failed test must panic and print its seed")]

#[path = "differential/generator.rs"]
mod generator;

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use serde_json::json;
use tidemill_core::artifact::NewArtifact;
use tidemill_core::event::NewEvent;
use tidemill_core::project::{Flag, FlagName, FlagSource};
use tidemill_core::retry::backoff;
use tidemill_core::run::{FinalStatus, Gate, QueueRun};
use tidemill_core::worker::NewWorker;
use tidemill_core::{Json, RunId, Timestamp, WorkerId};
use tidemill_store::{ClaimRuns, Error, FinishRun, Holder};
use tidemill_testkit::interface::{Fixture, Kind, PlainSql, Tables, at};
use uuid::Uuid;

use generator::Rng;

/// Duration of the ordinary test.
const TIME_BOX: Duration = Duration::from_secs(20);
/// Steps of one sequence, and the interval at which all tables are compared.
const STEPS: usize = 160;
const COMPARE_EVERY: usize = 40;

#[tokio::test]
async fn postgres_and_sqlite_return_and_store_the_same() {
    run_sequences(TIME_BOX).await;
}

#[tokio::test]
#[ignore = "takes as many minutes as TIDEMILL_SOAK_MINUTES says; cargo xtask soak runs it"]
async fn soak_postgres_and_sqlite_return_and_store_the_same() {
    let minutes =
        std::env::var("TIDEMILL_SOAK_MINUTES").ok().and_then(|text| text.parse().ok()).unwrap_or(10);
    run_sequences(Duration::from_secs(minutes * 60)).await;
}

/// Runs sequences until the time is over, or the one of `TIDEMILL_SEED`.
async fn run_sequences(time: Duration) {
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

/// A call, with runs by number.
#[derive(Debug, Clone)]
enum Verb {
    Queue(Box<QueueRun>, RunId),
    QueueMany(Vec<(QueueRun, RunId)>),
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
    Drain(WorkerId, bool),
    Sweep,
    Pause(String, Option<Timestamp>),
    Resume(String),
    Prune(Timestamp),
}

/// One of the two databases, with the ids of its runs by number.
struct Side {
    fixture: Fixture,
    ids: Vec<RunId>,
}

impl Side {
    async fn open(kind: Kind) -> Self {
        Self { fixture: Fixture::open(kind).await.with_one_connection().await, ids: Vec::new() }
    }

    fn id(&self, run: usize) -> RunId {
        self.ids[run].clone()
    }

    fn ids(&self, runs: &[usize]) -> Vec<RunId> {
        runs.iter().map(|&run| self.id(run)).collect()
    }

    /// Makes the call; returns its answer as JSON, or the code of the refusal.
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
        let interface = &self.fixture.interface;
        let store = &self.fixture.store;
        Ok(match verb {
            Verb::Queue(request, run) => json!(interface.queue(*request, run, now).await?),
            Verb::QueueMany(requests) => json!(interface.queue_many(requests, now).await?),
            Verb::Claim(ask) => {
                // The contract defines which runs are claimed, not their order in the answer.
                let claims = interface.claim(ask, now).await?;
                let mut claims: Vec<_> =
                    claims.into_iter().map(|claim| (self.number(&claim.run_id), claim)).collect();
                claims.sort_by_key(|(number, _)| *number);
                json!(claims)
            }
            Verb::Start(run, holder) => json!(interface.start(self.id(run), holder, now).await?),
            Verb::Append(run, events, holder) => {
                json!(interface.append(self.id(run), events, holder, now).await?)
            }
            Verb::Heartbeat(run, holder) => json!(interface.heartbeat(self.id(run), holder, now).await?),
            Verb::Finish(ends, worker) => {
                let end = |(run, status, metadata, epoch)| FinishRun {
                    run_id: self.id(run),
                    status,
                    metadata,
                    epoch,
                };
                json!(interface.finish(ends.into_iter().map(end).collect(), worker, now).await?)
            }
            Verb::Cancel(run, reason) => {
                json!(interface.cancel(self.id(run), "ann".to_owned(), reason, now).await?)
            }
            Verb::Retry(run) => {
                // The successor gets its number later, so only whether it is new can be compared here.
                json!(interface.retry(self.id(run), "ann".to_owned(), now).await?.created)
            }
            Verb::Artifact(run, artifact) => {
                interface.add_artifact(self.id(run), artifact, now).await?;
                json!("recorded")
            }
            Verb::Register(worker) => json!(interface.register(worker, now).await?),
            Verb::Beat(worker, runs) => {
                json!(interface.worker_heartbeat(worker, self.ids(&runs), now).await?)
            }
            Verb::Retire(worker) => json!(interface.retire(worker, now).await?),
            Verb::Drain(worker, draining) => json!(store.drain_worker(worker, draining).await?),
            Verb::Sweep => {
                let swept = interface.sweep(500, 20.0, now).await?.into_iter();
                let mut swept: Vec<_> = swept
                    .map(|one| (self.number(&one.run_id), one.action.as_str(), one.successor.is_some()))
                    .collect();
                swept.sort_unstable();
                json!(swept)
            }
            Verb::Pause(scope, until_at) => json!(store.set_flag(pause(scope, until_at, now)).await?),
            Verb::Resume(scope) => json!(store.clear_flag(FlagName::Paused, scope).await?),
            Verb::Prune(before) => json!(store.prune(before, 100).await?),
        })
    }

    /// Returns the number of a run, or -1 if it has none.
    fn number(&self, run: &RunId) -> i64 {
        let place = self.ids.iter().position(|id| id == run);
        place.and_then(|place| i64::try_from(place).ok()).unwrap_or(-1)
    }

    /// Replaces ids in a text by numbers.
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

    /// Returns successors without a number, by the number of the run that they retry.
    async fn new_successors(&self) -> Vec<(i64, RunId)> {
        let text = "SELECT run_id || ' ' || retry_of FROM {ops}.runs WHERE retry_of IS NOT NULL";
        let rows = self.fixture.plain.texts(text).await.expect("the successors are read");
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

    /// Checks the back-off of a successor against the rule, and removes the randomness: no jitter, and a distinct
    /// position among successors of the same moment.
    async fn settle(&self, run: &RunId, before: &RunId, now: Timestamp, place: i64) {
        let next = self.fixture.run(run).await;
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
        let moment = match self.fixture.plain {
            PlainSql::Postgres(_) => format!("'{}'", ready.to_rfc3339()),
            PlainSql::Sqlite(_) => ready.timestamp_micros().to_string(),
        };
        let available =
            if next.gate == Some(Gate::Time) { format!(", available_at = {moment}") } else { String::new() };
        // With a concurrency key, a successor keeps the position of its request, which requests of one call share.
        let ready = match (&next.concurrency_key, &self.fixture.plain) {
            (None, _) => moment.clone(),
            (Some(_), PlainSql::Postgres(_)) => format!("ready_at + {place} * interval '1 microsecond'"),
            (Some(_), PlainSql::Sqlite(_)) => format!("ready_at + {place}"),
        };
        let text = format!("UPDATE {{ops}}.runs SET ready_at = {ready}{available} WHERE run_id = '{run}'");
        assert_eq!(self.fixture.plain.execute(&text).await.ok(), Some(1));
    }

    /// Checks on PostgreSQL that the sweeper's next check is not later than needed, and that the event counter of each
    /// run is right.
    async fn marks_hold(&self) -> bool {
        let wrong = "SELECT r.run_id FROM ops.runs r \
                      WHERE coalesce(r.attention_at, 'infinity') > coalesce(ops.attention_at(r), 'infinity') \
                         OR (r.finished_at IS NULL AND r.last_seq <> \
                                (SELECT max(e.seq) FROM ops.run_events e WHERE e.run_id = r.run_id)) \
                         OR ARRAY[r.env_id] IS DISTINCT FROM \
                                (SELECT array_agg(e.env_id) FROM ops.run_steps e \
                                  WHERE e.run_id = r.run_id AND e.env_id IS NOT NULL)";
        self.fixture.plain.execute(wrong).await.expect("a question") == 0
    }

    /// Returns the tables in the form in which both sides must be equal.
    async fn comparable_tables(&self) -> Tables {
        let mut tables = self.fixture.tables().await;
        // A label set is identified by its labels: its id depends on how often an insert was tried.
        let label_sets: Vec<(Json, String)> = tables["label_sets"]
            .iter()
            .map(|set| (set["label_set_id"].clone(), format!("{} {}", set["project_id"], set["labels"])))
            .collect();
        // PostgreSQL keeps an unused key until the next sweep.
        tables.get_mut("concurrency_keys").expect("a table").retain(|key| !key["head_run_id"].is_null());
        for (table, rows) in &mut tables {
            for row in rows.iter_mut() {
                if let Some(set) = label_sets.iter().find(|(id, _)| row.get("label_set_id") == Some(id)) {
                    row["label_set_id"] = json!(set.1);
                }
                let fields = row.as_object_mut().expect("a row is an object");
                // Random, dependent on the login, from another digest, or only on PostgreSQL and checked by
                // `marks_hold`.
                fields.retain(|name, _| {
                    !["artifact_id", "actor", "attention_at", "last_seq", "locked_runs"]
                        .contains(&name.as_str())
                        && !name.starts_with("scan_")
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

/// Returns a pause by a person.
fn pause(scope: String, until_at: Option<Timestamp>, since: Timestamp) -> Flag {
    let (flag, source) = (FlagName::Paused, FlagSource::Manual);
    Flag { flag, scope, note: None, since, until_at, set_by: None, source }
}

/// Both sides, and the state of the generator.
struct Pair {
    postgres: Side,
    sqlite: Side,
    chance: Rng,
    seed: u64,
    now: Timestamp,
    workers: Vec<(String, WorkerId)>,
    asked: Vec<(QueueRun, RunId)>,
    log: Vec<String>,
}

/// Runs one random sequence on new databases.
async fn sequence(seed: u64) {
    let (postgres, sqlite) = (Side::open(Kind::Postgres).await, Side::open(Kind::Sqlite).await);
    let chance = Rng(seed);
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
        pair.advance_clock();
        let verb = pair.verb().await;
        pair.step(verb).await;
        if step % COMPARE_EVERY == 0 {
            pair.compare_tables().await;
        }
    }
    pair.postgres.fixture.close().await;
    pair.sqlite.fixture.close().await;
}

impl Pair {
    /// Moves the clock by at least a millisecond, because ids of two steps must sort alike.
    fn advance_clock(&mut self) {
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
        let answer: Json = serde_json::from_str(&answers.0).unwrap_or_default();
        let outcomes = answer.as_array().cloned().unwrap_or_else(|| vec![answer]);
        let mut requests = Vec::new();
        if let Verb::Queue(request, run) = verb {
            requests.push((*request, run));
        } else if let Verb::QueueMany(batch) = verb {
            requests = batch;
        }
        for (request, run) in requests {
            let is_own = |outcome: &Json| outcome["created"] == true && outcome["run_id"] == run.as_str();
            if outcomes.iter().any(is_own) {
                self.postgres.ids.push(run.clone());
                self.sqlite.ids.push(run.clone());
                self.asked.push((request, run));
            }
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
        let (postgres, sqlite) =
            (self.postgres.comparable_tables().await, self.sqlite.comparable_tables().await);
        self.agree("what a run keeps for itself", &self.postgres.marks_hold().await.to_string(), "true");
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
