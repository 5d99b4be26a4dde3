//! Sending: once per id and generation, whoever sends and when.

use chrono::TimeDelta;
use serde_json::json;
use tidemill_core::limits::{BATCH_MAX, BODY_BYTES_MAX};
use tidemill_core::queue::{DeadReason, NewMessage, Sent, WORK_DONE, WORK_ITEMS};
use tidemill_core::run::Applied;
use tidemill_store::{Error, Receive, RefusalCode};
use tidemill_testkit::conformance::at_once;
use tidemill_testkit::door::{at, refused};

use crate::{Desk, item, items};

pub(crate) async fn a_message_is_received_as_it_was_sent(desk: Desk) {
    let message = NewMessage {
        generation: 3,
        run_id: Some("run-1".to_owned()),
        trace_id: Some("trace-1".to_owned()),
        body: json!({ "offset": 30, "price": 12.5, "größe": "\u{1f48e} '\"\\", "nested": { "a": [1, null] } }),
        ..item("run:p1:30")
    };
    assert_eq!(desk.send(vec![message.clone()], at(0)).await, [Sent::Sent]);
    let received = desk.take(desk.ann, at(7)).await;
    assert_eq!(received.receipt.queue, WORK_ITEMS);
    assert_eq!(received.receipt.message_id, message.message_id);
    assert_eq!(received.receipt.generation, 3);
    assert_eq!(received.receipt.worker, desk.ann);
    assert_eq!(received.group, "nivoda");
    assert_eq!(received.body, message.body);
    assert_eq!((received.run_id, received.trace_id), (message.run_id, message.trace_id));
    assert_eq!(received.enqueued_at, at(0));
    assert_eq!(received.locked_until, at(7 + 120));
    assert_eq!(received.expires_at, at(24 * 3_600));
    assert_eq!((received.deliveries, received.deliveries_max), (1, 5));
}

pub(crate) async fn a_message_sent_again_is_a_duplicate(desk: Desk) {
    let batch = vec![item("a"), item("b"), item("a")];
    assert_eq!(desk.send(batch, at(0)).await, [Sent::Sent, Sent::Sent, Sent::Duplicate]);
    assert_eq!(desk.send_one("a", at(1)).await, Sent::Duplicate);
    assert_eq!(desk.receive(desk.ann, 10, at(2)).await.len(), 2);
    assert_eq!(desk.send(vec![item("b"), item("c")], at(3)).await, [Sent::Duplicate, Sent::Sent]);
    assert_eq!(desk.rows("state = 'live'").await, 3);
}

pub(crate) async fn a_completed_message_is_a_duplicate_until_the_window_is_over(desk: Desk) {
    desk.send_one("a", at(0)).await;
    let first = desk.take(desk.ann, at(1)).await.receipt;
    assert_eq!(desk.complete(&first, at(2)).await, Applied::Applied);
    assert_eq!(desk.send_one("a", at(2 + 599)).await, Sent::Duplicate);
    assert!(desk.receive(desk.ann, 10, at(2 + 599)).await.is_empty());
    assert_eq!(desk.send_one("a", at(2 + 600)).await, Sent::Sent);
    let again = desk.take(desk.ann, at(2 + 601)).await;
    assert_eq!(again.deliveries, 1, "it starts anew");
    assert_eq!(desk.complete(&first, at(2 + 602)).await, Applied::Stale, "a receipt of its first life");
    assert_eq!(desk.complete(&again.receipt, at(2 + 603)).await, Applied::Applied);
}

pub(crate) async fn without_a_window_a_completed_id_is_free_at_once(desk: Desk) {
    let done = NewMessage { queue: WORK_DONE.to_owned(), ..item("a") };
    let take = || desk.ask(Receive::new(WORK_DONE, desk.ann, 10), at(1));
    assert_eq!(desk.send(vec![done.clone()], at(0)).await, [Sent::Sent]);
    let first = take().await.received.remove(0).receipt;
    assert_eq!(desk.complete(&first, at(1)).await, Applied::Applied);
    assert_eq!(desk.send(vec![done], at(1)).await, [Sent::Sent]);
    let second = take().await.received.remove(0).receipt;
    assert_eq!(desk.complete(&first, at(1)).await, Applied::Stale);
    assert_eq!(desk.complete(&second, at(1)).await, Applied::Applied);
}

pub(crate) async fn another_generation_or_queue_is_another_message(desk: Desk) {
    let next = NewMessage { generation: 1, ..item("a") };
    let elsewhere = NewMessage { queue: WORK_DONE.to_owned(), ..item("a") };
    assert_eq!(desk.send(vec![item("a"), next.clone(), elsewhere], at(0)).await, [Sent::Sent; 3]);
    let mut received = desk.receive(desk.ann, 10, at(1)).await;
    received.sort_by_key(|one| one.receipt.generation);
    assert_eq!(desk.complete(&received[0].receipt, at(1)).await, Applied::Applied);
    assert_eq!(desk.send(vec![item("a"), next], at(1)).await, [Sent::Duplicate; 2]);
    assert_eq!(desk.complete(&received[1].receipt, at(1)).await, Applied::Applied);
}

pub(crate) async fn a_dead_letter_is_not_sent_again_by_another_door(desk: Desk) {
    desk.send_one("a", at(0)).await;
    let receipt = desk.take(desk.ann, at(1)).await.receipt;
    let killed = desk.queue.kill(receipt, DeadReason::Permanent, None, Some(at(2))).await;
    assert_eq!(killed.ok(), Some(Applied::Applied));
    assert_eq!(desk.send_one("a", at(10_000)).await, Sent::Duplicate);
    assert!(desk.receive(desk.ann, 10, at(10_000)).await.is_empty());
}

pub(crate) async fn a_message_is_not_received_before_its_delay(desk: Desk) {
    let later = NewMessage { delay: TimeDelta::milliseconds(2_500), ..item("a") };
    desk.send(vec![later], at(0)).await;
    assert!(desk.receive(desk.ann, 10, at(2)).await.is_empty());
    assert_eq!(desk.take(desk.ann, at(3)).await.deliveries, 1);
}

pub(crate) async fn a_message_sent_locked_is_held_by_its_sender(desk: Desk) {
    let held = desk.queue.send_locked(item("a"), desk.ann, Some(at(0))).await;
    let held = held.ok().flatten().expect("it is sent");
    assert_eq!((held.locked_until, held.deliveries, held.expires_at), (at(120), 1, at(24 * 3_600)));
    assert!(desk.receive(desk.bob, 10, at(119)).await.is_empty());
    let again = desk.queue.send_locked(item("a"), desk.bob, Some(at(1))).await;
    assert_eq!(again.ok(), Some(None), "a duplicate is nobody's");
    assert_eq!(desk.take(desk.bob, at(120)).await.deliveries, 2, "the lock ends like any other");
    assert_eq!(desk.complete(&held.receipt, at(121)).await, Applied::Stale);
    let next = desk.queue.send_locked(item("b"), desk.ann, Some(at(122))).await;
    let next = next.ok().flatten().expect("it is sent");
    assert_eq!(desk.complete(&next.receipt, at(123)).await, Applied::Applied);
}

pub(crate) async fn sixteen_senders_at_one_instant_send_it_once(desk: Desk) {
    let sent = at_once(16, |number| {
        let desk = desk.clone();
        // In opposite orders, so that batches would wait for each other crosswise.
        let mut batch = items("nivoda", 20);
        if number % 2 == 0 {
            batch.reverse();
        }
        async move { desk.send(batch, at(0)).await }
    })
    .await;
    let sent = sent.iter().flatten().filter(|&&one| one == Sent::Sent).count();
    assert_eq!(sent, 20);
    assert_eq!(desk.rows("state = 'live'").await, 20);
}

/// A message is either live or completed within the window, whatever the moment: a third state would let one in.
pub(crate) async fn no_duplicate_slips_in_while_the_message_is_completed(desk: Desk) {
    for round in 0..20 {
        let id = format!("a:{round}");
        desk.send_one(&id, at(0)).await;
        let receipt = desk.take(desk.ann, at(0)).await.receipt;
        let answers = at_once(4, |number| {
            let (desk, receipt, id) = (desk.clone(), receipt.clone(), id.clone());
            async move {
                if number == 0 {
                    assert_eq!(desk.complete(&receipt, at(0)).await, Applied::Applied);
                    return Sent::Duplicate;
                }
                desk.send_one(&id, at(0)).await
            }
        })
        .await;
        assert_eq!(answers, [Sent::Duplicate; 4]);
    }
    assert_eq!(desk.rows("state = 'live'").await, 0);
}

pub(crate) async fn what_is_too_large_or_unknown_is_refused_and_nothing_is_sent(desk: Desk) {
    let large = NewMessage { body: json!({ "t": "x".repeat(BODY_BYTES_MAX) }), ..item("a") };
    let refusal = desk.queue.send(vec![item("b"), large], Some(at(0))).await;
    assert!(matches!(refusal, Err(Error::Invalid(_))), "{refusal:?}");
    let refusal = desk.queue.send(items("nivoda", BATCH_MAX + 1), Some(at(0))).await;
    assert!(matches!(refusal, Err(Error::Invalid(_))), "{refusal:?}");
    let nowhere = NewMessage { queue: "nowhere".to_owned(), ..item("a") };
    refused(desk.queue.send(vec![nowhere.clone()], Some(at(0))).await, RefusalCode::BadValue);
    refused(desk.queue.send_locked(nowhere, desk.ann, Some(at(0))).await, RefusalCode::BadValue);
    let ask = Receive::new("nowhere", desk.ann, 1);
    refused(desk.queue.receive(ask, Some(at(0))).await, RefusalCode::BadValue);
    assert_eq!(desk.rows("true").await, 0);
    assert_eq!(desk.send(items("nivoda", BATCH_MAX), at(0)).await, [Sent::Sent; BATCH_MAX]);
    let full = "x".repeat(BODY_BYTES_MAX - r#"{"t":""}"#.len());
    let largest = NewMessage { body: json!({ "t": full }), ..item("largest") };
    assert_eq!(desk.send(vec![largest], at(0)).await, [Sent::Sent]);
}
