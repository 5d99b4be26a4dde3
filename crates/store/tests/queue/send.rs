//! Send: once per id and generation, for every sender and time.

use chrono::TimeDelta;
use serde_json::json;
use tidemill_core::limits::{BATCH_MAX, BODY_BYTES_MAX};
use tidemill_core::queue::{DeadReason, NewMessage, SendOutcome, WORK_DONE, WORK_ITEMS};
use tidemill_core::run::ChangeOutcome;
use tidemill_store::{Error, ReceiveRequest, RefusalCode};
use tidemill_testkit::conformance::at_once;
use tidemill_testkit::interface::{at, refused};

use crate::{QueueFixture, item, items};

pub(crate) async fn message_is_received_unchanged(fixture: QueueFixture) {
    let message = NewMessage {
        generation: 3,
        run_id: Some("run-1".to_owned()),
        trace_id: Some("trace-1".to_owned()),
        body: json!({ "offset": 30, "price": 12.5, "größe": "\u{1f48e} '\"\\", "nested": { "a": [1, null] } }),
        ..item("run:p1:30")
    };
    assert_eq!(fixture.send(vec![message.clone()], at(0)).await, [SendOutcome::Sent]);
    let received = fixture.receive_one(fixture.ann, at(7)).await;
    assert_eq!(received.receipt.queue, WORK_ITEMS);
    assert_eq!(received.receipt.message_id, message.message_id);
    assert_eq!(received.receipt.generation, 3);
    assert_eq!(received.receipt.worker, fixture.ann);
    assert_eq!(received.group, "nivoda");
    assert_eq!(received.body, message.body);
    assert_eq!((received.run_id, received.trace_id), (message.run_id, message.trace_id));
    assert_eq!(received.enqueued_at, at(0));
    assert_eq!(received.locked_until, at(7 + 120));
    assert_eq!(received.expires_at, at(24 * 3_600));
    assert_eq!((received.deliveries, received.deliveries_max), (1, 5));
}

pub(crate) async fn resent_message_is_a_duplicate(fixture: QueueFixture) {
    let batch = vec![item("a"), item("b"), item("a")];
    assert_eq!(
        fixture.send(batch, at(0)).await,
        [SendOutcome::Sent, SendOutcome::Sent, SendOutcome::Duplicate]
    );
    assert_eq!(fixture.send_one("a", at(1)).await, SendOutcome::Duplicate);
    assert_eq!(fixture.receive(fixture.ann, 10, at(2)).await.len(), 2);
    assert_eq!(
        fixture.send(vec![item("b"), item("c")], at(3)).await,
        [SendOutcome::Duplicate, SendOutcome::Sent]
    );
    assert_eq!(fixture.rows("state = 'live'").await, 3);
}

pub(crate) async fn completed_message_is_a_duplicate_within_the_window(fixture: QueueFixture) {
    fixture.send_one("a", at(0)).await;
    let first = fixture.receive_one(fixture.ann, at(1)).await.receipt;
    assert_eq!(fixture.complete(&first, at(2)).await, ChangeOutcome::Applied);
    assert_eq!(fixture.send_one("a", at(2 + 599)).await, SendOutcome::Duplicate);
    assert!(fixture.receive(fixture.ann, 10, at(2 + 599)).await.is_empty());
    assert_eq!(fixture.send_one("a", at(2 + 600)).await, SendOutcome::Sent);
    let again = fixture.receive_one(fixture.ann, at(2 + 601)).await;
    assert_eq!(again.deliveries, 1, "it starts again");
    assert_eq!(
        fixture.complete(&first, at(2 + 602)).await,
        ChangeOutcome::Stale,
        "a receipt of its first life"
    );
    assert_eq!(fixture.complete(&again.receipt, at(2 + 603)).await, ChangeOutcome::Applied);
}

pub(crate) async fn completed_id_without_window_is_free_at_once(fixture: QueueFixture) {
    let done = NewMessage { queue: WORK_DONE.to_owned(), ..item("a") };
    let receive_one = || fixture.ask(ReceiveRequest::new(WORK_DONE, fixture.ann, 10), at(1));
    assert_eq!(fixture.send(vec![done.clone()], at(0)).await, [SendOutcome::Sent]);
    let first = receive_one().await.received.remove(0).receipt;
    assert_eq!(fixture.complete(&first, at(1)).await, ChangeOutcome::Applied);
    assert_eq!(fixture.send(vec![done], at(1)).await, [SendOutcome::Sent]);
    let second = receive_one().await.received.remove(0).receipt;
    assert_eq!(fixture.complete(&first, at(1)).await, ChangeOutcome::Stale);
    assert_eq!(fixture.complete(&second, at(1)).await, ChangeOutcome::Applied);
}

pub(crate) async fn other_generation_or_queue_is_another_message(fixture: QueueFixture) {
    let next = NewMessage { generation: 1, ..item("a") };
    let elsewhere = NewMessage { queue: WORK_DONE.to_owned(), ..item("a") };
    assert_eq!(fixture.send(vec![item("a"), next.clone(), elsewhere], at(0)).await, [SendOutcome::Sent; 3]);
    let mut received = fixture.receive(fixture.ann, 10, at(1)).await;
    received.sort_by_key(|one| one.receipt.generation);
    assert_eq!(fixture.complete(&received[0].receipt, at(1)).await, ChangeOutcome::Applied);
    assert_eq!(fixture.send(vec![item("a"), next], at(1)).await, [SendOutcome::Duplicate; 2]);
    assert_eq!(fixture.complete(&received[1].receipt, at(1)).await, ChangeOutcome::Applied);
}

pub(crate) async fn dead_letter_is_not_resent_by_send(fixture: QueueFixture) {
    fixture.send_one("a", at(0)).await;
    let receipt = fixture.receive_one(fixture.ann, at(1)).await.receipt;
    let killed = fixture.queue.kill(receipt, DeadReason::Permanent, None, Some(at(2))).await;
    assert_eq!(killed.ok(), Some(ChangeOutcome::Applied));
    assert_eq!(fixture.send_one("a", at(10_000)).await, SendOutcome::Duplicate);
    assert!(fixture.receive(fixture.ann, 10, at(10_000)).await.is_empty());
}

pub(crate) async fn delayed_message_is_not_received_early(fixture: QueueFixture) {
    let later = NewMessage { delay: TimeDelta::milliseconds(2_500), ..item("a") };
    fixture.send(vec![later], at(0)).await;
    assert!(fixture.receive(fixture.ann, 10, at(2)).await.is_empty());
    assert_eq!(fixture.receive_one(fixture.ann, at(3)).await.deliveries, 1);
}

pub(crate) async fn message_sent_locked_is_held_by_its_sender(fixture: QueueFixture) {
    let held = fixture.queue.send_locked(item("a"), fixture.ann, Some(at(0))).await;
    let held = held.ok().flatten().expect("it is sent");
    assert_eq!((held.locked_until, held.deliveries, held.expires_at), (at(120), 1, at(24 * 3_600)));
    assert!(fixture.receive(fixture.bob, 10, at(119)).await.is_empty());
    let again = fixture.queue.send_locked(item("a"), fixture.bob, Some(at(1))).await;
    assert_eq!(again.ok(), Some(None), "a duplicate has no holder");
    assert_eq!(fixture.receive_one(fixture.bob, at(120)).await.deliveries, 2, "the lock ends like any other");
    assert_eq!(fixture.complete(&held.receipt, at(121)).await, ChangeOutcome::Stale);
    let next = fixture.queue.send_locked(item("b"), fixture.ann, Some(at(122))).await;
    let next = next.ok().flatten().expect("it is sent");
    assert_eq!(fixture.complete(&next.receipt, at(123)).await, ChangeOutcome::Applied);
}

pub(crate) async fn simultaneous_senders_send_once(fixture: QueueFixture) {
    let sent = at_once(16, |number| {
        let fixture = fixture.clone();
        // In opposite orders, so that batches could deadlock.
        let mut batch = items("nivoda", 20);
        if number % 2 == 0 {
            batch.reverse();
        }
        async move { fixture.send(batch, at(0)).await }
    })
    .await;
    let sent = sent.iter().flatten().filter(|&&one| one == SendOutcome::Sent).count();
    assert_eq!(sent, 20);
    assert_eq!(fixture.rows("state = 'live'").await, 20);
}

/// A message is either live or completed within the window at every moment; a gap between the two would accept a
/// duplicate.
pub(crate) async fn duplicate_during_completion_is_detected(fixture: QueueFixture) {
    for round in 0..20 {
        let id = format!("a:{round}");
        fixture.send_one(&id, at(0)).await;
        let receipt = fixture.receive_one(fixture.ann, at(0)).await.receipt;
        let answers = at_once(4, |number| {
            let (fixture, receipt, id) = (fixture.clone(), receipt.clone(), id.clone());
            async move {
                if number == 0 {
                    assert_eq!(fixture.complete(&receipt, at(0)).await, ChangeOutcome::Applied);
                    return SendOutcome::Duplicate;
                }
                fixture.send_one(&id, at(0)).await
            }
        })
        .await;
        assert_eq!(answers, [SendOutcome::Duplicate; 4]);
    }
    assert_eq!(fixture.rows("state = 'live'").await, 0);
}

pub(crate) async fn oversized_or_unknown_message_is_refused(fixture: QueueFixture) {
    let large = NewMessage { body: json!({ "t": "x".repeat(BODY_BYTES_MAX) }), ..item("a") };
    let refusal = fixture.queue.send(vec![item("b"), large], Some(at(0))).await;
    assert!(matches!(refusal, Err(Error::Invalid(_))), "{refusal:?}");
    let refusal = fixture.queue.send(items("nivoda", BATCH_MAX + 1), Some(at(0))).await;
    assert!(matches!(refusal, Err(Error::Invalid(_))), "{refusal:?}");
    let nowhere = NewMessage { queue: "nowhere".to_owned(), ..item("a") };
    refused(fixture.queue.send(vec![nowhere.clone()], Some(at(0))).await, RefusalCode::BadValue);
    refused(fixture.queue.send_locked(nowhere, fixture.ann, Some(at(0))).await, RefusalCode::BadValue);
    let ask = ReceiveRequest::new("nowhere", fixture.ann, 1);
    refused(fixture.queue.receive(ask, Some(at(0))).await, RefusalCode::BadValue);
    assert_eq!(fixture.rows("true").await, 0);
    assert_eq!(fixture.send(items("nivoda", BATCH_MAX), at(0)).await, [SendOutcome::Sent; BATCH_MAX]);
    let full = "x".repeat(BODY_BYTES_MAX - r#"{"t":""}"#.len());
    let largest = NewMessage { body: json!({ "t": full }), ..item("largest") };
    assert_eq!(fixture.send(vec![largest], at(0)).await, [SendOutcome::Sent]);
}
