//! Several workers, killed and frozen at random moments and started again, until every request has ended.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Dice, soak};
use crate::ledger::{self, TASK};
use crate::process::Process;
use crate::stage::{DEAD_AFTER, Kind, PATIENCE, Stage, until_within};

const WORKERS: usize = 3;
/// Requests that wait at any time while the chaos lasts.
const WAITING: usize = 8;

#[test]
fn requests_end_once_though_workers_are_killed_on_sqlite() {
    chaos(Kind::Sqlite, Duration::from_secs(12));
}

#[test]
fn requests_end_once_though_workers_are_killed_on_postgres() {
    chaos(Kind::Postgres, Duration::from_secs(12));
}

#[test]
#[ignore = "long; cargo xtask soak runs it"]
fn soak_requests_end_once_though_workers_are_killed_on_sqlite() {
    chaos(Kind::Sqlite, soak());
}

#[test]
#[ignore = "long; cargo xtask soak runs it"]
fn soak_requests_end_once_though_workers_are_killed_on_postgres() {
    chaos(Kind::Postgres, soak());
}

fn start(stage: &Stage, number: usize, dice: &mut Dice) -> Process {
    // Now and then longer than a frozen worker keeps its runs.
    let secs = if dice.below(4) == 0 { "3.5".to_owned() } else { format!("0.{:02}", dice.below(60)) };
    let environment = [("SECS", secs.as_str()), ("FAILS_ONCE", "yes"), ("TIDEMILL_LOG", "warn")];
    Process::worker_with(
        stage,
        &format!("mill-{number}"),
        &["--slots", "2", "--grace", "1s"],
        TASK,
        &environment,
    )
}

fn chaos(kind: Kind, lasts: Duration) {
    let mut dice = Dice::thrown();
    let stage = Stage::new(kind);
    let begun = Instant::now();
    let mut requests = ledger::requests(&stage, "r0", WAITING * 2);
    let mut workers: Vec<Process> = (0..WORKERS).map(|number| start(&stage, number, &mut dice)).collect();
    let (mut kills, mut freezes, mut batch) = (0, 0, 0);
    while begun.elapsed() < lasts {
        std::thread::sleep(Duration::from_millis(50 + dice.below(700)));
        let waiting = stage.json(&["stats"])["queued_count"].as_u64().unwrap_or(0);
        if waiting < WAITING as u64 {
            batch += 1;
            requests.extend(ledger::requests(&stage, &format!("r{batch}"), WAITING));
        }
        let place = dice.place(WORKERS);
        assert!(workers[place].is_running(), "a worker ended by itself: {}", workers[place].said());
        if dice.below(4) == 0 {
            freezes += 1;
            workers[place].signal(Signal::STOP);
            std::thread::sleep(DEAD_AFTER + Duration::from_millis(dice.below(1_500)));
            workers[place].signal(Signal::CONT);
        } else {
            kills += 1;
            workers[place].kill();
            workers[place] = start(&stage, place, &mut dice);
        }
    }
    // A request that waits for its back-off or for a dead worker's runs ends without anybody's help.
    until_within("every request ends", PATIENCE, || {
        let stats = stage.json(&["stats"]);
        (stats["queued_count"] == 0 && stats["active"].as_array().is_some_and(Vec::is_empty)).then_some(())
    });
    for worker in &mut workers {
        worker.signal(Signal::TERM);
    }
    for worker in &mut workers {
        assert_eq!(worker.ended_within(PATIENCE), Some(0), "{}", worker.said());
    }
    let seen = ledger::verdict(&stage, &requests);
    println!("{kind:?}: {kills} kills, {freezes} freezes, {seen:?}, {:.1} s", begun.elapsed().as_secs_f64());
    assert!(seen.tries > seen.requests, "nothing was disturbed");
}
