//! The throwaway servers themselves: start, restart, use and removal.

#![expect(clippy::unwrap_used, reason = "a set-up that fails ends the test")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sqlx::{Connection as _, PgConnection, Row as _};
use tidemill_testkit::cluster::{Cluster, Database, Durability, Options, Shutdown, server_url};
use tidemill_testkit::pgbouncer::{Pgbouncer, SERVER_CONNECTIONS_MAX};

/// Set for the process that `killed_owner_leaves_no_process_or_directory` kills.
const VICTIM: &str = "TIDEMILL_TESTKIT_VICTIM";

async fn setting(url: &str, name: &str) -> String {
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::query("SELECT current_setting($1)").bind(name).fetch_one(&mut connection).await.unwrap().get(0)
}

#[tokio::test]
async fn committed_rows_survive_every_restart_mode() {
    let mut cluster = Cluster::start(&Options::default()).unwrap();
    let url = cluster.url("postgres");
    let mut connection = PgConnection::connect(&url).await.unwrap();
    sqlx::query("CREATE TABLE kept (n integer)").execute(&mut connection).await.unwrap();
    sqlx::query("INSERT INTO kept VALUES (7)").execute(&mut connection).await.unwrap();
    for shutdown in [Shutdown::Fast, Shutdown::Immediate] {
        // Without synchronous_commit an immediate shutdown may lose the last commits, so this commit is made durable.
        let mut connection = PgConnection::connect(&url).await.unwrap();
        sqlx::query("CHECKPOINT").execute(&mut connection).await.unwrap();
        cluster.restart(shutdown).unwrap();
        assert!(sqlx::query("SELECT 1").execute(&mut connection).await.is_err(), "the session ends");
        let mut connection = PgConnection::connect(&url).await.unwrap();
        let n: i32 = sqlx::query("SELECT n FROM kept").fetch_one(&mut connection).await.unwrap().get(0);
        assert_eq!(n, 7);
    }
}

#[tokio::test]
async fn durable_cluster_applies_its_settings() {
    let options = Options {
        durability: Durability::Full,
        connections_max: 33,
        settings: vec![("shared_buffers".into(), "32MB".into())],
        ..Options::default()
    };
    let cluster = Cluster::start(&options).unwrap();
    let url = cluster.url("postgres");
    for (name, value) in [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("max_connections", "33"),
        ("shared_buffers", "32MB"),
        ("listen_addresses", "127.0.0.1"),
        ("server_encoding", "UTF8"),
    ] {
        assert_eq!(setting(&url, name).await, value, "{name}");
    }
}

#[tokio::test]
async fn dropped_database_ends_its_sessions_only() {
    let server = server_url().unwrap();
    let first = Database::create(&server).unwrap();
    let second = Database::create(&server).unwrap();
    assert_ne!(first.name, second.name);
    let mut session = PgConnection::connect(&first.url).await.unwrap();
    let (name, url) = (first.name.clone(), second.url.clone());
    drop(first);
    assert!(sqlx::query("SELECT 1").execute(&mut session).await.is_err());
    let mut other = PgConnection::connect(&url).await.unwrap();
    let count: i64 = sqlx::query("SELECT count(*) FROM pg_database WHERE datname = $1")
        .bind(&name)
        .fetch_one(&mut other)
        .await
        .unwrap()
        .get(0);
    assert_eq!(count, 0);
}

/// More clients than server connections take turns.
#[tokio::test]
async fn pgbouncer_clients_share_few_server_connections() {
    let server = server_url().unwrap();
    let database = Database::create(&server).unwrap();
    let pgbouncer = Pgbouncer::start(&server).unwrap();
    let url = pgbouncer.url(&database.name);
    let mut clients = Vec::new();
    for _ in 0..3 * SERVER_CONNECTIONS_MAX {
        clients.push(PgConnection::connect(&url).await.unwrap());
    }
    let mut backends = std::collections::BTreeSet::new();
    for client in &mut clients {
        let row = sqlx::query("SELECT pg_backend_pid()").persistent(false).fetch_one(client).await;
        backends.insert(row.unwrap().get::<i32, _>(0));
    }
    assert!(backends.len() <= SERVER_CONNECTIONS_MAX as usize, "{backends:?}");
}

/// The victim is this test in a process of its own: it starts a cluster and a pgbouncer, prints their addresses, and
/// waits to be killed.
#[test]
fn killed_owner_leaves_no_process_or_directory() {
    if std::env::var_os(VICTIM).is_some() {
        let cluster = Cluster::start(&Options::default()).unwrap();
        let pgbouncer = Pgbouncer::start(&cluster.url("postgres")).unwrap();
        println!("\nports {} {} {}", cluster.port(), pgbouncer.port(), cluster.log().display());
        std::thread::sleep(Duration::from_mins(10));
        return;
    }
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed_owner_leaves_no_process_or_directory", "--nocapture"])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let line = lines.find(|line| line.as_ref().unwrap().starts_with("ports ")).unwrap().unwrap();
    let words: Vec<&str> = line.split(' ').collect();
    let ports: Vec<u16> = words[1..3].iter().map(|port| port.parse().unwrap()).collect();
    let directory = Path::new(words[3]).parent().unwrap();
    let listens = |port| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
    assert!(ports.iter().all(|port| listens(*port)) && directory.exists());

    victim.kill().unwrap();
    victim.wait().unwrap();
    let deadline = Instant::now() + Duration::from_mins(1);
    while ports.iter().any(|port| listens(*port)) || directory.exists() {
        assert!(Instant::now() < deadline, "the servers at {ports:?} outlive their owner");
        std::thread::sleep(Duration::from_millis(20));
    }
}
