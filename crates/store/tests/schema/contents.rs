//! The content of the schema on both databases: tables, labels and statements.

use crate::BOTH;
use std::collections::BTreeSet;
use tidemill_core::access::Role;
use tidemill_core::audit::{ActorRole, AuditOutcome};
use tidemill_core::event::{EventKind, Level};
use tidemill_core::graph::record::TaskEnd;
use tidemill_core::project::{Flag, FlagName, FlagSource};
use tidemill_core::records::RecordState;
use tidemill_core::run::{EndCause, Gate, Lane, RunCursor, RunState};
use tidemill_core::schedule::{Decision, MissedPolicy, OverlapPolicy};
use tidemill_core::stats::Stats;
use tidemill_core::task::Stage as TaskStage;
use tidemill_engine::{Clock, Engine, NewSchedule, RetryPolicy};
use tidemill_store::{EventPage, RunFilter};
use tidemill_testkit::interface::{Fixture, Kind, at, new_run_id, request};

/// Columns that only one of the databases has, with the reason.
const ONLY_POSTGRES: [(&str, &str, &str); 6] = [
    ("pages", "record_uuids", "names of records that are UUIDs take less room as such; SQLite has no UUIDs"),
    (
        "runs",
        "last_seq",
        "tells a verb, which writes its event itself, from a plain statement; SQLite has row triggers",
    ),
    (
        "label_sets",
        "scan_priority",
        "steps over row versions that a long transaction keeps alive; SQLite has none",
    ),
    ("label_sets", "scan_ready_at", "as above"),
    ("label_sets", "scan_until", "as above"),
    ("workers", "locked_runs", "names runs whose rows another transaction has; SQLite has no row locks"),
];

/// Tables that only PostgreSQL has: the usual steps of runs are stored without their texts, and `run_events` is a view
/// of both tables. On SQLite it is a table.
const ONLY_POSTGRES_TABLES: [&str; 2] = ["run_log", "run_steps"];

#[tokio::test]
async fn databases_have_the_same_tables_and_columns() {
    let postgres = Fixture::open_bare(Kind::Postgres).await;
    let sqlite = Fixture::open_bare(Kind::Sqlite).await;
    let mut ours = postgres.plain.columns().await.unwrap();
    let theirs = sqlite.plain.columns().await.unwrap();
    for table in ONLY_POSTGRES_TABLES {
        assert!(ours.remove(table).is_some(), "{table} is not there any more");
    }
    for (table, column, _) in ONLY_POSTGRES {
        let columns = ours.get_mut(table).unwrap();
        let before = columns.len();
        columns.retain(|(name, _)| name != column);
        assert_eq!(columns.len(), before - 1, "{table}.{column} is not there any more");
    }
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
    for (table, columns) in ours {
        let mapped: BTreeSet<(String, &str)> =
            columns.iter().map(|(name, kind)| (name.clone(), in_sqlite(kind))).collect();
        let others: BTreeSet<(String, &str)> =
            theirs[&table].iter().map(|(name, kind)| (name.clone(), kind.as_str())).collect();
        assert_eq!(mapped, others, "{table}");
    }
}

/// Returns the SQLite type for a type of PostgreSQL, as in codec.rs.
fn in_sqlite(kind: &str) -> &str {
    match kind {
        "text" | "jsonb" | "ARRAY" | "uuid" => "text",
        "timestamp with time zone" | "integer" | "bigint" | "boolean" => "integer",
        "bytea" => "blob",
        "numeric" => "real",
        other => other,
    }
}

/// A table, its other columns with values, the column under test, and the labels of that column.
type LabelColumn = (&'static str, String, &'static str, Vec<&'static str>);

fn moment(kind: Kind) -> &'static str {
    if kind == Kind::Sqlite { "0" } else { "now()" }
}

/// Returns every column that holds a label of core. `#` stands for a new number in each row.
fn label_columns(kind: Kind) -> Vec<LabelColumn> {
    let moment = moment(kind);
    let run = "run_id, project_id, env_id = 'run-#', 'shop', 'shop/staging'";
    let event = "run_id, seq, message, kind = 'run-x', #, '', 'log'";
    let kinds = "run_id, seq, message, level = 'run-x', #, '', 'info'";
    let fire = format!("schedule_id, fire_at, decided_at = 's-#', {moment}, {moment}");
    let flag = format!("scope, since = 's-#', {moment}");
    let missed = format!(
        "schedule_id, project_id, cron, time_zone, request, created_at, overlap = \
         's-#', 'shop', '', '', '{{}}', {moment}, 'skip'"
    );
    let overlap = missed.replace("overlap", "missed");
    let uuid = "'00000000-0000-4000-8000-' || substr('00000000000#', -12)";
    let uuid = if kind == Kind::Sqlite { uuid.to_owned() } else { "gen_random_uuid()".to_owned() };
    let hash = if kind == Kind::Sqlite { "lower(hex(randomblob(32)))" } else { "encode(sha256('#'), 'hex')" };
    let token = format!("token_id, name, hash, created_at, created_by = {uuid}, '', {hash}, {moment}, ''");
    let audit = format!("call_id, at, who, action = {uuid}, {moment}, '', ''");
    let outcome = format!("call_id, at, who, action, role = {uuid}, {moment}, '', '', 'admin'");
    let source = format!("flag, scope, since = 'paused', 's-#', {moment}");
    let (yes, no) = if kind == Kind::Sqlite { ("1", "0") } else { ("true", "false") };
    let bytes = if kind == Kind::Sqlite { "x''" } else { "''" };
    let record =
        format!("feed, record_id, built_hash, mapper_version, updated_at = 'f', 'r-#', {bytes}, 1, {moment}");
    let order = |names: &str, values: &str| {
        format!(
            "task_id, job_id, run_id, number, agent_id, created_at, kind, active{names} = \
             't-#', 'j-#', 'run-x', 1, {uuid}, {moment}, 'RUNJOB', {values}"
        )
    };
    let (task, over) = (order("", yes), order(", ended_at", &format!("{no}, {moment}")));
    vec![
        ("flags", source, "source", labels(FlagSource::ALL, FlagSource::as_str)),
        ("tasks", task, "stage", labels(TaskStage::ALL, TaskStage::as_str)),
        ("tasks", over, "end_cause", labels(TaskEnd::ALL, TaskEnd::as_str)),
        ("runs", run.to_owned(), "lane", labels(Lane::ALL, Lane::as_str)),
        ("run_events", event.to_owned(), "level", labels(Level::ALL, Level::as_str)),
        ("run_events", kinds.to_owned(), "kind", labels(EventKind::ALL, EventKind::as_str)),
        ("runs", run.to_owned(), "gate", labels(Gate::ALL, Gate::as_str)),
        ("schedule_fires", fire, "decision", labels(Decision::ALL, Decision::as_str)),
        ("flags", flag, "flag", labels(FlagName::ALL, FlagName::as_str)),
        ("schedules", missed, "missed", labels(MissedPolicy::ALL, MissedPolicy::as_str)),
        ("schedules", overlap, "overlap", labels(OverlapPolicy::ALL, OverlapPolicy::as_str)),
        ("tokens", token, "role", labels(Role::ALL, Role::as_str)),
        ("audit", audit, "role", labels(ActorRole::ALL, ActorRole::as_str)),
        ("feed_records", record, "state", labels(RecordState::ALL, RecordState::as_str)),
        ("audit", outcome, "outcome", labels(AuditOutcome::ALL, AuditOutcome::as_str)),
    ]
}

/// Every label of core's enums is accepted by its table, and an unknown label is not.
#[tokio::test]
async fn tables_accept_exactly_the_known_labels() {
    for kind in BOTH {
        let fixture = Fixture::open(kind).await;
        let mut number = 0;
        let mut accepts = async |table: &str, fixed: &str, column: &str, label: &str| {
            number += 1;
            let fixed = fixed.replace('#', &number.to_string());
            let (names, values) = fixed.split_once(" = ").unwrap();
            let text =
                format!("INSERT INTO {{ops}}.{table} ({names}, {column}) VALUES ({values}, '{label}')");
            fixture.plain.execute(&text).await.map_err(|bad| format!("{bad:?}"))
        };
        let moment = moment(kind);
        // Events belong to a run.
        let run = "run_id, project_id, env_id, gate = 'run-x', 'shop', 'shop/staging', 'open'";
        assert_eq!(accepts("runs", run, "status", "queued").await, Ok(1), "{kind:?}");
        for (table, fixed, column, labels) in label_columns(kind) {
            for label in labels {
                assert_eq!(
                    accepts(table, &fixed, column, label).await,
                    Ok(1),
                    "{kind:?}: {table}.{column} = {label}"
                );
            }
            assert!(
                accepts(table, &fixed, column, "unheard-of").await.is_err(),
                "{kind:?}: {table}.{column}"
            );
        }
        for state in RunState::ALL {
            let gate = if *state == RunState::Queued { "'open'" } else { "NULL" };
            let finished = if state.is_terminal() { moment } else { "NULL" };
            let fixed = format!(
                "run_id, project_id, env_id, claimed_by, gate, finished_at = \
                 'run-#', 'shop', 'shop/staging', 'w', {gate}, {finished}"
            );
            assert_eq!(accepts("runs", &fixed, "status", state.as_str()).await, Ok(1), "{kind:?}: {state}");
        }
        for cause in EndCause::ALL {
            let fixed = format!(
                "run_id, project_id, env_id, gate, status, finished_at = \
                 'run-#', 'shop', 'shop/staging', NULL, 'failed', {moment}"
            );
            assert_eq!(
                accepts("runs", &fixed, "end_cause", cause.as_str()).await,
                Ok(1),
                "{kind:?}: {cause}"
            );
        }
    }
}

fn labels<T: Copy>(all: &[T], text: fn(T) -> &'static str) -> Vec<&'static str> {
    all.iter().map(|&label| text(label)).collect()
}

/// Calls each public function once, on an empty and on a filled database.
#[tokio::test]
async fn every_statement_runs_on_each_database() {
    for kind in BOTH {
        let fixture = Fixture::open(kind).await;
        for filled in [false, true] {
            let run = if filled { fill(&fixture).await } else { new_run_id(at(0)) };
            let store = &fixture.store;
            assert_eq!(store.run(run.clone()).await.unwrap().is_some(), filled);
            assert_eq!(store.tries(run.clone()).await.unwrap().len(), usize::from(filled));
            let page = EventPage { after: 0, limit: 10 };
            assert_eq!(store.events(run.clone(), page).await.unwrap().is_empty(), !filled);
            assert!(store.artifacts(run.clone()).await.unwrap().is_empty());
            let filter = RunFilter {
                project: Some("shop".to_owned()),
                env: Some("staging".to_owned()),
                status: Some(RunState::Claimed),
                lane: Some(Lane::Ops),
                before: Some(RunCursor { created_at: Some(at(1_000)), run_id: new_run_id(at(0)) }),
                limit: 10,
                ..RunFilter::default()
            };
            assert_eq!(store.runs(filter).await.unwrap().len(), usize::from(filled));
            let all = RunFilter { limit: 10, ..RunFilter::default() };
            assert_eq!(store.runs(all).await.unwrap().len(), if filled { 2 } else { 0 });
            assert_eq!(store.projects().await.unwrap().len(), 2);
            assert_eq!(store.flags().await.unwrap().len(), usize::from(filled));
            assert_eq!(store.workers().await.unwrap().len(), usize::from(filled));
            assert_eq!(store.schedules(None).await.unwrap().len(), usize::from(filled));
            assert_eq!(store.schedules(Some("nightly".to_owned())).await.unwrap().len(), usize::from(filled));
            assert_eq!(store.fires("nightly".to_owned(), 10).await.unwrap().len(), usize::from(filled));
            assert_eq!(store.stats(Some(at(9))).await.unwrap() == Stats::default(), !filled);
            assert_eq!(store.why_facts(run, Some(at(9))).await.unwrap().is_some(), filled);
            assert_eq!(store.now(Some(at(9))).await.unwrap(), at(9));
            let health = store.health().await.unwrap();
            assert_eq!((health.version.is_empty(), health.damage), (false, None));
            store.prune(at(-1_000), 10).await.unwrap();
        }
        assert!(fixture.store.clear_flag(FlagName::Paused, "lane:ops".to_owned()).await.unwrap());
        fixture.store.remove_schedule("nightly".to_owned()).await.unwrap();
    }
}

/// Creates one item of each kind; returns the claimed run.
async fn fill(fixture: &Fixture) -> tidemill_core::RunId {
    let worker = fixture.register("worker-001", at(0)).await;
    let run = fixture.queue(request(), at(0)).await;
    fixture.claim_registered("worker-001", worker, at(1)).await.unwrap();
    let flag = FlagName::Paused;
    let scope = "lane:ops".to_owned();
    let pause = Flag {
        flag,
        scope,
        note: None,
        since: at(2),
        until_at: Some(at(3)),
        set_by: None,
        source: FlagSource::Manual,
    };
    fixture.store.set_flag(pause).await.unwrap();
    let engine = Engine::new(fixture.store.clone(), Clock::fixed(at(0)), RetryPolicy::None);
    let schedule = NewSchedule {
        name: "nightly".to_owned(),
        cron: "* * * * *".to_owned(),
        time_zone: "UTC".to_owned(),
        request: request(),
        missed: MissedPolicy::Once,
        overlap: OverlapPolicy::Skip,
    };
    engine.put_schedule(schedule).await.unwrap();
    engine.pause_schedule("nightly", None).await.unwrap();
    engine.resume_schedule("nightly").await.unwrap();
    engine.clock().advance(chrono::TimeDelta::seconds(60));
    assert_eq!(engine.fire_due().await.unwrap().len(), 1);
    run
}
