//! The plan of a migration says what the migration does then, and the locks that PostgreSQL reports for it.

use super::{Place, Upgrade, with_second};
use std::collections::BTreeMap;
use tidemill_store::{LockMode, Migration, Store};

/// Records the locks of a migration while it runs: PostgreSQL calls the function after each DDL statement.
const SPY: &str = "
CREATE SCHEMA spy;
CREATE TABLE spy.existing AS SELECT c.oid FROM pg_class c
 WHERE c.relnamespace IN ('ops'::regnamespace, 'public'::regnamespace) AND c.relkind IN ('r', 'v');
CREATE TABLE spy.seen (relation text, mode text, UNIQUE (relation, mode));
CREATE FUNCTION spy.look() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO spy.seen SELECT DISTINCT c.relnamespace::regnamespace || '.' || c.relname, mode
      FROM pg_locks JOIN pg_class c ON c.oid = relation
     WHERE pid = pg_backend_pid() AND locktype = 'relation' AND relation IN (SELECT oid FROM spy.existing)
       AND mode NOT IN ('AccessShareLock', 'RowShareLock') ON CONFLICT DO NOTHING;
END $$;
CREATE EVENT TRIGGER spy ON ddl_command_end EXECUTE FUNCTION spy.look()";

fn mode_of(name: &str) -> LockMode {
    match name {
        "RowExclusiveLock" => LockMode::RowExclusive,
        "ShareUpdateExclusiveLock" => LockMode::ShareUpdateExclusive,
        "ShareLock" => LockMode::Share,
        "ShareRowExclusiveLock" => LockMode::ShareRowExclusive,
        "AccessExclusiveLock" => LockMode::AccessExclusive,
        other => panic!("unexpected lock {other}"),
    }
}

/// Compares the planned locks with those that the migration takes.
async fn assert_locks_match(
    upgrade: &mut Upgrade,
    migrations: &'static [Migration],
) -> BTreeMap<String, LockMode> {
    upgrade.run(SPY).await;
    let plan = upgrade.store.plan_migration_with(migrations).await.unwrap();
    assert_eq!(plan.unknown, Vec::<String>::new());
    let report = upgrade.store.migrate_with(migrations, None).await.unwrap();
    assert_eq!((&plan.migrations, plan.replaces_code), (&report.applied, report.code_replaced));
    let mut taken: BTreeMap<String, LockMode> = BTreeMap::new();
    for row in upgrade.read("SELECT relation || ' ' || mode FROM spy.seen").await {
        let (relation, mode) = row.split_once(' ').unwrap();
        // Bookkeeping of migrate itself. Nothing else writes these tables.
        if relation.starts_with("ops.tidemill_") {
            continue;
        }
        let mode = mode_of(mode);
        let strongest = taken.entry(relation.to_owned()).or_insert(mode);
        *strongest = mode.max(*strongest);
    }
    let planned: BTreeMap<String, LockMode> =
        plan.locks.into_iter().map(|lock| (lock.table, lock.mode)).collect();
    assert_eq!(planned, taken);
    taken
}

#[tokio::test]
async fn planned_locks_of_a_migration_are_those_of_postgresql() {
    let mut upgrade = Upgrade::migrated().await;
    let migrations = with_second(
        "ALTER TABLE {ops}.runs ADD COLUMN extra text; -- A comment; with a semicolon.
         CREATE INDEX runs_extra ON {ops}.runs (extra);
         CREATE TABLE {ops}.notes (note_id text PRIMARY KEY, project_id text REFERENCES {ops}.projects (project_id));
         CREATE INDEX notes_of_project ON {ops}.notes (project_id);
         DROP INDEX {ops}.jobs_latest;
         CREATE INDEX schedules_more ON {ops}.schedules (cron);
         UPDATE {ops}.tasks SET agent_id = agent_id;
         COMMENT ON TABLE {ops}.flags IS 'Pauses; and more'",
        "SELECT 1",
    );
    let taken = assert_locks_match(&mut upgrade, migrations).await;
    assert_eq!(taken["ops.runs"], LockMode::AccessExclusive);
    assert_eq!(taken["ops.projects"], LockMode::ShareRowExclusive);
    assert_eq!(taken["ops.schedules"], LockMode::Share);
    assert_eq!(taken["ops.jobs"], LockMode::AccessExclusive);
    assert_eq!(taken["ops.tasks"], LockMode::RowExclusive);
    assert_eq!(taken["ops.flags"], LockMode::ShareUpdateExclusive);
    assert!(!taken.contains_key("ops.notes"), "a new table");
}

#[tokio::test]
async fn planned_locks_of_new_functions_are_those_of_postgresql() {
    let mut upgrade = Upgrade::migrated().await;
    // With roles, `migrate` grants their rights again.
    let prefix = format!("{}_r", upgrade.database.name);
    upgrade.store.create_roles(&prefix).await.unwrap();
    upgrade.run("UPDATE ops.tidemill_settings SET value = 'older' WHERE setting = 'code'").await;
    let taken = assert_locks_match(&mut upgrade, Store::migrations()).await;
    assert_eq!(taken["ops.runs"], LockMode::ShareRowExclusive);
    assert!(taken.values().all(|mode| *mode < LockMode::AccessExclusive), "readers do not wait: {taken:?}");
    super::drop_roles(&mut upgrade, &prefix).await;
}

#[tokio::test]
async fn plan_changes_nothing_and_names_the_changes() {
    let second = with_second("CREATE TABLE {ops}.more (a integer)", "CREATE TABLE more (a INTEGER)");
    for place in Place::both() {
        let store = place.open().await;
        let first = store.plan_migration().await.unwrap();
        assert_eq!((first.installed, first.migrations.as_slice()), (0, &["0001_schema".to_owned()][..]));
        assert!(first.replaces_code && first.locks.is_empty() && !first.is_empty());
        assert_eq!(store.presence().await.unwrap(), tidemill_store::Presence::Absent);
        store.migrate(None).await.unwrap();
        assert!(store.plan_migration().await.unwrap().is_empty());
        let plan = store.plan_migration_with(second).await.unwrap();
        assert_eq!((plan.installed, plan.newest, plan.migrations), (1, 2, vec!["0002_second".to_owned()]));
        assert!(!plan.replaces_code);
        assert!(place.run("SELECT * FROM {ops}.more").await.is_err(), "the plan created nothing");
    }
}
