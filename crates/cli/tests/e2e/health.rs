//! `tidemill health` against real processes.

use std::net::TcpListener;

use rustix::process::Signal;

use crate::fixture::{Fixture, Kind, TIMEOUT};
use crate::metrics::role;
use crate::server::server;

/// Probes like an empty container: without a home directory and certificates, and with a proxy that does not exist.
fn bare_health(fixture: &Fixture, args: &[&str]) -> crate::process::Output {
    let mut command = fixture.command(&[&["health"], args].concat());
    command.env_clear().env("HTTP_PROXY", "http://127.0.0.1:1").env("http_proxy", "http://127.0.0.1:1");
    command.env("SSL_CERT_FILE", "/nonexistent").env("SSL_CERT_DIR", "/nonexistent");
    crate::process::run(&mut command)
}

#[test]
fn probe_of_a_server_follows_its_database() {
    let fixture = Fixture::new(Kind::Sqlite);
    let (mut process, address) = server(&fixture, &["server", "--listen", "127.0.0.1:0"], &[]);
    let url = format!("http://{address}");
    let ready = bare_health(&fixture, &["--server", &url]);
    assert_eq!(
        (ready.code, ready.stdout.trim()),
        (Some(0), &*format!("the server at {url} is ready")),
        "{ready:?}"
    );
    assert_eq!(fixture.json(&["health", "--server", &url])["status"], "ready");

    fixture.sql("UPDATE ops.tidemill_migrations SET oldest_binary = '99.0.0'").expect("the schema is newer");
    let broken = bare_health(&fixture, &["--server", &url]);
    assert_eq!(broken.code, Some(1), "{broken:?}");
    assert!(broken.stderr.contains("install Tidemill 99.0.0"), "the hint is printed: {broken:?}");
    let live = bare_health(&fixture, &["--live", "--server", &url]);
    assert_eq!(
        (live.code, live.stdout.trim()),
        (Some(0), &*format!("the process at {url} answers")),
        "{live:?}"
    );

    process.signal(Signal::TERM);
    assert_eq!(process.wait_for_exit(TIMEOUT), Some(0), "{}", process.stderr());
    let ended = bare_health(&fixture, &["--live", "--server", &url]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains(&format!("the server at {url} does not answer")), "{ended:?}");
}

#[test]
fn probe_of_a_role_needs_only_its_metrics() {
    let fixture = Fixture::new(Kind::Sqlite);
    let (mut sweeper, address) = role(&fixture, &["sweep", "--loop"], &[]);
    let healthy = bare_health(&fixture, &["--metrics", &address.to_string()]);
    assert_eq!(healthy.code, Some(0), "{healthy:?}");
    assert_eq!(healthy.stdout.trim(), format!("the process at http://{address} answers"));
    // The role serves its metrics before it handles SIGTERM, so its exit code may differ.
    sweeper.signal(Signal::KILL);
    sweeper.wait_for_exit(TIMEOUT);
    assert_eq!(bare_health(&fixture, &["--metrics", &address.to_string()]).code, Some(1));
}

#[test]
fn probe_of_a_silent_process_ends_at_its_timeout() {
    let fixture = Fixture::bare(Kind::Sqlite);
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!("http://{}", silent.local_addr().expect("it is bound"));
    let late = bare_health(&fixture, &["--timeout", "300ms", "--server", &url]);
    assert_eq!(late.code, Some(1), "{late:?}");
    assert!(late.stderr.contains("does not answer"), "{late:?}");
}

#[test]
fn manual_has_a_page_for_each_command() {
    let fixture = Fixture::bare(Kind::Sqlite);
    fixture.ok(&["man", "pages/man1"]);
    let page = |name: &str| {
        let text = std::fs::read_to_string(fixture.path("pages/man1").join(name));
        text.unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    assert!(page("tidemill.1").contains("tidemill\\-run"), "the page lists the commands");
    let queue = page("tidemill-run-queue.1");
    assert!(queue.contains("\\-\\-project") && queue.contains("\\-\\-database"), "{queue}");
    assert!(page("tidemill-health.1").contains("\\-\\-live"));
}
