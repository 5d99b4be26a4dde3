//! PostgreSQL stops and comes back while workers are at work.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tidemill_core::event::EventKind;
use tidemill_core::run::RunState;
use tidemill_testkit::cluster::{Cluster, Options, Shutdown};

use super::{Dice, soak};
use crate::ledger::{self, TASK};
use crate::process::{Process, is_alive, run};
use crate::stage::{DEAD_AFTER, PATIENCE, Stage, until, until_moving, until_within};

/// A server that keeps what it has answered through its own crash, though not through a power cut.
fn server() -> Cluster {
    let settings = vec![("synchronous_commit".to_owned(), "on".to_owned())];
    Cluster::start(&Options { settings, ..Options::default() }).expect("a server starts")
}

#[test]
fn workers_live_through_restarts_of_the_database() {
    restarts(Duration::from_secs(8));
}

#[test]
#[ignore = "long; cargo xtask soak runs it"]
fn soak_workers_live_through_restarts_of_the_database() {
    restarts(soak());
}

/// Fast and immediate restarts, and outages longer than a worker may be silent: no process exits, no run is lost or
/// doubled.
fn restarts(lasts: Duration) {
    let mut dice = Dice::thrown();
    let mut cluster = server();
    let stage = Stage::on_server(&cluster.url("postgres"));
    let mut requests = ledger::requests(&stage, "r0", 40);
    let environment = [("SECS", "0.3"), ("FAILS_ONCE", "yes")];
    let start = |number| {
        Process::worker_with(&stage, &format!("mill-{number}"), &["--slots", "2"], TASK, &environment)
    };
    let mut processes: Vec<Process> = (0..3).map(start).collect();
    // One that finds no database when it begins ends, as it should: those that are at work must not.
    for process in &mut processes {
        process.until_said("waits for runs", 1);
    }
    let mut keeper = Process::start(&stage, "keeper", &mut stage.command(&["sweep", "--loop"]));
    keeper.until_said("upkeep is done", 1);
    processes.push(keeper);
    let begun = Instant::now();
    let outages =
        [Duration::ZERO, Duration::ZERO, Duration::from_millis(500), DEAD_AFTER + Duration::from_secs(1)];
    let mut count = 0;
    while begun.elapsed() < lasts || count < outages.len() {
        std::thread::sleep(Duration::from_millis(300 + dice.below(900)));
        let how =
            if (count + dice.place(2)).is_multiple_of(2) { Shutdown::Fast } else { Shutdown::Immediate };
        let outage = outages[count % outages.len()];
        cluster.stop(how).expect("the server stops");
        std::thread::sleep(outage);
        cluster.resume().expect("the server comes back");
        count += 1;
        for process in &mut processes {
            assert!(process.is_running(), "a process ended: {}", process.said());
        }
        requests.extend(ledger::requests(&stage, &format!("r{count}"), 15));
    }
    until_moving("every request ends", || {
        let runs = stage.runs();
        let ended = runs.iter().filter(|run| run.status.is_terminal()).count();
        ((ended, runs.len()), (ended == runs.len()).then_some(()))
    });
    for process in &mut processes {
        assert!(process.is_running(), "a process ended: {}", process.said());
        process.signal(Signal::TERM);
    }
    for process in &mut processes {
        assert_eq!(process.ended_within(PATIENCE), Some(0), "{}", process.said());
    }
    let seen = ledger::verdict(&stage, &requests);
    println!("{count} restarts, {seen:?}, {:.1} s", begun.elapsed().as_secs_f64());
}

/// A run in hand goes on through an outage that is shorter than the worker may be silent.
#[test]
fn a_short_outage_costs_no_try_and_no_line() {
    let mut cluster = server();
    let stage = Stage::on_server(&cluster.url("postgres"));
    let id = stage.queue(&[]);
    let script = "for n in $(seq 200); do echo line $n; sleep 0.02; done";
    let environment = [("TIDEMILL_WORKER_DEAD_AFTER", "20s")];
    let mut worker = Process::worker_with(&stage, "mill", &[], script, &environment);
    let mut watch = Process::start(&stage, "watch", &mut stage.command(&["run", "watch", id.as_str()]));
    stage.until(&id, RunState::Running);
    cluster.stop(Shutdown::Immediate).expect("the server stops");
    // A single command waits a while for the server.
    let mut queue =
        stage.command(&["run", "queue", "--project", "shop", "--env", "staging", "--label", "never"]);
    let queued = std::thread::scope(|scope| {
        let queued = scope.spawn(|| run(&mut queue));
        std::thread::sleep(Duration::from_secs(1));
        cluster.resume().expect("the server comes back");
        queued.join().expect("the command ends")
    });
    assert_eq!(queued.code, Some(0), "{queued:?}");
    let labelled = stage.runs().into_iter().filter(|run| run.labels == ["never"]);
    let made: Vec<String> = labelled.map(|run| run.run_id.to_string()).collect();
    assert_eq!(made, [queued.stdout.trim()], "asked during an outage, queued once");
    stage.until(&id, RunState::Success);
    let events = stage.events(&id);
    let lines: Vec<_> = events.iter().filter(|event| event.message.starts_with("line ")).collect();
    let expected: Vec<String> = (1..=200).map(|number| format!("line {number}")).collect();
    assert_eq!(lines.iter().map(|event| event.message.clone()).collect::<Vec<_>>(), expected);
    assert_eq!(stage.tries(&id).len(), 1);
    assert_eq!(watch.ended_within(PATIENCE), Some(0), "a watch lives through it too: {}", watch.said());
    assert!(worker.is_running());
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended_within(PATIENCE), Some(0));
}

/// The database is away for longer than a worker may be silent, so that the command is cut off. The worker is not dead
/// and the server, which was down itself, does not count it as dead: it has to give the run back by itself.
#[test]
fn a_long_outage_hands_the_run_on_as_soon_as_it_is_over() {
    let mut cluster = server();
    let stage = Stage::on_server(&cluster.url("postgres"));
    let id = ledger::requests(&stage, "r", 1).remove(0);
    let script = format!(r#"[ "$TIDEMILL_ATTEMPT" -gt 1 ] || SECS=600{TASK}"#);
    let mut worker = Process::worker(&stage, "mill", &[], &script);
    stage.until(&id, RunState::Running);
    cluster.stop(Shutdown::Fast).expect("the server stops");
    until_within("the command is cut off", PATIENCE, || {
        let pid = ledger::entries(&stage)[0].pid;
        (!is_alive(pid)).then_some(())
    });
    cluster.resume().expect("the server comes back");
    let back = Instant::now();
    let last = until_within("its request ends", PATIENCE, || {
        let tries = stage.tries(&id);
        tries.last().filter(|run| run.status == RunState::Success).map(|_| tries.len())
    });
    println!(
        "{last} tries, the last of them ended {:.1} s after the database was back",
        back.elapsed().as_secs_f64()
    );
    assert!(worker.is_running());
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended_within(PATIENCE), Some(0));
    ledger::verdict(&stage, &[id]);
}

/// The same outage, and somebody tells the worker to end before it is over: it does not wait for the database to give
/// back what it lost.
#[test]
fn a_worker_that_lost_its_run_to_an_outage_ends_when_it_is_told_to() {
    let mut cluster = server();
    let stage = Stage::on_server(&cluster.url("postgres"));
    let id = ledger::requests(&stage, "r", 1).remove(0);
    let environment = [("SECS", "600")];
    let mut worker = Process::worker_with(&stage, "mill", &["--grace", "1s"], TASK, &environment);
    stage.until(&id, RunState::Running);
    // What it said is written: nothing but the run itself is left to give back.
    until("the command is heard", || {
        let lines = stage.messages(&id, EventKind::Log);
        lines.iter().any(|line| line.starts_with("working on ")).then_some(())
    });
    let pid = ledger::entries(&stage)[0].pid;
    cluster.stop(Shutdown::Fast).expect("the server stops");
    until("the command is cut off", || (!is_alive(pid)).then_some(()));
    worker.until_said("begins anew", 1);
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended_within(PATIENCE), Some(0), "{}", worker.said());
    cluster.resume().expect("the server comes back");
    assert_eq!(stage.run(&id).status, RunState::Running, "nobody has swept yet");
}
