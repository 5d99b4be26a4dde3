//! What every role says of itself to Prometheus, as a process of its own.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::Signal;
use tidemill_core::run::RunState;

use crate::feed::supplier;
use crate::process::Process;
use crate::server::{receive, send};
use crate::stage::{PATIENCE, Stage, on_both, until, until_within};

on_both! { every_role_says_what_it_counts, doctor_shows_a_failing_loop_of_a_server }

/// A role that goes on, and where it says what it counts.
pub(crate) fn role(stage: &Stage, words: &[&str], rest: &[&str]) -> (Process, SocketAddr) {
    let listen = ["--metrics-listen", "127.0.0.1:0"];
    let name = words.concat();
    let process = Process::start(stage, &name, &mut stage.command(&[words, &listen, rest].concat()));
    let address = until("the role says where its metrics are", || {
        let said = process.said();
        let (_, rest) = said.split_once("metrics are at http://")?;
        rest.split_once("/metrics")?.0.parse().ok()
    });
    (process, address)
}

/// The lines of a metric, with what they count.
fn figures(address: SocketAddr, metric: &str) -> Vec<(String, f64)> {
    let (status, text) = receive(send(address, "GET", "/metrics", None));
    assert_eq!(status, 200, "{text}");
    let lines = text.lines().filter(|line| line.starts_with(metric)).filter_map(|line| line.rsplit_once(' '));
    lines.map(|(name, count)| (name.to_owned(), count.parse().expect("a number"))).collect()
}

/// Waits until one line of a metric has reached a number.
pub(crate) fn until_counted(address: SocketAddr, line: &str, least: f64) {
    until_within(&format!("{line} is {least}"), PATIENCE, || {
        figures(address, line).iter().any(|(name, count)| name == line && *count >= least).then_some(())
    });
}

fn every_role_says_what_it_counts(stage: &Stage) {
    let (_supplier, endpoint) = supplier(stage, &["--stones", "300"]);
    let account = ["--username", "ann", "--password-env", "PATH", "--rate", "0"];
    stage.ok(&[&["feed", "add", "stones", "--endpoint", &endpoint], &account[..]].concat());
    let mut roles = vec![
        role(stage, &["scheduler"], &[]),
        role(stage, &["worker"], &[]),
        role(stage, &["consolidator"], &[]),
        role(stage, &["controller"], &[]),
        role(stage, &["sweep", "--loop"], &[]),
        role(stage, &["work"], &["--", "true"]),
    ];
    for (_, address) in &roles {
        assert_eq!(figures(*address, "tidemill_build_info").len(), 1);
        assert_eq!(receive(send(*address, "GET", "/v1/runs", None)).0, 404, "nothing else is said there");
    }
    let (worker, consolidator, work) = (roles[1].1, roles[2].1, roles[5].1);
    stage.ok(&["feed", "sync", "stones", "--full"]);
    until_counted(worker, "tidemill_pages_total{feed=\"stones\"}", 1.0);
    until_counted(worker, "tidemill_message_hold_seconds_count{queue=\"work-items\"}", 1.0);
    until_counted(consolidator, "tidemill_consolidated_stones_total{feed=\"stones\"}", 1.0);
    let run = stage.queue(&[]);
    assert_eq!(stage.until_ended(&run).status, RunState::Success);
    until_counted(work, "tidemill_transitions_total{to=\"success\"}", 1.0);
    assert!(figures(consolidator, "tidemill_pages_total").is_empty(), "what others do is not counted here");
    for (process, _) in &mut roles {
        process.signal(Signal::TERM);
        assert_eq!(process.ended_within(PATIENCE + Duration::from_secs(1)), Some(0), "{}", process.said());
    }
}

fn doctor_shows_a_failing_loop_of_a_server(stage: &Stage) {
    let words = ["server", "--listen", "127.0.0.1:0"];
    let (mut server, address) = crate::server::server(stage, &words, &[]);
    let url = format!("http://{address}");
    let doctor = || stage.tidemill(&["doctor", "--server", &url]);
    let well = doctor();
    assert_eq!(well.code, Some(0), "{well:?}");
    assert!(well.stdout.contains("none of them fails"), "{well:?}");
    stage.sql("ALTER TABLE ops.run_notices RENAME TO run_notices_away").expect("the table is renamed");
    let ill = until_within("the doctor sees the loop", PATIENCE, || {
        let ill = doctor();
        ill.stdout.contains("alert_notices has failed for").then_some(ill)
    });
    assert_eq!(ill.code, Some(3), "{ill:?}");
    assert!(ill.stdout.contains("run_notices"), "the whole error is shown: {ill:?}");
    until_counted(address, "tidemill_loops_failing{loop=\"alert_notices\"}", 1.0);
    let (status, told) = receive(send(address, "GET", "/readyz", None));
    assert_eq!(status, 200, "{told}");
    assert!(told.contains("\"degraded\""), "{told}");
    stage.sql("ALTER TABLE ops.run_notices_away RENAME TO run_notices").expect("the table is back");
    until_within("all is well again", PATIENCE, || (doctor().code == Some(0)).then_some(()));
    server.signal(Signal::TERM);
    assert_eq!(server.ended_within(PATIENCE), Some(0), "{}", server.said());
}
