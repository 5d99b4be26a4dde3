//! Tests of the writer: it survives failures of its transactions and of its connection.

use super::*;

fn clock() -> tidemill_core::Timestamp {
    tidemill_core::Timestamp::UNIX_EPOCH
}

async fn open(folder: &tempfile::TempDir) -> (Sqlite, TaskMonitor) {
    let monitor = TaskMonitor::default();
    let sqlite = Sqlite::open(&folder.path().join("t.db"), clock, &monitor).await.unwrap();
    run(&sqlite, "CREATE TABLE t (n INTEGER)").await.unwrap();
    (sqlite, monitor)
}

async fn run(sqlite: &Sqlite, text: &'static str) -> Result<(), Error> {
    sqlite
        .write(move |conn| {
            Box::pin(async move {
                let done = sqlx::query(text).execute(conn).await;
                done.map(|_| ()).map_err(|source| Error::database("test", source))
            })
        })
        .await
}

async fn count(sqlite: &Sqlite) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM t").fetch_one(sqlite.readers()).await.unwrap()
}

#[tokio::test]
async fn panicking_transaction_is_rolled_back_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (sqlite, monitor) = open(&folder).await;
    let panics = sqlite.write::<(), _>(|conn| {
        Box::pin(async move {
            sqlx::query("INSERT INTO t VALUES (1)").execute(&mut *conn).await.unwrap();
            panic!("attempt to add with overflow")
        })
    });
    let (one, bad, other) = tokio::join!(
        run(&sqlite, "INSERT INTO t VALUES (2)"),
        panics,
        run(&sqlite, "INSERT INTO t VALUES (3)")
    );
    one.unwrap();
    other.unwrap();
    let error = bad.unwrap_err();
    assert!(matches!(error, Error::Panicked { .. }), "{error:?}");
    assert_eq!(error.class(), Class::Permanent);
    run(&sqlite, "INSERT INTO t VALUES (4)").await.unwrap();
    assert_eq!(count(&sqlite).await, 3);
    assert_eq!(monitor.loops()[0].restarts, 0, "the writer itself did not fail");
}

#[tokio::test]
async fn missing_file_fails_the_writer_until_it_returns() {
    let folder = tempfile::tempdir().unwrap();
    let (sqlite, monitor) = open(&folder).await;
    // Moving the file away breaks the writer's connection.
    let away = folder.path().join("away.db");
    let options = SqliteConnectOptions::new().filename(sqlite.path()).read_only(true);
    let mut useless = SqliteConnection::connect_with(&options).await.unwrap();
    std::fs::rename(sqlite.path(), &away).unwrap();
    let swap = sqlite.write(move |conn| {
        Box::pin(async move {
            std::mem::swap(conn, &mut useless);
            Ok(())
        })
    });
    swap.await.unwrap_err();
    run(&sqlite, "INSERT INTO t VALUES (1)").await.unwrap_err();
    let error = run(&sqlite, "INSERT INTO t VALUES (1)").await.unwrap_err();
    assert_eq!(error.class(), Class::Transient, "callers may retry: {error:?}");
    let state = monitor.loops().remove(0);
    let failure = state.failure.expect("the writer fails");
    assert_eq!(failure.error.summary, "the database could not reopen the file");
    std::fs::rename(&away, sqlite.path()).unwrap();
    let mut tries = 0;
    while run(&sqlite, "INSERT INTO t VALUES (1)").await.is_err() {
        tries += 1;
        assert!(tries < 20, "the writer does not recover");
    }
    assert_eq!(monitor.loops()[0].failure, None);
}

/// The lock is held by a second connection of this process, so the message names this process.
#[tokio::test]
async fn busy_file_is_reported_with_the_process_that_holds_its_lock() {
    let folder = tempfile::tempdir().unwrap();
    let (sqlite, _monitor) = open(&folder).await;
    let options = SqliteConnectOptions::new().filename(sqlite.path());
    let mut other = SqliteConnection::connect_with(&options).await.unwrap();
    sqlx::query("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    // The wait for the lock passes at once.
    tokio::time::pause();
    let error = run(&sqlite, "INSERT INTO t VALUES (1)").await.unwrap_err();
    let pid = std::process::id();
    let text = crate::chain(&error);
    assert!(text.starts_with(&format!("process {pid} (")), "{text}");
    assert!(text.contains(&format!("holds the write lock of `{}`", sqlite.path().display())), "{text}");
    assert!(text.contains("the database could not begin to write") && text.contains("locked"), "{text}");
    assert_eq!(error.hint(), Some(format!("ps -o pid,stat,etime,args -p {pid}")));
    assert_eq!(error.class(), Class::Transient);
    assert_eq!(error.summary(), "the database could not begin to write");
    tokio::time::resume();
    sqlx::query("ROLLBACK").execute(&mut other).await.unwrap();
    run(&sqlite, "INSERT INTO t VALUES (2)").await.unwrap();
    assert_eq!(count(&sqlite).await, 1);
}
