//! The hash chain of the audit log: sealing, verification, manipulation and retention.

use chrono::TimeDelta;
use serde_json::json;
use tidemill_core::access::NewAuditRecord;
use tidemill_core::audit::{ActorRole, AuditFault, AuditHead, VerifiedAudit, Verifier};
use tidemill_store::{RefusalCode, Store};
use tidemill_testkit::interface::{Fixture, Kind, at};
use uuid::Uuid;

use crate::fixture::AccessFixture;

fn entry(number: u128) -> NewAuditRecord {
    let mut entry = NewAuditRecord::of(Uuid::from_u128(number), "ann", ActorRole::Admin, "flags.put");
    entry.set_subject("site").add_detail("zeta", 1.5).add_detail("alpha", json!({"é": [true, null, 1e2]}));
    entry
}

async fn add(store: &Store, numbers: std::ops::Range<u128>) {
    for number in numbers {
        store.add_audit(entry(number), Some(at(0))).await.expect("the entry is added");
    }
}

async fn verify(store: &Store, head: Option<AuditHead>) -> Result<VerifiedAudit, AuditFault> {
    let mut verifier = Verifier::new(head);
    for batch in store.audit_seals(0, None, 1_000).await.expect("the seals are read") {
        verifier.check(&batch)?;
    }
    verifier.finish(store.audit_head().await.expect("the head is read").named_seal_no)
}

async fn count(fixture: &AccessFixture, text: &str) -> i64 {
    fixture.base.plain.number(text).await.expect("rows are counted")
}

pub(crate) async fn seals_cover_all_entries_and_verify(fixture: &AccessFixture) {
    let store = &fixture.base.store;
    add(store, 1..4).await;
    let unsealed = count(fixture, "SELECT count(*) FROM {ops}.audit WHERE seal_no IS NULL").await;
    assert_eq!(store.seal_audit(2, Some(at(1))).await.ok(), Some(2));
    assert_eq!(
        fixture.engine.seal_audit().await.ok().and_then(|sealed| i64::try_from(sealed).ok()),
        Some(unsealed - 2)
    );
    assert_eq!(fixture.engine.seal_audit().await.ok(), Some(0), "nothing is sealed twice");
    let verified = verify(store, None).await.expect("the log is intact");
    assert_eq!((verified.last_seal_no, i64::try_from(verified.entries).ok()), (2, Some(unsealed)));

    // The same over HTTP, for admins of all projects.
    let head = fixture.get("/v1/audit/head", &fixture.admin).await.json();
    assert_eq!(
        (&head["seal_no"], &head["hash"], &head["unsealed"]),
        (&json!(2), &json!(verified.hash), &json!(0))
    );
    let seals = fixture.get("/v1/audit/seals?after=1", &fixture.admin).await.json();
    assert_eq!(seals["items"][0]["seal"]["hash"], json!(verified.hash), "{seals:#}");
    let list = fixture.get("/v1/audit?limit=1", &fixture.admin).await.json();
    assert_eq!(list["items"][0]["seal_no"], 2, "{list:#}");
}

/// Removes the guards, as an attacker with access to the database would.
async fn disarm(fixture: &AccessFixture) {
    let texts: &[&str] = if fixture.base.store.is_postgres() {
        &[
            "ALTER TABLE {ops}.audit DISABLE TRIGGER USER",
            "ALTER TABLE {ops}.audit_seals DISABLE TRIGGER USER",
        ]
    } else {
        &[
            "DROP TRIGGER audit_change",
            "DROP TRIGGER audit_delete",
            "DROP TRIGGER seal_change",
            "DROP TRIGGER seal_delete",
        ]
    };
    for text in texts {
        fixture.base.plain.execute(text).await.expect("the guard is removed");
    }
}

pub(crate) async fn manipulated_entries_are_named(fixture: &AccessFixture) {
    let (store, plain) = (&fixture.base.store, &fixture.base.plain);
    for number in 1..4_u128 {
        add(store, number * 10..number * 10 + 2).await;
        fixture.engine.seal_audit().await.expect("sealed");
    }
    for text in [
        "DELETE FROM {ops}.audit",
        "UPDATE {ops}.audit SET seal_no = 9",
        "UPDATE {ops}.audit_seals SET hash = previous",
        "DELETE FROM {ops}.audit_seals",
        "UPDATE {ops}.audit_seals SET pruned_at = sealed_at, entries = '[]' WHERE seal_no = 2",
    ] {
        let refused = plain.execute(text).await.expect_err("sealed entries are frozen");
        assert_eq!(refused.refusal_code(), Some(RefusalCode::Frozen), "{text}");
    }
    let head = store.audit_head().await.expect("the head is read");
    assert!(verify(store, Some(head.clone())).await.is_ok());
    disarm(fixture).await;
    let id = count(fixture, "SELECT min(audit_id) FROM {ops}.audit WHERE seal_no = 2").await;
    let fault = async || verify(store, None).await.expect_err("the manipulation is found");
    let run = async |text: String| plain.execute(&text).await.expect("the row is manipulated");

    run(format!("UPDATE {{ops}}.audit SET who = 'bob' WHERE audit_id = {id}")).await;
    assert_eq!(fault().await, AuditFault::ChangedEntry { seal_no: 2, audit_id: id });
    run(format!("UPDATE {{ops}}.audit SET who = 'ann' WHERE audit_id = {id}")).await;
    assert!(verify(store, None).await.is_ok());

    let new =
        "at, call_id, who, token_id, role, action, subject, project_id, outcome, detail, source, seal_no";
    let old = new.replace("call_id", "CAST('00000000-0000-4000-8000-0000000000ff' AS {uuid})");
    let old = old.replace("{uuid}", if store.is_postgres() { "uuid" } else { "TEXT" });
    run(format!("INSERT INTO {{ops}}.audit ({new}) SELECT {old} FROM {{ops}}.audit WHERE audit_id = {id}"))
        .await;
    let inserted = count(fixture, "SELECT max(audit_id) FROM {ops}.audit").await;
    assert_eq!(fault().await, AuditFault::InsertedEntry { seal_no: 2, audit_id: inserted });
    run(format!("DELETE FROM {{ops}}.audit WHERE audit_id = {inserted}")).await;

    // The newest seal is cut off: its rows alone, then everything of it.
    run("DELETE FROM {ops}.audit_seals WHERE seal_no = 3".to_owned()).await;
    assert_eq!(fault().await, AuditFault::OrphanedEntries { last: 2, named: 3 });
    run("DELETE FROM {ops}.audit WHERE seal_no = 3".to_owned()).await;
    assert!(verify(store, None).await.is_ok(), "without a head, a removed tail is not visible");
    let cut = verify(store, Some(head)).await.expect_err("the exported head shows it");
    assert_eq!(cut, AuditFault::CutOff { last: 2, head: 3 });

    run(format!("DELETE FROM {{ops}}.audit WHERE audit_id = {id}")).await;
    assert_eq!(fault().await, AuditFault::MissingEntry { seal_no: 2, audit_id: id });
}

/// PostgreSQL gives out ids before the commit, so a smaller id can appear after a larger one was sealed. SQLite has one
/// writer at a time: there the transaction ends before the next one begins.
pub(crate) async fn entry_that_commits_late_is_sealed_later(fixture: &AccessFixture) {
    let store = fixture.base.store.clone();
    fixture.engine.seal_audit().await.expect("sealed");
    let (inserted, wait_for_insert) = tokio::sync::oneshot::channel();
    let (release, wait_for_release) = tokio::sync::oneshot::channel::<()>();
    let late = tokio::spawn(async move {
        let write = store.write(move |mut tx| {
            Box::pin(async move {
                tx.add_audit(&entry(1), Some(at(0))).await?;
                let _ = inserted.send(());
                let _ = wait_for_release.await;
                Ok(())
            })
        });
        write.await
    });
    wait_for_insert.await.expect("the entry is inserted");
    let store = &fixture.base.store;
    if !store.is_postgres() {
        release.send(()).expect("it waits");
        late.await.expect("it ends").expect("it commits");
        add(store, 2..3).await;
        assert_eq!(fixture.engine.seal_audit().await.ok(), Some(2));
        return;
    }
    add(store, 2..3).await;
    assert_eq!(fixture.engine.seal_audit().await.ok(), Some(1), "only the committed entry is sealed");
    release.send(()).expect("it waits");
    late.await.expect("it ends").expect("it commits");
    assert_eq!(fixture.engine.seal_audit().await.ok(), Some(1), "the late entry is not lost");
    let number_of = async |call: &str| {
        let text = format!("SELECT seal_no * 1000 + audit_id FROM {{ops}}.audit WHERE call_id = '{call}'");
        count(fixture, &text).await
    };
    let (late, early) =
        (number_of(&Uuid::from_u128(1).to_string()).await, number_of(&Uuid::from_u128(2).to_string()).await);
    assert!(late / 1000 > early / 1000 && late % 1000 < early % 1000, "{late} {early}");
    assert!(verify(store, None).await.is_ok());
}

pub(crate) async fn concurrent_and_failed_sealing_leave_one_chain(fixture: &AccessFixture) {
    let (store, plain) = (&fixture.base.store, &fixture.base.plain);
    add(store, 1..30).await;
    let sealers: Vec<_> = (0..6)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.seal_audit(7, Some(at(1))).await.expect("sealed") })
        })
        .collect();
    let mut sealed = 0;
    for sealer in sealers {
        sealed += sealer.await.expect("it ends");
    }
    assert_eq!(sealed, 30, "each entry once, with that of the first admin");
    assert_eq!(verify(store, None).await.map(|verified| verified.entries), Ok(30));

    // A pass that dies between the seal and its entries leaves neither.
    add(store, 40..42).await;
    let texts = if store.is_postgres() {
        [
            "CREATE FUNCTION {ops}.stop_here() RETURNS trigger LANGUAGE plpgsql AS \
             'BEGIN RAISE EXCEPTION ''stop''; END'",
            "CREATE TRIGGER stop_here BEFORE UPDATE ON {ops}.audit FOR EACH ROW EXECUTE FUNCTION {ops}.stop_here()",
            "DROP TRIGGER stop_here ON {ops}.audit",
        ]
    } else {
        [
            "SELECT 1",
            "CREATE TRIGGER stop_here BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'stop'); END",
            "DROP TRIGGER stop_here",
        ]
    };
    for text in &texts[..2] {
        plain.execute(text).await.expect("sealing is stopped");
    }
    let before = store.audit_head().await.expect("the head is read");
    assert!(fixture.engine.seal_audit().await.is_err());
    assert_eq!(store.audit_head().await.expect("the head is read"), before);
    plain.execute(texts[2]).await.expect("sealing goes on");
    assert_eq!(fixture.engine.seal_audit().await.ok(), Some(2));
    assert!(verify(store, Some(before)).await.is_ok());
}

pub(crate) async fn retention_removes_whole_seals_and_keeps_the_anchor(fixture: &AccessFixture) {
    let store = &fixture.base.store;
    for (number, day) in [(10, 0), (20, 1), (30, 2)] {
        let late = at(0) + TimeDelta::days(day);
        store.add_audit(entry(number), Some(late)).await.expect("the entry is added");
        store.seal_audit(100, Some(late)).await.expect("sealed");
    }
    let old = store.audit_seals(0, None, 1).await.expect("the seals are read").remove(0).seal;
    let head = store.audit_head().await.expect("the head is read");
    let before = at(0) + TimeDelta::hours(36);
    let pruned = store.prune_access(before, at(0), 100).await.expect("pruned");
    assert_eq!(pruned.audit, 3, "two seals; the first also has the entry of the first admin");
    let seals = store.audit_seals(0, None, 10).await.expect("the seals are read");
    assert_eq!(seals.iter().map(|batch| batch.seal.seal_no).collect::<Vec<_>>(), [2, 3]);
    assert!(seals[0].seal.pruned_at.is_some() && seals[0].entries.is_empty());
    assert!(verify(store, Some(head)).await.is_ok(), "the chain goes on from its anchor");
    let known =
        AuditHead { seal_no: old.seal_no, hash: old.hash, sealed_at: None, unsealed: 0, named_seal_no: None };
    let outdated = verify(store, Some(known)).await.expect_err("its seal is gone");
    assert_eq!(outdated, AuditFault::HeadPruned { head: 1, oldest: 2 });
    assert_eq!(store.prune_access(before, at(0), 100).await.map(|pruned| pruned.audit).ok(), Some(0));
}

#[tokio::test]
async fn equal_entries_have_equal_hashes_on_both_databases() {
    let mut hashes = Vec::new();
    for kind in [Kind::Postgres, Kind::Sqlite] {
        let fixture = Fixture::open(kind).await;
        add(&fixture.store, 1..4).await;
        fixture.store.seal_audit(100, Some(at(1))).await.expect("sealed");
        hashes.push(fixture.store.audit_head().await.expect("the head is read").hash);
        fixture.close().await;
    }
    assert_eq!(hashes[0], hashes[1]);
}
