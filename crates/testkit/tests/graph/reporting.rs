//! Reports: twice, out of order, of an old attempt, with a wrong clock, out of bounds; logs and outputs.

use tidemill_core::graph::record::LogLine;
use tidemill_core::job::StatusCode as C;
use tidemill_core::limits::{BEAT_STAGES_MAX, LOG_CHUNK_BYTES_MAX, TASK_LOG_BYTES_MAX};
use tidemill_core::run::{Applied, RunState};
use tidemill_core::task::{Stage, TaskResult};
use tidemill_engine::graph::TaskReport;
use tidemill_store::RefusalCode;
use tidemill_testkit::door::Kind;

use crate::scene::{Scene, ended, failed, graph, one, output};

pub(crate) fn line(text: &str) -> LogLine {
    LogLine { stream: "stdout".to_owned(), text: text.to_owned() }
}

pub(crate) async fn reports_out_of_order_and_twice(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 1).await;
    let run = scene.submit(&one("")).await;
    scene.act().await;
    let task = robot.order().await.task_id;
    assert_eq!(robot.stage(&task, "executing").await, Applied::Applied);
    for stage in ["preparing", "executing", "prepared", "dreaming"] {
        assert_eq!(robot.stage(&task, stage).await, Applied::Duplicate, "{stage}");
    }
    scene.act().await;
    assert_eq!(scene.code(&run, "a").await, C::Executing);
    assert_eq!(robot.result(&task, ended(0)).await, Applied::Applied);
    assert_eq!(robot.result(&task, ended(0)).await, Applied::Duplicate);
    assert_eq!(robot.result(&task, ended(1)).await, Applied::Stale, "the first one counts");
    assert_eq!(robot.stage(&task, "finalized").await, Applied::Duplicate);
    scene.act().await;
    assert_eq!(scene.code(&run, "a").await, C::Succeeded);
    assert_eq!(
        robot.result(&task, ended(0)).await,
        Applied::Duplicate,
        "an answer that was lost is asked again"
    );
    assert_eq!(robot.result(&task, ended(1)).await, Applied::Stale);
    assert_eq!(robot.stage(&task, "executing").await, Applied::Stale);
    scene.act().await;
    assert_eq!(scene.run(&run).await.status, RunState::Success);
}

/// A stage that lasts longer than the time between two signs of life is seen, also where nothing else told it.
pub(crate) async fn a_sign_of_life_tells_how_far_a_task_is(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 1).await;
    let run = scene.submit(&one("")).await;
    scene.act().await;
    let task = robot.order().await.task_id;
    assert_eq!(robot.stage(&task, "executing").await, Applied::Applied);
    scene.act().await;
    let told =
        [(Stage::Prepared, C::Executing), (Stage::Executed, C::Executed), (Stage::Finalized, C::Finalized)];
    for (stage, code) in told {
        assert_eq!(robot.beat_in(Some(stage)).await, Vec::<String>::new());
        scene.act().await;
        assert_eq!(scene.code(&run, "a").await, code, "{stage}");
    }
    robot.result(&task, ended(0)).await;
    assert_eq!(robot.beat_in(Some(Stage::Finalized)).await, [task]);
    scene.act().await;
    assert_eq!(
        scene.path(&run, "a").await,
        [C::Created, C::Initiated, C::Executing, C::Executed, C::Finalized, C::Succeeded]
    );
    // Of an order to stop nothing is told but its end.
    let other = scene.submit(&one("")).await;
    scene.act().await;
    let task = robot.order().await.task_id;
    robot.stage(&task, "executing").await;
    scene.graphs.cancel(&other, &[], "ann", None).await.expect("it is cancelled");
    scene.act().await;
    let stop = robot.order().await;
    assert_eq!(robot.beat_in(Some(Stage::Finalized)).await.len(), 2, "what ended, and what is to be stopped");
    robot.result(&stop.task_id, TaskResult::Stopped).await;
    scene.act().await;
    assert_eq!(scene.code(&other, "a").await, C::CancelledByUser);
}

/// However much an agent has to tell at once, the answer to its sign of life comes soon.
pub(crate) async fn a_sign_of_life_tells_only_so_much(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 100).await;
    let names: Vec<String> = (0..=BEAT_STAGES_MAX).map(|number| format!("job-{number}")).collect();
    let jobs: Vec<(&str, &[&str])> = names.iter().map(|name| (name.as_str(), &[][..])).collect();
    scene.submit(&graph(&jobs)).await;
    scene.act().await;
    while !robot.poll().await.is_empty() {}
    assert_eq!(robot.have.len(), names.len());
    let told = "SELECT count(*) FROM {ops}.tasks WHERE stage = 'executing'";
    let most = i64::try_from(BEAT_STAGES_MAX).expect("a small number");
    for count in [most, most + 1] {
        assert_eq!(robot.beat_in(Some(Stage::Executing)).await, Vec::<String>::new());
        assert_eq!(scene.number(told).await, count);
    }
}

pub(crate) async fn a_report_of_an_old_attempt_changes_nothing(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 1).await;
    let run = scene.submit(&one("retries: 1")).await;
    scene.act().await;
    let first = robot.order().await.task_id;
    robot.stage(&first, "executing").await;
    robot.result(&first, ended(1)).await;
    scene.act().await;
    scene.advance(6);
    robot.beat().await;
    scene.act().await;
    let second = robot.order().await.task_id;
    assert_ne!(first, second);
    robot.stage(&second, "executing").await;
    scene.act().await;
    assert_eq!(robot.result(&first, ended(0)).await, Applied::Stale);
    assert_eq!(robot.stage(&first, "finalized").await, Applied::Stale);
    scene.act().await;
    assert_eq!(scene.code(&run, "a").await, C::Executing);
    robot.result(&second, ended(0)).await;
    scene.act().await;
    let job = scene.job(&run, "a").await;
    assert_eq!((job.code, job.exit_code, job.failures), (C::Succeeded, Some(0), 1));
}

/// What an agent says carries no time at all; this shows that none sneaks in: the host's clock is an hour (here:
/// months) away from the clock that decides, and every time that is kept is of the latter.
pub(crate) async fn an_agent_with_a_wrong_clock_is_as_good_as_any(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 1).await;
    let run = scene.submit(&one("")).await;
    scene.act().await;
    let task = robot.order().await.task_id;
    scene.advance(10);
    robot.stage(&task, "executing").await;
    robot.graphs.report_log(&robot.who, &task, 0, vec![line("hello")]).await.expect("it is kept");
    scene.act().await;
    scene.advance(10);
    robot.result(&task, ended(0)).await;
    scene.act().await;
    let detail = scene.graphs.job(&scene.job(&run, "a").await.job_id).await.expect("the job is read");
    let begin = tidemill_testkit::door::at(0);
    let secs = |at: Option<tidemill_core::Timestamp>| at.map(|at| (at - begin).num_seconds());
    assert_eq!(secs(detail.job.started_at), Some(0));
    assert_eq!(secs(detail.job.ended_at), Some(20));
    assert_eq!(secs(detail.tasks[0].stage_at), Some(10));
    assert_eq!(secs(detail.changes.last().map(|change| change.at)), Some(20));
    assert_eq!(secs(scene.run(&run).await.finished_at), Some(20));
}

pub(crate) async fn logs_of_every_attempt_are_kept_and_bounded(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 1).await;
    let run = scene.submit(&one("retries: 1")).await;
    scene.act().await;
    let first = robot.order().await.task_id;
    let log = async |task: &str, seq: i32, text: &str| {
        robot.graphs.report_log(&robot.who, task, seq, vec![line(text)]).await.expect("it is heard")
    };
    assert_eq!(log(&first, 0, "first try\0").await, Applied::Applied);
    assert_eq!(log(&first, 0, "something else").await, Applied::Duplicate, "the first of a place stays");
    assert_eq!(log(&first, 1, "it broke").await, Applied::Applied);
    robot.result(&first, ended(1)).await;
    scene.act().await;
    assert_eq!(log(&first, 2, "late, and kept").await, Applied::Applied);
    scene.advance(6);
    robot.beat().await;
    scene.act().await;
    let second = robot.clone().order().await.task_id;
    log(&second, 0, "second try").await;
    robot.result(&second, ended(2)).await;
    scene.act().await;
    let texts = async |task: &str, after: Option<i32>| {
        let pieces = scene.graphs.logs(task, after, 100).await.expect("the output is read");
        pieces.into_iter().flat_map(|piece| piece.lines).map(|line| line.text).collect::<Vec<_>>()
    };
    assert_eq!(texts(&first, None).await, ["first try\u{FFFD}", "it broke", "late, and kept"]);
    assert_eq!(texts(&first, Some(0)).await, ["it broke", "late, and kept"]);
    assert_eq!(texts(&second, None).await, ["second try"]);
    // The record of the run shows the last lines of what failed.
    let page = tidemill_store::EventPage { after: 0, limit: 100 };
    let events = scene.stage.store.events(run.clone(), page).await.expect("events are read");
    let told = events.iter().find(|event| event.message.starts_with("job a failed")).expect("it is told");
    assert_eq!(told.message, "job a failed: its command ended with 2");
    assert_eq!(told.payload["output"][0], "second try");
    // What is too much is left out, and it is said once.
    let full =
        format!("UPDATE {{ops}}.tasks SET log_bytes = {} WHERE task_id = '{second}'", TASK_LOG_BYTES_MAX - 5);
    scene.stage.plain.execute(&full).await.expect("it is nearly full");
    assert_eq!(log(&second, 1, "0123456789").await, Applied::Applied);
    assert_eq!(log(&second, 2, "more").await, Applied::Duplicate);
    let kept = texts(&second, Some(0)).await;
    assert_eq!(kept.len(), 1);
    assert!(kept[0].starts_with("the rest is left out"), "{kept:?}");
}

pub(crate) async fn outputs_of_the_attempt_that_counts_are_handed_on(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 2).await;
    let text = "version: 1\njobs:\n  a:\n    run: work\n    retries: 1\n    outputs:\n      table: 'out/*.csv'\n  \
                b:\n    run: work\n    needs: [a]\n";
    let run = scene.submit(text).await;
    scene.act().await;
    let first = robot.order().await.task_id;
    let mut report = TaskReport::new(ended(1));
    report.outputs = vec![output("table", "out/broken.csv")];
    robot.graphs.report_result(&robot.who, &first, report).await.expect("it is heard");
    scene.act().await;
    scene.advance(6);
    robot.beat().await;
    scene.act().await;
    let second = robot.order().await;
    let mut report = TaskReport::new(ended(0));
    report.outputs = vec![output("table", "out/1.csv"), output("table", "out/2 ü.csv")];
    report.unknown = vec!["colour".to_owned()];
    robot.graphs.report_result(&robot.who, &second.task_id, report).await.expect("it is heard");
    scene.act().await;
    let work = robot.order().await.work.expect("it is work");
    let paths: Vec<&str> = work.inputs.iter().map(|input| input.output.path.as_str()).collect();
    assert_eq!(paths, ["out/1.csv", "out/2 ü.csv"]);
    assert_eq!((work.inputs[0].job.as_str(), work.inputs[0].job_id.as_str()), ("a", second.job_id.as_str()));
    assert_eq!(work.inputs[0].agent_id, Some(robot.who.agent_id));
    let detail = scene.graphs.job(&second.job_id).await.expect("the job is read");
    assert_eq!(detail.outputs, work.inputs);
    assert_eq!(detail.tasks[1].unknown, ["colour"]);
    assert_eq!(scene.code(&run, "b").await, C::Initiated);
}

pub(crate) async fn what_is_out_of_bounds_is_refused(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 1).await;
    scene.submit(&graph(&[("a", &[])])).await;
    scene.act().await;
    let task = robot.order().await.task_id;
    let long = vec![line(&"x".repeat(LOG_CHUNK_BYTES_MAX))];
    let refused = robot.graphs.report_log(&robot.who, &task, 0, long).await.expect_err("it is too long");
    assert_eq!(refused.refusal_code(), Some(RefusalCode::TooLarge));
    let mut report = TaskReport::new(ended(0));
    report.outputs = vec![output("table", "a.csv"); 10_001];
    let refused = robot.graphs.report_result(&robot.who, &task, report).await.expect_err("too many files");
    assert_eq!(refused.refusal_code(), Some(RefusalCode::TooLarge));
    let mut report = TaskReport::new(ended(0));
    report.outputs = vec![output("table", "")];
    let refused = robot.graphs.report_result(&robot.who, &task, report).await.expect_err("no path");
    assert_eq!(refused.refusal_code(), Some(RefusalCode::BadValue));
    // A message that is too long is cut, and one with a NUL is kept.
    let long = failed(&format!("{}\0", "ü".repeat(100_000)));
    assert_eq!(robot.result(&task, long.clone()).await, Applied::Applied);
    assert_eq!(robot.result(&task, long).await, Applied::Duplicate, "cut in the same way each time");
    assert_eq!(robot.result(&task, TaskResult::Stopped).await, Applied::Stale);
    scene.act().await;
}
