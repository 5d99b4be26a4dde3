//! Claims that fail with a permanent error: the worker continues.

use rustix::process::Signal;
use tidemill_core::run::RunState;

use crate::fixture::{Fixture, Kind, TIMEOUT, on_both};
use crate::process::Process;

on_both!(worker_survives_permanently_failing_claims);

fn worker_survives_permanently_failing_claims(fixture: &Fixture) {
    let id = fixture.queue(&[]);
    let (broken, fixed): (&[&str], &[&str]) = match fixture.kind {
        Kind::Postgres => (
            &[
                "CREATE FUNCTION ops.poison() RETURNS trigger LANGUAGE plpgsql AS \
                 $$ BEGIN RAISE EXCEPTION 'this run is poison' USING ERRCODE = '22000'; END $$",
                "CREATE TRIGGER poison BEFORE UPDATE ON ops.runs FOR EACH ROW \
                 WHEN (new.status = 'claimed') EXECUTE FUNCTION ops.poison()",
            ],
            &["DROP TRIGGER poison ON ops.runs", "DROP FUNCTION ops.poison()"],
        ),
        Kind::Sqlite => (
            &["CREATE TRIGGER poison BEFORE UPDATE ON runs WHEN new.status = 'claimed' \
               BEGIN SELECT RAISE(ABORT, 'this run is poison'); END"],
            &["DROP TRIGGER poison"],
        ),
    };
    let apply = |texts: &[&str]| texts.iter().for_each(|text| drop(fixture.sql(text).unwrap()));
    apply(broken);
    let mut worker = Process::worker(fixture, "builder", &[], "true");
    worker.wait_for_stderr("this run is poison", 2);
    apply(fixed);
    fixture.wait_for_state(&id, RunState::Success);
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0));
}
