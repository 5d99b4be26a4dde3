//! Several controllers, of which one is active. A frozen controller changes nothing after its replacement.

use rustix::process::Signal;
use serde_json::json;
use tidemill_core::run::RunState;

use super::fixture::{GraphFixture, controller, graph};
use crate::fixture::{Fixture, Kind, TIMEOUT, on_both, wait_until};

on_both!(thawed_controller_changes_nothing_after_its_replacement, killed_controller_is_replaced,);

/// Epoch of the active controller.
fn read_epoch(fixture: &Fixture) -> String {
    let cast = match fixture.kind {
        Kind::Postgres => "epoch::text",
        Kind::Sqlite => "CAST(epoch AS TEXT)",
    };
    let text = format!("SELECT {cast} FROM ops.controller_leases WHERE site = 'default'");
    fixture.sql(&text).expect("the lease is read").pop().unwrap_or_default()
}

fn thawed_controller_changes_nothing_after_its_replacement(fixture: &Fixture) {
    let mut graphs = GraphFixture::start(fixture);
    let _agent = graphs.agent("ann", &[]);
    let names: Vec<String> = (0..60).map(|number| format!("job-{number:02}")).collect();
    let mut steps = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let needs: Vec<&str> = if number < 4 { Vec::new() } else { vec![names[number - 4].as_str()] };
        steps.push(graphs.step(name, &needs, "sleep 0.3", ""));
    }
    let run = graphs.submit(&graph(&steps));
    graphs.wait_for_line("end job-05");
    let before = read_epoch(fixture);
    let mut second = controller(fixture, "second");
    graphs.controller.freeze(fixture);
    // The lease lasts 15 seconds.
    wait_until("another controller is active", || (read_epoch(fixture) != before).then_some(()));
    // For a moment, both consider themselves active.
    graphs.controller.signal(Signal::CONT);
    wait_until("the first controller has stepped down", || {
        graphs.controller.stderr().contains("is no longer the controller").then_some(())
    });
    assert_eq!(graphs.wait_for_end(&run), RunState::Success, "{:?}", graphs.codes(&run));
    let ledger = graphs.ledger();
    for name in &names {
        assert_eq!(ledger.count(&format!("begin {name} ")), 1, "{name}: {ledger:?}");
    }
    graphs.check(&run);
    second.signal(Signal::TERM);
    assert_eq!(second.wait_for_exit(TIMEOUT), Some(0));
}

fn killed_controller_is_replaced(fixture: &Fixture) {
    let mut graphs = GraphFixture::start(fixture);
    let _agent = graphs.agent("ann", &[]);
    let run = graphs.submit(&graph(&[
        graphs.step("first", &[], "sleep 2", ""),
        graphs.step("second", &["first"], "true", ""),
    ]));
    graphs.wait_for_line("begin first");
    graphs.controller.kill();
    graphs.wait_for_line("end first");
    // Reports of agents are stored, but no controller handles them.
    assert_ne!(graphs.code(&run, "second"), "initiated");
    let _second = controller(fixture, "second");
    assert_eq!(graphs.wait_for_end(&run), RunState::Success);
    let job = graphs.job(&run, "first");
    assert_eq!(
        (&job["job"]["tasks"], &job["job"]["errors"]),
        (&json!(1), &json!(0)),
        "no task was lost: {job}"
    );
    graphs.check(&run);
}
