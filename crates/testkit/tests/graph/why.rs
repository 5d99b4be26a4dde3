//! Every wait says what it waits for.

use tidemill_core::RunId;
use tidemill_core::agent::NewAgent;
use tidemill_core::project::{FlagName, SITE_SCOPE};
use tidemill_testkit::door::Kind;

use crate::arrows::site;
use crate::scene::{Scene, ended, failed, graph, new_agent, one};

async fn why(scene: &Scene, run: &RunId, name: &str) -> String {
    let job = scene.graphs.find_job(run, name).await.expect("the job exists");
    scene.graphs.why_job(&job).await.expect("it is told").sentence()
}

pub(crate) async fn every_wait_has_its_reason(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let run = scene.submit(&graph(&[("a", &[]), ("b", &["a"]), ("c", &["a", "b"])])).await;
    assert_eq!(why(&scene, &run, "a").await, "No controller acts, so nothing begins.");
    scene.act().await;
    assert_eq!(why(&scene, &run, "a").await, "It waits for an agent, and none is there.");
    assert_eq!(why(&scene, &run, "b").await, "It waits for job a, which is waiting_on_workers.");
    assert!(why(&scene, &run, "c").await.ends_with("and for another one."));
    let told = scene.engine.why(&run).await.expect("it is told").sentence();
    assert_eq!(told, "0 of 3 jobs have ended. Job a: It waits for an agent, and none is there.");
    scene.graphs.set_flag(site(&scene, FlagName::Paused)).await.expect("the flag is set");
    assert_eq!(why(&scene, &run, "a").await, "Its site is paused (tonight).");
    scene.graphs.clear_flag(FlagName::Paused, SITE_SCOPE).await.expect("the flag is cleared");

    let labelled = scene.submit(&one("labels: [gpu, arm]")).await;
    let mut robot =
        scene.agent_with(NewAgent { labels: vec!["arm".to_owned()], ..new_agent("one", 1) }).await;
    scene.act().await;
    assert_eq!(
        why(&scene, &labelled, "a").await,
        "It needs an agent that offers gpu, arm; 1 agent is there, and it does not offer gpu."
    );
    assert!(why(&scene, &run, "a").await.starts_with("Agent one has it; it is initiated since"));
    let full = scene.submit(&one("")).await;
    scene.act().await;
    assert_eq!(
        why(&scene, &full, "a").await,
        "It needs room for 1, and the one agent that could take it has room for 0."
    );
    scene.graphs.set_pool("thin", 1).await.expect("the pool is set");
    let mut wide = scene.agent("two", 8).await;
    let holder = scene.submit(&one("pool: thin")).await;
    scene.act().await;
    let waiter = scene.submit(&one("pool: thin")).await;
    scene.act().await;
    assert_eq!(why(&scene, &waiter, "a").await, format!("Pool thin is full (1 of 1): a of {holder}."));

    let order = robot.order().await;
    robot.result(&order.task_id, failed("the disk is full")).await;
    scene.act().await;
    assert_eq!(
        why(&scene, &run, "a").await,
        "Its last task came to nothing; it backs off until 2026-02-14 10:30:05 UTC: the disk is full."
    );
    for order in wide.poll().await {
        wide.stage(&order.task_id, "executing").await;
    }
    scene.graphs.cancel(&holder, &[], "ann", None).await.expect("it is cancelled");
    scene.act().await;
    assert!(
        why(&scene, &waiter, "a").await.starts_with("Pool thin is full"),
        "something of it may still run"
    );
    scene.advance(30);
    robot.beat().await;
    scene.act().await;
    assert!(
        why(&scene, &full, "a").await.starts_with("Its agent two is silent since 2026-02-14 10:30:00 UTC")
    );
    wide.beat().await;
    for task in wide.have.clone() {
        wide.result(&task, ended(0)).await;
    }
    scene.act().await;
    assert_eq!(why(&scene, &full, "a").await, "It ended as succeeded.");
    assert_eq!(why(&scene, &holder, "a").await, "It ended as cancelled_by_user.");
}
