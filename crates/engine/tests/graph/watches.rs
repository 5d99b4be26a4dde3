//! Watches of waiting requests: each change wakes those that wait for it, and no others.

use std::time::Duration;

use tidemill_core::graph::record::LogLine;
use tidemill_engine::graph::{ChangeWatch, GraphSettings, Graphs, Watched};
use tidemill_engine::{Clock, Engine, RetryPolicy};
use tidemill_testkit::interface::{Kind, at};

use crate::fixture::{GraphFixture, one};

/// Time limit of a wake-up; reached only by a failure.
const TIMEOUT: Duration = Duration::from_mins(1);
/// Several intervals of the watcher.
const QUIET: Duration = Duration::from_millis(500);

async fn wake(what: &str, watch: &mut ChangeWatch) {
    tokio::time::timeout(TIMEOUT, watch.changed()).await.unwrap_or_else(|_| panic!("{what} is not woken"));
    watch.mark_unchanged();
}

async fn stay(what: &str, watch: &mut ChangeWatch) {
    assert!(
        tokio::time::timeout(QUIET, watch.changed()).await.is_err(),
        "{what} is woken by a change of another"
    );
}

pub(crate) async fn watch_sees_changes_of_another_process(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let (mut agent, idle) = (fixture.agent("one", 1).await, fixture.agent("two", 1).await);
    fixture.graphs.drain(idle.who.agent_id, true).await.expect("it drains");
    let run = fixture.submit(&one("")).await;
    let job = fixture.job(&run, "a").await.job_id;
    // Another engine has no notifiers in common, like another process.
    let engine = Engine::new(fixture.base.store.clone(), Clock::fixed(at(0)), RetryPolicy::None);
    let graphs = Graphs::new(engine, GraphSettings::default());
    let mut graph = graphs.watch(Watched::Graph(run.clone()));
    let mut log = graphs.watch(Watched::Job(job));
    let mut orders = graphs.watch(Watched::Agent(agent.who.agent_id));
    let mut others = graphs.watch(Watched::Agent(idle.who.agent_id));
    // The first pass counts as a change, because the object may have changed since it was read.
    for watch in [&mut graph, &mut log, &mut orders, &mut others] {
        wake("a new watch", watch).await;
    }
    stay("the graph", &mut graph).await;
    fixture.act().await;
    let order = agent.order().await;
    wake("the graph", &mut graph).await;
    wake("the log", &mut log).await;
    wake("the agent", &mut orders).await;
    stay("another agent", &mut others).await;
    for watch in [&mut graph, &mut log, &mut orders] {
        watch.mark_unchanged();
    }
    let lines = vec![LogLine { stream: "stdout".to_owned(), text: "hello".to_owned() }];
    fixture.graphs.report_log(&agent.who, &order.task_id, 0, lines).await.expect("the log is stored");
    wake("the log", &mut log).await;
    stay("the graph", &mut graph).await;
    agent.succeed(&order).await;
    wake("the agent", &mut orders).await;
    fixture.act().await;
    wake("the graph", &mut graph).await;
    wake("the log", &mut log).await;
    stay("another agent", &mut others).await;
}
