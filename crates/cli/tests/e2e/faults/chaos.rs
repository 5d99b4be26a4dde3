//! Several workers that are killed, frozen and restarted at random times until every request has ended.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{SeededRandom, soak_time};
use crate::fixture::{DEAD_AFTER, Fixture, Kind, TIMEOUT, wait_until_within};
use crate::ledger::{self, TASK};
use crate::process::Process;

const WORKERS: usize = 3;
/// Minimum number of queued requests.
const WAITING: usize = 8;

#[test]
fn requests_end_once_while_workers_die_on_sqlite() {
    chaos(Kind::Sqlite, Duration::from_secs(12));
}

#[test]
fn requests_end_once_while_workers_die_on_postgres() {
    chaos(Kind::Postgres, Duration::from_secs(12));
}

#[test]
#[ignore = "long; cargo xtask soak runs it"]
fn soak_requests_end_once_while_workers_die_on_sqlite() {
    chaos(Kind::Sqlite, soak_time());
}

#[test]
#[ignore = "long; cargo xtask soak runs it"]
fn soak_requests_end_once_while_workers_die_on_postgres() {
    chaos(Kind::Postgres, soak_time());
}

fn start(fixture: &Fixture, number: usize, random: &mut SeededRandom) -> Process {
    // Sometimes longer than a frozen worker keeps its runs.
    let secs = if random.below(4) == 0 { "3.5".to_owned() } else { format!("0.{:02}", random.below(60)) };
    let environment = [("SECS", secs.as_str()), ("FAILS_ONCE", "yes"), ("TIDEMILL_LOG", "warn")];
    Process::worker_with(
        fixture,
        &format!("builder-{number}"),
        &["--slots", "2", "--grace", "1s"],
        TASK,
        &environment,
    )
}

fn chaos(kind: Kind, time: Duration) {
    let mut random = SeededRandom::from_environment();
    let fixture = Fixture::new(kind);
    let started = Instant::now();
    let mut requests = ledger::requests(&fixture, "r0", WAITING * 2);
    let mut workers: Vec<Process> = (0..WORKERS).map(|number| start(&fixture, number, &mut random)).collect();
    let (mut kills, mut freezes, mut batch) = (0, 0, 0);
    while started.elapsed() < time {
        std::thread::sleep(Duration::from_millis(50 + random.below(700)));
        let waiting = fixture.json(&["stats"])["queued_count"].as_u64().unwrap_or(0);
        if waiting < WAITING as u64 {
            batch += 1;
            requests.extend(ledger::requests(&fixture, &format!("r{batch}"), WAITING));
        }
        let index = random.index(WORKERS);
        assert!(workers[index].is_running(), "a worker ended by itself: {}", workers[index].stderr());
        if random.below(4) == 0 {
            freezes += 1;
            workers[index].signal(Signal::STOP);
            std::thread::sleep(DEAD_AFTER + Duration::from_millis(random.below(1_500)));
            workers[index].signal(Signal::CONT);
        } else {
            kills += 1;
            workers[index].kill();
            workers[index] = start(&fixture, index, &mut random);
        }
    }
    // Requests in back-off and runs of dead workers end without intervention.
    wait_until_within("every request ends", TIMEOUT, || {
        let stats = fixture.json(&["stats"]);
        (stats["queued_count"] == 0 && stats["active"].as_array().is_some_and(Vec::is_empty)).then_some(())
    });
    for worker in &mut workers {
        worker.signal(Signal::TERM);
    }
    for worker in &mut workers {
        assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0), "{}", worker.stderr());
    }
    let summary = ledger::check(&fixture, &requests);
    println!(
        "{kind:?}: {kills} kills, {freezes} freezes, {summary:?}, {:.1} s",
        started.elapsed().as_secs_f64()
    );
    assert!(summary.tries > summary.requests, "no run was interrupted");
}
