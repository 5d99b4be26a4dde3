//! Pause, maintenance, reboot, probes.

use tidemill_core::job::StatusCode as C;
use tidemill_core::project::{Flag, FlagName, FlagSource, SITE_SCOPE, project_scope};
use tidemill_core::run::{ChangeOutcome, RunState};
use tidemill_engine::graph::WriteOutcome;
use tidemill_testkit::interface::Kind;

use crate::fixture::{GraphFixture, ended, one};
use crate::transitions::site;

pub(crate) async fn pause_keeps_running_jobs(kind: Kind) {
    for scope in [SITE_SCOPE.to_owned(), "lane:graph".to_owned(), project_scope("shop")] {
        let mut fixture = GraphFixture::open(kind).await;
        let mut agent = fixture.agent("one", 4).await;
        let running = fixture.submit(&one("")).await;
        fixture.act().await;
        let flag = Flag { scope: scope.clone(), ..site(&fixture, FlagName::Paused) };
        fixture.graphs.set_flag(flag).await.expect("the flag is set");
        let waiting = fixture.submit(&one("")).await;
        fixture.act().await;
        assert_eq!(fixture.code(&waiting, "a").await, C::Paused, "{scope}");
        let order = agent.order().await;
        agent.succeed(&order).await;
        fixture.act().await;
        assert_eq!(fixture.run(&running).await.status, RunState::Success);
        fixture.graphs.clear_flag(FlagName::Paused, &scope).await.expect("the flag is cleared");
        fixture.act().await;
        assert_eq!(fixture.code(&waiting, "a").await, C::Initiated);
    }
    // One with an end time, and one of another project.
    let mut fixture = GraphFixture::open(kind).await;
    let _robot = fixture.agent("one", 4).await;
    let other = Flag { scope: project_scope("bank"), ..site(&fixture, FlagName::Paused) };
    fixture.graphs.set_flag(other).await.expect("the flag is set");
    let until_at = Some(fixture.now() + chrono::TimeDelta::seconds(10));
    let flag = Flag { until_at, ..site(&fixture, FlagName::Paused) };
    fixture.graphs.set_flag(flag).await.expect("the flag is set");
    let run = fixture.submit(&one("")).await;
    fixture.act().await;
    assert_eq!(fixture.code(&run, "a").await, C::Paused);
    fixture.advance(10);
    fixture.act().await;
    assert_eq!(fixture.code(&run, "a").await, C::Initiated);
}

pub(crate) async fn maintenance_blocks_only_database_jobs(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 4).await;
    let database = fixture.submit(&one("pool: database")).await;
    let plain = fixture.submit(&one("")).await;
    fixture.act().await;
    for order in agent.poll().await {
        agent.stage(&order.task_id, "executing").await;
    }
    fixture.graphs.set_flag(site(&fixture, FlagName::Maintenance)).await.expect("the flag is set");
    fixture.act().await;
    let job = fixture.job(&database, "a").await;
    assert_eq!((job.code, job.stopping, job.started_at), (C::WaitingDbMaintenance, true, None));
    assert_eq!(fixture.code(&plain, "a").await, C::Executing);
    // Its command failed because of the maintenance, which is not counted.
    let task = job.task_id.expect("it had a task");
    assert_eq!(agent.result(&task, ended(1)).await, ChangeOutcome::Stale);
    fixture.graphs.clear_flag(FlagName::Maintenance, SITE_SCOPE).await.expect("the flag is cleared");
    fixture.act().await;
    let job = fixture.job(&database, "a").await;
    assert_eq!((job.code, job.failures, job.errors, job.tasks), (C::Initiated, 0, 0, 2));
}

pub(crate) async fn job_that_succeeded_before_a_flag_stays_succeeded(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 4).await;
    let run = fixture.submit(&one("pool: database")).await;
    fixture.act().await;
    let order = agent.order().await;
    agent.succeed(&order).await;
    fixture.graphs.set_flag(site(&fixture, FlagName::Maintenance)).await.expect("the flag is set");
    fixture.graphs.prepare_for_reboot(None, "ann").await.expect("it is prepared");
    fixture.act().await;
    assert_eq!(fixture.run(&run).await.status, RunState::Success);
}

pub(crate) async fn reboot_is_safe_once_nothing_runs(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 4).await;
    let run = fixture.submit(&one("")).await;
    let status = fixture.graphs.reboot_status().await.expect("it is notified");
    assert!(!status.preparing && !status.safe, "no job runs, but one may still start");
    fixture.act().await;
    let task = agent.order().await.task_id;
    agent.stage(&task, "executing").await;
    let status = fixture.graphs.prepare_for_reboot(Some("new kernel"), "ann").await.expect("it is prepared");
    assert_eq!((status.running, status.safe), (1, false));
    fixture.act().await;
    let status = fixture.graphs.reboot_status().await.expect("it is notified");
    assert_eq!((status.running, status.stopping, status.safe), (0, 1, false));
    agent.confirm(&task).await;
    fixture.act().await;
    let status = fixture.graphs.reboot_status().await.expect("it is notified");
    assert_eq!((status.running, status.stopping, status.safe), (0, 0, true));
    let later = fixture.submit(&one("")).await;
    fixture.act().await;
    assert_eq!(
        (fixture.code(&run, "a").await, fixture.code(&later, "a").await),
        (C::WaitingOnReboot, C::Paused)
    );
    assert!(agent.poll().await.is_empty());
    fixture.graphs.clear_flag(FlagName::Reboot, SITE_SCOPE).await.expect("the flag is cleared");
    fixture.act().await;
    assert_eq!(
        (fixture.code(&run, "a").await, fixture.code(&later, "a").await),
        (C::Initiated, C::Initiated)
    );
}

pub(crate) async fn pass_that_missed_a_flag_starts_no_job(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let _robot = fixture.agent("one", 4).await;
    let run = fixture.submit(&one("")).await;
    let draft = fixture.controller.draft().await.expect("it decides").expect("it acts");
    let status = fixture.graphs.prepare_for_reboot(None, "ann").await.expect("it is prepared");
    assert!(status.safe, "no job runs or will start");
    assert_eq!(fixture.controller.write(draft).await.expect("it checks again"), WriteOutcome::Moved);
    fixture.act().await;
    assert_eq!(fixture.code(&run, "a").await, C::Paused);
    assert!(fixture.graphs.reboot_status().await.expect("it is notified").safe);
}

pub(crate) async fn flag_of_two_probes_clears_when_both_recover(kind: Kind) {
    let fixture = GraphFixture::open(kind).await;
    let one = fixture.agent("one", 1).await;
    let two = fixture.agent("two", 1).await;
    let probe = async |agent: &crate::fixture::ScriptedAgent, on: bool| {
        agent.graphs.report_probe(&agent.who, on, None).await.expect("it is received")
    };
    let by = async || {
        let flags = fixture.graphs.flags().await.expect("flags are read");
        flags.into_iter().find(|flag| flag.flag == FlagName::Maintenance).and_then(|flag| flag.set_by)
    };
    for (first, last, left) in [(&one, &two, "agent two"), (&two, &one, "agent one")] {
        assert_eq!(probe(&one, true).await, ChangeOutcome::Applied);
        assert_eq!(probe(&two, true).await, ChangeOutcome::Duplicate);
        assert_eq!(probe(&one, true).await, ChangeOutcome::Duplicate);
        assert_eq!(by().await.as_deref(), Some("agent one, agent two"));
        assert_eq!(probe(first, false).await, ChangeOutcome::Duplicate, "the other one still finds it");
        assert_eq!(by().await.as_deref(), Some(left));
        assert_eq!(probe(last, false).await, ChangeOutcome::Applied);
        assert_eq!(by().await, None);
    }
    // Both are recorded when they report at the same time, and an old finding has expired.
    tokio::join!(probe(&one, true), probe(&two, true));
    assert_eq!(by().await.map(|by| by.len()), Some("agent one, agent two".len()));
    fixture.advance(900);
    assert_eq!(probe(&two, true).await, ChangeOutcome::Applied);
    assert_eq!(by().await.as_deref(), Some("agent two"));
}

pub(crate) async fn probe_never_changes_a_flag_set_by_a_person(kind: Kind) {
    let fixture = GraphFixture::open(kind).await;
    let one = fixture.agent("one", 1).await;
    let two = fixture.agent("two", 1).await;
    let probe = async |agent: &crate::fixture::ScriptedAgent, on: bool| {
        let note = Some("pg_is_in_recovery".to_owned());
        agent.graphs.report_probe(&agent.who, on, note).await.expect("it is received")
    };
    let flag = async || {
        let flags = fixture.graphs.flags().await.expect("flags are read");
        flags.into_iter().find(|flag| flag.flag == FlagName::Maintenance)
    };
    assert_eq!(probe(&one, false).await, ChangeOutcome::Duplicate);
    assert_eq!(probe(&one, true).await, ChangeOutcome::Applied);
    assert_eq!(probe(&one, true).await, ChangeOutcome::Duplicate);
    let set = flag().await.expect("it is on");
    assert_eq!((set.source, set.set_by.as_deref()), (FlagSource::Probe, Some("agent one")));
    // The probe of another agent does not clear the flag; it expires if it is not reported again.
    assert_eq!(probe(&two, false).await, ChangeOutcome::Duplicate);
    assert!(flag().await.is_some_and(|flag| flag.is_on(fixture.now())));
    assert!(flag().await.is_some_and(|flag| !flag.is_on(fixture.now() + chrono::TimeDelta::seconds(900))));
    assert_eq!(probe(&one, false).await, ChangeOutcome::Applied);
    assert_eq!(flag().await, None);
    // A flag set by a person stays, regardless of probes.
    fixture.graphs.set_flag(site(&fixture, FlagName::Maintenance)).await.expect("the flag is set");
    assert_eq!(probe(&one, true).await, ChangeOutcome::Duplicate);
    assert_eq!(probe(&one, false).await, ChangeOutcome::Duplicate);
    let set = flag().await.expect("it is on");
    assert_eq!((set.source, set.set_by.as_deref(), set.until_at), (FlagSource::Manual, Some("ann"), None));
    // A person replaces the flag of a probe, and can turn probes off.
    fixture.graphs.clear_flag(FlagName::Maintenance, SITE_SCOPE).await.expect("the flag is cleared");
    fixture.graphs.set_flag(site(&fixture, FlagName::ProbeOff)).await.expect("the flag is set");
    assert_eq!(probe(&one, true).await, ChangeOutcome::Stale);
    assert_eq!(flag().await, None);
}
