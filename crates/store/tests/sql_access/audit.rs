//! Audit entries of calls by SQL: each change has exactly one, for every caller of the function.

use crate::{Access, Session};
use sqlx::ConnectOptions as _;
use sqlx::postgres::PgConnectOptions;
use tidemill_core::RunId;
use tidemill_core::access::NewAuditRecord;
use tidemill_core::audit::{ActorRole, AuditOutcome};
use tidemill_core::run::CancelOutcome;
use tidemill_engine::clock::host_now;
use tidemill_store::{AuditEntry, ListPage, Options, Store};
use uuid::Uuid;

const QUEUE: &str = "SELECT run_id FROM ops.queue_run('shop', 'staging', NULL, NULL)";

impl Access {
    /// Returns the entries about a run, oldest first, as "who role action outcome project source function by".
    async fn entries(&self, run: &str) -> Vec<String> {
        let page = ListPage { project: None, before: None, limit: 1_000 };
        let mut entries = self.fixture.store.audit(page).await.unwrap();
        entries.reverse();
        entries.retain(|entry| entry.subject.as_deref() == Some(run));
        entries
            .iter()
            .map(|entry| {
                assert_eq!(entry.outcome, AuditOutcome::Applied);
                let detail = |name: &str| entry.detail[name].as_str().unwrap_or("-").to_owned();
                let (project, source) = (entry.project_id.as_deref(), entry.source.as_deref());
                [
                    entry.who.as_str(),
                    entry.role.as_str(),
                    &entry.action,
                    project.unwrap_or("-"),
                    source.unwrap_or("-"),
                    &detail("function"),
                    &detail("by"),
                ]
                .join(" ")
            })
            .collect()
    }

    /// Queues a run, claims it as `builder`, and starts it.
    async fn running(worker: &mut Session) -> String {
        let run = worker.text(QUEUE).await;
        assert_eq!(worker.text("SELECT run_id FROM ops.claim_next_run('builder')").await, run);
        assert_eq!(worker.text(&format!("SELECT ops.start_run('{run}', 'builder', 1)")).await, "true");
        run
    }

    /// Opens a store as this login.
    async fn store_of(&self, login: &PgConnectOptions) -> Store {
        let options = Options::new(login.to_url_lossy().as_str(), host_now);
        Store::open(&options).await.unwrap()
    }
}

#[tokio::test]
async fn cancel_by_sql_is_audited() {
    let mut access = Access::open().await;
    let mut worker = access.worker().await;
    let login = worker.login.clone();
    let cancelled = |by: &str| format!("{login} worker runs.cancel shop sql cancel_run {by}");

    let queued = worker.text(QUEUE).await;
    let cancel = format!("SELECT ops.cancel_run('{queued}')");
    assert_eq!(worker.text(&cancel).await, "cancelled");
    assert_eq!(worker.text(&cancel).await, "ended");
    assert_eq!(access.entries(&queued).await, [cancelled("-")], "an ended run is not cancelled again");

    // A worker role cannot avoid its entry, nor choose its actor.
    let held = Access::running(&mut worker).await;
    let cancel = format!("SELECT ops.cancel_run('{held}', 'ann', p_audited := true)");
    assert_eq!(worker.text(&cancel).await, "requested");
    assert_eq!(worker.text(&cancel).await, "requested");
    assert_eq!(access.entries(&held).await, [cancelled("ann")], "a repeated request changes nothing");
    let report = format!("SELECT ops.finish_run('{held}', 'cancelled', '{{}}', 'builder', 1)");
    assert_eq!(worker.text(&report).await, "true");
    assert_eq!(access.entries(&held).await.len(), 1, "the report of the holder is no second cancel");

    // A graph is cancelled through its jobs: this one has none left.
    let mut superuser = access.superuser().await;
    let graph = worker.text(QUEUE).await;
    superuser.rows(&format!("UPDATE ops.runs SET lane = 'graph' WHERE run_id = '{graph}'")).await;
    assert_eq!(worker.text(&format!("SELECT ops.cancel_run('{graph}')")).await, "requested");
    assert_eq!(access.entries(&graph).await, Vec::<String>::new());

    // The owner of the database is audited too.
    let other = worker.text(QUEUE).await;
    assert_eq!(superuser.text(&format!("SELECT ops.cancel_run('{other}')")).await, "cancelled");
    let expected = format!("{} admin runs.cancel shop sql cancel_run -", superuser.login);
    assert_eq!(access.entries(&other).await, [expected]);
    assert_eq!(access.fixture.store.seal_audit(100, None).await.unwrap(), 3, "the entries can be sealed");
}

#[tokio::test]
async fn cancel_through_finish_by_sql_is_audited() {
    let mut access = Access::open().await;
    let mut worker = access.worker().await;
    let login = worker.login.clone();
    let expected = |by: &str| vec![format!("{login} worker runs.cancel shop sql finish_run {by}")];
    let queued = worker.text(QUEUE).await;
    let finish = format!("SELECT ops.finish_run('{queued}', 'cancelled')");
    for _ in 0..2 {
        assert_eq!(worker.text(&finish).await, "true");
    }
    assert_eq!(access.entries(&queued).await, expected("-"));
    let held = Access::running(&mut worker).await;
    let finish = format!("SELECT ops.finish_run_outcome('{held}', 'cancelled', '{{}}', 'other')");
    assert_eq!(worker.text(&finish).await, "applied");
    assert_eq!(access.entries(&held).await, expected("other"));
    // Three in one call: one by its holder, one of another worker, and one in the queue.
    let (own, foreign) = (Access::running(&mut worker).await, worker.text(QUEUE).await);
    worker.rows("SELECT * FROM ops.claim_next_run('other')").await;
    let waiting = worker.text(QUEUE).await;
    let finish = format!(
        "SELECT outcome FROM ops.finish_runs(ARRAY['{own}', '{foreign}', '{waiting}'], \
         '{{cancelled,cancelled,cancelled}}', ARRAY['{{}}', '{{}}', '{{}}']::jsonb[], 'builder', '{{1,1,1}}')"
    );
    assert_eq!(worker.texts(&finish).await, ["applied"; 3]);
    assert_eq!(access.entries(&own).await, Vec::<String>::new());
    assert_eq!(access.entries(&foreign).await, expected("builder"));
    assert_eq!(access.entries(&waiting).await, expected("builder"));
    // Reports of success and failure are no cancels.
    let done = Access::running(&mut worker).await;
    assert_eq!(worker.text(&format!("SELECT ops.finish_run('{done}', 'failed')")).await, "true");
    assert_eq!(access.entries(&done).await, Vec::<String>::new());
}

#[tokio::test]
async fn retry_by_sql_is_audited() {
    let mut access = Access::open().await;
    let mut worker = access.worker().await;
    let run = Access::running(&mut worker).await;
    worker.text(&format!("SELECT ops.finish_run('{run}', 'failed')")).await;
    let retry = format!("SELECT created FROM ops.retry_run('{run}', 'ann')");
    assert_eq!(worker.text(&retry).await, "true");
    assert_eq!(worker.text(&retry).await, "false");
    let expected = format!("{} worker runs.retry shop sql retry_run ann", worker.login);
    assert_eq!(access.entries(&run).await, [expected]);
}

#[tokio::test]
async fn fail_by_sql_is_audited() {
    let mut access = Access::open().await;
    let mut worker = access.worker().await;
    let mut superuser = access.superuser().await;
    let run = Access::running(&mut worker).await;
    superuser.rows("SELECT * FROM ops.sweep(p_now := clock_timestamp() + interval '1 hour')").await;
    let fail = |retry: bool| format!("SELECT outcome FROM ops.fail_run('{run}', p_retry := {retry})");
    let expected = format!("{} worker runs.fail shop sql fail_run -", worker.login);
    for (retry, outcome, entries) in
        [(false, "applied", 1), (false, "duplicate", 1), (true, "duplicate", 2), (true, "duplicate", 2)]
    {
        assert_eq!(worker.text(&fail(retry)).await, outcome);
        assert_eq!(access.entries(&run).await, vec![expected.clone(); entries], "retry: {retry}");
    }
}

/// A program that uses the store writes the entry of its own caller. With a worker role it may not: then the function
/// writes the entry of the database user.
#[tokio::test]
async fn cancel_by_the_store_has_one_entry() {
    let mut access = Access::open().await;
    let (worker_role, owner_role) = (access.names.worker.clone(), access.names.owner.clone());
    let superuser = access.superuser.clone();
    let worker = access.roles.login("worker_app", &[&worker_role], &superuser);
    let owner = access.roles.login("owner_app", &[&owner_role], &superuser);
    let mut queue = access.worker().await;
    for (login, is_call, expected) in [
        (&worker, false, format!("{} worker runs.cancel shop sql cancel_run ann", worker.get_username())),
        (&worker, true, format!("{} worker runs.cancel shop sql cancel_run ann", worker.get_username())),
        (&owner, false, format!("{} admin runs.cancel shop sql cancel_run ann", owner.get_username())),
        (&owner, true, "ann operator runs.cancel - 192.0.2.7 - -".to_owned()),
    ] {
        let run: RunId = queue.text(QUEUE).await.parse().unwrap();
        let mut store = access.store_of(login).await;
        if is_call {
            let mut entry = NewAuditRecord::of(Uuid::new_v4(), "ann", ActorRole::Operator, "runs.cancel");
            entry.set_subject(run.as_str()).source = Some("192.0.2.7".to_owned());
            store = store.for_call(AuditEntry::new(entry, None));
        }
        let outcome = store.cancel_run(run.clone(), "ann".to_owned(), None, None).await.unwrap();
        assert_eq!(outcome, CancelOutcome::Cancelled);
        assert_eq!(access.entries(run.as_str()).await, [expected], "{} {is_call}", login.get_username());
        store.close().await;
    }
}
