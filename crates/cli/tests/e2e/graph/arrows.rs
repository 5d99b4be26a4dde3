//! Every arrow of the diagram of a job, taken by real jobs: the table names who takes it, and each test finds its
//! arrows in what the database recorded.

use std::collections::BTreeSet;

use rustix::process::Signal;
use tidemill_core::RunId;
use tidemill_core::job::{DIAGRAM, StatusCode as C};
use tidemill_core::run::RunState;

use super::deaths::parent;
use super::gate::{Gate, Side};
use super::ground::{FRESH, PATIENCE, Site, controller, graph};
use crate::process::signal_to;
use crate::stage::{Stage, on_both, until_within};

on_both!(waits, stages, resets);

/// Who takes an arrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// Jobs that have not begun.
    Waits,
    /// Jobs whose agent is kept in each stage.
    Stages,
    /// A job that is put back to the start again and again.
    Resets,
}

const TABLE: &[(C, C, By)] = &[
    (C::Created, C::CancelledByUser, By::Waits),
    (C::Created, C::WaitingOnDependencies, By::Waits),
    (C::Created, C::WaitingOnWorkers, By::Waits),
    (C::Created, C::WaitingOnPool, By::Waits),
    (C::Created, C::Paused, By::Waits),
    (C::Created, C::DependencyFailed, By::Waits),
    (C::Created, C::WaitingDbMaintenance, By::Waits),
    (C::Created, C::Initiated, By::Waits),
    (C::WaitingOnDependencies, C::Initiated, By::Waits),
    (C::WaitingOnWorkers, C::Initiated, By::Waits),
    (C::WaitingOnPool, C::Initiated, By::Waits),
    (C::Paused, C::Initiated, By::Waits),
    (C::WaitingDbMaintenance, C::Initiated, By::Waits),
    (C::WaitingOnReboot, C::Initiated, By::Resets),
    (C::Initiated, C::Prepared, By::Stages),
    (C::Prepared, C::Executing, By::Stages),
    (C::Executing, C::Executed, By::Stages),
    (C::Executing, C::Error, By::Stages),
    (C::Error, C::Executed, By::Stages),
    (C::Executed, C::Finalized, By::Stages),
    (C::Finalized, C::Succeeded, By::Stages),
    (C::Finalized, C::JobError, By::Stages),
    (C::Finalized, C::NonzeroExit, By::Stages),
    (C::Finalized, C::UnmatchedPatterns, By::Stages),
    (C::Executing, C::WaitingOnNewTask, By::Resets),
    (C::WaitingOnNewTask, C::Initiated, By::Resets),
    (C::Executing, C::WaitingOnReboot, By::Resets),
    (C::Executing, C::WaitingDbMaintenance, By::Resets),
    (C::Executing, C::CancelledByUser, By::Resets),
];

/// An arrow that is drawn and not in the table fails here, and so does one that is not drawn any more.
#[test]
fn the_table_has_every_arrow_of_the_diagram_once() {
    let drawn: BTreeSet<(C, C)> = DIAGRAM.iter().map(|&(from, _, to)| (from, to)).collect();
    let named: BTreeSet<(C, C)> = TABLE.iter().map(|&(from, to, _)| (from, to)).collect();
    assert_eq!(drawn, named);
    assert_eq!(named.len(), TABLE.len(), "an arrow is there twice");
}

/// Every arrow of these jobs is on record.
#[track_caller]
fn assert_taken(site: &Site<'_>, by: By) {
    let text = "SELECT from_code || ' ' || to_code FROM ops.job_events";
    let taken: BTreeSet<String> = site.stage.sql(text).expect("events are read").into_iter().collect();
    for (from, to, _) in TABLE.iter().filter(|(.., who)| *who == by) {
        assert!(taken.contains(&format!("{from} {to}")), "{from} to {to} was not taken: {taken:?}");
    }
}

/// Ends the controller in order, so that the next one acts at once.
fn end_controller(site: &mut Site<'_>) {
    until_within("the controller listens", PATIENCE, || {
        site.controller.said().contains("the controller is running").then_some(())
    });
    site.controller.signal(Signal::TERM);
    assert_eq!(site.controller.ended_within(PATIENCE), Some(0));
}

/// The command of a job that goes on when a file of this name is there.
fn until_go(site: &Site<'_>, name: &str) -> String {
    format!("while ! test -e {}; do sleep 0.05; done", site.stage.path(name).display())
}

fn waits(stage: &Stage) {
    let mut site = Site::start(stage);
    end_controller(&mut site);
    let early = stop_early(&site);
    site.controller = controller(stage, "again");
    site.until_ended(&early);
    // No agent is there.
    let plain = site
        .submit(&graph(&[site.step("first", &[], "true", ""), site.step("second", &["first"], "true", "")]));
    site.until_code(&plain, "first", "waiting_on_workers");
    site.until_code(&plain, "second", "waiting_on_dependencies");
    let _agent = site.agent("ann", &[]);
    assert_eq!(site.until_ended(&plain), RunState::Success);
    // Flags. What uses the database is held by its maintenance, whatever else holds it.
    stage.ok(&["flag", "set", "paused", "--scope", "lane:graph"]);
    stage.ok(&["flag", "set", "maintenance"]);
    let held = site.submit(&graph(&[site.step("held", &[], "true", "")]));
    let reader = site.submit(&graph(&[site.step("reader", &[], "true", "pool: database")]));
    site.until_code(&held, "held", "paused");
    site.until_code(&reader, "reader", "waiting_db_maintenance");
    stage.ok(&["flag", "clear", "paused", "--scope", "lane:graph"]);
    assert_eq!(site.until_ended(&held), RunState::Success);
    stage.ok(&["flag", "clear", "maintenance"]);
    assert_eq!(site.until_ended(&reader), RunState::Success);
    // A full pool.
    stage.ok(&["pool", "set", "narrow", "1"]);
    let one = site.submit(&graph(&[site.step("one", &[], &until_go(&site, "go"), "pool: narrow")]));
    site.until_written("begin one");
    let two = site.submit(&graph(&[site.step("two", &[], "true", "pool: narrow")]));
    site.until_code(&two, "two", "waiting_on_pool");
    stage.write("go", "");
    for run in [&one, &two] {
        assert_eq!(site.until_ended(run), RunState::Success);
    }
    assert_taken(&site, By::Waits);
    for run in [&early, &plain, &held, &reader, &one, &two] {
        site.check(run);
    }
}

/// Submits pairs of jobs of which one needs the other, and cancels those that are needed, before anybody looked at
/// them. A controller looks at the jobs of a graph in no particular order, and some of the pairs it meets in each.
fn stop_early(site: &Site<'_>) -> RunId {
    let (mut steps, mut words) = (Vec::new(), Vec::new());
    for number in 0..16 {
        let (stopped, next) = (format!("stopped-{number}"), format!("next-{number}"));
        let mut pair =
            [site.step(&stopped, &[], "true", ""), site.step(&next, &[stopped.as_str()], "true", "")];
        if number % 2 == 0 {
            pair.reverse();
        }
        steps.extend(pair);
        words.extend(["--job".to_owned(), stopped]);
    }
    let run = site.submit(&graph(&steps));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    site.stage.ok(&[&["graph", "cancel", run.as_str()], words.as_slice()].concat());
    run
}

fn stages(stage: &Stage) {
    let mut site = Site::start(stage);
    let gate = Gate::to(&site.url);
    let _agent = site.agent_at("ann", &gate.url(), &["--capacity", "8"]);
    let result = gate.hold(Side::Question, "/result", "");
    let prepared = skip_preparing(&mut site, &gate);
    // An end that is bad, seen as such, then over.
    let executed = gate.hold_stage(Side::Question, "executed");
    let bad = begin(&site, "bad", "exit 3");
    stage.write("bad", "");
    executed.until_caught();
    site.until_code(&bad, "bad", "error");
    executed.let_go();
    let rest = site.submit(&graph(&[
        site.step("missing", &[], "true", "outputs: {lost: lost.txt}"),
        site.step("secretive", &[], "true", "secrets: [NOBODY_HAS_IT]"),
    ]));
    // A result that does not get through: signs of life tell that it is there.
    let ends = [
        (&prepared, "prepared", "succeeded"),
        (&bad, "bad", "nonzero_exit"),
        (&rest, "missing", "unmatched_patterns"),
        (&rest, "secretive", "job_error"),
    ];
    for (run, name, _) in ends {
        site.until_code(run, name, "finalized");
    }
    result.let_go();
    for (run, name, code) in ends {
        site.until_code(run, name, code);
    }
    // The word that the end is bad does not get through in time, and no sign of life says so either.
    let holds = [("/stage", "\"stage\":\"error\""), ("/beat", ""), ("/result", "")];
    let holds = holds.map(|(path, words)| gate.hold(Side::Question, path, words));
    let worse = begin(&site, "worse", "exit 4");
    stage.write("worse", "");
    site.until_code(&worse, "worse", "executed");
    for hold in holds {
        hold.let_go();
    }
    site.until_code(&worse, "worse", "nonzero_exit");
    assert_taken(&site, By::Stages);
    for run in [&prepared, &bad, &rest, &worse] {
        site.until_ended(run);
        site.check(run);
    }
}

/// Begins a job that does this when a file of its name is there.
fn begin(site: &Site<'_>, name: &str, last: &str) -> RunId {
    let work = format!("{}; {last}", until_go(site, name));
    let run = site.submit(&graph(&[site.step(name, &[], &work, "")]));
    site.until_code(&run, name, "executing");
    run
}

/// Has a job begin while no controller looks, so that the first thing that one sees is that it is prepared.
fn skip_preparing(site: &mut Site<'_>, gate: &Gate) -> RunId {
    let asked = gate.hold_stage(Side::Question, "preparing");
    let run = site.submit(&graph(&[site.step("prepared", &[], &until_go(site, "go"), "")]));
    asked.until_caught();
    site.until_code(&run, "prepared", "initiated");
    end_controller(site);
    let (word, ready) =
        (gate.hold_stage(Side::Answer, "preparing"), gate.hold_stage(Side::Answer, "prepared"));
    asked.let_go();
    word.until_caught();
    // An answer that comes so late is not trusted: the agent asks again when it is prepared.
    std::thread::sleep(FRESH);
    word.let_go();
    ready.until_caught();
    site.controller = controller(site.stage, "again");
    site.until_code(&run, "prepared", "prepared");
    ready.let_go();
    site.until_code(&run, "prepared", "executing");
    site.stage.write("go", "");
    run
}

/// One job, stopped by whatever stops jobs: the death of its supervisor, maintenance, a restart, a person.
fn resets(stage: &Stage) {
    let site = Site::start(stage);
    let _agent = site.agent("ann", &["--grace", "1s"]);
    let run = site.submit(&graph(&[site.step("long", &[], "sleep 600", "pool: database")]));
    let until_begun = |attempt: u32| {
        site.until_written(&format!("begin long {attempt} "));
        site.until_code(&run, "long", "executing");
    };
    until_begun(1);
    signal_to(parent(site.ledger().pid("long")), Signal::KILL);
    site.until_code(&run, "long", "waiting_on_new_task");
    until_begun(2);
    stage.ok(&["flag", "set", "maintenance"]);
    site.until_code(&run, "long", "waiting_db_maintenance");
    stage.ok(&["flag", "clear", "maintenance"]);
    until_begun(3);
    stage.ok(&["prepare-for-reboot"]);
    site.until_code(&run, "long", "waiting_on_reboot");
    until_within("a restart is safe", PATIENCE, || {
        (stage.tidemill(&["prepare-for-reboot", "--status"]).code == Some(0)).then_some(())
    });
    stage.ok(&["prepare-for-reboot", "--cancel"]);
    until_begun(4);
    stage.ok(&["graph", "cancel", run.as_str()]);
    assert_eq!(site.until_ended(&run), RunState::Cancelled);
    assert_eq!((site.ledger().count("begin long"), site.ledger().count("end long")), (4, 0));
    assert_taken(&site, By::Resets);
    site.check(&run);
}
