//! Claims that the database refuses for a reason that does not pass: the worker goes on.

use rustix::process::Signal;
use tidemill_core::run::RunState;

use crate::process::Process;
use crate::stage::{Kind, PATIENCE, Stage, on_both};

on_both!(worker_survives_claims_that_fail_for_good);

fn worker_survives_claims_that_fail_for_good(stage: &Stage) {
    let id = stage.queue(&[]);
    let (broken, mended): (&[&str], &[&str]) = match stage.kind {
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
    let apply = |texts: &[&str]| texts.iter().for_each(|text| drop(stage.sql(text).unwrap()));
    apply(broken);
    let mut worker = Process::worker(stage, "mill", &[], "true");
    worker.until_said("this run is poison", 2);
    apply(mended);
    stage.until(&id, RunState::Success);
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended_within(PATIENCE), Some(0));
}
