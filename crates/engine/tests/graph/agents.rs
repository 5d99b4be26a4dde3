//! Agents that are silent, leave, drain, are forgotten, return, or use a wrong identity.

use tidemill_core::access::{Role, Token};
use tidemill_core::agent::NewAgent;
use tidemill_core::graph::record::TaskEnd;
use tidemill_core::job::StatusCode as C;
use tidemill_core::project_set::ProjectSet;
use tidemill_core::run::ChangeOutcome;
use tidemill_engine::graph::{AgentIdentity, ForgetMode, TaskReport};
use tidemill_store::RefusalCode;
use tidemill_testkit::interface::Kind;
use uuid::Uuid;

use crate::fixture::{GraphFixture, ask, ended, new_agent, one};

pub(crate) async fn silent_agent_loses_unstarted_tasks(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut quiet = fixture.agent("quiet", 1).await;
    let run = fixture.submit(&one("")).await;
    fixture.act().await;
    let order = quiet.order().await;
    fixture.advance(19);
    fixture.act().await;
    assert_eq!(fixture.code(&run, "a").await, C::Initiated, "it is not silent for long enough");
    let mut other = fixture.agent("other", 1).await;
    fixture.advance(2);
    other.beat().await;
    fixture.act().await;
    let job = fixture.job(&run, "a").await;
    assert_eq!((job.code, job.errors, job.tasks), (C::Initiated, 0, 2), "no error is counted");
    assert_eq!(job.agent_id, Some(other.who.agent_id));
    assert_eq!(
        quiet.stage(&order.task_id, "preparing").await,
        ChangeOutcome::Stale,
        "it may not begin any more"
    );
    assert_eq!(quiet.result(&order.task_id, ended(0)).await, ChangeOutcome::Stale);
    let order = other.order().await;
    other.succeed(&order).await;
    fixture.act().await;
    assert_eq!(fixture.code(&run, "a").await, C::Succeeded);
    let detail = fixture.graphs.job(&job.job_id).await.expect("the job is read");
    assert_eq!(detail.tasks[0].end, Some(TaskEnd::Withdrawn));
    assert!(fixture.path(&run, "a").await.contains(&C::WaitingOnNewTask));
}

pub(crate) async fn leaving_agent_returns_unstarted_tasks(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut leaving = fixture.agent("leaving", 2).await;
    let begun = fixture.submit(&one("")).await;
    let untouched = fixture.submit(&one("")).await;
    fixture.act().await;
    let orders = leaving.poll().await;
    let mine = orders.iter().find(|order| order.work.as_ref().is_some_and(|work| work.run_id == begun));
    leaving.stage(&mine.expect("it is ordered").task_id, "executing").await;
    leaving.graphs.leave(&leaving.who).await.expect("it shuts down");
    let mut other = fixture.agent("other", 2).await;
    fixture.act().await;
    assert_eq!(fixture.job(&untouched, "a").await.agent_id, Some(other.who.agent_id));
    assert_eq!(fixture.job(&begun, "a").await.agent_id, Some(leaving.who.agent_id), "it waits for its agent");
    assert_eq!(other.poll().await.len(), 1);
    // It returns and continues.
    leaving.beat().await;
    leaving.result(&mine.expect("it is ordered").task_id, ended(0)).await;
    fixture.act().await;
    assert_eq!(fixture.code(&begun, "a").await, C::Succeeded);
}

pub(crate) async fn job_without_lost_time_waits_for_its_silent_agent(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut away = fixture.agent("away", 1).await;
    let run = fixture.submit(&one("on-agent-lost: wait")).await;
    fixture.act().await;
    let order = away.order().await;
    away.stage(&order.task_id, "executing").await;
    fixture.act().await;
    let mut other = fixture.agent("other", 1).await;
    fixture.advance(7 * 86_400);
    other.beat().await;
    fixture.act().await;
    assert_eq!(fixture.code(&run, "a").await, C::Executing);
    assert!(other.poll().await.is_empty());
    away.result(&order.task_id, ended(0)).await;
    fixture.act().await;
    assert_eq!(fixture.code(&run, "a").await, C::Succeeded);
}

pub(crate) async fn job_with_lost_time_is_rerun_after_it(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut away = fixture.agent("away", 1).await;
    let run = fixture.submit(&one("on-agent-lost: rerun after 2m")).await;
    fixture.act().await;
    let order = away.order().await;
    away.stage(&order.task_id, "executing").await;
    fixture.act().await;
    let mut other = fixture.agent("other", 1).await;
    // Its supervisor ends the command after two minutes; the controller waits a little longer.
    fixture.advance(149);
    other.beat().await;
    fixture.act().await;
    assert_eq!(fixture.code(&run, "a").await, C::Executing);
    fixture.advance(2);
    other.beat().await;
    fixture.act().await;
    let job = fixture.job(&run, "a").await;
    assert_eq!((job.code, job.errors), (C::WaitingOnNewTask, 1));
    assert_eq!(away.result(&order.task_id, ended(0)).await, ChangeOutcome::Stale);
    fixture.advance(6);
    other.beat().await;
    fixture.act().await;
    let again = other.order().await;
    assert_eq!(again.work.as_ref().expect("it is work").attempt, 2);
    other.succeed(&again).await;
    fixture.act().await;
    assert_eq!(fixture.code(&run, "a").await, C::Succeeded);
    let detail = fixture.graphs.job(&job.job_id).await.expect("the job is read");
    assert_eq!(detail.tasks[0].end, Some(TaskEnd::Lost));
    let over = away.heartbeat_with_stage(None).await;
    assert_eq!(over, away.have, "its outputs may be removed");
}

/// The last task of a job ends with its real cause, and does not count as answered.
pub(crate) async fn last_task_of_a_job_is_lost_or_forgotten_like_others(kind: Kind) {
    for end in [TaskEnd::Lost, TaskEnd::Forgotten] {
        let mut fixture = GraphFixture::open(kind).await;
        let run = fixture.submit(&one("on-agent-lost: rerun after 1m")).await;
        for number in 1..=5 {
            let mut agent = fixture.agent(&format!("agent-{number}"), 1).await;
            fixture.act().await;
            let order = agent.order().await;
            agent.stage(&order.task_id, "executing").await;
            fixture.act().await;
            fixture.advance(25);
            if end == TaskEnd::Forgotten {
                fixture
                    .graphs
                    .forget(agent.who.agent_id, ForgetMode::IfSilent)
                    .await
                    .expect("it is forgotten");
            }
            fixture.act().await;
            fixture.advance(100);
            fixture.act().await;
            // Longer than any back-off before another task.
            fixture.advance(60);
        }
        let job = fixture.job(&run, "a").await;
        assert_eq!((job.code, job.tasks), (C::JobError, 5));
        let detail = fixture.graphs.job(&job.job_id).await.expect("the job is read");
        assert!(detail.tasks.iter().all(|task| task.end == Some(end)), "{end:?}: {:?}", detail.tasks);
    }
}

pub(crate) async fn forgotten_agent_frees_jobs_and_capacity(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut absent = fixture.agent("gone", 2).await;
    let running = fixture.submit(&one("")).await;
    let stopping = fixture.submit(&one("")).await;
    fixture.act().await;
    for order in absent.poll().await {
        absent.stage(&order.task_id, "executing").await;
    }
    fixture.graphs.cancel(&stopping, &[], "ann", None).await.expect("it is cancelled");
    fixture.act().await;
    assert!(fixture.job(&stopping, "a").await.stopping);
    // An agent with a recent heartbeat is live, and so are its commands.
    let id = absent.who.agent_id;
    let refused = fixture.graphs.forget(id, ForgetMode::IfSilent).await.expect_err("it lives");
    assert_eq!(refused.to_string(), "agent gone sent a heartbeat 0 s ago, so its commands may still run");
    assert!(refused.hint().is_some_and(|hint| hint.contains("--force")));
    fixture.act().await;
    assert_eq!(fixture.code(&running, "a").await, C::Executing, "no row has changed");
    assert!(fixture.graphs.forget(id, ForgetMode::Always).await.expect("it is forgotten"));
    let twice = fixture.graphs.forget(id, ForgetMode::IfSilent).await.expect("it exists");
    assert!(!twice, "a repeated report counts once");
    fixture.act().await;
    assert!(!fixture.job(&stopping, "a").await.stopping);
    let job = fixture.job(&running, "a").await;
    assert_eq!((job.code, job.errors), (C::WaitingOnNewTask, 1));
    let refused = absent.graphs.heartbeat(&absent.who, &[]).await.expect_err("it must register again");
    assert_eq!(refused.refusal_code(), Some(RefusalCode::UnknownAgent), "a stale process would end");
    let listed = fixture.graphs.agents(None).await.expect("agents are listed");
    assert!(listed.is_empty(), "{listed:?}");
    // It returns and learns that its tasks have ended.
    let again = NewAgent { agent_id: id, boot_id: absent.who.boot_id, ..new_agent("gone", 2) };
    fixture.graphs.register(again).await.expect("it registers again");
    let over = absent.heartbeat_with_stage(None).await;
    assert_eq!((over.len(), over), (2, absent.have.clone()));
}

pub(crate) async fn draining_agent_gets_no_new_tasks(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 4).await;
    let first = fixture.submit(&one("")).await;
    fixture.act().await;
    fixture.graphs.drain(agent.who.agent_id, true).await.expect("it drains");
    let second = fixture.submit(&one("")).await;
    fixture.act().await;
    let order = agent.order().await;
    agent.succeed(&order).await;
    assert!(agent.graphs.heartbeat(&agent.who, &[]).await.expect("the heartbeat is received").draining);
    fixture.act().await;
    assert_eq!(fixture.code(&first, "a").await, C::Succeeded);
    assert_eq!(fixture.code(&second, "a").await, C::WaitingOnWorkers);
    fixture.graphs.drain(agent.who.agent_id, false).await.expect("it works again");
    fixture.act().await;
    assert_eq!(fixture.code(&second, "a").await, C::Initiated);
}

pub(crate) async fn older_process_of_an_agent_is_refused(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let new = new_agent("one", 1);
    let mut old = fixture.agent_with(new.clone()).await;
    let run = fixture.submit(&one("")).await;
    fixture.act().await;
    let order = old.order().await;
    old.stage(&order.task_id, "executing").await;
    let mut young = fixture.agent_with(NewAgent { boot_id: Uuid::new_v4(), ..new }).await;
    let words = "another process of agent one has registered";
    let refused = [
        old.graphs.heartbeat(&old.who, &[]).await.map(|_| ()),
        old.graphs.poll(&old.who, &[], std::time::Duration::ZERO).await.map(|_| ()),
        old.graphs.report_stage(&old.who, &order.task_id, "executed").await.map(|_| ()),
        old.graphs.report_result(&old.who, &order.task_id, TaskReport::new(ended(0))).await.map(|_| ()),
        old.graphs.report_log(&old.who, &order.task_id, 0, Vec::new()).await.map(|_| ()),
        old.graphs.report_probe(&old.who, true, None).await.map(|_| ()),
        old.graphs.leave(&old.who).await,
    ];
    for (place, refused) in refused.into_iter().enumerate() {
        let error = refused.expect_err("it is refused");
        // A log without lines is refused before the identity is checked.
        if place != 4 {
            assert_eq!((error.refusal_code(), error.to_string().as_str()), (Some(RefusalCode::Stale), words));
        }
    }
    // The next process of the same agent continues its tasks.
    young.have.clone_from(&old.have);
    assert!(young.poll().await.is_empty());
    assert_eq!(young.stage(&order.task_id, "executing").await, ChangeOutcome::Duplicate);
    assert_eq!(young.result(&order.task_id, ended(0)).await, ChangeOutcome::Applied);
    fixture.act().await;
    assert_eq!(fixture.code(&run, "a").await, C::Succeeded);
}

pub(crate) async fn agent_is_accessible_only_to_its_token(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let token = Uuid::new_v4();
    let new = NewAgent { token_id: Some(token), ..new_agent("one", 1) };
    let mut agent = fixture.agent_with(new.clone()).await;
    fixture.submit(&one("")).await;
    fixture.act().await;
    let order = agent.order().await;
    for stranger in [None, Some(Uuid::new_v4())] {
        let who = AgentIdentity { token_id: stranger, ..agent.who };
        let refused = fixture.graphs.heartbeat(&who, &[]).await.expect_err("it is not theirs");
        assert_eq!(refused.refusal_code(), Some(RefusalCode::UnknownAgent));
        // It does not know the secret of the directory.
        let (secret_hash, next_secret_hash) = ("1".repeat(64), "2".repeat(64));
        let stranger = NewAgent { token_id: stranger, secret_hash, next_secret_hash, ..new.clone() };
        let again = fixture.graphs.register(stranger).await;
        assert_eq!(again.expect_err("it is accepted").refusal_code(), Some(RefusalCode::UnknownAgent));
    }
    // Another agent does not see the task.
    let other = fixture.agent("other", 1).await;
    for task in [order.task_id.as_str(), "no-such-task-001"] {
        let stage = other.graphs.report_stage(&other.who, task, "preparing").await;
        let refused = stage.expect_err("it is not theirs");
        assert_eq!(refused.to_string(), format!("task `{task}` does not exist"));
    }
}

/// Stores a token, so that it is valid.
async fn token(fixture: &GraphFixture, project: Option<&str>) -> Uuid {
    let token = Token {
        token_id: Uuid::new_v4(),
        name: "site".to_owned(),
        role: Role::Agent,
        projects: ProjectSet::of(project),
        created_at: fixture.now(),
        created_by: "ann".to_owned(),
        expires_at: Some(fixture.now() + chrono::TimeDelta::hours(1)),
        revoked_at: None,
        revoked_by: None,
        last_used_at: None,
    };
    let id = token.token_id;
    fixture
        .base
        .store
        .add_token(token, id.simple().to_string().repeat(2), None)
        .await
        .expect("the token is stored");
    id
}

pub(crate) async fn agent_registers_with_new_token_once_the_old_one_is_invalid(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let (first, second) = (token(&fixture, None).await, token(&fixture, None).await);
    let new = NewAgent { token_id: Some(first), ..new_agent("one", 1) };
    let mut agent = fixture.agent_with(new.clone()).await;
    let run = fixture.submit(&one("")).await;
    fixture.act().await;
    let order = agent.order().await;
    agent.stage(&order.task_id, "executing").await;
    let next = NewAgent { token_id: Some(second), boot_id: Uuid::new_v4(), ..new.clone() };
    let still = fixture.graphs.register(next.clone()).await.expect_err("the first token is good");
    assert_eq!(still.refusal_code(), Some(RefusalCode::Frozen));
    assert!(still.to_string().contains("belongs to token `site`, which is still valid"), "{still}");
    agent.beat().await;

    fixture
        .base
        .store
        .revoke_token(first, None, "ann".to_owned(), fixture.engine.clock().now())
        .await
        .expect("revoked");
    // Refused: a caller that knows only the agent's id, and a token of another project.
    let bank = token(&fixture, Some("bank")).await;
    let strangers = [
        NewAgent { secret_hash: "8".repeat(64), next_secret_hash: "9".repeat(64), ..next.clone() },
        NewAgent { token_id: Some(bank), projects: ProjectSet::of(Some("bank")), ..next.clone() },
    ];
    for stranger in strangers {
        let refused = fixture.graphs.register(stranger).await.expect_err("it is not theirs");
        assert_eq!(refused.refusal_code(), Some(RefusalCode::UnknownAgent));
    }
    agent.beat().await;
    let moved = fixture.agent_with(next.clone()).await;
    assert_eq!(
        fixture.graphs.heartbeat(&agent.who, &[]).await.expect_err("it was").refusal_code(),
        Some(RefusalCode::UnknownAgent)
    );
    assert_eq!(
        moved.result(&order.task_id, ended(0)).await,
        ChangeOutcome::Applied,
        "its task is still its own"
    );
    fixture.act().await;
    assert_eq!(fixture.code(&run, "a").await, C::Succeeded);
    // Also after a token has expired, and after it was deleted long ago.
    fixture.advance(3_601);
    let third = token(&fixture, None).await;
    fixture.agent_with(NewAgent { token_id: Some(third), ..next.clone() }).await;
    fixture.base.plain.execute("DELETE FROM {ops}.tokens").await.expect("a person may");
    fixture.agent_with(NewAgent { token_id: Some(token(&fixture, None).await), ..next }).await;
}

pub(crate) async fn registration_replaces_the_secret_of_its_directory(kind: Kind) {
    let fixture = GraphFixture::open(kind).await;
    let first = new_agent("one", 1);
    let secret = |current: &str, next: &str| NewAgent {
        secret_hash: current.repeat(64),
        next_secret_hash: next.repeat(64),
        boot_id: Uuid::new_v4(),
        ..first.clone()
    };
    let agent = fixture.agent_with(secret("a", "b")).await;
    // The same registration again, after a lost response.
    fixture.agent_with(NewAgent { boot_id: agent.who.boot_id, ..secret("a", "b") }).await;
    agent.beat().await;
    let current = fixture.agent_with(secret("b", "c")).await;
    for old in [secret("a", "b"), secret("b", "d"), secret("d", "a")] {
        let refused = fixture.graphs.register(old).await.expect_err("the secret is not the current one");
        assert_eq!(refused.refusal_code(), Some(RefusalCode::WrongHolder), "{refused}");
        assert!(refused.hint().is_some_and(|hint| hint.contains("tidemill agent forget")));
    }
    current.beat().await;
}

pub(crate) async fn agent_token_is_bound_to_one_agent(kind: Kind) {
    let fixture = GraphFixture::open(kind).await;
    let token = token(&fixture, None).await;
    let new = |name| NewAgent { token_id: Some(token), ..new_agent(name, 1) };
    let first = fixture.agent_with(new("one")).await;
    let second = new("two");
    let refused = fixture.graphs.register(second.clone()).await.expect_err("the token is bound");
    assert_eq!(refused.refusal_code(), Some(RefusalCode::WrongHolder));
    let id = first.who.agent_id;
    assert_eq!(refused.to_string(), format!("token `site` is bound to the directory of agent one ({id})"));
    fixture.graphs.forget(id, ForgetMode::Always).await.expect("it is forgotten");
    fixture.agent_with(second).await;
    let again = NewAgent { agent_id: id, ..new("one") };
    let refused = fixture.graphs.register(again).await.expect_err("the token is bound again");
    assert_eq!(refused.refusal_code(), Some(RefusalCode::WrongHolder));
}

pub(crate) async fn project_agent_gets_only_jobs_of_its_projects(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let bound = NewAgent { projects: ProjectSet::only(["bank", "mint"]), ..new_agent("bank", 8) };
    let mut agent = fixture.agent_with(bound).await;
    let shop = fixture.submit(&one("")).await;
    let mut bank = ask(&one(""));
    "bank".clone_into(&mut bank.project);
    let bank = fixture.graphs.submit(bank).await.expect("the graph is accepted").run_id;
    fixture.act().await;
    let order = agent.order().await;
    assert_eq!(order.work.expect("it is work").run_id, bank);
    assert_eq!(fixture.code(&shop, "a").await, C::WaitingOnWorkers);
}
