//! Pause, maintenance, restart, probes.

use tidemill_core::job::StatusCode as C;
use tidemill_core::project::{Flag, FlagName, FlagSource, SITE_SCOPE, project_scope};
use tidemill_core::run::{Applied, RunState};
use tidemill_engine::graph::Written;
use tidemill_testkit::door::Kind;

use crate::arrows::site;
use crate::scene::{Scene, ended, one};

pub(crate) async fn a_pause_lets_running_jobs_go_on(kind: Kind) {
    for scope in [SITE_SCOPE.to_owned(), "lane:graph".to_owned(), project_scope("shop")] {
        let mut scene = Scene::open(kind).await;
        let mut robot = scene.agent("one", 4).await;
        let running = scene.submit(&one("")).await;
        scene.act().await;
        let flag = Flag { scope: scope.clone(), ..site(&scene, FlagName::Paused) };
        scene.graphs.set_flag(flag).await.expect("the flag is set");
        let waiting = scene.submit(&one("")).await;
        scene.act().await;
        assert_eq!(scene.code(&waiting, "a").await, C::Paused, "{scope}");
        let order = robot.order().await;
        robot.succeed(&order).await;
        scene.act().await;
        assert_eq!(scene.run(&running).await.status, RunState::Success);
        scene.graphs.clear_flag(FlagName::Paused, &scope).await.expect("the flag is cleared");
        scene.act().await;
        assert_eq!(scene.code(&waiting, "a").await, C::Initiated);
    }
    // One that ends by itself, and one of another project.
    let mut scene = Scene::open(kind).await;
    let _robot = scene.agent("one", 4).await;
    let other = Flag { scope: project_scope("bank"), ..site(&scene, FlagName::Paused) };
    scene.graphs.set_flag(other).await.expect("the flag is set");
    let until_at = Some(scene.now() + chrono::TimeDelta::seconds(10));
    let flag = Flag { until_at, ..site(&scene, FlagName::Paused) };
    scene.graphs.set_flag(flag).await.expect("the flag is set");
    let run = scene.submit(&one("")).await;
    scene.act().await;
    assert_eq!(scene.code(&run, "a").await, C::Paused);
    scene.advance(10);
    scene.act().await;
    assert_eq!(scene.code(&run, "a").await, C::Initiated);
}

pub(crate) async fn a_maintenance_stops_only_jobs_of_the_database(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 4).await;
    let database = scene.submit(&one("pool: database")).await;
    let plain = scene.submit(&one("")).await;
    scene.act().await;
    for order in robot.poll().await {
        robot.stage(&order.task_id, "executing").await;
    }
    scene.graphs.set_flag(site(&scene, FlagName::Maintenance)).await.expect("the flag is set");
    scene.act().await;
    let job = scene.job(&database, "a").await;
    assert_eq!((job.code, job.stopping, job.started_at), (C::WaitingDbMaintenance, true, None));
    assert_eq!(scene.code(&plain, "a").await, C::Executing);
    // Its command failed because of the maintenance: nobody counts that.
    let task = job.task_id.expect("it had a task");
    assert_eq!(robot.result(&task, ended(1)).await, Applied::Stale);
    scene.graphs.clear_flag(FlagName::Maintenance, SITE_SCOPE).await.expect("the flag is cleared");
    scene.act().await;
    let job = scene.job(&database, "a").await;
    assert_eq!((job.code, job.failures, job.errors, job.tasks), (C::Initiated, 0, 0, 2));
}

pub(crate) async fn what_succeeded_before_a_flag_has_succeeded(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 4).await;
    let run = scene.submit(&one("pool: database")).await;
    scene.act().await;
    let order = robot.order().await;
    robot.succeed(&order).await;
    scene.graphs.set_flag(site(&scene, FlagName::Maintenance)).await.expect("the flag is set");
    scene.graphs.prepare_for_reboot(None, "ann").await.expect("it is prepared");
    scene.act().await;
    assert_eq!(scene.run(&run).await.status, RunState::Success);
}

pub(crate) async fn a_restart_is_safe_when_nothing_runs(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 4).await;
    let run = scene.submit(&one("")).await;
    let status = scene.graphs.reboot_status().await.expect("it is told");
    assert!(!status.preparing && !status.safe, "nothing runs, but nothing keeps it from beginning either");
    scene.act().await;
    let task = robot.order().await.task_id;
    robot.stage(&task, "executing").await;
    let status = scene.graphs.prepare_for_reboot(Some("new kernel"), "ann").await.expect("it is prepared");
    assert_eq!((status.running, status.safe), (1, false));
    scene.act().await;
    let status = scene.graphs.reboot_status().await.expect("it is told");
    assert_eq!((status.running, status.stopping, status.safe), (0, 1, false));
    robot.confirm(&task).await;
    scene.act().await;
    let status = scene.graphs.reboot_status().await.expect("it is told");
    assert_eq!((status.running, status.stopping, status.safe), (0, 0, true));
    let later = scene.submit(&one("")).await;
    scene.act().await;
    assert_eq!((scene.code(&run, "a").await, scene.code(&later, "a").await), (C::WaitingOnReboot, C::Paused));
    assert!(robot.poll().await.is_empty());
    scene.graphs.clear_flag(FlagName::Reboot, SITE_SCOPE).await.expect("the flag is cleared");
    scene.act().await;
    assert_eq!((scene.code(&run, "a").await, scene.code(&later, "a").await), (C::Initiated, C::Initiated));
}

pub(crate) async fn a_step_that_has_not_seen_a_flag_starts_nothing(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let _robot = scene.agent("one", 4).await;
    let run = scene.submit(&one("")).await;
    let draft = scene.controller.draft().await.expect("it decides").expect("it acts");
    let status = scene.graphs.prepare_for_reboot(None, "ann").await.expect("it is prepared");
    assert!(status.safe, "nothing runs, and nothing will");
    assert_eq!(scene.controller.write(draft).await.expect("it looks again"), Written::Moved);
    scene.act().await;
    assert_eq!(scene.code(&run, "a").await, C::Paused);
    assert!(scene.graphs.reboot_status().await.expect("it is told").safe);
}

pub(crate) async fn what_two_probes_found_is_over_when_both_say_so(kind: Kind) {
    let scene = Scene::open(kind).await;
    let one = scene.agent("one", 1).await;
    let two = scene.agent("two", 1).await;
    let probe = async |robot: &crate::scene::Robot, on: bool| {
        robot.graphs.report_probe(&robot.who, on, None).await.expect("it is heard")
    };
    let by = async || {
        let flags = scene.graphs.flags().await.expect("flags are read");
        flags.into_iter().find(|flag| flag.flag == FlagName::Maintenance).and_then(|flag| flag.set_by)
    };
    for (first, last, left) in [(&one, &two, "agent two"), (&two, &one, "agent one")] {
        assert_eq!(probe(&one, true).await, Applied::Applied);
        assert_eq!(probe(&two, true).await, Applied::Duplicate);
        assert_eq!(probe(&one, true).await, Applied::Duplicate);
        assert_eq!(by().await.as_deref(), Some("agent one, agent two"));
        assert_eq!(probe(first, false).await, Applied::Duplicate, "the other one still finds it");
        assert_eq!(by().await.as_deref(), Some(left));
        assert_eq!(probe(last, false).await, Applied::Applied);
        assert_eq!(by().await, None);
    }
    // At the same time, both are remembered; and what was found long ago is nobody's any more.
    tokio::join!(probe(&one, true), probe(&two, true));
    assert_eq!(by().await.map(|by| by.len()), Some("agent one, agent two".len()));
    scene.advance(900);
    assert_eq!(probe(&two, true).await, Applied::Applied);
    assert_eq!(by().await.as_deref(), Some("agent two"));
}

pub(crate) async fn a_probe_never_changes_what_a_person_set(kind: Kind) {
    let scene = Scene::open(kind).await;
    let one = scene.agent("one", 1).await;
    let two = scene.agent("two", 1).await;
    let probe = async |robot: &crate::scene::Robot, on: bool| {
        let note = Some("pg_is_in_recovery".to_owned());
        robot.graphs.report_probe(&robot.who, on, note).await.expect("it is heard")
    };
    let flag = async || {
        let flags = scene.graphs.flags().await.expect("flags are read");
        flags.into_iter().find(|flag| flag.flag == FlagName::Maintenance)
    };
    assert_eq!(probe(&one, false).await, Applied::Duplicate);
    assert_eq!(probe(&one, true).await, Applied::Applied);
    assert_eq!(probe(&one, true).await, Applied::Duplicate);
    let set = flag().await.expect("it is on");
    assert_eq!((set.source, set.set_by.as_deref()), (FlagSource::Probe, Some("agent one")));
    // Another agent's probe does not take it back; it ends by itself where nobody says it again.
    assert_eq!(probe(&two, false).await, Applied::Duplicate);
    assert!(flag().await.is_some_and(|flag| flag.is_on(scene.now())));
    assert!(flag().await.is_some_and(|flag| !flag.is_on(scene.now() + chrono::TimeDelta::seconds(900))));
    assert_eq!(probe(&one, false).await, Applied::Applied);
    assert_eq!(flag().await, None);
    // What a person set stays, whatever a probe finds.
    scene.graphs.set_flag(site(&scene, FlagName::Maintenance)).await.expect("the flag is set");
    assert_eq!(probe(&one, true).await, Applied::Duplicate);
    assert_eq!(probe(&one, false).await, Applied::Duplicate);
    let set = flag().await.expect("it is on");
    assert_eq!((set.source, set.set_by.as_deref(), set.until_at), (FlagSource::Manual, Some("ann"), None));
    // A person takes a probe's place, and can silence probes.
    scene.graphs.clear_flag(FlagName::Maintenance, SITE_SCOPE).await.expect("the flag is cleared");
    scene.graphs.set_flag(site(&scene, FlagName::ProbeOff)).await.expect("the flag is set");
    assert_eq!(probe(&one, true).await, Applied::Stale);
    assert_eq!(flag().await, None);
}
