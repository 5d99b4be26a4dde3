//! A table that is made anew keeps what is in it.

use super::{Books as _, MIGRATIONS, SQLITE_CODE};
use crate::Schema;
use sqlx::{Connection as _, SqliteConnection};

/// SQLite makes the table of events anew: what is in it stays, and so do its guards.
#[tokio::test]
async fn events_and_their_guards_outlive_the_migration_that_numbers_them() {
    let schema = Schema::sqlite();
    let mut conn = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    let live = MIGRATIONS.iter().position(|migration| migration.name == "live").unwrap();
    for migration in &MIGRATIONS[..live] {
        conn.script(schema.render(migration.sqlite)).await.unwrap();
    }
    // Today's triggers keep a table that came later.
    let marks = MIGRATIONS.iter().find(|migration| migration.name == "marks").unwrap();
    conn.script(schema.render(marks.sqlite)).await.unwrap();
    conn.script(schema.render(SQLITE_CODE[0])).await.unwrap();
    let run = "INSERT INTO projects (project_id, name) VALUES ('shop', 'shop');
        INSERT INTO environments (env_id, project_id, env_type) VALUES ('shop/dev', 'shop', 'dev');
        INSERT INTO runs (run_id, project_id, env_id) VALUES ('run-1', 'shop', 'shop/dev')";
    conn.script(run.to_owned()).await.unwrap();
    conn.script("BEGIN".to_owned()).await.unwrap();
    conn.script(schema.render(MIGRATIONS[live].sqlite)).await.unwrap();
    conn.script(schema.render(SQLITE_CODE[0])).await.unwrap();
    conn.script("COMMIT".to_owned()).await.unwrap();
    let append = "INSERT INTO run_events (run_id, seq, level, message) VALUES ('run-1', 2, 'info', 'more')";
    conn.script(append.to_owned()).await.unwrap();
    let rows: Vec<(i64, String)> = sqlx::query_as("SELECT xact, event_id FROM run_events ORDER BY xact")
        .fetch_all(&mut conn)
        .await
        .unwrap();
    assert_eq!(rows, [(1, "evt-1-1".to_owned()), (2, "evt-1-2".to_owned())]);
    assert!(conn.script("UPDATE run_events SET message = 'x'".to_owned()).await.is_err());
    assert!(conn.script("DELETE FROM run_events".to_owned()).await.is_err());
}
