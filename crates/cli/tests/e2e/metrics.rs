//! Prometheus metrics of every role.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::Signal;
use tidemill_core::run::RunState;

use crate::feed::supplier;
use crate::fixture::{Fixture, TIMEOUT, on_both, wait_until, wait_until_within};
use crate::process::Process;
use crate::server::{receive, send};

on_both! { every_role_serves_its_metrics, doctor_shows_a_failing_loop_of_a_server }

/// Starts a role with a metrics endpoint, and returns its address.
pub(crate) fn role(fixture: &Fixture, words: &[&str], rest: &[&str]) -> (Process, SocketAddr) {
    let listen = ["--metrics-listen", "127.0.0.1:0"];
    let name = words.concat();
    let process = Process::start(fixture, &name, &mut fixture.command(&[words, &listen, rest].concat()));
    let address = wait_until("the role prints its metrics address", || {
        let printed = process.stderr();
        let (_, rest) = printed.split_once("metrics are at http://")?;
        rest.split_once("/metrics")?.0.parse().ok()
    });
    (process, address)
}

/// Lines of a metric, with their values.
fn read_metric(address: SocketAddr, metric: &str) -> Vec<(String, f64)> {
    let (status, text) = receive(send(address, "GET", "/metrics", None));
    assert_eq!(status, 200, "{text}");
    let lines = text.lines().filter(|line| line.starts_with(metric)).filter_map(|line| line.rsplit_once(' '));
    lines.map(|(name, count)| (name.to_owned(), count.parse().expect("a number"))).collect()
}

/// Waits until one line of a metric has at least this value.
pub(crate) fn wait_for_count(address: SocketAddr, line: &str, min: f64) {
    wait_until_within(&format!("{line} is {min}"), TIMEOUT, || {
        read_metric(address, line).iter().any(|(name, count)| name == line && *count >= min).then_some(())
    });
}

fn every_role_serves_its_metrics(fixture: &Fixture) {
    let (_supplier, endpoint) = supplier(fixture, &["--stones", "300"]);
    let account = ["--username", "ann", "--password-env", "PATH", "--rate", "0"];
    fixture.ok(&[&["feed", "add", "stones", "--endpoint", &endpoint], &account[..]].concat());
    let mut roles = vec![
        role(fixture, &["scheduler"], &[]),
        role(fixture, &["worker"], &[]),
        role(fixture, &["consolidator"], &[]),
        role(fixture, &["controller"], &[]),
        role(fixture, &["sweep", "--loop"], &[]),
        role(fixture, &["work"], &["--", "true"]),
    ];
    for (_, address) in &roles {
        assert_eq!(read_metric(*address, "tidemill_build_info").len(), 1);
        assert_eq!(
            receive(send(*address, "GET", "/v1/runs", None)).0,
            404,
            "the endpoint serves only metrics"
        );
    }
    let (worker, consolidator, work) = (roles[1].1, roles[2].1, roles[5].1);
    fixture.ok(&["feed", "sync", "stones", "--full"]);
    wait_for_count(worker, "tidemill_pages_total{feed=\"stones\"}", 1.0);
    wait_for_count(worker, "tidemill_message_hold_seconds_count{queue=\"work-items\"}", 1.0);
    wait_for_count(consolidator, "tidemill_consolidated_records_total{feed=\"stones\"}", 1.0);
    let run = fixture.queue(&[]);
    assert_eq!(fixture.wait_for_end(&run).status, RunState::Success);
    wait_for_count(work, "tidemill_transitions_total{to=\"success\"}", 1.0);
    assert!(
        read_metric(consolidator, "tidemill_pages_total").is_empty(),
        "work of other processes is not counted"
    );
    for (process, _) in &mut roles {
        process.signal(Signal::TERM);
        assert_eq!(process.wait_for_exit(TIMEOUT + Duration::from_secs(1)), Some(0), "{}", process.stderr());
    }
}

fn doctor_shows_a_failing_loop_of_a_server(fixture: &Fixture) {
    let words = ["server", "--listen", "127.0.0.1:0"];
    let (mut server, address) = crate::server::server(fixture, &words, &[]);
    let url = format!("http://{address}");
    let doctor = || fixture.tidemill(&["doctor", "--server", &url]);
    let healthy = doctor();
    assert_eq!(healthy.code, Some(0), "{healthy:?}");
    assert!(healthy.stdout.contains("none is failing"), "{healthy:?}");
    fixture.sql("ALTER TABLE ops.run_notices RENAME TO run_notices_moved").expect("the table is renamed");
    let failing = wait_until_within("doctor reports the loop", TIMEOUT, || {
        let failing = doctor();
        failing.stdout.contains("alert_notices has failed for").then_some(failing)
    });
    assert_eq!(failing.code, Some(3), "{failing:?}");
    assert!(failing.stdout.contains("run_notices"), "the full error is shown: {failing:?}");
    wait_for_count(address, "tidemill_loops_failing{loop=\"alert_notices\"}", 1.0);
    let (status, message) = receive(send(address, "GET", "/readyz", None));
    assert_eq!(status, 200, "{message}");
    assert!(message.contains("\"degraded\""), "{message}");
    fixture.sql("ALTER TABLE ops.run_notices_moved RENAME TO run_notices").expect("the table is back");
    wait_until_within("all checks pass again", TIMEOUT, || (doctor().code == Some(0)).then_some(()));
    server.signal(Signal::TERM);
    assert_eq!(server.wait_for_exit(TIMEOUT), Some(0), "{}", server.stderr());
}
