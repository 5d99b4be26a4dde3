//! Hostile rows in the database: commands, console and workers still work.

use std::str::FromStr as _;

use rustix::process::Signal;
use tidemill_core::RunId;
use tidemill_core::run::RunState;
use tidemill_testkit::interface::PlainSql;
use tidemill_testkit::poison::{Poison, force};

use crate::fixture::{Fixture, Kind, TIMEOUT, local_token, on_both, wait_until};
use crate::process::Process;
use crate::server::{request, server};

on_both!(
    hostile_rows_are_shown_by_commands_and_console,
    hostile_rows_do_not_stop_a_worker,
    numbers_that_would_be_rounded_are_refused,
);

const RUNS: usize = 12;

fn plain(fixture: &Fixture) -> PlainSql {
    match fixture.kind {
        Kind::Postgres => PlainSql::Postgres(sqlx::PgPool::connect_lazy(&fixture.url).expect("a URL")),
        Kind::Sqlite => {
            let options = sqlx::sqlite::SqliteConnectOptions::from_str(&format!("sqlite://{}", fixture.url));
            PlainSql::Sqlite(sqlx::SqlitePool::connect_lazy_with(options.expect("a path")))
        }
    }
}

/// Writes hostile rows, and returns the ids of all runs and of the readable ones.
fn write_hostile_rows(fixture: &Fixture) -> (Vec<RunId>, Vec<RunId>) {
    let seed = std::env::var("TIDEMILL_POISON_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("seed {seed}; repeat with TIDEMILL_POISON_SEED={seed}");
    fixture.block(async {
        let plain = plain(fixture);
        let mut poison = Poison::new(seed, &plain);
        let mut rows: Vec<String> = (0..RUNS).map(|_| poison.run()).collect();
        rows.extend((0..RUNS).map(|_| poison.event()));
        rows.extend(poison.others());
        force(&plain, &rows).await.expect("the rows are written");
        let all = run_ids(&plain, "SELECT run_id FROM {ops}.runs").await;
        let readable = run_ids(&plain, "SELECT run_id FROM {ops}.runs WHERE lane <> 'weird'").await;
        plain.close().await;
        (all, readable)
    })
}

async fn run_ids(plain: &PlainSql, query: &str) -> Vec<RunId> {
    let ids = plain.texts(query).await.expect("ids are read");
    ids.into_iter().map(RunId::from_database).collect()
}

/// Ids of all runs in the database.
fn stored_runs(fixture: &Fixture) -> Vec<RunId> {
    fixture.block(async {
        let plain = plain(fixture);
        let ids = run_ids(&plain, "SELECT run_id FROM {ops}.runs").await;
        plain.close().await;
        ids
    })
}

fn hostile_rows_are_shown_by_commands_and_console(fixture: &Fixture) {
    let healthy = fixture.queue(&["--git-ref", "healthy"]);
    let (all, readable) = write_hostile_rows(fixture);
    let listed = fixture.ok(&["run", "list", "--limit", "500"]);
    assert!(listed.contains(healthy.as_str()) && !listed.contains('\u{1b}'), "{listed}");
    let listed = fixture.json(&["run", "list", "--limit", "500"]).to_string();
    assert!(readable.iter().all(|run| listed.contains(&serde_json::to_string(run).unwrap())), "{listed}");
    for run in &readable {
        for command in ["show", "events", "why"] {
            let message = fixture.ok(&["run", command, run.as_str()]);
            assert!(!message.contains('\u{1b}'), "{message}");
        }
    }
    let (mut process, address) = server(fixture, &["server"], &[]);
    for path in ["/", "/runs", "/runs?status=failed", "/schedules", "/v1/runs", "/metrics"] {
        let (status, body) = request(address, "GET", path, None);
        let body = body.to_string();
        assert_eq!(status, 200, "{path}: {body}");
        assert!(path.starts_with("/v1") || !body.contains("<script>alert(1)"), "{path}: {body}");
    }
    for run in &all {
        let is_readable = readable.contains(run);
        for path in [format!("/runs/{}", run.in_path()), format!("/v1/runs/{}", run.in_path())] {
            let (status, body) = request(address, "GET", &path, None);
            // The server deletes a run that ended long ago and whose id sorts as old.
            let is_shown = is_readable && (status != 404 || stored_runs(fixture).contains(run));
            assert_eq!(status == 200, is_shown, "{path}: {status} {body}");
            assert!(path.starts_with("/v1") || !body.to_string().contains("<script>alert(1)"), "{path}");
        }
    }
    stop(&mut process);
}

fn hostile_rows_do_not_stop_a_worker(fixture: &Fixture) {
    let healthy = fixture.queue(&["--git-ref", "healthy"]);
    write_hostile_rows(fixture);
    let mut worker = Process::start(fixture, "worker", &mut fixture.command(&["work", "--", "true"]));
    wait_until("the healthy run succeeds", || {
        (fixture.run(&healthy).status == RunState::Success).then_some(())
    });
    // The hostile runs that were claimed before did not end the worker.
    let again = fixture.queue(&["--git-ref", "healthy"]);
    wait_until("the next one succeeds", || (fixture.run(&again).status == RunState::Success).then_some(()));
    assert!(!worker.stderr().contains("panicked"), "{}", worker.stderr());
    stop(&mut worker);
}

fn numbers_that_would_be_rounded_are_refused(fixture: &Fixture) {
    let usual = ["run", "queue", "--project", "shop", "--env", "staging", "--metadata"];
    for (metadata, message) in [
        (r#"{"id": 123456789012345678901}"#, "123456789012345678901, which has more than 64 bits"),
        (r#"{"a": 1e400}"#, "1e400, which is outside the range of 64-bit numbers"),
        (&format!(r#"{{"a": {}{}}}"#, "[".repeat(64), "]".repeat(64)), "nested more than 64 levels deep"),
    ] {
        let ran = fixture.tidemill(&[usual.as_slice(), &[metadata]].concat());
        assert!(ran.code != Some(0) && ran.stderr.contains(message), "{ran:?}");
    }
    let (mut process, address) = server(fixture, &["server"], &[]);
    let body = r#"{"project": "shop", "env": "staging", "metadata": {"id": 123456789012345678901}}"#;
    let request = format!(
        "POST /v1/runs HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\nconnection: close\r\n\
         authorization: Bearer {}\r\ncontent-length: {}\r\n\r\n{body}",
        local_token(address).expect("the server wrote its token"),
        body.len()
    );
    let answer = exchange(address, &request);
    assert!(answer.starts_with("HTTP/1.1 422"), "{answer}");
    assert!(
        answer.contains("123456789012345678901, which has more than 64 bits; send it as a string"),
        "{answer}"
    );
    stop(&mut process);
}

fn stop(process: &mut Process) {
    process.signal(Signal::TERM);
    assert_eq!(process.wait_for_exit(TIMEOUT), Some(0), "{}", process.stderr());
}

fn exchange(address: std::net::SocketAddr, request: &str) -> String {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
