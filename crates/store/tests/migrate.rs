//! Upgrades: migrations that follow the first one, and functions and grants of users, which stay.
#![expect(clippy::unwrap_used, reason = "a set-up that fails ends the test")]

#[path = "migrate/older.rs"]
mod older;
#[path = "migrate/plan.rs"]
mod plan;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection, SqliteConnection};
use tidemill_core::run::QueueRun;
use tidemill_core::{RunId, Timestamp};
use tidemill_engine::clock::host_now;
use tidemill_store::{Error, Migration, MigrationReport, Options, Presence, Store};
use tidemill_testkit::cluster::{Database, server_url, with_database};

/// A database with a connection of the user's own.
struct Upgrade {
    database: Database,
    store: Store,
    user: PgConnection,
}

impl Upgrade {
    async fn bare() -> Self {
        let database = Database::create(&server_url().unwrap()).unwrap();
        let store = Store::open(&Options::new(database.url.clone(), host_now)).await.unwrap();
        let user = PgConnection::connect(&database.url).await.unwrap();
        Self { database, store, user }
    }

    async fn migrated() -> Self {
        let upgrade = Self::bare().await;
        upgrade.store.migrate(None).await.unwrap();
        upgrade
    }

    async fn run(&mut self, text: impl Into<String>) {
        sqlx::raw_sql(AssertSqlSafe(text.into())).execute(&mut self.user).await.unwrap();
    }

    async fn read(&mut self, text: &str) -> Vec<String> {
        sqlx::query_scalar(AssertSqlSafe(text.to_owned())).fetch_all(&mut self.user).await.unwrap()
    }

    /// The functions of the schema, as text.
    async fn functions(&mut self) -> Vec<String> {
        let text = "SELECT oid::regprocedure::text FROM pg_proc \
                    WHERE pronamespace = 'ops'::regnamespace ORDER BY 1";
        self.read(text).await
    }

    /// Migrates as a binary with other functions does.
    async fn renew(&mut self) {
        self.run("UPDATE ops.tidemill_settings SET value = 'older' WHERE setting = 'code'").await;
        let renewed = self.store.migrate(None).await.unwrap();
        assert_eq!(renewed, MigrationReport { applied: Vec::new(), code_replaced: true, newer_code: None });
    }
}

/// A role that is gone with the test. Roles belong to the server, not to the database.
async fn with_role(upgrade: &mut Upgrade, name: &str) -> String {
    let role = format!("{}_{name}", upgrade.database.name);
    upgrade.run(format!("CREATE ROLE {role}")).await;
    role
}

#[tokio::test]
async fn user_functions_with_our_names_survive_an_upgrade() {
    let mut upgrade = Upgrade::migrated().await;
    let ours = upgrade.functions().await;
    let owner = with_role(&mut upgrade, "owner").await;
    for signature in ["wake(a text)", "backoff(a numeric)", "queue_run(a bytea)"] {
        upgrade.run(format!("CREATE FUNCTION ops.{signature} RETURNS int LANGUAGE sql RETURN 7")).await;
    }
    upgrade.run("CREATE PROCEDURE ops.tidy() LANGUAGE sql AS 'SELECT 1'").await;
    upgrade.run(format!("ALTER FUNCTION ops.wake(text) OWNER TO {owner}")).await;
    upgrade.renew().await;
    let mut expected = ours;
    expected.extend(
        ["ops.backoff(numeric)", "ops.queue_run(bytea)", "ops.tidy()", "ops.wake(text)"].map(str::to_owned),
    );
    expected.sort();
    let mut found = upgrade.functions().await;
    found.sort();
    assert_eq!(found, expected);
    let prefix = format!("{}_r", upgrade.database.name);
    upgrade.store.create_roles(&prefix).await.unwrap();
    let rights = "SELECT p.oid::regprocedure || ' ' || p.proowner::regrole || ' ' \
                  || has_function_privilege('public', p.oid, 'execute') FROM pg_proc p \
                  WHERE p.oid = 'ops.wake(text)'::regprocedure";
    assert_eq!(upgrade.read(rights).await, [format!("ops.wake(text) {owner} true")]);
    upgrade.run(format!("DROP OWNED BY {owner}; DROP ROLE {owner}")).await;
    drop_roles(&mut upgrade, &prefix).await;
}

async fn drop_roles(upgrade: &mut Upgrade, prefix: &str) {
    for role in ["owner", "worker", "reader"] {
        let text = format!("DROP OWNED BY {prefix}_{role} CASCADE; DROP ROLE {prefix}_{role}");
        upgrade.run(text).await;
    }
}

#[tokio::test]
async fn grants_on_our_functions_survive_an_upgrade() {
    let mut upgrade = Upgrade::migrated().await;
    let role = with_role(&mut upgrade, "guest").await;
    let name = |function: &str| format!("SELECT '{function}'::regproc::regprocedure::text");
    for (function, to) in [
        ("queue_run", format!("{role} WITH GRANT OPTION")),
        ("cancel_run", role.clone()),
        ("work_left", "PUBLIC".to_owned()),
        // A trigger function, which is replaced in place.
        ("guard_step", role.clone()),
    ] {
        let signature = upgrade.read(&name(&format!("ops.{function}"))).await.remove(0);
        upgrade.run(format!("GRANT EXECUTE ON FUNCTION {signature} TO {to}")).await;
    }
    let rights = "SELECT p.proname || ' ' || CASE a.grantee WHEN 0 THEN 'public' ELSE a.grantee::regrole::text END \
                  || ' ' || a.is_grantable FROM pg_proc p, aclexplode(p.proacl) a \
                  WHERE p.pronamespace = 'ops'::regnamespace AND a.grantee <> p.proowner ORDER BY 1";
    let before = upgrade.read(rights).await;
    assert_eq!(before.len(), 4, "{before:?}");
    upgrade.renew().await;
    assert_eq!(upgrade.read(rights).await, before);
    upgrade.run(format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

#[tokio::test]
async fn a_function_with_another_signature_before_is_replaced() {
    let mut upgrade = Upgrade::migrated().await;
    let before = upgrade.functions().await;
    // The build before had other parameters, and a function that is no longer there.
    let was = upgrade.read("SELECT 'ops.backoff'::regproc::regprocedure::text").await.remove(0);
    upgrade
        .run(format!(
            "DROP FUNCTION {was};
             CREATE FUNCTION ops.backoff(a text) RETURNS int LANGUAGE sql RETURN 7;
             CREATE FUNCTION ops.obsolete() RETURNS int LANGUAGE sql RETURN 7;
             UPDATE ops.tidemill_settings SET value = value || E'\\nbackoff(pg_catalog.text)\\nobsolete()'
              WHERE setting = 'functions'"
        ))
        .await;
    upgrade.renew().await;
    assert_eq!(upgrade.functions().await, before, "one overload of each");
}

#[tokio::test]
async fn a_user_function_with_our_signature_is_refused_and_left_alone() {
    for (function, body) in [
        ("wake()", "RETURNS void LANGUAGE sql AS ''"),
        ("guard_step()", "RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"),
    ] {
        let mut upgrade = Upgrade::bare().await;
        upgrade.run(format!("CREATE SCHEMA ops; CREATE FUNCTION ops.{function} {body}")).await;
        let source = "SELECT oid || ' ' || xmin || ' ' || prosrc FROM pg_proc \
                      WHERE pronamespace = 'ops'::regnamespace";
        let before = upgrade.read(source).await;
        let error = upgrade.store.migrate(None).await.unwrap_err();
        let name = function.trim_end_matches("()");
        assert!(error.to_string().contains(name), "{error}");
        assert!(error.to_string().contains("did not create"), "{error}");
        assert!(error.hint().unwrap().contains("--schema"), "{error:?}");
        assert_eq!(upgrade.read(source).await, before, "{function}");
    }
}

#[tokio::test]
async fn a_database_without_utf8_is_refused_with_a_sentence() {
    let server = server_url().unwrap();
    for encoding in ["LATIN1", "SQL_ASCII"] {
        // Its drop removes the database that takes its place.
        let database = Database::create(&server).unwrap();
        let mut maintenance =
            PgConnection::connect(&with_database(&server, "postgres").unwrap()).await.unwrap();
        let text = format!(
            "DROP DATABASE {0}; CREATE DATABASE {0} ENCODING '{encoding}' TEMPLATE template0 \
             LC_COLLATE 'C' LC_CTYPE 'C'",
            database.name
        );
        for statement in text.split("; ") {
            sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut maintenance).await.unwrap();
        }
        let store = Store::open(&Options::new(database.url.clone(), host_now)).await.unwrap();
        let sentence = format!("the database has the encoding {encoding}, and Tidemill needs UTF8");
        for error in [store.migrate(None).await.unwrap_err(), store.check_schema().await.unwrap_err()] {
            assert_eq!(error.to_string(), sentence);
            assert!(error.hint().unwrap().contains("--encoding UTF8"), "{error:?}");
        }
    }
}

#[tokio::test]
async fn readers_see_the_tables_of_syncs() {
    for sync_schema in ["public", "feeds"] {
        let mut upgrade = Upgrade::bare().await;
        let options = Options {
            sync_schema: sync_schema.to_owned(),
            ..Options::new(upgrade.database.url.clone(), host_now)
        };
        upgrade.store = Store::open(&options).await.unwrap();
        upgrade.run("CREATE TABLE public.secrets (a text)").await;
        upgrade.store.migrate(None).await.unwrap();
        let prefix = format!("{}_r", upgrade.database.name);
        upgrade.store.create_roles(&prefix).await.unwrap();
        upgrade.run(format!("SET ROLE {prefix}_reader")).await;
        for table in [
            "run_metadata",
            "worker_runs",
            "partition_progress",
            "raw_diamonds_nivoda",
            "diamonds",
            "pricing_rules",
        ] {
            upgrade.run(format!("SELECT FROM {sync_schema}.{table}")).await;
        }
        let denied = sqlx::raw_sql("SELECT FROM public.secrets").execute(&mut upgrade.user).await;
        assert!(denied.is_err(), "a table that is not ours");
        upgrade.run("RESET ROLE").await;
        drop_roles(&mut upgrade, &prefix).await;
    }
}

/// An empty database of either kind, with plain SQL on it.
enum Place {
    Postgres(Database),
    Sqlite(tempfile::TempDir),
}

impl Place {
    fn both() -> [Self; 2] {
        let postgres = Database::create(&server_url().unwrap()).unwrap();
        [Self::Postgres(postgres), Self::Sqlite(tempfile::tempdir().unwrap())]
    }

    fn url(&self) -> String {
        match self {
            Self::Postgres(database) => database.url.clone(),
            Self::Sqlite(directory) => format!("sqlite://{}", directory.path().join("tidemill.db").display()),
        }
    }

    async fn open(&self) -> Store {
        Store::open(&Options::new(self.url(), host_now)).await.unwrap()
    }

    /// Runs plain SQL, in which `{ops}` names the schema.
    async fn run(&self, text: &str) -> Result<(), sqlx::Error> {
        match self {
            Self::Postgres(_) => {
                let text = AssertSqlSafe(text.replace("{ops}", "ops"));
                let mut conn = PgConnection::connect(&self.url()).await?;
                sqlx::raw_sql(text).execute(&mut conn).await.map(|_| ())
            }
            Self::Sqlite(_) => {
                let text = AssertSqlSafe(text.replace("{ops}.", ""));
                let mut conn = SqliteConnection::connect(&self.url()).await?;
                sqlx::raw_sql(text).execute(&mut conn).await?;
                conn.close().await
            }
        }
    }

    /// The texts that a query returns.
    async fn read(&self, text: &str) -> Vec<String> {
        match self {
            Self::Postgres(_) => {
                let text = AssertSqlSafe(text.replace("{ops}", "ops"));
                let mut conn = PgConnection::connect(&self.url()).await.unwrap();
                sqlx::query_scalar(text).fetch_all(&mut conn).await.unwrap()
            }
            Self::Sqlite(_) => {
                let text = AssertSqlSafe(text.replace("{ops}.", ""));
                let mut conn = SqliteConnection::connect(&self.url()).await.unwrap();
                sqlx::query_scalar(text).fetch_all(&mut conn).await.unwrap()
            }
        }
    }
}

async fn queue(store: &Store, sha: &str) -> RunId {
    let request = QueueRun { git_sha: Some(sha.to_owned()), ..QueueRun::new("shop", "staging") };
    let now: Timestamp = host_now();
    store.queue_run(request, RunId::new(now, uuid::Uuid::new_v4()), None).await.unwrap().run_id
}

/// A second migration after those of this binary.
fn with_second(postgres: &'static str, sqlite: &'static str) -> &'static [Migration] {
    let second = Migration { version: 2, name: "second", oldest_binary: "0.1.0", postgres, sqlite };
    Box::leak(Store::migrations().iter().copied().chain([second]).collect())
}

#[tokio::test]
async fn second_migration_backfills_rows_that_exist() {
    let postgres = "CREATE TABLE {ops}.shas (run_id text COLLATE \"C\" PRIMARY KEY, sha text);
        INSERT INTO {ops}.shas (run_id, sha) SELECT run_id, git_sha FROM {ops}.runs;
        ALTER TABLE {ops}.runs ADD COLUMN copied boolean NOT NULL DEFAULT false";
    let sqlite = "CREATE TABLE shas (run_id TEXT PRIMARY KEY, sha TEXT);
        INSERT INTO shas (run_id, sha) SELECT run_id, git_sha FROM runs;
        ALTER TABLE runs ADD COLUMN copied INTEGER NOT NULL DEFAULT 0";
    for place in Place::both() {
        let store = place.open().await;
        store.migrate(None).await.unwrap();
        store.create_project("shop", vec!["staging".to_owned()], None).await.unwrap();
        let before = queue(&store, "abc").await;
        let migrations = with_second(postgres, sqlite);
        let migrated = store.migrate_with(migrations, None).await.unwrap();
        assert_eq!(
            migrated,
            MigrationReport {
                applied: vec!["0002_second".to_owned()],
                code_replaced: false,
                newer_code: None
            }
        );
        assert_eq!(
            place.read("SELECT run_id || ' ' || sha FROM {ops}.shas").await,
            [format!("{before} abc")]
        );
        let again = store.migrate_with(migrations, None).await.unwrap();
        assert_eq!(again, MigrationReport { applied: Vec::new(), code_replaced: false, newer_code: None });
        // A binary that does not know the second migration can work with it, and applies nothing.
        assert!(store.check_schema().await.is_ok());
        assert_eq!(store.migrate(None).await.unwrap().applied, Vec::<String>::new());
        queue(&store, "def").await;
    }
}

#[tokio::test]
async fn migration_that_fails_changes_nothing() {
    let text = "CREATE TABLE {ops}.half (a integer); INSERT INTO {ops}.no_such_table VALUES (1)";
    for place in Place::both() {
        let store = place.open().await;
        store.migrate(None).await.unwrap();
        store.migrate_with(with_second(text, text), None).await.unwrap_err();
        let versions = "SELECT CAST(version AS text) FROM {ops}.tidemill_migrations";
        assert_eq!(place.read(versions).await, ["1"]);
        assert!(place.run("SELECT * FROM {ops}.half").await.is_err(), "the first statement was rolled back");
    }
}

/// SQLite changes a table by creating it again, which drops its triggers: `migrate` creates them again.
#[tokio::test]
async fn rebuilt_sqlite_table_keeps_its_rows_and_triggers() {
    let rebuild = "PRAGMA legacy_alter_table = ON;
        CREATE TABLE run_events_rebuilt (
            xact INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, seq INTEGER NOT NULL,
            event_id TEXT NOT NULL GENERATED ALWAYS AS ('evt-' || substr(run_id, 5) || '-' || seq) VIRTUAL,
            kind TEXT NOT NULL DEFAULT 'log', level TEXT NOT NULL, message TEXT NOT NULL,
            payload TEXT NOT NULL DEFAULT '{}', event_key TEXT, same_as TEXT,
            actor TEXT NOT NULL DEFAULT 'local', created_at INTEGER NOT NULL DEFAULT 0, UNIQUE (run_id, seq)) STRICT;
        INSERT INTO run_events_rebuilt (run_id, seq, kind, level, message, payload, created_at)
        SELECT run_id, seq, kind, level, message, payload, created_at FROM run_events ORDER BY run_id, seq;
        DROP TABLE run_events;
        ALTER TABLE run_events_rebuilt RENAME TO run_events;
        PRAGMA legacy_alter_table = OFF";
    let [_, place] = Place::both();
    let store = place.open().await;
    store.migrate(None).await.unwrap();
    store.create_project("shop", vec!["staging".to_owned()], None).await.unwrap();
    let run = queue(&store, "abc").await;
    store.migrate_with(with_second("SELECT 1", rebuild), None).await.unwrap();
    place
        .run(&format!(
            "INSERT INTO run_events (run_id, seq, level, message) VALUES ('{run}', 2, 'info', 'more')"
        ))
        .await
        .unwrap();
    let suffix = run.as_str().trim_start_matches("run-");
    let events = place.read("SELECT xact || ' ' || event_id FROM run_events ORDER BY xact").await;
    assert_eq!(events, [format!("1 evt-{suffix}-1"), format!("2 evt-{suffix}-2")]);
    assert!(place.run("UPDATE run_events SET message = 'x'").await.is_err());
    assert!(place.run("DELETE FROM run_events").await.is_err());
}

/// Builds before the first release had other migrations. Their databases are refused, and stay as they are.
#[tokio::test]
async fn database_of_an_unreleased_build_is_refused_with_a_hint() {
    for place in Place::both() {
        for change in [
            "UPDATE {ops}.tidemill_migrations SET name = 'kernel' WHERE version = 1",
            "UPDATE {ops}.tidemill_settings SET value = 'other' WHERE setting = 'migration_1'",
            "DELETE FROM {ops}.tidemill_settings WHERE setting = 'migration_1'",
        ] {
            let store = place.open().await;
            if store.presence().await.unwrap() == Presence::Absent {
                store.migrate(None).await.unwrap();
            }
            place.run(change).await.unwrap();
            assert_eq!(store.presence().await.unwrap(), Presence::Unreleased, "{change}");
            for refusal in [store.check_schema().await, store.migrate(None).await.map(|_| ())] {
                let error = refusal.unwrap_err();
                assert!(matches!(error, Error::Schema { .. }), "{error:?}");
                assert!(error.to_string().contains("unreleased build of Tidemill"), "{error}");
                assert!(error.hint().unwrap().contains("create a new database"), "{error:?}");
            }
        }
    }
}
