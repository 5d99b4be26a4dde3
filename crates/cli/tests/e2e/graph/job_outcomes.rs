//! Outcomes of jobs, their logs and their outputs.

use serde_json::json;
use tidemill_core::run::RunState;

use super::fixture::{GraphFixture, TIMEOUT, graph};
use crate::fixture::{Fixture, on_both, wait_until_within};
use crate::process::{Process, is_alive};

on_both!(
    graph_succeeds_and_passes_outputs_to_dependents,
    every_job_outcome_is_reached_and_explained,
    retried_job_keeps_the_output_of_each_attempt,
    log_follows_all_attempts_until_the_job_ends,
    output_with_control_characters_is_stored_completely,
    succeeded_jobs_are_reused,
);

fn graph_succeeds_and_passes_outputs_to_dependents(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let _agent = graphs.agent("ann", &[]);
    let run = graphs.submit(&graph(&[
        graphs.step("make", &[], "seq 1 10 > numbers.txt", "outputs: {numbers: numbers.txt}"),
        graphs.step("half", &["make"], "head -5 numbers.txt > half.txt", "outputs: {half: half.txt}"),
        graphs.step("sum", &["half", "make"], "echo sum $(cat half.txt | paste -sd+ | bc)", ""),
    ]));
    // Watched with a server, as plain lines; the exit code reports the outcome.
    let watched = fixture.tidemill(&["--server", &graphs.url, "graph", "watch", run.as_str()]);
    assert_eq!(watched.code, Some(0), "{watched:?}");
    assert!(watched.stdout.contains("make succeeded"), "{watched:?}");
    assert!(watched.stdout.contains("3 succeeded of 3"), "{watched:?}");
    assert_eq!(fixture.run(&run).status, RunState::Success);
    let logs = fixture.ok(&["graph", "logs", run.as_str(), "sum"]);
    assert_eq!(logs.trim(), "sum 15");
    let all = fixture.ok(&["graph", "logs", run.as_str()]);
    assert_eq!(all.trim(), "sum | sum 15");
    let job = graphs.job(&run, "half");
    assert_eq!(job["outputs"][0]["path"], json!("half.txt"));
    assert_eq!(job["outputs"][0]["size_bytes"], json!(10));
    let codes: Vec<&str> =
        job["changes"].as_array().unwrap().iter().map(|change| change["to_code"].as_str().unwrap()).collect();
    assert_eq!(codes.last(), Some(&"succeeded"), "{codes:?}");
    let ledger = graphs.ledger();
    assert_eq!((ledger.count("begin"), ledger.count("end")), (3, 3), "{ledger:?}");
    // `run` commands show the graph, too.
    assert_eq!(fixture.tidemill(&["run", "watch", run.as_str()]).code, Some(0));
    let shown = fixture.ok(&["run", "show", run.as_str()]);
    assert!(shown.contains("└ half") && shown.contains("succeeded"), "{shown}");
    graphs.check(&run);
}

fn every_job_outcome_is_reached_and_explained(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let _agent = graphs.agent("ann", &["--grace", "1s"]);
    let run = graphs.submit(&graph(&[
        graphs.step("good", &[], "true", ""),
        graphs.step("bad", &[], "echo broken >&2; exit 7", ""),
        graphs.step("after", &["bad"], "true", ""),
        graphs.step("empty", &[], "touch found.txt", "outputs: {wanted: lost.txt}"),
        graphs.step("secretive", &[], "true", "secrets: [MISSING_SECRET]"),
        graphs.step("slow", &[], "sleep 60", "timeout: 1s"),
        graphs.step("deaf", &[], "trap '' TERM; while true; do sleep 0.1; done", "timeout: 1s"),
    ]));
    assert_eq!(graphs.wait_for_end(&run), RunState::Failed);
    let codes = graphs.codes(&run);
    let expected = [
        ("good", "succeeded"),
        ("bad", "nonzero_exit"),
        ("after", "dependency_failed"),
        ("empty", "unmatched_patterns"),
        ("secretive", "job_error"),
        ("slow", "nonzero_exit"),
        ("deaf", "nonzero_exit"),
    ];
    for (name, code) in expected {
        assert_eq!(codes[name], code, "{name}: {codes:?}");
    }
    assert_eq!(fixture.tidemill(&["graph", "watch", run.as_str()]).code, Some(3));
    let message = |name: &str| fixture.ok(&["job", "why", &format!("{run}/{name}")]);
    assert!(message("bad").contains("nonzero_exit") && message("bad").contains('7'), "{}", message("bad"));
    assert!(message("after").contains("bad"), "{}", message("after"));
    // The missing and the new files are named.
    assert!(
        message("empty").contains("no file matches wanted (lost.txt); new files are found.txt"),
        "{}",
        message("empty")
    );
    assert!(message("secretive").contains("MISSING_SECRET"), "{}", message("secretive"));
    // A command that times out gets SIGTERM, and then SIGKILL.
    for (name, exit_code) in [("slow", 143), ("deaf", 137)] {
        assert!(message(name).contains("ran longer than 1 s"), "{}", message(name));
        let job = graphs.job(&run, name);
        assert_eq!(job["job"]["exit_code"], json!(exit_code), "{job}");
        assert!(!is_alive(graphs.ledger().pid(name)), "{name}");
    }
    assert_eq!(fixture.ok(&["graph", "logs", run.as_str(), "bad"]).trim(), "broken");
    // A job whose dependency failed never runs.
    assert_eq!(graphs.ledger().count("begin after"), 0);
    graphs.check(&run);
}

fn retried_job_keeps_the_output_of_each_attempt(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let _agent = graphs.agent("ann", &[]);
    let work = "echo \"attempt $TIDEMILL_ATTEMPT\"; test \"$TIDEMILL_ATTEMPT\" -ge 3";
    let step = graphs.step("stubborn", &[], &format!("({work}) || exit 1"), "retries: 5");
    let run = graphs.submit(&graph(&[step]));
    assert_eq!(graphs.wait_for_end(&run), RunState::Success);
    for attempt in ["1", "2", "3"] {
        let words = ["graph", "logs", run.as_str(), "stubborn", "--attempt", attempt];
        assert_eq!(fixture.ok(&words).trim(), format!("attempt {attempt}"));
    }
    let job = graphs.job(&run, "stubborn");
    assert_eq!((&job["job"]["tasks"], &job["job"]["failures"]), (&json!(3), &json!(2)), "{job}");
    assert_eq!(graphs.ledger().count("begin stubborn"), 3);
    graphs.check(&run);
}

/// The log shows lines while the command runs, then those of the next attempt, and ends with the job.
fn log_follows_all_attempts_until_the_job_ends(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let _agent = graphs.agent("ann", &[]);
    let go = |number: &str| fixture.path(&format!("go.{number}")).display().to_string();
    let work = format!(
        "echo \"begun $TIDEMILL_ATTEMPT\"; while ! test -e {}$TIDEMILL_ATTEMPT; do sleep 0.05; done; \
         echo \"over $TIDEMILL_ATTEMPT\"; test \"$TIDEMILL_ATTEMPT\" -ge 2 || exit 1",
        go("")
    );
    let run = graphs.submit(&graph(&[graphs.step("printer", &[], &work, "retries: 1")]));
    let words = ["graph", "logs", run.as_str(), "printer", "-f"];
    let mut follower = Process::start(fixture, "follower", &mut fixture.command(&words));
    for number in ["1", "2"] {
        wait_until_within("a line of a command that runs is shown", TIMEOUT, || {
            follower.stdout().contains(&format!("begun {number}")).then_some(())
        });
        assert!(follower.is_running(), "{}", follower.stdout());
        assert!(!follower.stdout().contains(&format!("over {number}")), "{}", follower.stdout());
        fixture.write(&format!("go.{number}"), "");
    }
    assert_eq!(follower.wait_for_exit(TIMEOUT), Some(0), "{}", follower.stderr());
    assert_eq!(follower.stdout(), "begun 1\nover 1\nbegun 2\nover 2\n");
    assert!(follower.stderr().contains("— attempt 2"), "{}", follower.stderr());
    assert_eq!(graphs.wait_for_end(&run), RunState::Success);
    graphs.check(&run);
}

/// A control character takes six bytes in JSON, which the size limit of a log piece must count.
fn output_with_control_characters_is_stored_completely(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let _agent = graphs.agent("ann", &[]);
    let work = "head -c 250000 /dev/zero | tr '\\000' '\\001' | fold -b -w 1000; echo; echo last";
    let run = graphs.submit(&graph(&[graphs.step("noisy", &[], work, "")]));
    assert_eq!(graphs.wait_for_end(&run), RunState::Success);
    let logs = fixture.ok(&["graph", "logs", run.as_str(), "noisy"]);
    assert!(logs.trim_end().ends_with("last") && !logs.contains("missing"), "{}", logs.lines().count());
    assert_eq!(logs.lines().count(), 251);
    graphs.check(&run);
}

fn succeeded_jobs_are_reused(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let _agent = graphs.agent("ann", &[]);
    let flag = fixture.path("fixed");
    let check = format!("cat made.txt; test -e {}", flag.display());
    let text = graph(&[
        graphs.step("make", &[], "echo made > made.txt", "outputs: {made: made.txt}"),
        graphs.step("use", &["make"], &format!("({check}) || exit 1"), ""),
        graphs.step("independent", &[], "true", ""),
    ]);
    let run = graphs.submit(&text);
    assert_eq!(graphs.wait_for_end(&run), RunState::Failed);
    fixture.write("fixed", "");
    // The retry runs only the failed job, with the outputs of the others.
    let next = fixture.ok(&["graph", "retry", run.as_str()]).trim().parse().expect("a run");
    assert_eq!(graphs.wait_for_end(&next), RunState::Success);
    assert_eq!(fixture.ok(&["graph", "logs", next.as_str(), "use"]).trim(), "made");
    let ledger = graphs.ledger();
    assert_eq!(
        (ledger.count("begin make"), ledger.count("begin use"), ledger.count("begin independent")),
        (1, 2, 1),
        "{ledger:?}"
    );
    assert_eq!(graphs.codes(&next)["make"], "succeeded");
    // With --only, the succeeded dependency is reused. With --rerun-needed, it runs again.
    let only = graphs.submit_with(&text, &["--only", "use"]);
    assert_eq!(graphs.wait_for_end(&only), RunState::Success);
    assert_eq!(graphs.ledger().count("begin make"), 1);
    assert!(!graphs.codes(&only).contains_key("independent"));
    let forced = graphs.submit_with(&text, &["--only", "use", "--rerun-needed"]);
    assert_eq!(graphs.wait_for_end(&forced), RunState::Success);
    assert_eq!(graphs.ledger().count("begin make"), 2);
    // The same key returns the same graph.
    let once = graphs.submit_with(&text, &["--key", "once"]);
    assert_eq!(graphs.submit_with(&text, &["--key", "once"]), once);
    graphs.wait_for_end(&once);
    for run in [&run, &next, &only, &forced, &once] {
        graphs.check(run);
    }
}
