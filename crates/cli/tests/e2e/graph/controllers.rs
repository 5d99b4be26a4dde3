//! Controllers: any number may run, one acts. A frozen one that thaws changes nothing.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use sqlx::Connection as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use tidemill_core::run::RunState;

use super::ground::{Site, controller, graph};
use crate::process::Process;
use crate::stage::{Kind, PATIENCE, Stage, on_both, until};

on_both!(
    a_frozen_controller_is_replaced_and_changes_nothing_when_it_thaws,
    a_controller_that_is_killed_is_replaced,
);

/// Who acts, and under which epoch.
fn lease(stage: &Stage) -> String {
    let cast = match stage.kind {
        Kind::Postgres => "epoch::text",
        Kind::Sqlite => "CAST(epoch AS TEXT)",
    };
    let text = format!("SELECT {cast} FROM ops.controller_leases WHERE site = 'default'");
    stage.sql(&text).expect("the lease is read").pop().unwrap_or_default()
}

/// Freezes a process outside of its transactions. On SQLite one that is frozen within one has the only lock that there
/// is: everybody waits for it, and nobody could take over before it thaws or dies.
fn freeze(stage: &Stage, process: &mut Process) {
    until("it is frozen outside of its transactions", || {
        process.signal(Signal::STOP);
        if stage.kind == Kind::Postgres || can_be_written(stage) {
            return Some(());
        }
        process.signal(Signal::CONT);
        None
    });
}

/// Whether the file of a stage on SQLite can be written within a while in which everybody else is done.
fn can_be_written(stage: &Stage) -> bool {
    let options = SqliteConnectOptions::new().filename(&stage.url).busy_timeout(Duration::from_secs(2));
    stage.block(async {
        let mut file = SqliteConnection::connect_with(&options).await.expect("the file opens");
        let written = sqlx::query("BEGIN IMMEDIATE; ROLLBACK").execute(&mut file).await;
        file.close().await.expect("the file closes");
        written.is_ok()
    })
}

fn a_frozen_controller_is_replaced_and_changes_nothing_when_it_thaws(stage: &Stage) {
    let mut site = Site::start(stage);
    let _agent = site.agent("ann", &[]);
    let names: Vec<String> = (0..60).map(|number| format!("job-{number:02}")).collect();
    let mut steps = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let needs: Vec<&str> = if number < 4 { Vec::new() } else { vec![names[number - 4].as_str()] };
        steps.push(site.step(name, &needs, "sleep 0.3", ""));
    }
    let run = site.submit(&graph(&steps));
    site.until_written("end job-05");
    let before = lease(stage);
    let mut second = controller(stage, "second");
    freeze(stage, &mut site.controller);
    // The lease lasts 15 seconds; the rest of the minute is for a busy machine.
    until("another controller acts", || (lease(stage) != before).then_some(()));
    // Both believe that they act, for a moment.
    site.controller.signal(Signal::CONT);
    until("the first one has noticed", || {
        site.controller.said().contains("does not control any more").then_some(())
    });
    assert_eq!(site.until_ended(&run), RunState::Success, "{:?}", site.codes(&run));
    let ledger = site.ledger();
    for name in &names {
        assert_eq!(ledger.count(&format!("begin {name} ")), 1, "{name}: {ledger:?}");
    }
    site.check(&run);
    second.signal(Signal::TERM);
    assert_eq!(second.ended_within(PATIENCE), Some(0));
}

fn a_controller_that_is_killed_is_replaced(stage: &Stage) {
    let mut site = Site::start(stage);
    let _agent = site.agent("ann", &[]);
    let run = site.submit(&graph(&[
        site.step("first", &[], "sleep 2", ""),
        site.step("second", &["first"], "true", ""),
    ]));
    site.until_written("begin first");
    site.controller.kill();
    site.until_written("end first");
    // What agents report is kept; nobody decides.
    assert_ne!(site.code(&run, "second"), "initiated");
    let _second = controller(stage, "second");
    assert_eq!(site.until_ended(&run), RunState::Success);
    let job = site.job(&run, "first");
    assert_eq!(
        (&job["job"]["tasks"], &job["job"]["errors"]),
        (&json!(1), &json!(0)),
        "no task was lost: {job}"
    );
    site.check(&run);
}
