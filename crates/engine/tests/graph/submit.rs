//! Submit: repeated, some jobs only, invalid graphs, versions.

use tidemill_core::job::StatusCode as C;
use tidemill_core::run::RunState;
use tidemill_engine::graph::{JobPage, SubmitError, SubmitGraph, TaskReport};
use tidemill_store::RefusalCode;
use tidemill_testkit::interface::Kind;

use crate::fixture::{GraphFixture, ask, ended, graph, one, output};

pub(crate) async fn repeated_submission_returns_the_same_graph(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let requested = SubmitGraph {
        idempotency_key: Some("monday".to_owned()),
        ..ask(&graph(&[("a", &[]), ("b", &["a"])]))
    };
    let first = fixture.graphs.submit(requested.clone()).await.expect("it is accepted");
    let second = fixture.graphs.submit(requested.clone()).await.expect("it exists");
    assert_eq!((first.created, second.created), (true, false));
    assert_eq!((&second.run_id, second.jobs), (&first.run_id, 2));
    let other = SubmitGraph { text: one(""), ..requested };
    let refused = fixture.graphs.submit(other).await.expect_err("the key is another's");
    let SubmitError::Store(error) = refused else { panic!("{refused:?}") };
    assert_eq!(error.refusal_code(), Some(RefusalCode::KeyConflict));
    fixture.act().await;
    assert_eq!(fixture.number("SELECT count(*) FROM {ops}.jobs").await, 2);
    assert_eq!(fixture.number("SELECT count(*) FROM {ops}.graphs").await, 1);
}

pub(crate) async fn requested_jobs_run_with_their_dependencies(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 4).await;
    let text = graph(&[("a", &[]), ("b", &["a"]), ("c", &["b"]), ("d", &[])]);
    let only = |names: &[&str]| SubmitGraph {
        only: names.iter().map(|&name| name.to_owned()).collect(),
        ..ask(&text)
    };
    // No job has succeeded yet: everything that c needs runs too, and d does not.
    let first = fixture.graphs.submit(only(&["c"])).await.expect("it is accepted");
    assert_eq!((first.jobs, first.reused), (3, 0));
    fixture.act().await;
    let order = agent.order().await;
    let mut report = TaskReport::new(ended(0));
    report.outputs = vec![output("o", "o.csv")];
    agent.graphs.report_result(&agent.who, &order.task_id, report).await.expect("it is received");
    fixture.act().await;
    let order = agent.order().await;
    agent.result(&order.task_id, ended(1)).await;
    fixture.act().await;
    assert_eq!(fixture.run(&first.run_id).await.status, RunState::Failed);
    // b failed and runs again; a succeeded and is reused.
    fixture.advance(1);
    let second = fixture.graphs.submit(only(&["c"])).await.expect("it is accepted");
    assert_eq!((second.jobs, second.reused), (3, 1));
    let stored = fixture.job(&second.run_id, "a").await;
    assert_eq!(
        (stored.code, stored.reused_from),
        (C::Succeeded, Some(fixture.job(&first.run_id, "a").await.job_id))
    );
    fixture.act().await;
    let order = agent.order().await;
    let work = order.work.clone().expect("it is work");
    assert_eq!((work.spec.name.as_str(), work.inputs.len()), ("b", 1));
    agent.succeed(&order).await;
    fixture.play(std::slice::from_mut(&mut agent), 5).await;
    assert_eq!(fixture.run(&second.run_id).await.status, RunState::Success);
    // b is reused now, so a is not considered. Requested jobs always run.
    fixture.advance(1);
    let third = fixture.graphs.submit(only(&["c"])).await.expect("it is accepted");
    assert_eq!((third.jobs, third.reused), (2, 1));
    assert_eq!(fixture.code(&third.run_id, "c").await, C::Created);
    fixture.advance(1);
    let fourth = fixture.graphs.submit(SubmitGraph { rerun_needed: true, ..only(&["c"]) }).await;
    let fourth = fourth.expect("it is accepted");
    assert_eq!((fourth.jobs, fourth.reused), (3, 0));
    // Another workspace shares nothing.
    let other = SubmitGraph { workspace: Some("other".to_owned()), ..only(&["c"]) };
    let other = fixture.graphs.submit(other).await.expect("it is accepted");
    assert_eq!((other.jobs, other.reused), (3, 0));
    let refused = fixture.graphs.submit(only(&["c", "x", "y"])).await.expect_err("there is no x");
    assert_eq!(refused.to_string(), "the graph has no job `x`, `y`");
}

pub(crate) async fn invalid_graph_is_refused_completely(kind: Kind) {
    let fixture = GraphFixture::open(kind).await;
    let text =
        "version: 1\njobs:\n  a:\n    run: work\n    needs: [b]\n  b:\n    run: work\n    needs: [a, x]\n";
    let refused = fixture.graphs.submit(ask(text)).await.expect_err("it is no graph");
    let SubmitError::Definition(faults) = refused else { panic!("{refused:?}") };
    assert!(!faults.is_empty());
    let nowhere = SubmitGraph { project: "none".to_owned(), ..ask(&one("")) };
    let refused = fixture.graphs.submit(nowhere).await.expect_err("there is no such project");
    let SubmitError::Store(error) = refused else { panic!("{refused:?}") };
    assert_eq!(error.refusal_code(), Some(RefusalCode::UnknownProject));
    let large = ask(&format!("version: 1\n# {}\n", "x".repeat(8 * 1024 * 1024)));
    let refused = fixture.graphs.submit(large).await.expect_err("it is too large");
    let SubmitError::Store(error) = refused else { panic!("{refused:?}") };
    assert_eq!(error.refusal_code(), Some(RefusalCode::TooLarge));
    for table in ["runs", "graphs", "jobs", "job_changes"] {
        assert_eq!(fixture.number(&format!("SELECT count(*) FROM {{ops}}.{table}")).await, 0, "{table}");
    }
}

pub(crate) async fn job_changes_are_listed_by_version(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 1).await;
    let run = fixture.submit(&graph(&[("a", &[]), ("b", &["a"]), ("c", &["b"])])).await;
    let mut seen = fixture.graphs.graph(&run).await.expect("the graph is read").version;
    let mut reply: Vec<(String, C)> = Vec::new();
    for _ in 0..20 {
        fixture.act().await;
        loop {
            // In small pages.
            let page = JobPage { changed_after: Some(seen), limit: 1, ..JobPage::default() };
            let jobs = fixture.graphs.jobs(&run, page).await.expect("changes are read");
            let Some(job) = jobs.into_iter().next() else { break };
            assert!(job.version > seen);
            seen = job.version;
            reply.push((job.name, job.code));
        }
        for order in agent.poll().await {
            agent.result(&order.task_id, ended(0)).await;
        }
    }
    let of =
        |name: &str| reply.iter().filter(|(job, _)| job == name).map(|(_, code)| *code).collect::<Vec<_>>();
    assert_eq!(of("a"), [C::Initiated, C::Succeeded]);
    assert_eq!(of("c"), [C::WaitingOnDependencies, C::Initiated, C::Succeeded]);
    assert_eq!(fixture.graphs.graph(&run).await.expect("the graph is read").version, seen);
}
