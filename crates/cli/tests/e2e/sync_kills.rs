//! Sync roles that are killed at random times: the table still matches the supplier.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tidemill_core::run::RunState;

use crate::faults::SeededRandom;
use crate::fixture::{Fixture, Kind, TIMEOUT, on_both, wait_until, wait_until_within};
use crate::process::Process;

on_both! { sync_is_correct_while_its_processes_are_killed }

const STONES: &str = "3000";
/// Processes besides the supplier. One scheduler and one consolidator, so that each kill has an effect.
const ROLES: [&str; 4] = ["scheduler", "worker", "worker", "consolidator"];

fn start(fixture: &Fixture, index: usize) -> Process {
    let role = ROLES[index];
    Process::start(fixture, &format!("{role}-{index}"), &mut fixture.command(&[role]))
}

fn sync_is_correct_while_its_processes_are_killed(fixture: &Fixture) {
    let mut random = SeededRandom::from_environment();
    let started = Instant::now();
    let slow = r#"{"latency_ms": 60}"#;
    let offer = ["supplier", "--listen", "127.0.0.1:0", "--stones", STONES, "--behaviour", slow];
    let mut supplier = Process::start(fixture, "supplier", &mut fixture.command(&offer));
    let endpoint = wait_until("the supplier listens", || {
        supplier.stdout().split_once(" serves ").map(|(endpoint, _)| endpoint.trim().to_owned())
    });
    let account = ["--username", "ann", "--password-env", "PATH", "--rate", "0"];
    fixture.ok(&[&["feed", "add", "stones", "--endpoint", &endpoint], &account[..]].concat());
    let mut roles: Vec<Process> = (0..ROLES.len()).map(|index| start(fixture, index)).collect();
    fixture.ok(&["feed", "sync", "stones", "--full"]);
    let first = fixture.runs().first().expect("there is a run").run_id.clone();
    // A request may lose three schedulers, and a consolidation three consolidators. Each loses at most two here.
    let mut kills_left = [2, 9, 9, 2];
    let mut kills = Vec::new();
    while kills.len() < 7 && started.elapsed() < Duration::from_secs(15) {
        std::thread::sleep(Duration::from_millis(50 + random.below(900)));
        let index = random.index(ROLES.len());
        if kills_left[index] == 0 {
            continue;
        }
        kills_left[index] -= 1;
        assert!(roles[index].is_running(), "a process ended by itself: {}", roles[index].stderr());
        roles[index].kill();
        roles[index] = start(fixture, index);
        kills.push(ROLES[index]);
    }
    let last = wait_until_within("the sync ends", TIMEOUT, || {
        let last = fixture.tries(&first).pop()?;
        last.status.is_terminal().then_some(last)
    });
    assert_eq!(last.status, RunState::Success, "{}", last.metadata);
    assert_eq!(read_table(fixture), read_supplier(&endpoint));
    println!("{:?}: killed {kills:?}, {:.1} s", fixture.kind, started.elapsed().as_secs_f64());
    for process in roles.iter_mut().chain([&mut supplier]) {
        process.signal(Signal::TERM);
    }
    for process in roles.iter_mut().chain([&mut supplier]) {
        assert_eq!(process.wait_for_exit(TIMEOUT), Some(0), "{}", process.stderr());
    }
}

/// Active stones of the table: id, hash of the payload, and both prices in cents.
fn read_table(fixture: &Fixture) -> BTreeSet<String> {
    let hash = match fixture.kind {
        Kind::Sqlite => "lower(hex(payload_hash))",
        Kind::Postgres => "encode(payload_hash, 'hex')",
    };
    let text = format!(
        "SELECT supplier_stone_id || ' ' || {hash} || ' ' || feed_price_cents || ' ' || retail_price_cents \
         FROM diamonds WHERE status = 'active'"
    );
    fixture.sql(&text).expect("the table is read").into_iter().collect()
}

/// Available stones of the supplier, with the retail price computed here: 15 % markup, rounded half up.
fn read_supplier(endpoint: &str) -> BTreeSet<String> {
    let host = endpoint.trim_start_matches("http://").split('/').next().expect("the endpoint has a host");
    let mut stream = TcpStream::connect(host).expect("the supplier answers");
    write!(stream, "GET /admin/truth HTTP/1.0\r\nHost: {host}\r\n\r\n").expect("the request is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the response is read");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a body");
    assert!(head.contains("200"), "{head}");
    let lines = body.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line is JSON"));
    let for_sale = lines.filter(|stone| stone["available"] == true);
    for_sale
        .map(|stone| {
            let price = stone["price"].as_i64().expect("a price is a number");
            let retail = (price * 115 + 50) / 100;
            let text = |field: &str| stone[field].as_str().expect("a text").to_owned();
            format!("{} {} {price} {retail}", text("id"), text("sha256"))
        })
        .collect()
}
