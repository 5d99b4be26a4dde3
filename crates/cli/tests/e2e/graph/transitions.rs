//! Every transition of the job diagram, executed by real jobs.
//!
//! A table assigns each transition to a test, which finds it in the recorded events.

use std::collections::BTreeSet;

use rustix::process::Signal;
use tidemill_core::RunId;
use tidemill_core::job::{DIAGRAM, StatusCode as C};
use tidemill_core::run::RunState;

use super::fixture::{CONFIRMATION_LIFETIME, GraphFixture, TIMEOUT, controller, graph};
use super::process_deaths::parent;
use super::proxy::{HoldingProxy, Side};
use crate::fixture::{Fixture, on_both, wait_until_within};
use crate::process::signal_to;

on_both!(waiting_transitions, stage_transitions, reset_transitions);

/// Test that executes a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scenario {
    /// Jobs that have not started.
    Waits,
    /// Jobs whose agent is held in each stage.
    Stages,
    /// A job that is reset repeatedly.
    Resets,
}

const TABLE: &[(C, C, Scenario)] = &[
    (C::Created, C::CancelledByUser, Scenario::Waits),
    (C::Created, C::WaitingOnDependencies, Scenario::Waits),
    (C::Created, C::WaitingOnWorkers, Scenario::Waits),
    (C::Created, C::WaitingOnPool, Scenario::Waits),
    (C::Created, C::Paused, Scenario::Waits),
    (C::Created, C::DependencyFailed, Scenario::Waits),
    (C::Created, C::WaitingDbMaintenance, Scenario::Waits),
    (C::Created, C::Initiated, Scenario::Waits),
    (C::WaitingOnDependencies, C::Initiated, Scenario::Waits),
    (C::WaitingOnWorkers, C::Initiated, Scenario::Waits),
    (C::WaitingOnPool, C::Initiated, Scenario::Waits),
    (C::Paused, C::Initiated, Scenario::Waits),
    (C::WaitingDbMaintenance, C::Initiated, Scenario::Waits),
    (C::WaitingOnReboot, C::Initiated, Scenario::Resets),
    (C::Initiated, C::Prepared, Scenario::Stages),
    (C::Prepared, C::Executing, Scenario::Stages),
    (C::Executing, C::Executed, Scenario::Stages),
    (C::Executing, C::Error, Scenario::Stages),
    (C::Error, C::Executed, Scenario::Stages),
    (C::Executed, C::Finalized, Scenario::Stages),
    (C::Finalized, C::Succeeded, Scenario::Stages),
    (C::Finalized, C::JobError, Scenario::Stages),
    (C::Finalized, C::NonzeroExit, Scenario::Stages),
    (C::Finalized, C::UnmatchedPatterns, Scenario::Stages),
    (C::Executing, C::WaitingOnNewTask, Scenario::Resets),
    (C::WaitingOnNewTask, C::Initiated, Scenario::Resets),
    (C::Executing, C::WaitingOnReboot, Scenario::Resets),
    (C::Executing, C::WaitingDbMaintenance, Scenario::Resets),
    (C::Executing, C::CancelledByUser, Scenario::Resets),
];

/// Fails for a transition that is only in the diagram or only in the table.
#[test]
fn table_has_every_transition_of_the_diagram_once() {
    let diagram: BTreeSet<(C, C)> = DIAGRAM.iter().map(|&(from, _, to)| (from, to)).collect();
    let table: BTreeSet<(C, C)> = TABLE.iter().map(|&(from, to, _)| (from, to)).collect();
    assert_eq!(diagram, table);
    assert_eq!(table.len(), TABLE.len(), "a transition is listed twice");
}

/// Checks that every transition of a scenario was recorded.
#[track_caller]
fn assert_taken(graphs: &GraphFixture<'_>, scenario: Scenario) {
    let text = "SELECT from_code || ' ' || to_code FROM ops.job_events";
    let taken: BTreeSet<String> = graphs.fixture.sql(text).expect("events are read").into_iter().collect();
    for (from, to, _) in TABLE.iter().filter(|(.., own)| *own == scenario) {
        assert!(taken.contains(&format!("{from} {to}")), "{from} to {to} was not taken: {taken:?}");
    }
}

/// Stops the controller gracefully, so that the next one takes over at once.
fn stop_controller(graphs: &mut GraphFixture<'_>) {
    wait_until_within("the controller has started", TIMEOUT, || {
        graphs.controller.stderr().contains("the controller is running").then_some(())
    });
    graphs.controller.signal(Signal::TERM);
    assert_eq!(graphs.controller.wait_for_exit(TIMEOUT), Some(0));
}

/// Command that waits for a file.
fn wait_for_file_command(graphs: &GraphFixture<'_>, name: &str) -> String {
    format!("while ! test -e {}; do sleep 0.05; done", graphs.fixture.path(name).display())
}

fn waiting_transitions(fixture: &Fixture) {
    let mut graphs = GraphFixture::start(fixture);
    stop_controller(&mut graphs);
    let early = cancel_early(&graphs);
    graphs.controller = controller(fixture, "again");
    graphs.wait_for_end(&early);
    // No agent is registered.
    let plain = graphs.submit(&graph(&[
        graphs.step("first", &[], "true", ""),
        graphs.step("second", &["first"], "true", ""),
    ]));
    graphs.wait_for_code(&plain, "first", "waiting_on_workers");
    graphs.wait_for_code(&plain, "second", "waiting_on_dependencies");
    let _agent = graphs.agent("ann", &[]);
    assert_eq!(graphs.wait_for_end(&plain), RunState::Success);
    // Flags. Maintenance takes precedence over a pause for jobs that use the database.
    fixture.ok(&["flag", "set", "paused", "--scope", "lane:graph"]);
    fixture.ok(&["flag", "set", "maintenance"]);
    let held = graphs.submit(&graph(&[graphs.step("held", &[], "true", "")]));
    let reader = graphs.submit(&graph(&[graphs.step("reader", &[], "true", "pool: database")]));
    graphs.wait_for_code(&held, "held", "paused");
    graphs.wait_for_code(&reader, "reader", "waiting_db_maintenance");
    fixture.ok(&["flag", "clear", "paused", "--scope", "lane:graph"]);
    assert_eq!(graphs.wait_for_end(&held), RunState::Success);
    fixture.ok(&["flag", "clear", "maintenance"]);
    assert_eq!(graphs.wait_for_end(&reader), RunState::Success);
    // A full pool.
    fixture.ok(&["pool", "set", "narrow", "1"]);
    let one = graphs.submit(&graph(&[graphs.step(
        "one",
        &[],
        &wait_for_file_command(&graphs, "go"),
        "pool: narrow",
    )]));
    graphs.wait_for_line("begin one");
    let two = graphs.submit(&graph(&[graphs.step("two", &[], "true", "pool: narrow")]));
    graphs.wait_for_code(&two, "two", "waiting_on_pool");
    fixture.write("go", "");
    for run in [&one, &two] {
        assert_eq!(graphs.wait_for_end(run), RunState::Success);
    }
    assert_taken(&graphs, Scenario::Waits);
    for run in [&early, &plain, &held, &reader, &one, &two] {
        graphs.check(run);
    }
}

/// Submits pairs of dependent jobs, and cancels the dependencies before a controller runs.
///
/// The order in which a controller handles jobs is undefined, so that both orders occur among the pairs.
fn cancel_early(graphs: &GraphFixture<'_>) -> RunId {
    let (mut steps, mut words) = (Vec::new(), Vec::new());
    for number in 0..16 {
        let (stopped, next) = (format!("stopped-{number}"), format!("next-{number}"));
        let mut pair =
            [graphs.step(&stopped, &[], "true", ""), graphs.step(&next, &[stopped.as_str()], "true", "")];
        if number % 2 == 0 {
            pair.reverse();
        }
        steps.extend(pair);
        words.extend(["--job".to_owned(), stopped]);
    }
    let run = graphs.submit(&graph(&steps));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    graphs.fixture.ok(&[&["graph", "cancel", run.as_str()], words.as_slice()].concat());
    run
}

fn stage_transitions(fixture: &Fixture) {
    let mut graphs = GraphFixture::start(fixture);
    let proxy = HoldingProxy::new(&graphs.url);
    let _agent = graphs.agent_at("ann", &proxy.url(), &["--capacity", "8"]);
    let result = proxy.hold(Side::Request, "/result", "");
    let prepared = skip_preparing(&mut graphs, &proxy);
    // A command that fails, with its error reported before its end.
    let executed = proxy.hold_stage(Side::Request, "executed");
    let bad = start_job(&graphs, "bad", "exit 3");
    fixture.write("bad", "");
    executed.wait_until_held();
    graphs.wait_for_code(&bad, "bad", "error");
    executed.release();
    let rest = graphs.submit(&graph(&[
        graphs.step("missing", &[], "true", "outputs: {lost: lost.txt}"),
        graphs.step("secretive", &[], "true", "secrets: [MISSING_SECRET]"),
    ]));
    // The result is delayed: heartbeats report that it exists.
    let ends = [
        (&prepared, "prepared", "succeeded"),
        (&bad, "bad", "nonzero_exit"),
        (&rest, "missing", "unmatched_patterns"),
        (&rest, "secretive", "job_error"),
    ];
    for (run, name, _) in ends {
        graphs.wait_for_code(run, name, "finalized");
    }
    result.release();
    for (run, name, code) in ends {
        graphs.wait_for_code(run, name, code);
    }
    // The error and the heartbeats are delayed, so that the end is reported first.
    let holds = [("/stage", "\"stage\":\"error\""), ("/beat", ""), ("/result", "")];
    let holds = holds.map(|(path, words)| proxy.hold(Side::Request, path, words));
    let worse = start_job(&graphs, "worse", "exit 4");
    fixture.write("worse", "");
    graphs.wait_for_code(&worse, "worse", "executed");
    for hold in holds {
        hold.release();
    }
    graphs.wait_for_code(&worse, "worse", "nonzero_exit");
    assert_taken(&graphs, Scenario::Stages);
    for run in [&prepared, &bad, &rest, &worse] {
        graphs.wait_for_end(run);
        graphs.check(run);
    }
}

/// Starts a job that runs `last` when the file of its name exists.
fn start_job(graphs: &GraphFixture<'_>, name: &str, last: &str) -> RunId {
    let work = format!("{}; {last}", wait_for_file_command(graphs, name));
    let run = graphs.submit(&graph(&[graphs.step(name, &[], &work, "")]));
    graphs.wait_for_code(&run, name, "executing");
    run
}

/// Starts a job without a controller, so that the next controller finds it prepared.
fn skip_preparing(graphs: &mut GraphFixture<'_>, proxy: &HoldingProxy) -> RunId {
    let reported = proxy.hold_stage(Side::Request, "preparing");
    let run =
        graphs.submit(&graph(&[graphs.step("prepared", &[], &wait_for_file_command(graphs, "go"), "")]));
    reported.wait_until_held();
    graphs.wait_for_code(&run, "prepared", "initiated");
    stop_controller(graphs);
    let (confirmation, ready) =
        (proxy.hold_stage(Side::Response, "preparing"), proxy.hold_stage(Side::Response, "prepared"));
    reported.release();
    confirmation.wait_until_held();
    // The agent does not trust such a late confirmation, and asks again after the preparation.
    std::thread::sleep(CONFIRMATION_LIFETIME);
    confirmation.release();
    ready.wait_until_held();
    graphs.controller = controller(graphs.fixture, "again");
    graphs.wait_for_code(&run, "prepared", "prepared");
    ready.release();
    graphs.wait_for_code(&run, "prepared", "executing");
    graphs.fixture.write("go", "");
    run
}

/// One job that is stopped by the death of its supervisor, by maintenance, by a reboot and by a cancel.
fn reset_transitions(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let _agent = graphs.agent("ann", &["--grace", "1s"]);
    let run = graphs.submit(&graph(&[graphs.step("long", &[], "sleep 600", "pool: database")]));
    let wait_for_start = |attempt: u32| {
        graphs.wait_for_line(&format!("begin long {attempt} "));
        graphs.wait_for_code(&run, "long", "executing");
    };
    wait_for_start(1);
    signal_to(parent(graphs.ledger().pid("long")), Signal::KILL);
    graphs.wait_for_code(&run, "long", "waiting_on_new_task");
    wait_for_start(2);
    fixture.ok(&["flag", "set", "maintenance"]);
    graphs.wait_for_code(&run, "long", "waiting_db_maintenance");
    fixture.ok(&["flag", "clear", "maintenance"]);
    wait_for_start(3);
    fixture.ok(&["prepare-for-reboot"]);
    graphs.wait_for_code(&run, "long", "waiting_on_reboot");
    wait_until_within("a reboot is safe", TIMEOUT, || {
        (fixture.tidemill(&["prepare-for-reboot", "--status"]).code == Some(0)).then_some(())
    });
    fixture.ok(&["prepare-for-reboot", "--cancel"]);
    wait_for_start(4);
    fixture.ok(&["graph", "cancel", run.as_str()]);
    assert_eq!(graphs.wait_for_end(&run), RunState::Cancelled);
    assert_eq!((graphs.ledger().count("begin long"), graphs.ledger().count("end long")), (4, 0));
    assert_taken(&graphs, Scenario::Resets);
    graphs.check(&run);
}
