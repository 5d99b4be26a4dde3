//! Sync roles that are killed at random times: the table still matches the supplier.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tidemill_core::run::RunState;
use tidemill_supplier::{RestDefinition, RestKind};

use crate::faults::SeededRandom;
use crate::fixture::{Fixture, Kind, TIMEOUT, on_both, wait_until, wait_until_within};
use crate::process::Process;
use crate::rest_items::{admin, check_equal, rest_url};

on_both! {
    sync_is_correct_while_its_processes_are_killed,
    rest_sync_is_correct_while_its_processes_are_killed,
}

const STONES: &str = "3000";
/// Processes besides the supplier. One scheduler and one consolidator, so that each kill has an effect.
const ROLES: [&str; 4] = ["scheduler", "worker", "worker", "consolidator"];

/// Starts a role after this number of kills.
fn start(fixture: &Fixture, index: usize, kills: usize) -> Process {
    let role = ROLES[index];
    Process::start(fixture, &format!("{role}-{index}-{kills}"), &mut fixture.command(&[role]))
}

fn sync_is_correct_while_its_processes_are_killed(fixture: &Fixture) {
    let mut random = SeededRandom::from_environment();
    let (mut supplier, endpoint) = slow_supplier(fixture);
    let account = ["--username", "ann", "--password-env", "PATH", "--rate", "0"];
    fixture.ok(&[&["feed", "add", "stones", "--endpoint", &endpoint], &account[..]].concat());
    let mut roles = survive_kills(fixture, "stones", &mut random);
    assert_eq!(read_table(fixture), read_supplier(&endpoint));
    stop(roles.iter_mut().chain([&mut supplier]));
}

/// The seed chooses the kind of pagination.
fn rest_sync_is_correct_while_its_processes_are_killed(fixture: &Fixture) {
    let mut random = SeededRandom::from_environment();
    let (mut supplier, endpoint) = slow_supplier(fixture);
    let kinds: Vec<RestKind> =
        RestKind::ALL.into_iter().filter(|kind| *kind != RestKind::SinglePage).collect();
    let kind = kinds[random.index(kinds.len())];
    println!("pagination: {kind}");
    let base_url = rest_url(&endpoint);
    let definition =
        RestDefinition { base_url: &base_url, feed: "items", table: "public.items", kind, page_size: 25 };
    let file = fixture.write("items.yaml", &definition.to_yaml()).display().to_string();
    fixture.ok(&["feed", "apply", &file, "--yes"]);
    let mut roles = survive_kills(fixture, "items", &mut random);
    let rows = check_equal(fixture, "public.items", &endpoint);
    assert_eq!(rows.to_string(), STONES);
    stop(roles.iter_mut().chain([&mut supplier]));
}

fn slow_supplier(fixture: &Fixture) -> (Process, String) {
    let slow = r#"{"latency_ms": 60}"#;
    let offer = ["supplier", "--listen", "127.0.0.1:0", "--stones", STONES, "--behaviour", slow];
    let supplier = Process::start(fixture, "supplier", &mut fixture.command(&offer));
    let endpoint = wait_until("the supplier listens", || {
        supplier.stdout().split_once(" serves ").map(|(endpoint, _)| endpoint.trim().to_owned())
    });
    (supplier, endpoint)
}

/// Runs a full sync while its processes are killed with SIGKILL; it must succeed. Returns the processes.
fn survive_kills(fixture: &Fixture, feed: &str, random: &mut SeededRandom) -> Vec<Process> {
    let started = Instant::now();
    let mut roles: Vec<Process> = (0..ROLES.len()).map(|index| start(fixture, index, 0)).collect();
    fixture.ok(&["feed", "sync", feed, "--full"]);
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
        kills.push(ROLES[index]);
        roles[index] = start(fixture, index, kills.len());
    }
    let last = wait_until_within("the sync ends", TIMEOUT, || {
        let last = fixture.tries(&first).pop()?;
        last.status.is_terminal().then_some(last)
    });
    assert_eq!(last.status, RunState::Success, "{}", last.metadata);
    println!("{:?}: killed {kills:?}, {:.1} s", fixture.kind, started.elapsed().as_secs_f64());
    // A process that has just started is ended by SIGTERM before it handles the signal.
    for role in &mut roles {
        role.wait_for_stderr("is running on", 1);
    }
    roles
}

fn stop<'a>(processes: impl Iterator<Item = &'a mut Process>) {
    let mut processes: Vec<&mut Process> = processes.collect();
    for process in &mut processes {
        process.signal(Signal::TERM);
    }
    for process in processes {
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
    let body = admin(endpoint, "GET", "truth", "");
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
