//! The roles of syncs as processes, killed with SIGKILL at random moments: the table still equals the source.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tidemill_core::run::RunState;

use crate::faults::Dice;
use crate::process::Process;
use crate::stage::{Kind, PATIENCE, Stage, on_both, until, until_within};

on_both! { processes_are_killed_while_a_feed_is_synced }

const STONES: &str = "3000";
/// The processes beside the supplier. There is one scheduler and one consolidator, so that each of them is missed.
const ROLES: [&str; 4] = ["scheduler", "worker", "worker", "consolidator"];

fn start(stage: &Stage, place: usize) -> Process {
    let role = ROLES[place];
    Process::start(stage, &format!("{role}-{place}"), &mut stage.command(&[role]))
}

fn processes_are_killed_while_a_feed_is_synced(stage: &Stage) {
    let mut dice = Dice::thrown();
    let begun = Instant::now();
    let slow = r#"{"latency_ms": 60}"#;
    let offer = ["supplier", "--listen", "127.0.0.1:0", "--stones", STONES, "--behaviour", slow];
    let mut supplier = Process::start(stage, "supplier", &mut stage.command(&offer));
    let endpoint = until("the supplier listens", || {
        supplier.wrote().split_once(" offers ").map(|(endpoint, _)| endpoint.trim().to_owned())
    });
    let account = ["--username", "ann", "--password-env", "PATH", "--rate", "0"];
    stage.ok(&[&["feed", "add", "stones", "--endpoint", &endpoint], &account[..]].concat());
    let mut roles: Vec<Process> = (0..ROLES.len()).map(|place| start(stage, place)).collect();
    stage.ok(&["feed", "sync", "stones", "--full"]);
    let first = stage.runs().first().expect("there is a run").run_id.clone();
    // A request may lose three schedulers and a consolidation three consolidators: neither loses more than two.
    let mut left = [2, 9, 9, 2];
    let mut kills = Vec::new();
    while kills.len() < 7 && begun.elapsed() < Duration::from_secs(15) {
        std::thread::sleep(Duration::from_millis(50 + dice.below(900)));
        let place = dice.place(ROLES.len());
        if left[place] == 0 {
            continue;
        }
        left[place] -= 1;
        assert!(roles[place].is_running(), "a process ended by itself: {}", roles[place].said());
        roles[place].kill();
        roles[place] = start(stage, place);
        kills.push(ROLES[place]);
    }
    let last = until_within("the sync ends", PATIENCE, || {
        let last = stage.tries(&first).pop()?;
        last.status.is_terminal().then_some(last)
    });
    assert_eq!(last.status, RunState::Success, "{}", last.metadata);
    assert_eq!(table(stage), truth(&endpoint));
    println!("{:?}: killed {kills:?}, done after {:.1} s", stage.kind, begun.elapsed().as_secs_f64());
    for process in roles.iter_mut().chain([&mut supplier]) {
        process.signal(Signal::TERM);
    }
    for process in roles.iter_mut().chain([&mut supplier]) {
        assert_eq!(process.ended_within(PATIENCE), Some(0), "{}", process.said());
    }
}

/// Every stone that is for sale in the table: its id, what it was built from, and both prices in cents.
fn table(stage: &Stage) -> BTreeSet<String> {
    let hash = match stage.kind {
        Kind::Sqlite => "lower(hex(payload_hash))",
        Kind::Postgres => "encode(payload_hash, 'hex')",
    };
    let text = format!(
        "SELECT supplier_stone_id || ' ' || {hash} || ' ' || feed_price_cents || ' ' || retail_price_cents \
         FROM diamonds WHERE status = 'active'"
    );
    stage.sql(&text).expect("the table is read").into_iter().collect()
}

/// The same from the supplier's side, over HTTP, with the price worked out here: 15 % on top, halves up.
fn truth(endpoint: &str) -> BTreeSet<String> {
    let host = endpoint.trim_start_matches("http://").split('/').next().expect("the endpoint has a host");
    let mut stream = TcpStream::connect(host).expect("the supplier answers");
    write!(stream, "GET /admin/truth HTTP/1.0\r\nHost: {host}\r\n\r\n").expect("it is asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it is read");
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
