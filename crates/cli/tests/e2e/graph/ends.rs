//! Every way in which a job ends, and what is left of it.

use serde_json::json;
use tidemill_core::run::RunState;

use super::ground::{PATIENCE, Site, graph};
use crate::process::{Process, is_alive};
use crate::stage::{Stage, on_both, until_within};

on_both!(
    a_graph_runs_to_its_end_and_hands_files_on,
    every_end_of_a_job_is_reached_and_told,
    a_job_that_is_tried_again_keeps_what_each_attempt_wrote,
    a_log_is_followed_from_attempt_to_attempt_until_the_job_has_ended,
    output_that_is_wide_as_json_is_kept_whole,
    what_succeeded_is_reused,
);

fn a_graph_runs_to_its_end_and_hands_files_on(stage: &Stage) {
    let site = Site::start(stage);
    let _agent = site.agent("ann", &[]);
    let run = site.submit(&graph(&[
        site.step("make", &[], "seq 1 10 > numbers.txt", "outputs: {numbers: numbers.txt}"),
        site.step("half", &["make"], "head -5 numbers.txt > half.txt", "outputs: {half: half.txt}"),
        site.step("sum", &["half", "make"], "echo sum $(cat half.txt | paste -sd+ | bc)", ""),
    ]));
    // Followed over HTTP, as plain lines; the exit code tells the outcome.
    let watched = stage.tidemill(&["--server", &site.url, "graph", "watch", run.as_str()]);
    assert_eq!(watched.code, Some(0), "{watched:?}");
    assert!(watched.stdout.contains("make succeeded"), "{watched:?}");
    assert!(watched.stdout.contains("3 succeeded of 3"), "{watched:?}");
    assert_eq!(stage.run(&run).status, RunState::Success);
    let logs = stage.ok(&["graph", "logs", run.as_str(), "sum"]);
    assert_eq!(logs.trim(), "sum 15");
    let all = stage.ok(&["graph", "logs", run.as_str()]);
    assert_eq!(all.trim(), "sum | sum 15");
    let job = site.job(&run, "half");
    assert_eq!(job["outputs"][0]["path"], json!("half.txt"));
    assert_eq!(job["outputs"][0]["size_bytes"], json!(10));
    let codes: Vec<&str> =
        job["changes"].as_array().unwrap().iter().map(|change| change["to_code"].as_str().unwrap()).collect();
    assert_eq!(codes.last(), Some(&"succeeded"), "{codes:?}");
    let ledger = site.ledger();
    assert_eq!((ledger.count("begin"), ledger.count("end")), (3, 3), "{ledger:?}");
    // `run` commands say the same of it.
    assert_eq!(stage.tidemill(&["run", "watch", run.as_str()]).code, Some(0));
    let shown = stage.ok(&["run", "show", run.as_str()]);
    assert!(shown.contains("└ half") && shown.contains("succeeded"), "{shown}");
    site.check(&run);
}

fn every_end_of_a_job_is_reached_and_told(stage: &Stage) {
    let site = Site::start(stage);
    let _agent = site.agent("ann", &["--grace", "1s"]);
    let run = site.submit(&graph(&[
        site.step("good", &[], "true", ""),
        site.step("bad", &[], "echo broken >&2; exit 7", ""),
        site.step("after", &["bad"], "true", ""),
        site.step("empty", &[], "touch found.txt", "outputs: {wanted: lost.txt}"),
        site.step("secretive", &[], "true", "secrets: [NOBODY_HAS_IT]"),
        site.step("slow", &[], "sleep 60", "timeout: 1s"),
        site.step("deaf", &[], "trap '' TERM; while true; do sleep 0.1; done", "timeout: 1s"),
    ]));
    assert_eq!(site.until_ended(&run), RunState::Failed);
    let codes = site.codes(&run);
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
    assert_eq!(stage.tidemill(&["graph", "watch", run.as_str()]).code, Some(3));
    let told = |name: &str| stage.ok(&["job", "why", &format!("{run}/{name}")]);
    assert!(told("bad").contains("nonzero_exit") && told("bad").contains('7'), "{}", told("bad"));
    assert!(told("after").contains("bad"), "{}", told("after"));
    // What is missing is named, and what is there instead.
    assert!(
        told("empty").contains("no file matches wanted (lost.txt); new files are found.txt"),
        "{}",
        told("empty")
    );
    assert!(told("secretive").contains("NOBODY_HAS_IT"), "{}", told("secretive"));
    // Out of time, a command is asked to end, and killed where it does not: by signals 15 and 9.
    for (name, exit_code) in [("slow", 143), ("deaf", 137)] {
        assert!(told(name).contains("ran longer than 1 s"), "{}", told(name));
        let job = site.job(&run, name);
        assert_eq!(job["job"]["exit_code"], json!(exit_code), "{job}");
        assert!(!is_alive(site.ledger().pid(name)), "{name}");
    }
    assert_eq!(stage.ok(&["graph", "logs", run.as_str(), "bad"]).trim(), "broken");
    // The command of a job whose needs failed never ran.
    assert_eq!(site.ledger().count("begin after"), 0);
    site.check(&run);
}

fn a_job_that_is_tried_again_keeps_what_each_attempt_wrote(stage: &Stage) {
    let site = Site::start(stage);
    let _agent = site.agent("ann", &[]);
    let work = "echo \"attempt $TIDEMILL_ATTEMPT\"; test \"$TIDEMILL_ATTEMPT\" -ge 3";
    let step = site.step("stubborn", &[], &format!("({work}) || exit 1"), "retries: 5");
    let run = site.submit(&graph(&[step]));
    assert_eq!(site.until_ended(&run), RunState::Success);
    for attempt in ["1", "2", "3"] {
        let words = ["graph", "logs", run.as_str(), "stubborn", "--attempt", attempt];
        assert_eq!(stage.ok(&words).trim(), format!("attempt {attempt}"));
    }
    let job = site.job(&run, "stubborn");
    assert_eq!((&job["job"]["tasks"], &job["job"]["failures"]), (&json!(3), &json!(2)), "{job}");
    assert_eq!(site.ledger().count("begin stubborn"), 3);
    site.check(&run);
}

/// Lines are shown while the command runs, then those of the next attempt, and then it ends by itself.
fn a_log_is_followed_from_attempt_to_attempt_until_the_job_has_ended(stage: &Stage) {
    let site = Site::start(stage);
    let _agent = site.agent("ann", &[]);
    let go = |number: &str| stage.path(&format!("go.{number}")).display().to_string();
    let work = format!(
        "echo \"begun $TIDEMILL_ATTEMPT\"; while ! test -e {}$TIDEMILL_ATTEMPT; do sleep 0.05; done; \
         echo \"over $TIDEMILL_ATTEMPT\"; test \"$TIDEMILL_ATTEMPT\" -ge 2 || exit 1",
        go("")
    );
    let run = site.submit(&graph(&[site.step("talker", &[], &work, "retries: 1")]));
    let words = ["graph", "logs", run.as_str(), "talker", "-f"];
    let mut follower = Process::start(stage, "follower", &mut stage.command(&words));
    for number in ["1", "2"] {
        until_within("a line of a command that runs is shown", PATIENCE, || {
            follower.wrote().contains(&format!("begun {number}")).then_some(())
        });
        assert!(follower.is_running(), "{}", follower.wrote());
        assert!(!follower.wrote().contains(&format!("over {number}")), "{}", follower.wrote());
        stage.write(&format!("go.{number}"), "");
    }
    assert_eq!(follower.ended_within(PATIENCE), Some(0), "{}", follower.said());
    assert_eq!(follower.wrote(), "begun 1\nover 1\nbegun 2\nover 2\n");
    assert!(follower.said().contains("— attempt 2"), "{}", follower.said());
    assert_eq!(site.until_ended(&run), RunState::Success);
    site.check(&run);
}

/// A control character takes six bytes on its way to the server: a piece of the log is still taken.
fn output_that_is_wide_as_json_is_kept_whole(stage: &Stage) {
    let site = Site::start(stage);
    let _agent = site.agent("ann", &[]);
    let work = "head -c 250000 /dev/zero | tr '\\000' '\\001' | fold -b -w 1000; echo; echo last";
    let run = site.submit(&graph(&[site.step("noisy", &[], work, "")]));
    assert_eq!(site.until_ended(&run), RunState::Success);
    let logs = stage.ok(&["graph", "logs", run.as_str(), "noisy"]);
    assert!(logs.trim_end().ends_with("last") && !logs.contains("missing"), "{}", logs.lines().count());
    assert_eq!(logs.lines().count(), 251);
    site.check(&run);
}

fn what_succeeded_is_reused(stage: &Stage) {
    let site = Site::start(stage);
    let _agent = site.agent("ann", &[]);
    let flag = stage.path("mended");
    let check = format!("cat made.txt; test -e {}", flag.display());
    let text = graph(&[
        site.step("make", &[], "echo made > made.txt", "outputs: {made: made.txt}"),
        site.step("use", &["make"], &format!("({check}) || exit 1"), ""),
        site.step("beside", &[], "true", ""),
    ]);
    let run = site.submit(&text);
    assert_eq!(site.until_ended(&run), RunState::Failed);
    stage.write("mended", "");
    // Another try runs what failed, with what the other jobs left.
    let next = stage.ok(&["graph", "retry", run.as_str()]).trim().parse().expect("a run");
    assert_eq!(site.until_ended(&next), RunState::Success);
    assert_eq!(stage.ok(&["graph", "logs", next.as_str(), "use"]).trim(), "made");
    let ledger = site.ledger();
    assert_eq!(
        (ledger.count("begin make"), ledger.count("begin use"), ledger.count("begin beside")),
        (1, 2, 1),
        "{ledger:?}"
    );
    assert_eq!(site.codes(&next)["make"], "succeeded");
    // Only one job is asked for: what it needs succeeded before. By force it runs again.
    let only = site.submit_with(&text, &["--only", "use"]);
    assert_eq!(site.until_ended(&only), RunState::Success);
    assert_eq!(site.ledger().count("begin make"), 1);
    assert!(!site.codes(&only).contains_key("beside"));
    let forced = site.submit_with(&text, &["--only", "use", "--rerun-needed"]);
    assert_eq!(site.until_ended(&forced), RunState::Success);
    assert_eq!(site.ledger().count("begin make"), 2);
    // The same key is the same graph.
    let once = site.submit_with(&text, &["--key", "once"]);
    assert_eq!(site.submit_with(&text, &["--key", "once"]), once);
    site.until_ended(&once);
    for run in [&run, &next, &only, &forced, &once] {
        site.check(run);
    }
}
