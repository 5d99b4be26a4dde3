//! Commands of graphs, jobs, pools and agents.

use serde_json::json;
use tidemill_core::RunId;
use tidemill_core::run::RunState;

use super::fixture::{GraphFixture, TIMEOUT, graph};
use crate::fixture::{Fixture, Kind, on_both, wait_until_within};
use crate::process::run;

on_both!(
    waiting_job_names_the_missing_resource,
    drained_worker_does_not_wait_for_graphs,
    graph_commands_work_through_a_server,
);

fn waiting_job_names_the_missing_resource(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    fixture.ok(&["pool", "set", "presses", "1"]);
    let go = fixture.path("go");
    let work = format!("while ! test -e {}; do sleep 0.05; done", go.display());
    let run = graphs.submit(&graph(&[
        graphs.step("first", &[], &work, "pool: presses"),
        graphs.step("third", &["first"], "true", ""),
        graphs.step("special", &[], "true", "labels: [gpu]"),
    ]));
    let why = |name: &str| fixture.ok(&["job", "why", &format!("{run}/{name}")]);
    graphs.wait_for_code(&run, "special", "waiting_on_workers");
    assert!(why("special").contains("no agent is connected"), "{}", why("special"));
    let _agent = graphs.agent("ann", &[]);
    graphs.wait_for_line("begin first");
    graphs.wait_for_code(&run, "first", "executing");
    let other = graphs.submit(&graph(&[graphs.step("second", &[], "true", "pool: presses")]));
    graphs.wait_for_code(&other, "second", "waiting_on_pool");
    let full = fixture.ok(&["job", "why", &format!("{other}/second")]);
    assert!(full.contains("Pool presses is full (1 of 1): first of"), "{full}");
    assert!(why("third").contains("waits for job first"), "{}", why("third"));
    assert!(why("special").contains("gpu"), "{}", why("special"));
    assert!(why("first").contains("Agent ann has it"), "{}", why("first"));
    let graph_why = fixture.ok(&["run", "why", run.as_str()]);
    assert!(graph_why.contains("jobs have ended"), "{graph_why}");
    let pools = fixture.json(&["pool", "list"]);
    let presses = pools.as_array().unwrap().iter().find(|pool| pool["name"] == "presses").unwrap().clone();
    assert_eq!((&presses["size"], &presses["used"]), (&json!(1), &json!(1)));
    fixture.write("go", "");
    let _other = graphs.agent("other", &["--label", "gpu"]);
    assert_eq!(graphs.wait_for_end(&run), RunState::Success);
    assert_eq!(graphs.wait_for_end(&other), RunState::Success);
    let agents = fixture.ok(&["agent", "list"]);
    assert!(agents.contains("ann") && agents.contains("gpu"), "{agents}");
    // A drained agent gets no new tasks until the drain is undone.
    assert!(fixture.ok(&["agent", "drain", "ann"]).contains("no new tasks"));
    assert!(fixture.ok(&["agent", "drain", "ann", "--undo"]).contains("tasks again"));
    let unknown = fixture.tidemill(&["agent", "drain", "nobody"]);
    assert_eq!(unknown.code, Some(3), "{unknown:?}");
    graphs.check(&run);
}

/// The same commands with a server and without a database.
fn graph_commands_work_through_a_server(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let remote = |args: &[&str]| {
        let mut command = fixture.command(&["--server", &graphs.url]);
        run(command.args(args).env_remove("TIDEMILL_DATABASE"))
    };
    let mut agent = graphs.agent("ann", &["--grace", "2s"]);
    assert!(remote(&["pool", "set", "presses", "1"]).ok().contains("presses"));
    assert!(remote(&["pool", "list"]).ok().contains("presses"));
    let go = fixture.path("go");
    let work = format!("while ! test -e {}; do sleep 0.05; done", go.display());
    let text = graph(&[
        graphs.step("first", &[], &work, "pool: presses"),
        graphs.step("second", &[], "true", "pool: presses"),
    ]);
    let file = fixture.write("far.graph.yaml", &text).display().to_string();
    let submitted = remote(&["graph", "submit", &file, "--project", "shop", "--env", "staging"]).ok();
    let first: RunId = submitted.trim().parse().expect("a run");
    graphs.wait_for_code(&first, "first", "executing");
    graphs.wait_for_code(&first, "second", "waiting_on_pool");
    let why = remote(&["job", "why", &format!("{first}/second")]).ok();
    assert!(why.contains("Pool presses is full (1 of 1): first of"), "{why}");
    assert!(remote(&["run", "why", first.as_str()]).ok().contains("jobs have ended"));
    assert!(remote(&["agent", "drain", "ann"]).ok().contains("no new tasks"));
    assert!(remote(&["agent", "drain", "ann", "--undo"]).ok().contains("tasks again"));
    // All jobs stop for a reboot, and start again afterwards.
    remote(&["prepare-for-reboot", "--note", "kernel"]).ok();
    wait_until_within("the reboot is safe", TIMEOUT, || {
        (remote(&["prepare-for-reboot", "--status"]).code == Some(0)).then_some(())
    });
    assert!(remote(&["job", "why", &format!("{first}/first")]).ok().contains("kernel"));
    assert!(remote(&["prepare-for-reboot", "--cancel"]).ok().contains("jobs are resumed"));
    graphs.wait_for_code(&first, "first", "executing");
    remote(&["graph", "cancel", first.as_str()]).ok();
    assert_eq!(graphs.wait_for_end(&first), RunState::Cancelled);
    fixture.write("go", "");
    let retried = remote(&["graph", "retry", first.as_str()]).ok();
    let next: RunId = retried.trim().parse().expect("a run");
    assert_eq!(graphs.wait_for_end(&next), RunState::Success);
    assert!(remote(&["graph", "show", next.as_str()]).ok().contains("second"));
    // An agent with recent heartbeats can only be forgotten with --force.
    agent.kill();
    let alive = remote(&["agent", "forget", "ann"]);
    assert_eq!(alive.code, Some(3), "{alive:?}");
    assert!(alive.stderr.contains("may still run") && alive.stderr.contains("--force"), "{alive:?}");
    assert!(remote(&["agent", "forget", "ann", "--force"]).ok().contains("forgotten"));
    assert!(!remote(&["agent", "list"]).ok().contains("ann"));
    for run in [&first, &next] {
        graphs.check(run);
    }
}

/// `tidemill work --drain` ignores waiting and running graphs.
fn drained_worker_does_not_wait_for_graphs(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let go = fixture.path("go");
    let work = format!("while ! test -e {}; do sleep 0.05; done", go.display());
    let run = graphs.submit(&graph(&[graphs.step("long", &[], &work, "")]));
    let drained = |name: &str| {
        let queued = fixture.queue(&[]);
        let ran = fixture.tidemill(&["work", "--worker", name, "--drain", "--", "true"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_eq!(fixture.run(&queued).status, RunState::Success);
    };
    graphs.wait_for_code(&run, "long", "waiting_on_workers");
    drained("first");
    let _agent = graphs.agent("ann", &[]);
    graphs.wait_for_line("begin long");
    drained("second");
    fixture.write("go", "");
    assert_eq!(graphs.wait_for_end(&run), RunState::Success);
    graphs.check(&run);
}

#[test]
fn graph_check_needs_no_database() {
    let fixture = Fixture::bare(Kind::Sqlite);
    let file = fixture.write("bad.graph.yaml", "version: 1\njobs:\n  one:\n    rn: true\n    needs: [two]\n");
    let file = file.display().to_string();
    let checked = fixture.tidemill(&["graph", "check", &file]);
    assert_eq!(checked.code, Some(3), "{checked:?}");
    assert!(checked.stderr.contains("bad.graph.yaml:4:"), "{checked:?}");
    assert!(checked.stderr.contains("hint: "), "{checked:?}");
    let json = fixture.tidemill(&["--json", "graph", "check", &file]);
    assert_eq!(json.code, Some(3), "{json:?}");
    assert_eq!(json.value()["is_sound"], json!(false));
    assert!(json.value()["faults"][0]["line"].is_number(), "{json:?}");
    let schema = fixture.tidemill(&["graph", "schema"]).ok();
    assert!(schema.contains("\"$schema\""), "{schema}");
    let missing = fixture.tidemill(&["graph", "check", "nowhere.yaml"]);
    assert_eq!(missing.code, Some(2), "{missing:?}");
}

#[test]
fn graph_that_can_never_run_is_refused() {
    let fixture = Fixture::new(Kind::Sqlite);
    let submit = |text: &str| {
        let file = fixture.write("never.graph.yaml", text).display().to_string();
        fixture.tidemill(&["graph", "submit", &file, "--project", "shop", "--env", "staging"])
    };
    let unknown = submit("version: 1\njobs:\n  one: {run: 'true', pool: nowhere}\n");
    assert_eq!(unknown.code, Some(3), "{unknown:?}");
    assert!(unknown.stderr.contains("pool `nowhere` of job `one` does not exist"), "{unknown:?}");
    assert!(unknown.stderr.contains("tidemill pool set nowhere SIZE"), "{unknown:?}");
    let wide = submit("version: 1\njobs:\n  one: {run: 'true', pool: database, weight: 5}\n");
    assert_eq!(wide.code, Some(3), "{wide:?}");
    assert!(wide.stderr.contains("weight 5") && wide.stderr.contains("size 4"), "{wide:?}");
    let unknown = fixture.tidemill(&["job", "why", "run-0192f5a0-0000-7000-8000-000000000000/nope"]);
    assert_eq!(unknown.code, Some(3), "{unknown:?}");
    // The message contains the typed name instead of the derived id.
    let sentence = "job `nope` does not exist in run-0192f5a0-0000-7000-8000-000000000000";
    assert!(unknown.stderr.contains(sentence), "{unknown:?}");
}
