//! Secrets are not stored or logged in plain text.

use std::io::Write;
use std::sync::{Arc, Mutex};

use http::{Method, StatusCode};
use serde_json::json;
use tidemill_core::access::{Role, Secret};
use tidemill_testkit::interface::{Fixture, Kind};
use tracing_subscriber::fmt::MakeWriter;
use uuid::Uuid;

use crate::fixture::{AccessFixture, ask, get, post};
use crate::sessions::sign_in;

/// A writer that captures the log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("the log").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Returns the content of the database as text.
async fn everything(base: &Fixture) -> String {
    if base.kind == Kind::Sqlite {
        let files = [base.url.clone(), format!("{}-wal", base.url)];
        let read = files.iter().filter_map(|file| std::fs::read(file).ok());
        return read.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect();
    }
    let tables = "SELECT tablename::text FROM pg_tables WHERE schemaname = 'ops'";
    let mut text = String::new();
    for table in base.plain.texts(tables).await.expect("tables") {
        let rows = base.plain.texts(&format!("SELECT t::text FROM {{ops}}.{table} t")).await;
        text.push_str(&rows.expect("rows").join("\n"));
    }
    text
}

pub(crate) async fn secrets_are_absent_from_database_log_and_audit(fixture: &AccessFixture) {
    let log = Log::default();
    // With a single subscriber, tracing caches a callsite first reached by another test's thread as disabled. A second
    // subscriber makes it ask for every callsite.
    let beside = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::new());
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(log.clone()).finish();
    let guard = tracing::subscriber::set_default(subscriber);

    let made = fixture.post("/v1/tokens", &fixture.admin, &json!({"name": "ci", "role": "operator"})).await;
    let secret = made.json()["secret"].as_str().expect("a secret").to_owned();
    let signed = sign_in(fixture, &secret).await;
    assert_eq!(signed.status, StatusCode::CREATED);
    let cookie = signed.header("set-cookie").split(['=', ';']).nth(1).expect("a value").to_owned();
    let csrf = signed.json()["csrf"].as_str().expect("a csrf token").to_owned();
    let queue = post("/v1/runs", &json!({"project": "shop", "env": "staging"}));
    let queue = queue.header("cookie", &format!("tidemill_session={cookie}")).header("x-csrf-token", &csrf);
    assert_eq!(queue.at(&fixture.interface).await.status, StatusCode::CREATED);
    let (_, expired) = fixture.make(Role::Admin, None, Some(1)).await;
    fixture.wait(1);
    assert_eq!(fixture.get("/v1/info", expired.reveal()).await.code(), "token_expired");
    let (home, next_home, boot) = ("5".repeat(64), "6".repeat(64), Uuid::new_v4().to_string());
    let agent =
        json!({"boot": boot, "name": "press", "capacity": 1, "secret": home, "next_secret": next_home});
    let path = format!("/v1/agents/{}", Uuid::new_v4());
    let registered = ask(&Method::PUT, &path).body(&agent).token(&fixture.admin).at(&fixture.interface).await;
    assert_eq!(registered.status, StatusCode::OK, "{registered:?}");
    let guess = Secret::token([7; 32]);
    let refused = fixture.get("/v1/info", guess.reveal()).await;
    let listed = fixture.get("/v1/tokens", &fixture.admin).await;
    let record = fixture.get("/v1/audit", &fixture.admin).await;
    let shown =
        get("/v1/info").header("cookie", &format!("tidemill_session={cookie}")).at(&fixture.interface).await;
    drop((guard, beside));

    let logged = String::from_utf8(log.0.lock().expect("the log").clone()).expect("text");
    assert!(logged.contains("unknown token or session"), "the log was watched");
    assert!(record.body.contains("session.create") && record.body.contains("runs.create"), "{record:?}");
    let stored = everything(&fixture.base).await;
    assert!(stored.contains(&secret.parse::<Secret>().expect("a secret").hash()), "the database was read");
    let secrets =
        [&fixture.admin, &secret, &cookie, &csrf, expired.reveal(), guess.reveal(), &home, &next_home, &boot];
    for secret in secrets.map(|secret| secret.trim_start_matches("tms_").trim_start_matches("tm_").to_owned())
    {
        for (place, text) in [
            ("the database", &stored),
            ("the log", &logged),
            ("the list", &listed.body),
            ("the record", &record.body),
            ("a refusal", &refused.body),
            ("an answer", &shown.body),
        ] {
            assert!(!text.contains(&secret), "a secret is in {place}");
        }
    }
}

/// On PostgreSQL, the database roles see only what they need.
#[tokio::test]
async fn reader_role_sees_no_hashes_and_worker_role_no_access_tables() {
    let base = Fixture::open(Kind::Sql).await;
    let prefix = "SELECT value FROM {ops}.tidemill_settings WHERE setting = 'roles'";
    let prefix = base.plain.texts(prefix).await.expect("the roles")[0].clone();
    let may = async |role: &str, table: &str, column: &str| {
        let text = format!(
            "SELECT CAST(has_column_privilege('{prefix}_{role}', 'ops.{table}', '{column}', 'SELECT') AS text)"
        );
        base.plain.texts(&text).await.expect("an answer")[0] == "true"
    };
    for (table, column, reader) in [
        ("tokens", "hash", false),
        ("tokens", "name", true),
        ("tokens", "last_used_at", true),
        ("sessions", "hash", false),
        ("sessions", "token_id", false),
        ("agents", "secret_hash", false),
        ("agents", "name", true),
        ("audit", "action", true),
        ("runs", "status", true),
    ] {
        assert_eq!(may("reader", table, column).await, reader, "reader: {table}.{column}");
        assert!(!may("worker", table, column).await, "worker: {table}.{column}");
    }
    base.close().await;
}
