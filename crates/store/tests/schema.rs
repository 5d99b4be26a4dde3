//! The schema: created once by one of many processes, next to foreign tables, and equal on both databases.
#![expect(clippy::unwrap_used, reason = "a set-up that fails ends the test")]

#[path = "schema/contents.rs"]
mod contents;

use std::collections::BTreeSet;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection, SqliteConnection};
use tempfile::TempDir;
use tidemill_core::run::RunState;
use tidemill_engine::clock::host_now;
use tidemill_store::{ClaimRuns, Error, Holder, MigrationReport, Options, Presence, Store};
use tidemill_testkit::cluster::{Database, server_url};
use tidemill_testkit::conformance::at_once;
use tidemill_testkit::interface::{Kind, info, new_run_id, request};

const BOTH: [Kind; 2] = [Kind::Postgres, Kind::Sqlite];

/// An empty location for a schema.
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

    /// Runs plain SQL without a store.
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

    /// Returns the definitions of all objects.
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
async fn second_migration_applies_nothing() {
    for kind in BOTH {
        let empty = Empty::new(kind);
        let store = empty.open().await;
        assert_eq!(store.presence().await.unwrap(), Presence::Absent);
        let missing = store.check_schema().await.unwrap_err();
        assert_eq!(missing.hint().as_deref(), Some("tidemill migrate"));
        let first = store.migrate(None).await.unwrap();
        assert_eq!(first.applied, ["0001_schema"]);
        assert!(first.code_replaced);
        assert!(store.check_schema().await.is_ok());
        let before = empty.contents().await;
        let second = store.migrate(None).await.unwrap();
        assert_eq!(second, MigrationReport { applied: Vec::new(), code_replaced: false, newer_code: None });
        assert_eq!(empty.contents().await, before);
    }
}

/// Eight processes start at once, like in a deployment: one of them migrates, the others wait.
#[tokio::test]
async fn simultaneous_migrators_migrate_once() {
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
        let migrated: Vec<MigrationReport> = migrated.into_iter().map(Result::unwrap).collect();
        assert_eq!(migrated.iter().filter(|one| !one.applied.is_empty()).count(), 1, "{kind:?}");
        assert_eq!(migrated.iter().filter(|one| one.code_replaced).count(), 1, "{kind:?}");
        for store in stores {
            assert!(store.check_schema().await.is_ok());
        }
    }
}

/// A binary with other texts replaces functions and triggers, and each exists once.
#[tokio::test]
async fn changed_functions_are_replaced() {
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
        assert_eq!(again, MigrationReport { applied: Vec::new(), code_replaced: true, newer_code: None });
        assert_eq!(empty.contents().await, before, "the same, and nothing twice");
    }
}

/// Users may already have an `ops.runs`: the error shows the differences, the table is unchanged, and another schema
/// works.
#[tokio::test]
async fn foreign_table_with_our_name_is_refused_and_unchanged() {
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
    run_to_success(&beside).await;
    assert!(empty.contents().await.is_superset(&before));
}

#[tokio::test]
async fn foreign_file_is_refused_and_unchanged() {
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

/// Runs a run from queued to success.
async fn run_to_success(store: &Store) {
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

/// A newer release has changed the schema incompatibly: the error names the required version.
#[tokio::test]
async fn f20_schema_that_excludes_this_binary_is_refused() {
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

/// A name with special characters is refused.
#[tokio::test]
async fn schema_name_is_validated() {
    let empty = Empty::new(Kind::Postgres);
    for name in ["", "Ops", "ops; drop", "öps", "1ops", &"o".repeat(60)] {
        let options = Options { schema: name.to_owned(), ..Options::new(empty.url(), host_now) };
        assert!(Store::open(&options).await.is_err(), "{name}");
    }
}
