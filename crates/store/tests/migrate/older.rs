//! Migrations by a binary that is older than the one that migrated the database before.

use super::{Place, with_second};
use tidemill_store::MigrationReport;

/// SQL that leaves the traces of a newer binary: its version, the digest of its functions, and one of them.
fn newer_code(place: &Place, version: &str) -> String {
    let function = match place {
        Place::Postgres(_) => {
            "CREATE OR REPLACE FUNCTION {ops}.newer() RETURNS int LANGUAGE sql RETURN 7;
             UPDATE {ops}.tidemill_settings SET value = value || E'\\nnewer()' WHERE setting = 'functions';"
        }
        Place::Sqlite(_) => {
            "DROP TRIGGER IF EXISTS job_record; DROP TRIGGER IF EXISTS newer;
             CREATE TRIGGER newer AFTER INSERT ON projects BEGIN SELECT 1; END;"
        }
    };
    format!(
        "{function} UPDATE {{ops}}.tidemill_settings SET value = 'newer' WHERE setting = 'code';
         UPDATE {{ops}}.tidemill_settings SET value = '{version}' WHERE setting = 'code_version'"
    )
}

/// All functions and triggers, with their texts.
async fn code(place: &Place) -> Vec<String> {
    let text = match place {
        Place::Postgres(_) => {
            "SELECT oid || ' ' || xmin || ' ' || prosrc FROM pg_proc WHERE pronamespace = 'ops'::regnamespace
             UNION ALL SELECT oid || ' ' || xmin || ' ' || tgname FROM pg_trigger ORDER BY 1"
        }
        Place::Sqlite(_) => "SELECT sql FROM sqlite_master WHERE type = 'trigger' ORDER BY name",
    };
    place.read(text).await
}

fn left_alone(version: &str) -> MigrationReport {
    MigrationReport { applied: Vec::new(), code_replaced: false, newer_code: Some(version.to_owned()) }
}

#[tokio::test]
async fn older_release_leaves_the_functions_of_a_newer_one() {
    for place in Place::both() {
        let store = place.open().await;
        store.migrate(None).await.unwrap();
        for version in ["99.0.0", "0.1.1-rc.1"] {
            place.run(&newer_code(&place, version)).await.unwrap();
            let before = code(&place).await;
            assert_eq!(store.migrate(None).await.unwrap(), left_alone(version));
            assert_eq!(code(&place).await, before);
        }
    }
}

/// Two builds of one version: the one with more migrations is newer.
#[tokio::test]
async fn build_without_the_newest_migration_leaves_the_functions() {
    let version = env!("CARGO_PKG_VERSION");
    for place in Place::both() {
        let store = place.open().await;
        let migrations = with_second("CREATE TABLE {ops}.more (a integer)", "CREATE TABLE more (a INTEGER)");
        store.migrate_with(migrations, None).await.unwrap();
        place.run(&newer_code(&place, version)).await.unwrap();
        let before = code(&place).await;
        assert_eq!(store.migrate(None).await.unwrap(), left_alone(version));
        assert_eq!(store.plan_migration().await.unwrap().newer_code.as_deref(), Some(version));
        assert_eq!(code(&place).await, before);
        // The newer build replaces them as before.
        let again = store.migrate_with(migrations, None).await.unwrap();
        assert!(again.code_replaced && again.newer_code.is_none(), "{again:?}");
        assert_ne!(code(&place).await, before);
    }
}

/// A pre-release is older than its release, whose functions replace those of the pre-release.
#[tokio::test]
async fn release_replaces_the_functions_of_its_pre_release() {
    let version = format!("{}-rc.3", env!("CARGO_PKG_VERSION"));
    for place in Place::both() {
        let store = place.open().await;
        store.migrate(None).await.unwrap();
        place.run(&newer_code(&place, &version)).await.unwrap();
        assert!(store.migrate(None).await.unwrap().code_replaced);
    }
}
