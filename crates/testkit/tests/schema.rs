//! The schema itself: made once, by one of many, beside others, the same on both databases.
#![expect(clippy::unwrap_used, reason = "a set-up that fails ends the test")]

use std::collections::BTreeSet;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection, SqliteConnection};
use tempfile::TempDir;
use tidemill_core::access::Role;
use tidemill_core::alert::AlertKind;
use tidemill_core::event::{EventKind, Level};
use tidemill_core::graph::record::TaskEnd;
use tidemill_core::project::{Flag, FlagName, FlagSource};
use tidemill_core::run::{EndCause, Gate, Lane, QueueRun, RunState};
use tidemill_core::schedule::{Decision, Missed, Overlap};
use tidemill_core::stats::Stats;
use tidemill_core::task::Stage as TaskStage;
use tidemill_engine::clock::host_now;
use tidemill_engine::{Clock, Engine, NewSchedule, Patience};
use tidemill_store::{
    AlertFilter, ClaimRuns, Error, EventPage, Holder, Migrated, Options, Presence, RunFilter, Store,
};
use tidemill_testkit::cluster::{Database, server_url};
use tidemill_testkit::conformance::at_once;
use tidemill_testkit::door::{Kind, Stage, at, info, new_run_id, request};

const BOTH: [Kind; 2] = [Kind::Postgres, Kind::Sqlite];

/// A place for a schema, with nothing in it.
enum Empty {
    Postgres(Database),
    Sqlite(TempDir),
}

impl Empty {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Sqlite => Self::Sqlite(tempfile::tempdir().unwrap()),
            Kind::Postgres | Kind::Pgbouncer | Kind::Sql => {
                Self::Postgres(Database::create(&server_url().unwrap()).unwrap())
            }
        }
    }

    fn url(&self) -> String {
        match self {
            Self::Postgres(database) => database.url.clone(),
            Self::Sqlite(directory) => directory.path().join("tidemill.db").display().to_string(),
        }
    }

    async fn open(&self) -> Store {
        Store::open(&Options::new(self.url(), host_now)).await.unwrap()
    }

    /// Runs plain SQL, without any store.
    async fn script(&self, text: &str) {
        let text = AssertSqlSafe(text.to_owned());
        match self {
            Self::Postgres(database) => {
                let mut connection = PgConnection::connect(&database.url).await.unwrap();
                sqlx::raw_sql(text).execute(&mut connection).await.unwrap();
            }
            Self::Sqlite(_) => {
                let url = format!("sqlite://{}?mode=rwc", self.url());
                let mut connection = SqliteConnection::connect(&url).await.unwrap();
                sqlx::raw_sql(text).execute(&mut connection).await.unwrap();
                connection.close().await.unwrap();
            }
        }
    }

    /// Everything that exists, by its definition as far as the database tells it.
    async fn contents(&self) -> BTreeSet<String> {
        let names: Vec<String> = match self {
            Self::Postgres(database) => {
                let mut connection = PgConnection::connect(&database.url).await.unwrap();
                let text = "SELECT n.nspname || '.' || c.relname || ' ' || c.relkind::text FROM pg_class c \
                            JOIN pg_namespace n ON n.oid = c.relnamespace \
                            WHERE n.nspname !~ '^(pg_|information_schema)' \
                            UNION ALL SELECT 'schema ' || nspname FROM pg_namespace WHERE nspname !~ '^pg_' \
                            UNION ALL SELECT 'function ' || oid::regprocedure FROM pg_proc \
                            WHERE pronamespace::regnamespace::text !~ '^(pg_|information_schema)'";
                sqlx::query_scalar(text).fetch_all(&mut connection).await.unwrap()
            }
            Self::Sqlite(_) => {
                let mut connection =
                    SqliteConnection::connect(&format!("sqlite://{}", self.url())).await.unwrap();
                let text = "SELECT name || ' ' || coalesce(sql, '') FROM sqlite_master";
                sqlx::query_scalar(text).fetch_all(&mut connection).await.unwrap()
            }
        };
        names.into_iter().collect()
    }
}

#[tokio::test]
async fn migrating_twice_applies_nothing_the_second_time() {
    for kind in BOTH {
        let empty = Empty::new(kind);
        let store = empty.open().await;
        assert_eq!(store.presence().await.unwrap(), Presence::Absent);
        let missing = store.check_schema().await.unwrap_err();
        assert_eq!(missing.hint().as_deref(), Some("tidemill migrate"));
        let first = store.migrate(None).await.unwrap();
        let all = [
            "0001_kernel",
            "0002_queue",
            "0003_sync",
            "0004_access",
            "0005_lists",
            "0006_alerts",
            "0007_live",
            "0008_checks",
            "0009_graph",
            "0010_steps",
            "0011_homes",
            "0012_drain",
            "0013_names",
            "0014_marks",
            "0015_isolation",
        ];
        assert_eq!(first.applied, all);
        assert!(first.code_renewed);
        assert!(store.check_schema().await.is_ok());
        let before = empty.contents().await;
        let second = store.migrate(None).await.unwrap();
        assert_eq!(second, Migrated { applied: Vec::new(), code_renewed: false });
        assert_eq!(empty.contents().await, before);
    }
}

/// Eight processes start at once, as a deployment does: one of them migrates, the others wait and find it done.
#[tokio::test]
async fn of_eight_migrators_at_one_instant_one_migrates() {
    for kind in BOTH {
        let empty = Empty::new(kind);
        let mut stores = Vec::new();
        for _ in 0..8 {
            stores.push(empty.open().await);
        }
        let migrated = at_once(8, |number| {
            let store = stores[number].clone();
            async move { store.migrate(None).await }
        })
        .await;
        let migrated: Vec<Migrated> = migrated.into_iter().map(Result::unwrap).collect();
        assert_eq!(migrated.iter().filter(|one| !one.applied.is_empty()).count(), 1, "{kind:?}");
        assert_eq!(migrated.iter().filter(|one| one.code_renewed).count(), 1, "{kind:?}");
        for store in stores {
            assert!(store.check_schema().await.is_ok());
        }
    }
}

/// Functions and triggers are code: a binary with other texts makes them anew, and each exists once.
#[tokio::test]
async fn code_that_differs_is_made_anew() {
    for kind in BOTH {
        let empty = Empty::new(kind);
        let store = empty.open().await;
        store.migrate(None).await.unwrap();
        let before = empty.contents().await;
        let place = if kind == Kind::Sqlite { "" } else { "ops." };
        empty
            .script(&format!("UPDATE {place}tidemill_settings SET value = 'older' WHERE setting = 'code'"))
            .await;
        let again = store.migrate(None).await.unwrap();
        assert_eq!(again, Migrated { applied: Vec::new(), code_renewed: true });
        assert_eq!(empty.contents().await, before, "the same, and nothing twice");
    }
}

/// Runs that were queued before there were marks are listed by what they say of themselves, as those that come later.
#[tokio::test]
async fn runs_of_before_get_their_marks() {
    for kind in BOTH {
        let empty = Empty::new(kind);
        let store = empty.open().await;
        store.migrate(None).await.unwrap();
        store.create_project("shop", vec!["staging".to_owned()], None).await.unwrap();
        let request = |git_ref: &str| QueueRun {
            git_ref: Some(git_ref.to_owned()),
            git_sha: Some("abc".to_owned()),
            ..QueueRun::new("shop", "staging")
        };
        let before = store.queue_run(request("main"), new_run_id(at(0)), None).await.unwrap().run_id;
        let place = if kind == Kind::Sqlite { "" } else { "ops." };
        let drop_triggers = if kind == Kind::Sqlite {
            "DROP VIEW marks_of_runs; DROP TRIGGER run_marked_first; DROP TRIGGER run_marked; \
             DROP TRIGGER run_unmarked;"
        } else {
            "DROP TRIGGER run_marked ON ops.runs; DROP TRIGGER run_unmarked ON ops.runs; \
             ALTER TABLE ops.workers DROP COLUMN locked_runs;"
        };
        empty
            .script(&format!(
                "{drop_triggers} DROP TABLE {place}run_marks; \
                 CREATE INDEX runs_of_lane ON {place}runs (lane); CREATE INDEX runs_of_feed ON {place}runs (lane); \
                 CREATE INDEX runs_of_sha ON {place}runs (git_sha); CREATE INDEX runs_of_ref ON {place}runs (git_ref); \
                 DELETE FROM {place}tidemill_migrations WHERE version >= 14; \
                 ALTER TABLE {place}runs DROP COLUMN stalled_at; \
                 UPDATE {place}tidemill_settings SET value = 'older' WHERE setting = 'code'"
            ))
            .await;
        let again = store.migrate(None).await.unwrap();
        let applied = vec!["0014_marks".to_owned(), "0015_isolation".to_owned()];
        assert_eq!(again, Migrated { applied, code_renewed: true });
        let after = store.queue_run(request("maintenance"), new_run_id(at(1)), None).await.unwrap().run_id;
        let found = store
            .runs(RunFilter { ref_prefix: Some("main".to_owned()), limit: 10, ..RunFilter::default() })
            .await
            .unwrap();
        let found: Vec<_> = found.into_iter().map(|run| run.run_id).collect();
        assert_eq!(found, [after, before], "{kind:?}");
    }
}

/// `run_stalled` was the kind of alert for a lost worker. Alerts and deliveries of that kind become `run_lost`.
#[tokio::test]
async fn alerts_of_lost_workers_get_their_new_kind() {
    for kind in BOTH {
        let stage = Stage::open(kind).await;
        let (place, time, migration) = if kind == Kind::Sqlite {
            ("", "0", include_str!("../../store/migrations/sqlite/0015_isolation.sql"))
        } else {
            ("ops.", "now()", include_str!("../../store/migrations/postgres/0015_isolation.sql"))
        };
        let before = format!(
            "INSERT INTO {place}alerts (kind, subject, message, created_at) \
             VALUES ('run_stalled', 'run:run-1', 'lost', {time}); \
             INSERT INTO {place}deliveries \
                 (delivery_id, target, kind, grp, alert_id, alert, due_at, next_at, created_at) \
             VALUES ('{}', 'ops', 'run_stalled', 'shop', 1, \
                     '{{\"kind\": \"run_stalled\", \"times\": 2}}', {time}, {time}, {time})",
            uuid::Uuid::nil()
        );
        stage.plain.script(&before).await.unwrap();
        let updates =
            migration.split(';').filter_map(|part| part.find("UPDATE ").map(|start| &part[start..]));
        for update in updates {
            stage.plain.script(&update.replace("{ops}.", place)).await.unwrap();
        }
        let filter = AlertFilter { limit: 10, ..AlertFilter::default() };
        let alerts = stage.store.alerts(filter).await.unwrap();
        assert_eq!(
            alerts.iter().map(|alert| alert.kind).collect::<Vec<_>>(),
            [AlertKind::RunLost],
            "{kind:?}"
        );
        let text = if kind == Kind::Sqlite { "alert ->> '$.kind'" } else { "alert ->> 'kind'" };
        let count = format!(
            "SELECT count(*) FROM {{ops}}.deliveries WHERE kind = 'run_lost' AND {text} = 'run_lost'"
        );
        assert_eq!(stage.plain.number(&count).await.unwrap(), 1, "{kind:?}");
    }
}

/// Our users already have an `ops.runs`: it is shown how it differs, and left alone; another schema works.
#[tokio::test]
async fn a_foreign_table_of_our_name_is_refused_and_left_alone() {
    let empty = Empty::new(Kind::Postgres);
    empty
        .script(
            "CREATE SCHEMA ops; CREATE TABLE ops.runs (run_id uuid PRIMARY KEY, status text, state integer); \
             INSERT INTO ops.runs VALUES (gen_random_uuid(), 'succeeded', 3); CREATE TABLE ops.unrelated (n int);",
        )
        .await;
    let before = empty.contents().await;
    let store = empty.open().await;
    for refusal in [store.migrate(None).await.map(|_| ()), store.check_schema().await] {
        let error = refusal.unwrap_err();
        let Error::Foreign { schema, differences } = &error else { panic!("{error:?}") };
        assert_eq!(schema, "ops");
        assert_eq!(differences.len(), 1, "only the table that collides: {differences:?}");
        assert!(differences[0].starts_with("table runs lacks attempt, attention_at, "), "{differences:?}");
        assert!(differences[0].contains("has run_id as uuid instead of text"), "{differences:?}");
        let hint = error.hint().unwrap();
        assert!(hint.contains("--schema NAME"), "{hint}");
    }
    assert_eq!(empty.contents().await, before, "nothing was changed");

    let options = Options { schema: "tidemill_ops".to_owned(), ..Options::new(empty.url(), host_now) };
    let beside = Store::open(&options).await.unwrap();
    beside.migrate(None).await.unwrap();
    live_through(&beside).await;
    assert!(empty.contents().await.is_superset(&before));
}

/// The same for a SQLite file that belongs to something else.
#[tokio::test]
async fn a_foreign_file_is_refused_and_left_alone() {
    let empty = Empty::new(Kind::Sqlite);
    empty
        .script("CREATE TABLE runs (id INTEGER PRIMARY KEY, status TEXT); INSERT INTO runs VALUES (1, 'x');")
        .await;
    let before = empty.contents().await;
    let store = empty.open().await;
    let error = store.migrate(None).await.unwrap_err();
    let Error::Foreign { differences, .. } = &error else { panic!("{error:?}") };
    assert!(differences[0].starts_with("table runs lacks "), "{differences:?}");
    assert_eq!(empty.contents().await, before, "nothing was changed");
}

/// A run from queued to done.
async fn live_through(store: &Store) {
    store.create_project("shop", vec!["staging".to_owned()], None).await.unwrap();
    let queued = store.queue_run(request(), new_run_id(host_now()), None).await.unwrap();
    let claims = store.claim_runs(ClaimRuns::one("worker-001"), None).await.unwrap();
    assert_eq!(claims[0].run_id, queued.run_id);
    store.append_events(queued.run_id.clone(), vec![info("hello")], Holder::default(), None).await.unwrap();
    let end = tidemill_store::FinishRun {
        run_id: queued.run_id.clone(),
        status: tidemill_core::run::FinalStatus::Success,
        metadata: serde_json::json!({}),
        epoch: Some(1),
    };
    store.finish_runs(vec![end], None, None).await.unwrap();
    let run = store.run(queued.run_id).await.unwrap().unwrap();
    assert_eq!(run.status, RunState::Success);
    assert!(store.sweep(100, 20.0, None).await.unwrap().is_empty());
}

/// A newer release has changed the schema so that this binary cannot live with it: it says which one can.
#[tokio::test]
async fn f20_a_schema_that_excludes_this_binary_is_refused() {
    for kind in BOTH {
        let empty = Empty::new(kind);
        let store = empty.open().await;
        store.migrate(None).await.unwrap();
        let place = if kind == Kind::Sqlite { "" } else { "ops." };
        let newer = |oldest: &str| {
            format!(
                "INSERT INTO {place}tidemill_migrations (version, name, oldest_binary, applied_by, applied_at) \
                 VALUES ((SELECT max(version) + 1 FROM {place}tidemill_migrations), \
                         'later', '{oldest}', '9.9.9', 'now')"
            )
        };
        empty.script(&newer("0.1.0")).await;
        assert!(store.check_schema().await.is_ok(), "a newer schema that this binary can live with");
        assert!(store.migrate(None).await.is_ok());
        empty.script(&newer("99.0.0")).await;
        let before = empty.contents().await;
        for refusal in [store.check_schema().await, store.migrate(None).await.map(|_| ())] {
            let error = refusal.unwrap_err();
            assert!(matches!(&error, Error::Schema { .. }), "{error:?}");
            assert_eq!(error.hint().as_deref(), Some("install Tidemill 99.0.0 or newer"));
        }
        assert_eq!(empty.contents().await, before);
    }
}

/// A name that could be more than a name is no schema.
#[tokio::test]
async fn a_schema_has_a_plain_name() {
    let empty = Empty::new(Kind::Postgres);
    for name in ["", "Ops", "ops; drop", "öps", "1ops", &"o".repeat(60)] {
        let options = Options { schema: name.to_owned(), ..Options::new(empty.url(), host_now) };
        assert!(Store::open(&options).await.is_err(), "{name}");
    }
}

/// Columns that only one of the databases has, and why.
const ONLY_POSTGRES: [(&str, &str, &str); 7] = [
    ("pages", "stone_uuids", "names of stones that are UUIDs take less room as such; SQLite has no UUIDs"),
    (
        "runs",
        "last_seq",
        "tells a verb, which writes its event itself, from a plain statement; SQLite has row triggers",
    ),
    (
        "run_events",
        "env_id",
        "finds the runs of an environment by what never changes; SQLite enters a run anew in no such index",
    ),
    (
        "shelves",
        "scan_priority",
        "steps over row versions that a long transaction keeps alive; SQLite has none",
    ),
    ("shelves", "scan_ready_at", "as above"),
    ("shelves", "scan_until", "as above"),
    ("workers", "locked_runs", "names runs whose rows another transaction has; SQLite has no row locks"),
];

#[tokio::test]
async fn both_databases_have_the_same_tables_and_columns() {
    let postgres = Stage::open_bare(Kind::Postgres).await;
    let sqlite = Stage::open_bare(Kind::Sqlite).await;
    let mut ours = postgres.plain.columns().await.unwrap();
    let theirs = sqlite.plain.columns().await.unwrap();
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

/// The type that stands in SQLite for one of PostgreSQL, as codec.rs has it.
fn in_sqlite(kind: &str) -> &str {
    match kind {
        "text" | "jsonb" | "ARRAY" | "uuid" => "text",
        "timestamp with time zone" | "integer" | "bigint" | "boolean" => "integer",
        "bytea" => "blob",
        "numeric" => "real",
        other => other,
    }
}

/// Every word of core's enums is accepted by the table that keeps it, and a word that is none is not.
#[tokio::test]
async fn the_tables_accept_every_label_and_no_other() {
    for kind in BOTH {
        let stage = Stage::open(kind).await;
        let mut number = 0;
        let mut accepts = async |table: &str, fixed: &str, column: &str, label: &str| {
            number += 1;
            let fixed = fixed.replace('#', &number.to_string());
            let (names, values) = fixed.split_once(" = ").unwrap();
            let text =
                format!("INSERT INTO {{ops}}.{table} ({names}, {column}) VALUES ({values}, '{label}')");
            stage.plain.execute(&text).await.map_err(|bad| format!("{bad:?}"))
        };
        let moment = if kind == Kind::Sqlite { "0" } else { "now()" };
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
        let hash =
            if kind == Kind::Sqlite { "lower(hex(randomblob(32)))" } else { "encode(sha256('#'), 'hex')" };
        let token =
            format!("token_id, name, hash, created_at, created_by = {uuid}, '', {hash}, {moment}, ''");
        let audit = format!("at, who, action = {moment}, '', ''");
        let source = format!("flag, scope, since = 'paused', 's-#', {moment}");
        let (yes, no) = if kind == Kind::Sqlite { ("1", "0") } else { ("true", "false") };
        let order = |names: &str, values: &str| {
            format!(
                "task_id, job_id, run_id, number, agent_id, created_at, kind, active{names} = \
                 't-#', 'j-#', 'run-x', 1, {uuid}, {moment}, 'RUNJOB', {values}"
            )
        };
        let (task, over) = (order("", yes), order(", ended_at", &format!("{no}, {moment}")));
        for (table, fixed, column, labels) in [
            ("flags", source.as_str(), "source", labels(FlagSource::ALL, FlagSource::as_str)),
            ("tasks", &task, "stage", labels(TaskStage::ALL, TaskStage::as_str)),
            ("tasks", &over, "end_cause", labels(TaskEnd::ALL, TaskEnd::as_str)),
            ("runs", run, "lane", labels(Lane::ALL, Lane::as_str)),
            ("run_events", event, "level", labels(Level::ALL, Level::as_str)),
            ("run_events", kinds, "kind", labels(EventKind::ALL, EventKind::as_str)),
            ("runs", run, "gate", labels(Gate::ALL, Gate::as_str)),
            ("schedule_fires", &fire, "decision", labels(Decision::ALL, Decision::as_str)),
            ("flags", &flag, "flag", labels(FlagName::ALL, FlagName::as_str)),
            ("schedules", &missed, "missed", labels(Missed::ALL, Missed::as_str)),
            ("schedules", &overlap, "overlap", labels(Overlap::ALL, Overlap::as_str)),
            ("tokens", &token, "role", labels(Role::ALL, Role::as_str)),
            ("audit", &audit, "role", labels(Role::ALL, Role::as_str)),
        ] {
            for label in labels {
                assert_eq!(
                    accepts(table, fixed, column, label).await,
                    Ok(1),
                    "{kind:?}: {table}.{column} = {label}"
                );
            }
            assert!(accepts(table, fixed, column, "unheard-of").await.is_err(), "{kind:?}: {table}.{column}");
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

/// Every statement of the catalog runs on both databases: each public function once, on an empty and a filled one.
#[tokio::test]
async fn every_statement_runs_on_both_databases() {
    for kind in BOTH {
        let stage = Stage::open(kind).await;
        for filled in [false, true] {
            let run = if filled { fill(&stage).await } else { new_run_id(at(0)) };
            let store = &stage.store;
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
                before: Some(new_run_id(at(1_000))),
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
        assert!(stage.store.clear_flag(FlagName::Paused, "lane:ops".to_owned()).await.unwrap());
        stage.store.remove_schedule("nightly".to_owned()).await.unwrap();
    }
}

/// One of everything; the run that is claimed.
async fn fill(stage: &Stage) -> tidemill_core::RunId {
    let worker = stage.register("worker-001", at(0)).await;
    let run = stage.queue(request(), at(0)).await;
    stage.claim_registered("worker-001", worker, at(1)).await.unwrap();
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
    stage.store.set_flag(pause).await.unwrap();
    let engine = Engine::new(stage.store.clone(), Clock::fixed(at(0)), Patience::None);
    let schedule = NewSchedule {
        name: "nightly".to_owned(),
        cron: "* * * * *".to_owned(),
        time_zone: "UTC".to_owned(),
        request: request(),
        missed: Missed::Once,
        overlap: Overlap::Skip,
    };
    engine.put_schedule(schedule).await.unwrap();
    engine.pause_schedule("nightly", None).await.unwrap();
    engine.resume_schedule("nightly").await.unwrap();
    engine.clock().advance(chrono::TimeDelta::seconds(60));
    assert_eq!(engine.fire_due().await.unwrap().len(), 1);
    run
}
