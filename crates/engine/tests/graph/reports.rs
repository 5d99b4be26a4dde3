//! Reports: repeated, unordered, of an old attempt, with a wrong clock, over limits; logs and outputs.

use tidemill_core::graph::record::LogLine;
use tidemill_core::job::StatusCode as C;
use tidemill_core::limits::{HEARTBEAT_STAGES_MAX, LOG_CHUNK_BYTES_MAX, TASK_LOG_BYTES_MAX};
use tidemill_core::run::{ChangeOutcome, RunState};
use tidemill_core::task::{Stage, TaskResult};
use tidemill_engine::graph::TaskReport;
use tidemill_store::RefusalCode;
use tidemill_testkit::interface::Kind;

use crate::fixture::{GraphFixture, ended, failed, graph, one, output};

pub(crate) fn line(text: &str) -> LogLine {
    LogLine { stream: "stdout".to_owned(), text: text.to_owned() }
}

pub(crate) async fn repeated_and_unordered_reports_change_nothing(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 1).await;
    let run = fixture.submit(&one("")).await;
    fixture.act().await;
    let task = agent.order().await.task_id;
    assert_eq!(agent.stage(&task, "executing").await, ChangeOutcome::Applied);
    for stage in ["preparing", "executing", "prepared", "dreaming"] {
        assert_eq!(agent.stage(&task, stage).await, ChangeOutcome::Duplicate, "{stage}");
    }
    fixture.act().await;
    assert_eq!(fixture.code(&run, "a").await, C::Executing);
    assert_eq!(agent.result(&task, ended(0)).await, ChangeOutcome::Applied);
    assert_eq!(agent.result(&task, ended(0)).await, ChangeOutcome::Duplicate);
    assert_eq!(agent.result(&task, ended(1)).await, ChangeOutcome::Stale, "the first one counts");
    assert_eq!(agent.stage(&task, "finalized").await, ChangeOutcome::Duplicate);
    fixture.act().await;
    assert_eq!(fixture.code(&run, "a").await, C::Succeeded);
    assert_eq!(
        agent.result(&task, ended(0)).await,
        ChangeOutcome::Duplicate,
        "a repeated request after a lost answer"
    );
    assert_eq!(agent.result(&task, ended(1)).await, ChangeOutcome::Stale);
    assert_eq!(agent.stage(&task, "executing").await, ChangeOutcome::Stale);
    fixture.act().await;
    assert_eq!(fixture.run(&run).await.status, RunState::Success);
}

/// A heartbeat reports a stage that no other report has announced.
pub(crate) async fn heartbeat_reports_task_stages(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 1).await;
    let run = fixture.submit(&one("")).await;
    fixture.act().await;
    let task = agent.order().await.task_id;
    assert_eq!(agent.stage(&task, "executing").await, ChangeOutcome::Applied);
    fixture.act().await;
    let reply =
        [(Stage::Prepared, C::Executing), (Stage::Executed, C::Executed), (Stage::Finalized, C::Finalized)];
    for (stage, code) in reply {
        assert_eq!(agent.heartbeat_with_stage(Some(stage)).await, Vec::<String>::new());
        fixture.act().await;
        assert_eq!(fixture.code(&run, "a").await, code, "{stage}");
    }
    agent.result(&task, ended(0)).await;
    assert_eq!(agent.heartbeat_with_stage(Some(Stage::Finalized)).await, [task]);
    fixture.act().await;
    assert_eq!(
        fixture.path(&run, "a").await,
        [C::Created, C::Initiated, C::Executing, C::Executed, C::Finalized, C::Succeeded]
    );
    // Of a cancel task only the end is reported.
    let other = fixture.submit(&one("")).await;
    fixture.act().await;
    let task = agent.order().await.task_id;
    agent.stage(&task, "executing").await;
    fixture.graphs.cancel(&other, &[], "ann", None).await.expect("it is cancelled");
    fixture.act().await;
    let stop = agent.order().await;
    assert_eq!(
        agent.heartbeat_with_stage(Some(Stage::Finalized)).await.len(),
        2,
        "the ended task, and the task to cancel"
    );
    agent.result(&stop.task_id, TaskResult::Stopped).await;
    fixture.act().await;
    assert_eq!(fixture.code(&other, "a").await, C::CancelledByUser);
}

/// The answer to a heartbeat with many stages must not be delayed.
pub(crate) async fn heartbeat_records_a_limited_number_of_stages(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 100).await;
    let names: Vec<String> = (0..=HEARTBEAT_STAGES_MAX).map(|number| format!("job-{number}")).collect();
    let jobs: Vec<(&str, &[&str])> = names.iter().map(|name| (name.as_str(), &[][..])).collect();
    fixture.submit(&graph(&jobs)).await;
    fixture.act().await;
    while !agent.poll().await.is_empty() {}
    assert_eq!(agent.have.len(), names.len());
    let reply = "SELECT count(*) FROM {ops}.tasks WHERE stage = 'executing'";
    let most = i64::try_from(HEARTBEAT_STAGES_MAX).expect("a small number");
    for count in [most, most + 1] {
        assert_eq!(agent.heartbeat_with_stage(Some(Stage::Executing)).await, Vec::<String>::new());
        assert_eq!(fixture.number(reply).await, count);
    }
}

pub(crate) async fn report_of_an_old_attempt_changes_nothing(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 1).await;
    let run = fixture.submit(&one("retries: 1")).await;
    fixture.act().await;
    let first = agent.order().await.task_id;
    agent.stage(&first, "executing").await;
    agent.result(&first, ended(1)).await;
    fixture.act().await;
    fixture.advance(6);
    agent.beat().await;
    fixture.act().await;
    let second = agent.order().await.task_id;
    assert_ne!(first, second);
    agent.stage(&second, "executing").await;
    fixture.act().await;
    assert_eq!(agent.result(&first, ended(0)).await, ChangeOutcome::Stale);
    assert_eq!(agent.stage(&first, "finalized").await, ChangeOutcome::Stale);
    fixture.act().await;
    assert_eq!(fixture.code(&run, "a").await, C::Executing);
    agent.result(&second, ended(0)).await;
    fixture.act().await;
    let job = fixture.job(&run, "a").await;
    assert_eq!((job.code, job.exit_code, job.failures), (C::Succeeded, Some(0), 1));
}

/// Reports of agents contain no times. The host clock is months away from the fixture's clock, and every stored time
/// comes from the latter.
pub(crate) async fn agent_with_a_wrong_clock_works(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 1).await;
    let run = fixture.submit(&one("")).await;
    fixture.act().await;
    let task = agent.order().await.task_id;
    fixture.advance(10);
    agent.stage(&task, "executing").await;
    agent.graphs.report_log(&agent.who, &task, 0, vec![line("hello")]).await.expect("it is stored");
    fixture.act().await;
    fixture.advance(10);
    agent.result(&task, ended(0)).await;
    fixture.act().await;
    let detail = fixture.graphs.job(&fixture.job(&run, "a").await.job_id).await.expect("the job is read");
    let begin = tidemill_testkit::interface::at(0);
    let secs = |at: Option<tidemill_core::Timestamp>| at.map(|at| (at - begin).num_seconds());
    assert_eq!(secs(detail.job.started_at), Some(0));
    assert_eq!(secs(detail.job.ended_at), Some(20));
    assert_eq!(secs(detail.tasks[0].stage_at), Some(10));
    assert_eq!(secs(detail.changes.last().map(|change| change.at)), Some(20));
    assert_eq!(secs(fixture.run(&run).await.finished_at), Some(20));
}

pub(crate) async fn logs_of_every_attempt_are_stored_up_to_a_limit(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 1).await;
    let run = fixture.submit(&one("retries: 1")).await;
    fixture.act().await;
    let first = agent.order().await.task_id;
    let log = async |task: &str, seq: i32, text: &str| {
        agent.graphs.report_log(&agent.who, task, seq, vec![line(text)]).await.expect("it is received")
    };
    assert_eq!(log(&first, 0, "first try\0").await, ChangeOutcome::Applied);
    assert_eq!(
        log(&first, 0, "something else").await,
        ChangeOutcome::Duplicate,
        "the first piece of a sequence number stays"
    );
    assert_eq!(log(&first, 1, "it broke").await, ChangeOutcome::Applied);
    agent.result(&first, ended(1)).await;
    fixture.act().await;
    assert_eq!(log(&first, 2, "late, and stored").await, ChangeOutcome::Applied);
    fixture.advance(6);
    agent.beat().await;
    fixture.act().await;
    let second = agent.clone().order().await.task_id;
    log(&second, 0, "second try").await;
    agent.result(&second, ended(2)).await;
    fixture.act().await;
    let texts = async |task: &str, after: Option<i32>| {
        let pieces = fixture.graphs.logs(task, after, 100).await.expect("the output is read");
        pieces.into_iter().flat_map(|piece| piece.lines).map(|line| line.text).collect::<Vec<_>>()
    };
    assert_eq!(texts(&first, None).await, ["first try\u{FFFD}", "it broke", "late, and stored"]);
    assert_eq!(texts(&first, Some(0)).await, ["it broke", "late, and stored"]);
    assert_eq!(texts(&second, None).await, ["second try"]);
    // The events of the run show the last log lines of the failed job.
    let page = tidemill_store::EventPage { after: 0, limit: 100 };
    let events = fixture.base.store.events(run.clone(), page).await.expect("events are read");
    let reply =
        events.iter().find(|event| event.message.starts_with("job a failed")).expect("it is notified");
    assert_eq!(reply.message, "job a failed: its command ended with 2");
    assert_eq!(reply.payload["output"][0], "second try");
    // Lines over the limit are dropped, with one notice.
    let full =
        format!("UPDATE {{ops}}.tasks SET log_bytes = {} WHERE task_id = '{second}'", TASK_LOG_BYTES_MAX - 5);
    fixture.base.plain.execute(&full).await.expect("it is nearly full");
    assert_eq!(log(&second, 1, "0123456789").await, ChangeOutcome::Applied);
    assert_eq!(log(&second, 2, "more").await, ChangeOutcome::Duplicate);
    let stored = texts(&second, Some(0)).await;
    assert_eq!(stored.len(), 1);
    assert!(stored[0].starts_with("the rest is left out"), "{stored:?}");
}

pub(crate) async fn outputs_of_the_successful_attempt_are_passed_on(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 2).await;
    let text = "version: 1\njobs:\n  a:\n    run: work\n    retries: 1\n    outputs:\n      table: 'out/*.csv'\n  \
                b:\n    run: work\n    needs: [a]\n";
    let run = fixture.submit(text).await;
    fixture.act().await;
    let first = agent.order().await.task_id;
    let mut report = TaskReport::new(ended(1));
    report.outputs = vec![output("table", "out/broken.csv")];
    agent.graphs.report_result(&agent.who, &first, report).await.expect("it is received");
    fixture.act().await;
    fixture.advance(6);
    agent.beat().await;
    fixture.act().await;
    let second = agent.order().await;
    let mut report = TaskReport::new(ended(0));
    report.outputs = vec![output("table", "out/1.csv"), output("table", "out/2 ü.csv")];
    report.unknown = vec!["colour".to_owned()];
    agent.graphs.report_result(&agent.who, &second.task_id, report).await.expect("it is received");
    fixture.act().await;
    let work = agent.order().await.work.expect("it is work");
    let paths: Vec<&str> = work.inputs.iter().map(|input| input.output.path.as_str()).collect();
    assert_eq!(paths, ["out/1.csv", "out/2 ü.csv"]);
    assert_eq!((work.inputs[0].job.as_str(), work.inputs[0].job_id.as_str()), ("a", second.job_id.as_str()));
    assert_eq!(work.inputs[0].agent_id, Some(agent.who.agent_id));
    let detail = fixture.graphs.job(&second.job_id).await.expect("the job is read");
    assert_eq!(detail.outputs, work.inputs);
    assert_eq!(detail.tasks[1].unknown, ["colour"]);
    assert_eq!(fixture.code(&run, "b").await, C::Initiated);
}

pub(crate) async fn report_over_a_limit_is_refused(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 1).await;
    fixture.submit(&graph(&[("a", &[])])).await;
    fixture.act().await;
    let task = agent.order().await.task_id;
    let long = vec![line(&"x".repeat(LOG_CHUNK_BYTES_MAX))];
    let refused = agent.graphs.report_log(&agent.who, &task, 0, long).await.expect_err("it is too long");
    assert_eq!(refused.refusal_code(), Some(RefusalCode::TooLarge));
    let mut report = TaskReport::new(ended(0));
    report.outputs = vec![output("table", "a.csv"); 10_001];
    let refused = agent.graphs.report_result(&agent.who, &task, report).await.expect_err("too many files");
    assert_eq!(refused.refusal_code(), Some(RefusalCode::TooLarge));
    let mut report = TaskReport::new(ended(0));
    report.outputs = vec![output("table", "")];
    let refused = agent.graphs.report_result(&agent.who, &task, report).await.expect_err("no path");
    assert_eq!(refused.refusal_code(), Some(RefusalCode::BadValue));
    // A message that is too long is cut, and one with a NUL is stored.
    let long = failed(&format!("{}\0", "ü".repeat(100_000)));
    assert_eq!(agent.result(&task, long.clone()).await, ChangeOutcome::Applied);
    assert_eq!(agent.result(&task, long).await, ChangeOutcome::Duplicate, "cut in the same way each time");
    assert_eq!(agent.result(&task, TaskResult::Stopped).await, ChangeOutcome::Stale);
    fixture.act().await;
}
