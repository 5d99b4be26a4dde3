//! Restarts of PostgreSQL while workers execute runs.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tidemill_core::event::EventKind;
use tidemill_core::run::RunState;
use tidemill_testkit::cluster::{Cluster, Options, Shutdown};

use super::{SeededRandom, soak_time};
use crate::fixture::{DEAD_AFTER, Fixture, TIMEOUT, wait_until, wait_until_within, wait_while_progressing};
use crate::ledger::{self, TASK};
use crate::process::{Process, is_alive, run};

/// Starts a server whose commits survive its own crash, though not a power failure.
fn server() -> Cluster {
    let settings = vec![("synchronous_commit".to_owned(), "on".to_owned())];
    Cluster::start(&Options { settings, ..Options::default() }).expect("a server starts")
}

#[test]
fn workers_survive_database_restarts() {
    restarts(Duration::from_secs(8));
}

#[test]
#[ignore = "long; cargo xtask soak runs it"]
fn soak_workers_survive_database_restarts() {
    restarts(soak_time());
}

/// Fast and immediate restarts, and outages longer than `dead-after`: no process exits, and no run is lost or executed
/// twice.
fn restarts(time: Duration) {
    let mut random = SeededRandom::from_environment();
    let mut cluster = server();
    let fixture = Fixture::on_server(&cluster.url("postgres"));
    let mut requests = ledger::requests(&fixture, "r0", 40);
    let environment = [("SECS", "0.3"), ("FAILS_ONCE", "yes")];
    let start = |number| {
        Process::worker_with(&fixture, &format!("builder-{number}"), &["--slots", "2"], TASK, &environment)
    };
    let mut processes: Vec<Process> = (0..3).map(start).collect();
    // A worker that finds no database at its start exits, so the test waits until all workers have started.
    for process in &mut processes {
        process.wait_for_stderr("waits for runs", 1);
    }
    let mut sweeper = Process::start(&fixture, "sweeper", &mut fixture.command(&["sweep", "--loop"]));
    sweeper.wait_for_stderr("running maintenance", 1);
    processes.push(sweeper);
    let started = Instant::now();
    let outages =
        [Duration::ZERO, Duration::ZERO, Duration::from_millis(500), DEAD_AFTER + Duration::from_secs(1)];
    let mut count = 0;
    while started.elapsed() < time || count < outages.len() {
        std::thread::sleep(Duration::from_millis(300 + random.below(900)));
        let how =
            if (count + random.index(2)).is_multiple_of(2) { Shutdown::Fast } else { Shutdown::Immediate };
        let outage = outages[count % outages.len()];
        cluster.stop(how).expect("the server stops");
        std::thread::sleep(outage);
        cluster.resume().expect("the server comes back");
        count += 1;
        for process in &mut processes {
            assert!(process.is_running(), "a process ended: {}", process.stderr());
        }
        requests.extend(ledger::requests(&fixture, &format!("r{count}"), 15));
    }
    wait_while_progressing("every request ends", || {
        let runs = fixture.runs();
        let ended = runs.iter().filter(|run| run.status.is_terminal()).count();
        ((ended, runs.len()), (ended == runs.len()).then_some(()))
    });
    for process in &mut processes {
        assert!(process.is_running(), "a process ended: {}", process.stderr());
        process.signal(Signal::TERM);
    }
    for process in &mut processes {
        assert_eq!(process.wait_for_exit(TIMEOUT), Some(0), "{}", process.stderr());
    }
    let summary = ledger::check(&fixture, &requests);
    println!("{count} restarts, {summary:?}, {:.1} s", started.elapsed().as_secs_f64());
}

/// A run continues during an outage that is shorter than `dead-after`.
#[test]
fn short_outage_costs_no_attempt_and_no_line() {
    let mut cluster = server();
    let fixture = Fixture::on_server(&cluster.url("postgres"));
    let id = fixture.queue(&[]);
    let script = "for n in $(seq 200); do echo line $n; sleep 0.02; done";
    let environment = [("TIDEMILL_WORKER_DEAD_AFTER", "20s")];
    let mut worker = Process::worker_with(&fixture, "builder", &[], script, &environment);
    let mut watch = Process::start(&fixture, "watch", &mut fixture.command(&["run", "watch", id.as_str()]));
    fixture.wait_for_state(&id, RunState::Running);
    cluster.stop(Shutdown::Immediate).expect("the server stops");
    // A single command retries until the server is back.
    let mut queue =
        fixture.command(&["run", "queue", "--project", "shop", "--env", "staging", "--label", "never"]);
    let queued = std::thread::scope(|scope| {
        let queued = scope.spawn(|| run(&mut queue));
        std::thread::sleep(Duration::from_secs(1));
        cluster.resume().expect("the server comes back");
        queued.join().expect("the command ends")
    });
    assert_eq!(queued.code, Some(0), "{queued:?}");
    let labelled = fixture.runs().into_iter().filter(|run| run.labels == ["never"]);
    let made: Vec<String> = labelled.map(|run| run.run_id.to_string()).collect();
    assert_eq!(made, [queued.stdout.trim()], "the request during the outage is queued once");
    fixture.wait_for_state(&id, RunState::Success);
    let events = fixture.events(&id);
    let lines: Vec<_> = events.iter().filter(|event| event.message.starts_with("line ")).collect();
    let expected: Vec<String> = (1..=200).map(|number| format!("line {number}")).collect();
    assert_eq!(lines.iter().map(|event| event.message.clone()).collect::<Vec<_>>(), expected);
    assert_eq!(fixture.tries(&id).len(), 1);
    assert_eq!(watch.wait_for_exit(TIMEOUT), Some(0), "the watch continues, too: {}", watch.stderr());
    assert!(worker.is_running());
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0));
}

/// An outage longer than `dead-after`, after which the worker kills its command.
///
/// The restarted server does not consider the worker dead, so the worker has to release the run itself.
#[test]
fn run_is_released_after_a_long_outage() {
    let mut cluster = server();
    let fixture = Fixture::on_server(&cluster.url("postgres"));
    let id = ledger::requests(&fixture, "r", 1).remove(0);
    let script = format!(r#"[ "$TIDEMILL_ATTEMPT" -gt 1 ] || SECS=600{TASK}"#);
    let mut worker = Process::worker(&fixture, "builder", &[], &script);
    fixture.wait_for_state(&id, RunState::Running);
    cluster.stop(Shutdown::Fast).expect("the server stops");
    wait_until_within("the command is killed", TIMEOUT, || {
        let pid = ledger::entries(&fixture)[0].pid;
        (!is_alive(pid)).then_some(())
    });
    cluster.resume().expect("the server comes back");
    let back = Instant::now();
    let last = wait_until_within("its request ends", TIMEOUT, || {
        let tries = fixture.tries(&id);
        tries.last().filter(|run| run.status == RunState::Success).map(|_| tries.len())
    });
    println!("{last} attempts; the last one ended {:.1} s after the restart", back.elapsed().as_secs_f64());
    assert!(worker.is_running());
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0));
    ledger::check(&fixture, &[id]);
}

/// SIGTERM during such an outage: the worker does not wait for the database to release its run.
#[test]
fn worker_stops_on_sigterm_during_an_outage() {
    let mut cluster = server();
    let fixture = Fixture::on_server(&cluster.url("postgres"));
    let id = ledger::requests(&fixture, "r", 1).remove(0);
    let environment = [("SECS", "600")];
    let mut worker = Process::worker_with(&fixture, "builder", &["--grace", "1s"], TASK, &environment);
    fixture.wait_for_state(&id, RunState::Running);
    // The output is stored, so that only the run itself remains to be released.
    wait_until("the output is stored", || {
        let lines = fixture.messages(&id, EventKind::Log);
        lines.iter().any(|line| line.starts_with("working on ")).then_some(())
    });
    let pid = ledger::entries(&fixture)[0].pid;
    cluster.stop(Shutdown::Fast).expect("the server stops");
    wait_until("the command is killed", || (!is_alive(pid)).then_some(()));
    worker.wait_for_stderr("registers again", 1);
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0), "{}", worker.stderr());
    cluster.resume().expect("the server comes back");
    assert_eq!(fixture.run(&id).status, RunState::Running, "no sweep has run yet");
}
