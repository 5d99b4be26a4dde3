//! Several controllers, frozen ones, takeovers, and the loop itself.

use std::time::Duration;

use tidemill_core::job::StatusCode as C;
use tidemill_core::run::RunState;
use tidemill_engine::graph::{GraphSettings, Graphs, Written};
use tidemill_engine::{Clock, Engine, Identity, Patience};
use tidemill_store::{Class, Error, Lease, Store};
use tidemill_testkit::door::Kind;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::scene::{Scene, ended, graph, one, settle};

pub(crate) async fn only_one_acts(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut second = scene.graphs.controller("second");
    scene.act().await;
    let run = scene.submit(&one("")).await;
    let pass = second.tick().await.expect("it looks");
    assert!(!pass.acts);
    assert_eq!(scene.code(&run, "a").await, C::Created);
    // It renews its lease for as long as it acts.
    for _ in 0..10 {
        scene.advance(6);
        assert!(scene.controller.tick().await.expect("it acts").acts);
        assert!(!second.tick().await.expect("it looks").acts);
    }
    // Silent for longer than the lease: the other takes over.
    scene.advance(16);
    assert!(second.tick().await.expect("it acts").acts);
    assert!(!scene.controller.tick().await.expect("it looks").acts);
    let lease = scene.stage.store.controller_lease().await.expect("the lease is read");
    assert_eq!((lease.name.as_deref(), lease.epoch), (Some("second"), 2));
}

pub(crate) async fn a_controller_that_was_frozen_writes_nothing(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 1).await;
    let run = scene.submit(&one("")).await;
    // It has decided to start the job, and is frozen before it writes.
    let draft = scene.controller.draft().await.expect("it decides").expect("it acts");
    assert_eq!(draft.jobs(), 1);
    scene.advance(16);
    robot.beat().await;
    let mut second = scene.graphs.controller("second");
    settle(&mut second).await;
    let order = robot.order().await;
    robot.stage(&order.task_id, "executing").await;
    settle(&mut second).await;
    let before = scene.stage.plain.texts("SELECT job_id || code || version FROM {ops}.jobs").await;
    // Thawed, its step is refused, and it knows.
    assert_eq!(scene.controller.write(draft).await.expect("it is refused"), Written::Stale);
    let after = scene.stage.plain.texts("SELECT job_id || code || version FROM {ops}.jobs").await;
    assert_eq!(before.expect("jobs are read"), after.expect("jobs are read"));
    assert_eq!(scene.number("SELECT count(*) FROM {ops}.tasks").await, 1);
    assert!(!scene.controller.tick().await.expect("it looks").acts);
    robot.result(&order.task_id, ended(0)).await;
    settle(&mut second).await;
    assert_eq!(scene.run(&run).await.status, RunState::Success);
}

pub(crate) async fn a_takeover_changes_no_job(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 3).await;
    let run = scene.submit(&graph(&[("a", &[]), ("b", &[]), ("c", &["a"]), ("d", &[]), ("e", &[])])).await;
    scene.act().await;
    let orders = robot.poll().await;
    robot.stage(&orders[0].task_id, "executing").await;
    robot.stage(&orders[1].task_id, "finalizing").await;
    scene.graphs.cancel(&run, &["e".to_owned()], "ann", None).await.expect("it is cancelled");
    scene.act().await;
    let picture = "SELECT job_id || code || version || coalesce(task_id, '') FROM {ops}.jobs ORDER BY 1";
    let tasks = "SELECT task_id || active FROM {ops}.tasks ORDER BY 1";
    let before = (scene.stage.plain.texts(picture).await, scene.stage.plain.texts(tasks).await);
    scene.advance(16);
    robot.beat().await;
    let mut second = scene.graphs.controller("second");
    let pass = second.tick().await.expect("it takes over");
    assert!(pass.acts && pass.full && pass.changed == 0, "{pass:?}");
    let after = (scene.stage.plain.texts(picture).await, scene.stage.plain.texts(tasks).await);
    assert_eq!(before.0.expect("jobs are read"), after.0.expect("jobs are read"));
    assert_eq!(before.1.expect("tasks are read"), after.1.expect("tasks are read"));
}

pub(crate) async fn a_lease_that_is_given_back_is_taken_at_once(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    scene.act().await;
    scene.controller.release().await;
    let mut second = scene.graphs.controller("second");
    assert!(second.tick().await.expect("it acts").acts);
}

/// What a process has locked when it is frozen.
enum Locked {
    Lease(Lease),
    Task(String),
}

/// A process that was frozen in the middle of a step.
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
                        Locked::Lease(lease) => assert!(tx.raise_version(*lease, 1).await?.is_some()),
                        Locked::Task(task) => assert!(tx.lock_task(task).await?.is_some()),
                    }
                    has_locked.send(()).expect("the test waits");
                    thawed.await.expect("the test thaws it");
                    tx.note_change("thawed").await
                })
            });
            step.await
        };
        let step = tokio::spawn(step);
        is_locked.await.expect("it is frozen");
        Self { thaw, step }
    }

    /// It goes on, and finds that its step is over: nothing of it was written, and it may try again.
    async fn thaw(self) {
        self.thaw.send(()).expect("it waits");
        let error = self.step.await.expect("the step ends").expect_err("its step is over");
        assert_eq!(error.class(), Class::Transient, "{error:?}");
    }
}

/// How long a frozen process may hold others up on a busy machine: the server waits for ten seconds.
const HELD_UP_MAX: Duration = Duration::from_mins(1);

pub(crate) async fn a_controller_that_is_frozen_in_a_step_holds_nobody_up(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 1).await;
    let run = scene.submit(&one("")).await;
    scene.act().await;
    let lease = scene.stage.store.controller_lease().await.expect("the lease is read");
    let lease = Lease { holder: lease.holder.expect("it is held"), epoch: lease.epoch };
    let frozen = Frozen::with(scene.stage.beside().await, Locked::Lease(lease)).await;
    let order = robot.order().await;
    robot.succeed(&order).await;
    scene.advance(16);
    let mut second = scene.graphs.controller("second");
    let acts = tokio::time::timeout(HELD_UP_MAX, settle(&mut second)).await;
    acts.expect("the frozen one holds the site up");
    assert_eq!(scene.run(&run).await.status, RunState::Success);
    frozen.thaw().await;
}

pub(crate) async fn a_server_that_is_frozen_in_a_report_holds_nobody_up(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 1).await;
    let run = scene.submit(&one("")).await;
    scene.act().await;
    let order = robot.order().await;
    let frozen = Frozen::with(scene.stage.beside().await, Locked::Task(order.task_id.clone())).await;
    scene.graphs.cancel(&run, &[], "ann", None).await.expect("it is cancelled");
    let acts = tokio::time::timeout(HELD_UP_MAX, scene.act()).await;
    acts.expect("the frozen one holds the controller up");
    assert_eq!(scene.code(&run, "a").await, C::CancelledByUser);
    frozen.thaw().await;
}

/// An agent says something between the controller's look and its step: the step is taken back, and decided anew.
pub(crate) async fn a_job_that_moved_on_takes_the_step_back(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 1).await;
    let run = scene.submit(&one("on-agent-lost: rerun after 1m")).await;
    scene.act().await;
    let order = robot.order().await;
    // Silent, and nothing begun: the task is to be withdrawn. But just then the agent begins.
    scene.advance(25);
    let draft = scene.controller.draft().await.expect("it decides").expect("it acts");
    assert_eq!(draft.jobs(), 1);
    robot.stage(&order.task_id, "preparing").await;
    assert!(scene.controller.write(draft).await.is_err(), "it is taken back");
    robot.beat().await;
    scene.act().await;
    let job = scene.job(&run, "a").await;
    assert_eq!((job.code, job.tasks), (C::Preparing, 1));
    // Lost; but just then its result comes.
    scene.advance(120);
    let draft = scene.controller.draft().await.expect("it decides").expect("it acts");
    assert_eq!(draft.jobs(), 1);
    robot.result(&order.task_id, ended(0)).await;
    assert!(scene.controller.write(draft).await.is_err(), "it is taken back");
    scene.act().await;
    assert_eq!(scene.code(&run, "a").await, C::Succeeded);
}

/// The loop, with the real clock: a report in the same process wakes the controller, which wakes the agent.
pub(crate) async fn the_loop_starts_a_dependent_at_once(kind: Kind) {
    let scene = Scene::open(kind).await;
    let engine = Engine::new(scene.stage.store.clone(), Clock::Database, Patience::None);
    // Nothing is found by looking in this time: only the bells make it quick.
    let slow = Duration::from_mins(2);
    let settings = GraphSettings { look: slow, look_idle: slow, ..GraphSettings::default() };
    let graphs = Graphs::new(engine.clone(), settings);
    let (stop, told) = watch::channel(false);
    let identity = Identity { name: "loop".to_owned(), host: "here".to_owned(), labels: Vec::new() };
    let looping = tokio::spawn({
        let graphs = graphs.clone();
        async move { graphs.control(identity, told).await }
    });
    let scene = Scene { engine, graphs: graphs.clone(), controller: graphs.controller("idle"), ..scene };
    let mut robot = scene.agent("one", 1).await;
    let run = scene.submit(&graph(&[("a", &[]), ("b", &["a"]), ("c", &["b"])])).await;
    let began = tokio::time::Instant::now();
    for _ in 0..3 {
        let orders = graphs.poll(&robot.who, &robot.have, slow).await.expect("orders are read");
        assert_eq!(orders.len(), 1);
        robot.have.push(orders[0].task_id.clone());
        robot.succeed(&orders[0]).await;
    }
    while scene.run(&run).await.status != RunState::Success {
        assert!(began.elapsed() < slow, "nobody was woken");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.send(true).expect("the loop listens");
    looping.await.expect("the loop ends").expect("it ends well");
}
