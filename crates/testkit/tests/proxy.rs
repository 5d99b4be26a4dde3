//! The proxy in front of a real server, with sqlx as the client: each fault does what it says.

#![expect(clippy::unwrap_used, reason = "a set-up that fails ends the test")]

use std::time::Duration;

use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection as _, PgConnection, PgPool};
use tidemill_testkit::cluster::{Cluster, Database, Options, Shutdown, server_url};
use tidemill_testkit::proxy::{Fault, Proxy};
use tokio::time::timeout;

/// A table `t`, a connection past the proxy, and one through it.
struct Scene {
    proxy: Proxy,
    database: Database,
    direct: PgConnection,
    through: PgConnection,
}

impl Scene {
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

    /// The connection through the proxy is gone; a new one works.
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
async fn without_a_fault_everything_passes() {
    let mut scene = Scene::new().await;
    let url = scene.proxy.url(&scene.database.name);
    let pool = PgPoolOptions::new().max_connections(4).connect(&url).await.unwrap();
    let inserts = (0..50).map(|n| {
        let pool: PgPool = pool.clone();
        async move { sqlx::query("INSERT INTO t VALUES ($1)").bind(n).execute(&pool).await.unwrap() }
    });
    let tasks: Vec<_> = inserts.map(tokio::spawn).collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(scene.rows().await, 50);
    let long: String = sqlx::query_scalar("SELECT repeat('x', 3000000)").fetch_one(&pool).await.unwrap();
    assert_eq!(long.len(), 3_000_000);
}

#[tokio::test]
async fn a_server_that_restarts_behind_the_proxy_is_reached_again() {
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
async fn the_server_commits_and_the_client_does_not_hear_of_it() {
    let mut scene = Scene::new().await;
    let armed = scene.proxy.arm(Fault::cut_after_commit());
    let result = insert_in_transaction(&mut scene.through).await;
    assert!(is_io(&result), "{result:?}");
    assert_eq!(scene.rows().await, 1);
    assert_eq!(armed.fired(), 1);
    scene.reconnect().await;
    insert_in_transaction(&mut scene.through).await.unwrap();
    assert_eq!((scene.rows().await, armed.fired(), armed.seen()), (2, 1, 2));
}

#[tokio::test]
async fn the_nth_commit_can_be_chosen_and_more_than_one() {
    let mut scene = Scene::new().await;
    let armed = scene.proxy.arm(Fault::cut_after_commit().nth(3).times(2));
    let mut cuts = Vec::new();
    for turn in 1..=5 {
        if insert_in_transaction(&mut scene.through).await.is_err() {
            cuts.push(turn);
            scene.reconnect().await;
        }
    }
    assert_eq!((cuts, armed.fired()), (vec![3, 4], 2));
    assert_eq!(scene.rows().await, 5);
}

/// Twice, as the second time sqlx sends no text: it has prepared the statement before.
#[tokio::test]
async fn a_statement_in_autocommit_is_found_by_its_text_also_when_it_is_cached() {
    let mut scene = Scene::new().await;
    insert(&mut scene.through).await.unwrap();
    let armed = scene.proxy.arm(Fault::cut_after_commit_of("INSERT INTO t"));
    let result = insert(&mut scene.through).await;
    assert!(is_io(&result), "{result:?}");
    assert_eq!((scene.rows().await, armed.fired()), (2, 1));
    scene.reconnect().await;

    let armed = scene.proxy.arm(Fault::cut_after_commit_of("INSERT INTO t"));
    let result = insert(&mut scene.through).await;
    assert!(is_io(&result), "{result:?}");
    assert_eq!((scene.rows().await, armed.fired()), (3, 1));
}

/// A row of `RETURNING` is an answer too, and must not arrive.
#[tokio::test]
async fn no_row_of_the_lost_statement_reaches_the_client() {
    let mut scene = Scene::new().await;
    scene.proxy.arm(Fault::cut_after_commit_of("RETURNING n"));
    let row: Result<i32, _> =
        sqlx::query_scalar("INSERT INTO t VALUES (5) RETURNING n").fetch_one(&mut scene.through).await;
    assert!(matches!(row, Err(sqlx::Error::Io(_))), "{row:?}");
    assert_eq!(scene.rows().await, 1);
}

#[tokio::test]
async fn a_transaction_is_chosen_by_a_statement_inside_it() {
    let mut scene = Scene::new().await;
    let armed = scene.proxy.arm(Fault::cut_after_commit_of("INSERT INTO t"));
    let transaction = scene.through.begin().await.unwrap();
    transaction.commit().await.unwrap();
    let mut transaction = scene.through.begin().await.unwrap();
    insert(&mut transaction).await.unwrap();
    transaction.rollback().await.unwrap();
    assert_eq!((armed.seen(), scene.rows().await), (0, 0));

    let result = insert_in_transaction(&mut scene.through).await;
    assert!(is_io(&result), "{result:?}");
    assert_eq!((armed.fired(), scene.rows().await), (1, 1));
    scene.reconnect().await;
}

#[tokio::test]
async fn a_statement_that_fails_is_not_a_commit() {
    let mut scene = Scene::new().await;
    let armed = scene.proxy.arm(Fault::cut_after_commit_of("1 / "));
    let result = sqlx::query("SELECT 1 / $1").bind(0).execute(&mut scene.through).await;
    assert!(matches!(result, Err(sqlx::Error::Database(_))), "{result:?}");
    assert_eq!(armed.seen(), 0);
    insert(&mut scene.through).await.unwrap();
}

#[tokio::test]
async fn a_cut_before_keeps_the_statement_from_the_server() {
    let mut scene = Scene::new().await;
    insert(&mut scene.through).await.unwrap();
    let armed = scene.proxy.arm(Fault::cut_before("INSERT INTO t"));
    let result = insert_in_transaction(&mut scene.through).await;
    assert!(is_io(&result), "{result:?}");
    assert_eq!((armed.fired(), scene.rows().await), (1, 1));
    scene.reconnect().await;
    insert(&mut scene.through).await.unwrap();
    assert_eq!(scene.rows().await, 2);

    scene.proxy.arm(Fault::cut_before("COMMIT"));
    let result = insert_in_transaction(&mut scene.through).await;
    assert!(is_io(&result), "{result:?}");
    assert_eq!(scene.rows().await, 2);
}

#[tokio::test]
async fn a_stalled_statement_runs_when_it_is_released() {
    let mut scene = Scene::new().await;
    let armed = scene.proxy.arm(Fault::stall("INSERT INTO t"));
    let url = scene.proxy.url(&scene.database.name);
    let mut through = PgConnection::connect(&url).await.unwrap();
    let stalled = tokio::spawn(async move { insert(&mut through).await });
    armed.wait_fired(1).await;
    insert(&mut scene.through).await.unwrap();
    assert_eq!(scene.rows().await, 1, "only the other connection's row is there");
    armed.release();
    stalled.await.unwrap().unwrap();
    assert_eq!(scene.rows().await, 2);
}

#[tokio::test]
async fn a_stalled_statement_is_lost_with_its_client() {
    let mut scene = Scene::new().await;
    let armed = scene.proxy.arm(Fault::stall("INSERT INTO t"));
    let url = scene.proxy.url(&scene.database.name);
    let mut through = PgConnection::connect(&url).await.unwrap();
    assert!(timeout(Duration::from_millis(200), insert(&mut through)).await.is_err());
    assert_eq!(armed.fired(), 1);
    drop(through);
    // The server closes the session once the proxy has; then a late release has nothing to send.
    let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                  AND backend_type = 'client backend' AND pid <> pg_backend_pid()";
    while sqlx::query_scalar::<_, i64>(others).fetch_one(&mut scene.direct).await.unwrap() > 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    armed.release();
    assert_eq!(scene.rows().await, 0);
}
