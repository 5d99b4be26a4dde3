//! Tests of the encoding, of the seals and of their verification.

use super::*;
use serde_json::json;
use uuid::Uuid;

fn entry(audit_id: i64) -> AuditRecord {
    AuditRecord {
        audit_id,
        at: Timestamp::from_timestamp(1_700_000_000, 0).unwrap(),
        call_id: Uuid::from_u128(u128::try_from(audit_id).unwrap()),
        who: "ann".to_owned(),
        token_id: None,
        role: ActorRole::Admin,
        action: "runs.cancel".to_owned(),
        subject: Some("run-1".to_owned()),
        project_id: None,
        outcome: AuditOutcome::Applied,
        detail: json!({"b": 1, "a": [true, null, "é\n"]}),
        source: Some("192.0.2.9".to_owned()),
        seal_no: None,
    }
}

fn chain(seals: i64) -> Vec<SealedBatch> {
    let mut batches: Vec<SealedBatch> = Vec::new();
    for number in 0..seals {
        let mut entries = vec![entry(2 * number + 1), entry(2 * number + 2)];
        let seal = AuditSeal::of(batches.last().map(|batch| &batch.seal), &entries, entries[0].at);
        for entry in &mut entries {
            entry.seal_no = Some(seal.seal_no);
        }
        batches.push(SealedBatch { seal, entries });
    }
    batches
}

fn verify(batches: &[SealedBatch], head: Option<AuditHead>) -> Result<VerifiedAudit, AuditFault> {
    let mut verifier = Verifier::new(head);
    for batch in batches {
        verifier.check(batch)?;
    }
    verifier.finish(None)
}

fn head(batches: &[SealedBatch]) -> AuditHead {
    let seal = &batches.last().unwrap().seal;
    AuditHead {
        seal_no: seal.seal_no,
        hash: seal.hash.clone(),
        sealed_at: Some(seal.sealed_at),
        unsealed: 0,
        named_seal_no: None,
    }
}

/// The encoding is a promise: exported heads must stay verifiable by later versions.
#[test]
fn hashes_of_the_encoding_are_stable() {
    assert_eq!(canonical_json(&entry(1).detail), "{\"a\":[true,null,\"é\\n\"],\"b\":1}");
    assert_eq!(entry_hash(&entry(1)), STABLE_ENTRY);
    assert_eq!(chain(2)[1].seal.hash, STABLE_SEAL);
}

#[test]
fn fields_of_entries_cannot_move_into_each_other() {
    let (mut one, mut other) = (entry(1), entry(1));
    (one.action, one.subject) = ("ab".to_owned(), Some("c".to_owned()));
    (other.action, other.subject) = ("a".to_owned(), Some("bc".to_owned()));
    assert_ne!(entry_hash(&one), entry_hash(&other));
    (one.subject, other.subject, other.action) = (None, Some(String::new()), one.action.clone());
    assert_ne!(entry_hash(&one), entry_hash(&other));
}

#[test]
fn fractions_become_texts() {
    assert_eq!(without_fractions(json!({"a": [1.5, 2], "b": 1e2})), json!({"a": ["1.5", 2], "b": "100.0"}));
}

#[test]
fn untouched_chain_is_verified() {
    let batches = chain(3);
    let verified = verify(&batches, Some(head(&batches))).unwrap();
    assert_eq!((verified.first_seal_no, verified.last_seal_no, verified.entries), (Some(1), 3, 6));
    assert_eq!(verify(&[], None).unwrap().last_seal_no, 0);
    let excerpt = Verifier::new(None).after(1, batches[0].seal.hash.clone());
    let mut excerpt = excerpt;
    assert_eq!(excerpt.check(&batches[1]), Ok(()));
}

#[test]
fn every_manipulation_is_named() {
    let at = |change: &dyn Fn(&mut Vec<SealedBatch>)| {
        let mut batches = chain(3);
        change(&mut batches);
        verify(&batches, None).unwrap_err()
    };
    let (seal_no, audit_id) = (2, 3);
    let changed = at(&|batches| batches[1].entries[0].who = "bob".to_owned());
    assert_eq!(changed, AuditFault::ChangedEntry { seal_no, audit_id });
    let missing = at(&|batches| drop(batches[1].entries.remove(0)));
    assert_eq!(missing, AuditFault::MissingEntry { seal_no, audit_id });
    let inserted = at(&|batches| batches[1].entries.push(entry(9)));
    assert_eq!(inserted, AuditFault::InsertedEntry { seal_no, audit_id: 9 });
    let covered = at(&|batches| {
        batches[1].entries[0].who = "bob".to_owned();
        batches[1].seal.entries[0].hash = entry_hash(&batches[1].entries[0]);
    });
    assert_eq!(covered, AuditFault::ChangedSeal { seal_no });
    let resealed = at(&|batches| {
        batches[1].entries[0].who = "bob".to_owned();
        batches[1].seal =
            AuditSeal::of(Some(&batches[0].seal), &batches[1].entries, batches[1].seal.sealed_at);
    });
    assert_eq!(resealed, AuditFault::BrokenChain { seal_no: 3 });
    let removed = at(&|batches| drop(batches.remove(1)));
    assert_eq!(removed, AuditFault::MissingSeal { expected: 2, found: 3 });
    let beheaded = at(&|batches| drop(batches.remove(0)));
    assert_eq!(beheaded, AuditFault::MissingStart { expected: 1, found: 2 });
}

#[test]
fn exported_head_shows_a_removed_or_rewritten_tail() {
    let batches = chain(3);
    let known = head(&batches);
    let cut = verify(&batches[..2], Some(known.clone())).unwrap_err();
    assert_eq!(cut, AuditFault::CutOff { last: 2, head: 3 });
    assert!(verify(&batches[..2], None).is_ok(), "without a head, the tail is unknown");
    let mut rewritten = batches;
    rewritten[2].entries[0].who = "bob".to_owned();
    rewritten[2].seal =
        AuditSeal::of(Some(&rewritten[1].seal), &rewritten[2].entries, rewritten[2].seal.sealed_at);
    assert_eq!(verify(&rewritten, Some(known)).unwrap_err(), AuditFault::Rewritten { seal_no: 3 });
    let orphans = Verifier::new(None).finish(Some(1)).unwrap_err();
    assert_eq!(orphans, AuditFault::OrphanedEntries { last: 0, named: 1 });
}

#[test]
fn pruned_seal_anchors_the_chain_after_it() {
    let mut batches = chain(3);
    batches.remove(0);
    batches[0].entries.clear();
    batches[0].seal.entries.clear();
    batches[0].seal.pruned_at = Some(batches[0].seal.sealed_at);
    assert!(verify(&batches, None).is_ok());
    let old = AuditHead { seal_no: 1, ..head(&batches) };
    assert_eq!(verify(&batches, Some(old)).unwrap_err(), AuditFault::HeadPruned { head: 1, oldest: 2 });
    batches[1].seal.previous = GENESIS.to_owned();
    assert_eq!(verify(&batches, None).unwrap_err(), AuditFault::BrokenChain { seal_no: 3 });
}

const STABLE_ENTRY: &str = "5c245188d3ccc7b79f5defcfb33cb75da2b90c4f471d2d0478379803ad68ace7";
const STABLE_SEAL: &str = "866c34de44f4957ab9feae12e1ed777dfab003e79217b27a01a814c4a8f54233";
