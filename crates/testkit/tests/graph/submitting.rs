//! Submitting: the same twice, only some jobs, faults, versions.

use tidemill_core::job::StatusCode as C;
use tidemill_core::run::RunState;
use tidemill_engine::graph::{JobPage, SubmitFault, SubmitGraph, TaskReport};
use tidemill_store::RefusalCode;
use tidemill_testkit::door::Kind;

use crate::scene::{Scene, ask, ended, graph, one, output};

pub(crate) async fn the_same_submission_twice(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let asked = SubmitGraph {
        idempotency_key: Some("monday".to_owned()),
        ..ask(&graph(&[("a", &[]), ("b", &["a"])]))
    };
    let first = scene.graphs.submit(asked.clone()).await.expect("it is taken");
    let second = scene.graphs.submit(asked.clone()).await.expect("it is known");
    assert_eq!((first.created, second.created), (true, false));
    assert_eq!((&second.run_id, second.jobs), (&first.run_id, 2));
    let other = SubmitGraph { text: one(""), ..asked };
    let refused = scene.graphs.submit(other).await.expect_err("the key is another's");
    let SubmitFault::Store(error) = refused else { panic!("{refused:?}") };
    assert_eq!(error.refusal_code(), Some(RefusalCode::KeyConflict));
    scene.act().await;
    assert_eq!(scene.number("SELECT count(*) FROM {ops}.jobs").await, 2);
    assert_eq!(scene.number("SELECT count(*) FROM {ops}.graphs").await, 1);
}

pub(crate) async fn only_some_jobs_and_what_they_need(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 4).await;
    let text = graph(&[("a", &[]), ("b", &["a"]), ("c", &["b"]), ("d", &[])]);
    let only = |names: &[&str]| SubmitGraph {
        only: names.iter().map(|&name| name.to_owned()).collect(),
        ..ask(&text)
    };
    // Nothing has succeeded yet: everything that c needs runs too, and d does not.
    let first = scene.graphs.submit(only(&["c"])).await.expect("it is taken");
    assert_eq!((first.jobs, first.reused), (3, 0));
    scene.act().await;
    let order = robot.order().await;
    let mut report = TaskReport::new(ended(0));
    report.outputs = vec![output("o", "o.csv")];
    robot.graphs.report_result(&robot.who, &order.task_id, report).await.expect("it is heard");
    scene.act().await;
    let order = robot.order().await;
    robot.result(&order.task_id, ended(1)).await;
    scene.act().await;
    assert_eq!(scene.run(&first.run_id).await.status, RunState::Failed);
    // b failed, and runs again; a succeeded, and is reused.
    scene.advance(1);
    let second = scene.graphs.submit(only(&["c"])).await.expect("it is taken");
    assert_eq!((second.jobs, second.reused), (3, 1));
    let kept = scene.job(&second.run_id, "a").await;
    assert_eq!(
        (kept.code, kept.reused_from),
        (C::Succeeded, Some(scene.job(&first.run_id, "a").await.job_id))
    );
    scene.act().await;
    let order = robot.order().await;
    let work = order.work.clone().expect("it is work");
    assert_eq!((work.spec.name.as_str(), work.inputs.len()), ("b", 1));
    robot.succeed(&order).await;
    scene.play(std::slice::from_mut(&mut robot), 5).await;
    assert_eq!(scene.run(&second.run_id).await.status, RunState::Success);
    // b is reused now, so a is not looked at any more. What is asked for always runs.
    scene.advance(1);
    let third = scene.graphs.submit(only(&["c"])).await.expect("it is taken");
    assert_eq!((third.jobs, third.reused), (2, 1));
    assert_eq!(scene.code(&third.run_id, "c").await, C::Created);
    scene.advance(1);
    let fourth = scene.graphs.submit(SubmitGraph { rerun_needed: true, ..only(&["c"]) }).await;
    let fourth = fourth.expect("it is taken");
    assert_eq!((fourth.jobs, fourth.reused), (3, 0));
    // Another workspace shares nothing.
    let other = SubmitGraph { workspace: Some("other".to_owned()), ..only(&["c"]) };
    let other = scene.graphs.submit(other).await.expect("it is taken");
    assert_eq!((other.jobs, other.reused), (3, 0));
    let refused = scene.graphs.submit(only(&["c", "x", "y"])).await.expect_err("there is no x");
    assert_eq!(refused.to_string(), "the graph has no job `x`, `y`");
}

pub(crate) async fn a_graph_that_cannot_be_is_refused_whole(kind: Kind) {
    let scene = Scene::open(kind).await;
    let text =
        "version: 1\njobs:\n  a:\n    run: work\n    needs: [b]\n  b:\n    run: work\n    needs: [a, x]\n";
    let refused = scene.graphs.submit(ask(text)).await.expect_err("it is no graph");
    let SubmitFault::Faults(faults) = refused else { panic!("{refused:?}") };
    assert!(!faults.is_empty());
    let nowhere = SubmitGraph { project: "none".to_owned(), ..ask(&one("")) };
    let refused = scene.graphs.submit(nowhere).await.expect_err("there is no such project");
    let SubmitFault::Store(error) = refused else { panic!("{refused:?}") };
    assert_eq!(error.refusal_code(), Some(RefusalCode::UnknownProject));
    let large = ask(&format!("version: 1\n# {}\n", "x".repeat(8 * 1024 * 1024)));
    let refused = scene.graphs.submit(large).await.expect_err("it is too large");
    let SubmitFault::Store(error) = refused else { panic!("{refused:?}") };
    assert_eq!(error.refusal_code(), Some(RefusalCode::TooLarge));
    for table in ["runs", "graphs", "jobs", "job_changes"] {
        assert_eq!(scene.number(&format!("SELECT count(*) FROM {{ops}}.{table}")).await, 0, "{table}");
    }
}

pub(crate) async fn changes_are_told_by_version(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 1).await;
    let run = scene.submit(&graph(&[("a", &[]), ("b", &["a"]), ("c", &["b"])])).await;
    let mut seen = scene.graphs.graph(&run).await.expect("the graph is read").version;
    let mut told: Vec<(String, C)> = Vec::new();
    for _ in 0..20 {
        scene.act().await;
        loop {
            // In pieces, as a reader with little room would.
            let page = JobPage { changed_after: Some(seen), limit: 1, ..JobPage::default() };
            let jobs = scene.graphs.jobs(&run, page).await.expect("changes are read");
            let Some(job) = jobs.into_iter().next() else { break };
            assert!(job.version > seen);
            seen = job.version;
            told.push((job.name, job.code));
        }
        for order in robot.poll().await {
            robot.result(&order.task_id, ended(0)).await;
        }
    }
    let of =
        |name: &str| told.iter().filter(|(job, _)| job == name).map(|(_, code)| *code).collect::<Vec<_>>();
    assert_eq!(of("a"), [C::Initiated, C::Succeeded]);
    assert_eq!(of("c"), [C::WaitingOnDependencies, C::Initiated, C::Succeeded]);
    assert_eq!(scene.graphs.graph(&run).await.expect("the graph is read").version, seen);
}
