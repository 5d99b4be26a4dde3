//! `why` for jobs: every wait has a reason.

use tidemill_core::RunId;
use tidemill_core::agent::NewAgent;
use tidemill_core::project::{FlagName, SITE_SCOPE};
use tidemill_testkit::interface::Kind;

use crate::fixture::{GraphFixture, ended, failed, graph, new_agent, one};
use crate::transitions::site;

async fn why(fixture: &GraphFixture, run: &RunId, name: &str) -> String {
    let job = fixture.graphs.find_job(run, name).await.expect("the job exists");
    fixture.graphs.why_job(&job).await.expect("it is notified").sentence()
}

pub(crate) async fn every_wait_has_a_reason(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let run = fixture.submit(&graph(&[("a", &[]), ("b", &["a"]), ("c", &["a", "b"])])).await;
    assert_eq!(why(&fixture, &run, "a").await, "No controller is running, so no job starts.");
    fixture.act().await;
    assert_eq!(why(&fixture, &run, "a").await, "It waits for an agent, but no agent is connected.");
    assert_eq!(why(&fixture, &run, "b").await, "It waits for job a, which is waiting_on_workers.");
    assert!(why(&fixture, &run, "c").await.ends_with(" and for 1 other job."));
    let reply = fixture.engine.why(&run).await.expect("it is notified").sentence();
    assert_eq!(reply, "0 of 3 jobs have ended. Job a: It waits for an agent, but no agent is connected.");
    fixture.graphs.set_flag(site(&fixture, FlagName::Paused)).await.expect("the flag is set");
    assert_eq!(why(&fixture, &run, "a").await, "Its site is paused (tonight).");
    fixture.graphs.clear_flag(FlagName::Paused, SITE_SCOPE).await.expect("the flag is cleared");

    let labelled = fixture.submit(&one("labels: [gpu, arm]")).await;
    let mut agent =
        fixture.agent_with(NewAgent { labels: vec!["arm".to_owned()], ..new_agent("one", 1) }).await;
    fixture.act().await;
    assert_eq!(
        why(&fixture, &labelled, "a").await,
        "It needs an agent with the labels gpu, arm; 1 agent is connected, but it lacks gpu."
    );
    assert!(why(&fixture, &run, "a").await.starts_with("Agent one has it; status initiated since"));
    let full = fixture.submit(&one("")).await;
    fixture.act().await;
    assert_eq!(
        why(&fixture, &full, "a").await,
        "It needs capacity 1; the only agent that could take it has 0 free."
    );
    fixture.graphs.set_pool("thin", 1).await.expect("the pool is set");
    let mut wide = fixture.agent("two", 8).await;
    let holder = fixture.submit(&one("pool: thin")).await;
    fixture.act().await;
    let waiter = fixture.submit(&one("pool: thin")).await;
    fixture.act().await;
    assert_eq!(why(&fixture, &waiter, "a").await, format!("Pool thin is full (1 of 1): a of {holder}."));

    let order = agent.order().await;
    agent.result(&order.task_id, failed("the disk is full")).await;
    fixture.act().await;
    assert_eq!(
        why(&fixture, &run, "a").await,
        "Its last task failed; it backs off until 2026-02-14 10:30:05 UTC: the disk is full."
    );
    for order in wide.poll().await {
        wide.stage(&order.task_id, "executing").await;
    }
    fixture.graphs.cancel(&holder, &[], "ann", None).await.expect("it is cancelled");
    fixture.act().await;
    assert!(
        why(&fixture, &waiter, "a").await.starts_with("Pool thin is full"),
        "something of it may still run"
    );
    fixture.advance(30);
    agent.beat().await;
    fixture.act().await;
    assert!(
        why(&fixture, &full, "a")
            .await
            .starts_with("Its agent two has been silent since 2026-02-14 10:30:00 UTC")
    );
    wide.beat().await;
    for task in wide.have.clone() {
        wide.result(&task, ended(0)).await;
    }
    fixture.act().await;
    assert_eq!(why(&fixture, &full, "a").await, "It ended as succeeded.");
    assert_eq!(why(&fixture, &holder, "a").await, "It ended as cancelled_by_user.");
}
