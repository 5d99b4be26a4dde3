//! What the commands say: why something waits, what is wrong with a file, and who is there.

use serde_json::json;
use tidemill_core::RunId;
use tidemill_core::run::RunState;

use super::ground::{PATIENCE, Site, graph};
use crate::process::run;
use crate::stage::{Kind, Stage, on_both, until_within};

on_both!(
    a_wait_has_one_reason_that_names_what_is_missing,
    a_worker_that_ends_when_nothing_is_left_does_not_wait_for_graphs,
    whoever_reaches_only_the_server_can_do_everything,
);

fn a_wait_has_one_reason_that_names_what_is_missing(stage: &Stage) {
    let site = Site::start(stage);
    stage.ok(&["pool", "set", "presses", "1"]);
    let go = stage.path("go");
    let work = format!("while ! test -e {}; do sleep 0.05; done", go.display());
    let run = site.submit(&graph(&[
        site.step("first", &[], &work, "pool: presses"),
        site.step("third", &["first"], "true", ""),
        site.step("special", &[], "true", "labels: [gpu]"),
    ]));
    let why = |name: &str| stage.ok(&["job", "why", &format!("{run}/{name}")]);
    site.until_code(&run, "special", "waiting_on_workers");
    assert!(why("special").contains("none is there"), "{}", why("special"));
    let _agent = site.agent("ann", &[]);
    site.until_written("begin first");
    site.until_code(&run, "first", "executing");
    let other = site.submit(&graph(&[site.step("second", &[], "true", "pool: presses")]));
    site.until_code(&other, "second", "waiting_on_pool");
    let full = stage.ok(&["job", "why", &format!("{other}/second")]);
    assert!(full.contains("Pool presses is full (1 of 1): first of"), "{full}");
    assert!(why("third").contains("waits for job first"), "{}", why("third"));
    assert!(why("special").contains("gpu"), "{}", why("special"));
    assert!(why("first").contains("Agent ann has it"), "{}", why("first"));
    let graph_why = stage.ok(&["run", "why", run.as_str()]);
    assert!(graph_why.contains("jobs have ended"), "{graph_why}");
    let pools = stage.json(&["pool", "list"]);
    let presses = pools.as_array().unwrap().iter().find(|pool| pool["name"] == "presses").unwrap().clone();
    assert_eq!((&presses["size"], &presses["used"]), (&json!(1), &json!(1)));
    stage.write("go", "");
    let _other = site.agent("other", &["--label", "gpu"]);
    assert_eq!(site.until_ended(&run), RunState::Success);
    assert_eq!(site.until_ended(&other), RunState::Success);
    let agents = stage.ok(&["agent", "list"]);
    assert!(agents.contains("ann") && agents.contains("gpu"), "{agents}");
    // A drained agent gets nothing new, and one that is told to end by it does.
    assert!(stage.ok(&["agent", "drain", "ann"]).contains("no new tasks"));
    assert!(stage.ok(&["agent", "drain", "ann", "--undo"]).contains("tasks again"));
    let nobody = stage.tidemill(&["agent", "drain", "nobody"]);
    assert_eq!(nobody.code, Some(3), "{nobody:?}");
    site.check(&run);
}

/// The same commands, without a way to the database.
fn whoever_reaches_only_the_server_can_do_everything(stage: &Stage) {
    let site = Site::start(stage);
    let far = |args: &[&str]| {
        let mut command = stage.command(&["--server", &site.url]);
        run(command.args(args).env_remove("TIDEMILL_DATABASE"))
    };
    let mut agent = site.agent("ann", &["--grace", "2s"]);
    assert!(far(&["pool", "set", "presses", "1"]).ok().contains("presses"));
    assert!(far(&["pool", "list"]).ok().contains("presses"));
    let go = stage.path("go");
    let work = format!("while ! test -e {}; do sleep 0.05; done", go.display());
    let text = graph(&[
        site.step("first", &[], &work, "pool: presses"),
        site.step("second", &[], "true", "pool: presses"),
    ]);
    let file = stage.write("far.graph.yaml", &text).display().to_string();
    let submitted = far(&["graph", "submit", &file, "--project", "shop", "--env", "staging"]).ok();
    let first: RunId = submitted.trim().parse().expect("a run");
    site.until_code(&first, "first", "executing");
    site.until_code(&first, "second", "waiting_on_pool");
    let why = far(&["job", "why", &format!("{first}/second")]).ok();
    assert!(why.contains("Pool presses is full (1 of 1): first of"), "{why}");
    assert!(far(&["run", "why", first.as_str()]).ok().contains("jobs have ended"));
    assert!(far(&["agent", "drain", "ann"]).ok().contains("no new tasks"));
    assert!(far(&["agent", "drain", "ann", "--undo"]).ok().contains("tasks again"));
    // Everything stops for a restart, and begins again afterwards.
    far(&["prepare-for-reboot", "--note", "kernel"]).ok();
    until_within("it is safe", PATIENCE, || {
        (far(&["prepare-for-reboot", "--status"]).code == Some(0)).then_some(())
    });
    assert!(far(&["job", "why", &format!("{first}/first")]).ok().contains("kernel"));
    assert!(far(&["prepare-for-reboot", "--cancel"]).ok().contains("go on"));
    site.until_code(&first, "first", "executing");
    far(&["graph", "cancel", first.as_str()]).ok();
    assert_eq!(site.until_ended(&first), RunState::Cancelled);
    stage.write("go", "");
    let retried = far(&["graph", "retry", first.as_str()]).ok();
    let next: RunId = retried.trim().parse().expect("a run");
    assert_eq!(site.until_ended(&next), RunState::Success);
    assert!(far(&["graph", "show", next.as_str()]).ok().contains("second"));
    // Forgotten is only who is gone, or whom a person says so of.
    agent.kill();
    let alive = far(&["agent", "forget", "ann"]);
    assert_eq!(alive.code, Some(3), "{alive:?}");
    assert!(alive.stderr.contains("may still run") && alive.stderr.contains("--force"), "{alive:?}");
    assert!(far(&["agent", "forget", "ann", "--force"]).ok().contains("forgotten"));
    assert!(!far(&["agent", "list"]).ok().contains("ann"));
    for run in [&first, &next] {
        site.check(run);
    }
}

/// Graphs are for controllers and agents, whether they wait or run.
fn a_worker_that_ends_when_nothing_is_left_does_not_wait_for_graphs(stage: &Stage) {
    let site = Site::start(stage);
    let go = stage.path("go");
    let work = format!("while ! test -e {}; do sleep 0.05; done", go.display());
    let run = site.submit(&graph(&[site.step("long", &[], &work, "")]));
    let drained = |name: &str| {
        let queued = stage.queue(&[]);
        let ran = stage.tidemill(&["work", "--worker", name, "--drain", "--", "true"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_eq!(stage.run(&queued).status, RunState::Success);
    };
    site.until_code(&run, "long", "waiting_on_workers");
    drained("first");
    let _agent = site.agent("ann", &[]);
    site.until_written("begin long");
    drained("second");
    stage.write("go", "");
    assert_eq!(site.until_ended(&run), RunState::Success);
    site.check(&run);
}

#[test]
fn a_file_is_checked_without_a_database() {
    let stage = Stage::bare(Kind::Sqlite);
    let file = stage.write("bad.graph.yaml", "version: 1\njobs:\n  one:\n    rn: true\n    needs: [two]\n");
    let file = file.display().to_string();
    let checked = stage.tidemill(&["graph", "check", &file]);
    assert_eq!(checked.code, Some(3), "{checked:?}");
    assert!(checked.stderr.contains("bad.graph.yaml:4:"), "{checked:?}");
    assert!(checked.stderr.contains("hint: "), "{checked:?}");
    let json = stage.tidemill(&["--json", "graph", "check", &file]);
    assert_eq!(json.code, Some(3), "{json:?}");
    assert_eq!(json.value()["is_sound"], json!(false));
    assert!(json.value()["faults"][0]["line"].is_number(), "{json:?}");
    let schema = stage.tidemill(&["graph", "schema"]).ok();
    assert!(schema.contains("\"$schema\""), "{schema}");
    let missing = stage.tidemill(&["graph", "check", "nowhere.yaml"]);
    assert_eq!(missing.code, Some(2), "{missing:?}");
}

#[test]
fn what_can_never_run_is_refused_at_once() {
    let stage = Stage::new(Kind::Sqlite);
    let submit = |text: &str| {
        let file = stage.write("never.graph.yaml", text).display().to_string();
        stage.tidemill(&["graph", "submit", &file, "--project", "shop", "--env", "staging"])
    };
    let unknown = submit("version: 1\njobs:\n  one: {run: 'true', pool: nowhere}\n");
    assert_eq!(unknown.code, Some(3), "{unknown:?}");
    assert!(unknown.stderr.contains("pool `nowhere` of job `one` does not exist"), "{unknown:?}");
    assert!(unknown.stderr.contains("tidemill pool set nowhere SIZE"), "{unknown:?}");
    let wide = submit("version: 1\njobs:\n  one: {run: 'true', pool: database, weight: 5}\n");
    assert_eq!(wide.code, Some(3), "{wide:?}");
    assert!(wide.stderr.contains("weight 5") && wide.stderr.contains("size 4"), "{wide:?}");
    let nobodys = stage.tidemill(&["job", "why", "run-0192f5a0-0000-7000-8000-000000000000/nope"]);
    assert_eq!(nobodys.code, Some(3), "{nobodys:?}");
    // By what was typed, and not by the id that follows from it.
    let sentence = "there is no job `nope` in run-0192f5a0-0000-7000-8000-000000000000";
    assert!(nobodys.stderr.contains(sentence), "{nobodys:?}");
}
