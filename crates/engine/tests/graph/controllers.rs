//! Several controllers, frozen ones, takeovers, and the loop.

use std::time::Duration;

use tidemill_core::job::StatusCode as C;
use tidemill_core::run::RunState;
use tidemill_engine::graph::{GraphSettings, Graphs, WriteOutcome};
use tidemill_engine::{Clock, Engine, Identity, RetryPolicy};
use tidemill_store::{Class, Error, Lease, Store};
use tidemill_testkit::interface::{Fixture, Kind};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::fixture::{GraphFixture, ended, graph, one, settle};

pub(crate) async fn only_one_controller_acts(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut second = fixture.graphs.controller("second");
    fixture.act().await;
    let run = fixture.submit(&one("")).await;
    let pass = second.tick().await.expect("it looks");
    assert!(!pass.acts);
    assert_eq!(fixture.code(&run, "a").await, C::Created);
    // It renews its lease for as long as it acts.
    for _ in 0..10 {
        fixture.advance(6);
        assert!(fixture.controller.tick().await.expect("it acts").acts);
        assert!(!second.tick().await.expect("it looks").acts);
    }
    // Silent for longer than the lease: the other takes over.
    fixture.advance(16);
    assert!(second.tick().await.expect("it acts").acts);
    assert!(!fixture.controller.tick().await.expect("it looks").acts);
    let lease = fixture.base.store.controller_lease().await.expect("the lease is read");
    assert_eq!((lease.name.as_deref(), lease.epoch), (Some("second"), 2));
}

pub(crate) async fn thawed_controller_without_lease_writes_nothing(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 1).await;
    let run = fixture.submit(&one("")).await;
    // It has decided to start the job, and is frozen before it writes.
    let draft = fixture.controller.draft().await.expect("it decides").expect("it acts");
    assert_eq!(draft.jobs(), 1);
    fixture.advance(16);
    agent.beat().await;
    let mut second = fixture.graphs.controller("second");
    settle(&mut second).await;
    let order = agent.order().await;
    agent.stage(&order.task_id, "executing").await;
    settle(&mut second).await;
    let before = fixture.base.plain.texts("SELECT job_id || code || version FROM {ops}.jobs").await;
    // After it resumes, its write is refused, and it knows that it lost the lease.
    assert_eq!(fixture.controller.write(draft).await.expect("it is refused"), WriteOutcome::Stale);
    let after = fixture.base.plain.texts("SELECT job_id || code || version FROM {ops}.jobs").await;
    assert_eq!(before.expect("jobs are read"), after.expect("jobs are read"));
    assert_eq!(fixture.number("SELECT count(*) FROM {ops}.tasks").await, 1);
    assert!(!fixture.controller.tick().await.expect("it looks").acts);
    agent.result(&order.task_id, ended(0)).await;
    settle(&mut second).await;
    assert_eq!(fixture.run(&run).await.status, RunState::Success);
}

pub(crate) async fn controller_takeover_changes_no_job(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 3).await;
    let run = fixture.submit(&graph(&[("a", &[]), ("b", &[]), ("c", &["a"]), ("d", &[]), ("e", &[])])).await;
    fixture.act().await;
    let orders = agent.poll().await;
    agent.stage(&orders[0].task_id, "executing").await;
    agent.stage(&orders[1].task_id, "finalizing").await;
    fixture.graphs.cancel(&run, &["e".to_owned()], "ann", None).await.expect("it is cancelled");
    fixture.act().await;
    let picture = "SELECT job_id || code || version || coalesce(task_id, '') FROM {ops}.jobs ORDER BY 1";
    let tasks = "SELECT task_id || active FROM {ops}.tasks ORDER BY 1";
    let before = (fixture.base.plain.texts(picture).await, fixture.base.plain.texts(tasks).await);
    fixture.advance(16);
    agent.beat().await;
    let mut second = fixture.graphs.controller("second");
    let pass = second.tick().await.expect("it takes over");
    assert!(pass.acts && pass.full && pass.changed == 0, "{pass:?}");
    let after = (fixture.base.plain.texts(picture).await, fixture.base.plain.texts(tasks).await);
    assert_eq!(before.0.expect("jobs are read"), after.0.expect("jobs are read"));
    assert_eq!(before.1.expect("tasks are read"), after.1.expect("tasks are read"));
}

pub(crate) async fn released_lease_is_acquired_at_once(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    fixture.act().await;
    fixture.controller.release().await;
    let mut second = fixture.graphs.controller("second");
    assert!(second.tick().await.expect("it acts").acts);
}

/// The row that a process has locked when it is frozen.
enum Locked {
    Lease(Lease),
    Task(String),
}

/// A process that was frozen in the middle of a transaction.
struct Frozen {
    thaw: oneshot::Sender<()>,
    step: JoinHandle<Result<(), Error>>,
}

impl Frozen {
    async fn with(store: Store, locked: Locked) -> Self {
        let (has_locked, is_locked) = oneshot::channel();
        let (thaw, thawed) = oneshot::channel();
        let step = async move {
            let step = store.write(move |mut tx| {
                Box::pin(async move {
                    match &locked {
                        Locked::Lease(lease) => assert!(tx.reserve_versions(*lease, 1).await?.is_some()),
                        Locked::Task(task) => assert!(tx.lock_task(task).await?.is_some()),
                    }
                    has_locked.send(()).expect("the test waits");
                    thawed.await.expect("the test thaws it");
                    tx.mark_changed("thawed").await
                })
            });
            step.await
        };
        let step = tokio::spawn(step);
        is_locked.await.expect("it is frozen");
        Self { thaw, step }
    }

    /// Resumes: the transaction is over, nothing was written, and a retry is possible.
    async fn thaw(self) {
        self.thaw.send(()).expect("it waits");
        let error = self.step.await.expect("the step ends").expect_err("its transaction has ended");
        assert_eq!(error.class(), Class::Transient, "{error:?}");
    }
}

/// Time for which a frozen process may block others on a busy machine. The server ends its transaction after ten
/// seconds.
const HELD_UP_MAX: Duration = Duration::from_mins(1);

pub(crate) async fn controller_frozen_in_a_transaction_blocks_no_other(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 1).await;
    let run = fixture.submit(&one("")).await;
    fixture.act().await;
    let lease = fixture.base.store.controller_lease().await.expect("the lease is read");
    let lease = Lease { holder: lease.holder.expect("it is held"), epoch: lease.epoch };
    let frozen = Frozen::with(fixture.base.open_second_store().await, Locked::Lease(lease)).await;
    let order = agent.order().await;
    agent.succeed(&order).await;
    fixture.advance(16);
    let mut second = fixture.graphs.controller("second");
    let acts = tokio::time::timeout(HELD_UP_MAX, settle(&mut second)).await;
    acts.expect("the frozen one holds the site up");
    assert_eq!(fixture.run(&run).await.status, RunState::Success);
    frozen.thaw().await;
}

pub(crate) async fn server_frozen_in_a_report_blocks_no_other(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 1).await;
    let run = fixture.submit(&one("")).await;
    fixture.act().await;
    let order = agent.order().await;
    let frozen =
        Frozen::with(fixture.base.open_second_store().await, Locked::Task(order.task_id.clone())).await;
    fixture.graphs.cancel(&run, &[], "ann", None).await.expect("it is cancelled");
    let acts = tokio::time::timeout(HELD_UP_MAX, fixture.act()).await;
    acts.expect("the frozen one holds the controller up");
    assert_eq!(fixture.code(&run, "a").await, C::CancelledByUser);
    frozen.thaw().await;
}

/// A report between the controller's read and its write rolls the write back, and the controller decides again.
pub(crate) async fn concurrent_job_change_rolls_the_pass_back(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 1).await;
    let run = fixture.submit(&one("on-agent-lost: rerun after 1m")).await;
    fixture.act().await;
    let order = agent.order().await;
    // The agent is silent and has not started the task, so it is withdrawn. At that moment the agent starts it.
    fixture.advance(25);
    let draft = fixture.controller.draft().await.expect("it decides").expect("it acts");
    assert_eq!(draft.jobs(), 1);
    agent.stage(&order.task_id, "preparing").await;
    assert!(fixture.controller.write(draft).await.is_err(), "it is withdrawn");
    agent.beat().await;
    fixture.act().await;
    let job = fixture.job(&run, "a").await;
    assert_eq!((job.code, job.tasks), (C::Preparing, 1));
    // The job is lost. At that moment its result arrives.
    fixture.advance(120);
    let draft = fixture.controller.draft().await.expect("it decides").expect("it acts");
    assert_eq!(draft.jobs(), 1);
    agent.result(&order.task_id, ended(0)).await;
    assert!(fixture.controller.write(draft).await.is_err(), "it is withdrawn");
    fixture.act().await;
    assert_eq!(fixture.code(&run, "a").await, C::Succeeded);
}

/// The controller passes no time to the SQL functions: a login without the clock role owns the database, and the event
/// of a failed job is written.
#[tokio::test]
async fn owner_without_clock_role_controls_graphs() {
    let base = Fixture::open_as_plain_owner().await;
    base.store.create_project("shop", vec!["staging".to_owned()], None).await.expect("the project is made");
    let mut fixture = GraphFixture::on(base, Clock::Database);
    let mut agent = fixture.agent("one", 1).await;
    let run = fixture.submit(&graph(&[("a", &[])])).await;
    fixture.act().await;
    let order = agent.order().await;
    agent.result(&order.task_id, ended(1)).await;
    fixture.act().await;
    assert_eq!(fixture.run(&run).await.status, RunState::Failed);
    let noted = "SELECT count(*) FROM ops.run_events WHERE message LIKE 'job a failed%'";
    assert_eq!(fixture.number(noted).await, 1);
}

/// With the real clock: a report in the same process wakes the controller, which wakes the agent.
pub(crate) async fn loop_starts_a_dependent_job_at_once(kind: Kind) {
    let fixture = GraphFixture::open(kind).await;
    let engine = Engine::new(fixture.base.store.clone(), Clock::Database, RetryPolicy::None);
    // Polling is too slow for this test, so only notifications make it fast.
    let slow = Duration::from_mins(2);
    let settings = GraphSettings { poll_every: slow, poll_idle_every: slow, ..GraphSettings::default() };
    let graphs = Graphs::new(engine.clone(), settings);
    let (stop, reply) = watch::channel(false);
    let identity = Identity { name: "loop".to_owned(), host: "here".to_owned(), labels: Vec::new() };
    let looping = tokio::spawn({
        let graphs = graphs.clone();
        async move { graphs.control(identity, reply).await }
    });
    let fixture =
        GraphFixture { engine, graphs: graphs.clone(), controller: graphs.controller("idle"), ..fixture };
    let mut agent = fixture.agent("one", 1).await;
    let run = fixture.submit(&graph(&[("a", &[]), ("b", &["a"]), ("c", &["b"])])).await;
    let began = tokio::time::Instant::now();
    for _ in 0..3 {
        let orders = graphs.poll(&agent.who, &agent.have, slow).await.expect("orders are read");
        assert_eq!(orders.len(), 1);
        agent.have.push(orders[0].task_id.clone());
        agent.succeed(&orders[0]).await;
    }
    while fixture.run(&run).await.status != RunState::Success {
        assert!(began.elapsed() < slow, "no claim was woken");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.send(true).expect("the loop listens");
    looping.await.expect("the loop ends").expect("it ends well");
}
