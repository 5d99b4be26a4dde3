//! The proxy in front of a real server, with sqlx as the client.

#![expect(clippy::unwrap_used, reason = "a set-up that fails ends the test")]

use std::time::Duration;

use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection as _, PgConnection, PgPool};
use tidemill_testkit::cluster::{Cluster, Database, Options, Shutdown, server_url};
use tidemill_testkit::proxy::{Fault, Proxy};
use tokio::time::timeout;

/// A table `t`, a direct connection, and one through the proxy.
struct ProxyFixture {
    proxy: Proxy,
    database: Database,
    direct: PgConnection,
    through: PgConnection,
}

impl ProxyFixture {
    async fn new() -> Self {
        let server = server_url().unwrap();
        let database = Database::create(&server).unwrap();
        let mut direct = PgConnection::connect(&database.url).await.unwrap();
        sqlx::query("CREATE TABLE t (n integer)").execute(&mut direct).await.unwrap();
        let proxy = Proxy::in_front_of(&server).await.unwrap();
        let through = PgConnection::connect(&proxy.url(&database.name)).await.unwrap();
        Self { proxy, database, direct, through }
    }

    async fn rows(&mut self) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM t").fetch_one(&mut self.direct).await.unwrap()
    }

    /// Checks that the connection through the proxy is broken, and opens a new one.
    async fn reconnect(&mut self) {
        assert!(sqlx::query("SELECT 1").execute(&mut self.through).await.is_err(), "the client is cut");
        self.through = PgConnection::connect(&self.proxy.url(&self.database.name)).await.unwrap();
        sqlx::query("SELECT 1").execute(&mut self.through).await.unwrap();
    }
}

async fn insert(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO t VALUES ($1)").bind(1).execute(connection).await.map(drop)
}

async fn insert_in_transaction(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin().await?;
    insert(&mut transaction).await?;
    transaction.commit().await
}

fn is_io(result: &Result<(), sqlx::Error>) -> bool {
    matches!(result, Err(sqlx::Error::Io(_)))
}

#[tokio::test]
async fn proxy_without_fault_passes_everything() {
    let mut fixture = ProxyFixture::new().await;
    let url = fixture.proxy.url(&fixture.database.name);
    let pool = PgPoolOptions::new().max_connections(4).connect(&url).await.unwrap();
    let inserts = (0..50).map(|n| {
        let pool: PgPool = pool.clone();
        async move { sqlx::query("INSERT INTO t VALUES ($1)").bind(n).execute(&pool).await.unwrap() }
    });
    let tasks: Vec<_> = inserts.map(tokio::spawn).collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(fixture.rows().await, 50);
    let long: String = sqlx::query_scalar("SELECT repeat('x', 3000000)").fetch_one(&pool).await.unwrap();
    assert_eq!(long.len(), 3_000_000);
}

#[tokio::test]
async fn restarted_server_is_reached_through_the_proxy() {
    let mut cluster = Cluster::start(&Options::default()).unwrap();
    let proxy = Proxy::start(([127, 0, 0, 1], cluster.port()).into()).await.unwrap();
    let url = proxy.url("postgres");
    let mut before = PgConnection::connect(&url).await.unwrap();
    cluster.stop(Shutdown::Immediate).unwrap();
    assert!(before.ping().await.is_err());
    assert!(PgConnection::connect(&url).await.is_err());
    cluster.resume().unwrap();
    PgConnection::connect(&url).await.unwrap().ping().await.unwrap();
}

#[tokio::test]
async fn lost_commit_answer_leaves_the_commit_in_place() {
    let mut fixture = ProxyFixture::new().await;
    let armed = fixture.proxy.arm(Fault::cut_after_commit());
    let result = insert_in_transaction(&mut fixture.through).await;
    assert!(is_io(&result), "{result:?}");
    assert_eq!(fixture.rows().await, 1);
    assert_eq!(armed.fired(), 1);
    fixture.reconnect().await;
    insert_in_transaction(&mut fixture.through).await.unwrap();
    assert_eq!((fixture.rows().await, armed.fired(), armed.matches()), (2, 1, 2));
}

#[tokio::test]
async fn nth_commit_and_several_commits_can_be_chosen() {
    let mut fixture = ProxyFixture::new().await;
    let armed = fixture.proxy.arm(Fault::cut_after_commit().nth(3).times(2));
    let mut cuts = Vec::new();
    for turn in 1..=5 {
        if insert_in_transaction(&mut fixture.through).await.is_err() {
            cuts.push(turn);
            fixture.reconnect().await;
        }
    }
    assert_eq!((cuts, armed.fired()), (vec![3, 4], 2));
    assert_eq!(fixture.rows().await, 5);
}

/// Twice, because the second time sqlx sends no text: it has prepared the statement.
#[tokio::test]
async fn autocommit_statement_is_matched_by_text_when_cached() {
    let mut fixture = ProxyFixture::new().await;
    insert(&mut fixture.through).await.unwrap();
    let armed = fixture.proxy.arm(Fault::cut_after_commit_of("INSERT INTO t"));
    let result = insert(&mut fixture.through).await;
    assert!(is_io(&result), "{result:?}");
    assert_eq!((fixture.rows().await, armed.fired()), (2, 1));
    fixture.reconnect().await;

    let armed = fixture.proxy.arm(Fault::cut_after_commit_of("INSERT INTO t"));
    let result = insert(&mut fixture.through).await;
    assert!(is_io(&result), "{result:?}");
    assert_eq!((fixture.rows().await, armed.fired()), (3, 1));
}

/// A row of `RETURNING` is part of the answer, and must not arrive.
#[tokio::test]
async fn lost_statement_returns_no_rows_to_the_client() {
    let mut fixture = ProxyFixture::new().await;
    fixture.proxy.arm(Fault::cut_after_commit_of("RETURNING n"));
    let row: Result<i32, _> =
        sqlx::query_scalar("INSERT INTO t VALUES (5) RETURNING n").fetch_one(&mut fixture.through).await;
    assert!(matches!(row, Err(sqlx::Error::Io(_))), "{row:?}");
    assert_eq!(fixture.rows().await, 1);
}

#[tokio::test]
async fn transaction_is_matched_by_a_statement_inside_it() {
    let mut fixture = ProxyFixture::new().await;
    let armed = fixture.proxy.arm(Fault::cut_after_commit_of("INSERT INTO t"));
    let transaction = fixture.through.begin().await.unwrap();
    transaction.commit().await.unwrap();
    let mut transaction = fixture.through.begin().await.unwrap();
    insert(&mut transaction).await.unwrap();
    transaction.rollback().await.unwrap();
    assert_eq!((armed.matches(), fixture.rows().await), (0, 0));

    let result = insert_in_transaction(&mut fixture.through).await;
    assert!(is_io(&result), "{result:?}");
    assert_eq!((armed.fired(), fixture.rows().await), (1, 1));
    fixture.reconnect().await;
}

#[tokio::test]
async fn failed_statement_is_not_counted_as_a_commit() {
    let mut fixture = ProxyFixture::new().await;
    let armed = fixture.proxy.arm(Fault::cut_after_commit_of("1 / "));
    let result = sqlx::query("SELECT 1 / $1").bind(0).execute(&mut fixture.through).await;
    assert!(matches!(result, Err(sqlx::Error::Database(_))), "{result:?}");
    assert_eq!(armed.matches(), 0);
    insert(&mut fixture.through).await.unwrap();
}

#[tokio::test]
async fn cut_before_a_statement_hides_it_from_the_server() {
    let mut fixture = ProxyFixture::new().await;
    insert(&mut fixture.through).await.unwrap();
    let armed = fixture.proxy.arm(Fault::cut_before("INSERT INTO t"));
    let result = insert_in_transaction(&mut fixture.through).await;
    assert!(is_io(&result), "{result:?}");
    assert_eq!((armed.fired(), fixture.rows().await), (1, 1));
    fixture.reconnect().await;
    insert(&mut fixture.through).await.unwrap();
    assert_eq!(fixture.rows().await, 2);

    fixture.proxy.arm(Fault::cut_before("COMMIT"));
    let result = insert_in_transaction(&mut fixture.through).await;
    assert!(is_io(&result), "{result:?}");
    assert_eq!(fixture.rows().await, 2);
}

#[tokio::test]
async fn stalled_statement_runs_when_released() {
    let mut fixture = ProxyFixture::new().await;
    let armed = fixture.proxy.arm(Fault::stall("INSERT INTO t"));
    let url = fixture.proxy.url(&fixture.database.name);
    let mut through = PgConnection::connect(&url).await.unwrap();
    let stalled = tokio::spawn(async move { insert(&mut through).await });
    armed.wait_fired(1).await;
    insert(&mut fixture.through).await.unwrap();
    assert_eq!(fixture.rows().await, 1, "only the other connection's row is there");
    armed.release();
    stalled.await.unwrap().unwrap();
    assert_eq!(fixture.rows().await, 2);
}

#[tokio::test]
async fn stalled_statement_is_lost_with_its_client() {
    let mut fixture = ProxyFixture::new().await;
    let armed = fixture.proxy.arm(Fault::stall("INSERT INTO t"));
    let url = fixture.proxy.url(&fixture.database.name);
    let mut through = PgConnection::connect(&url).await.unwrap();
    assert!(timeout(Duration::from_millis(200), insert(&mut through)).await.is_err());
    assert_eq!(armed.fired(), 1);
    drop(through);
    // The server closes the session after the proxy has; then a late release has nothing to send.
    let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                  AND backend_type = 'client backend' AND pid <> pg_backend_pid()";
    while sqlx::query_scalar::<_, i64>(others).fetch_one(&mut fixture.direct).await.unwrap() > 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    armed.release();
    assert_eq!(fixture.rows().await, 0);
}
