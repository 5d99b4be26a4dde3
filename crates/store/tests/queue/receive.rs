//! Receive: each message goes to one worker at a time, and a lost one is redelivered.

use std::collections::HashSet;

use chrono::TimeDelta;
use tidemill_core::limits::BATCH_MAX;
use tidemill_core::queue::{DeadReason, DeliveryCounting, NewMessage, WORK_ITEMS};
use tidemill_core::run::ChangeOutcome;
use tidemill_store::ReceiveRequest;
use tidemill_testkit::conformance::at_once;
use tidemill_testkit::interface::at;

use crate::{QueueFixture, ids, item, items};

pub(crate) async fn simultaneous_receivers_never_get_the_same_message(fixture: QueueFixture) {
    fixture.send([items("nivoda", 200), items("other", 200)].concat(), at(0)).await;
    let received = at_once(8, |number| {
        let fixture = fixture.clone();
        let worker = if number % 2 == 0 { fixture.ann } else { fixture.bob };
        async move {
            let mut all = Vec::new();
            // An empty batch may mean that others hold the locks; the total is checked below.
            while let Some(batch) =
                Some(fixture.receive(worker, 7, at(1)).await).filter(|one| !one.is_empty())
            {
                all.extend(batch);
            }
            all
        }
    })
    .await;
    let mut all = received.concat();
    all.extend(fixture.receive(fixture.ann, BATCH_MAX, at(1)).await);
    let unique: HashSet<&str> = ids(&all).into_iter().collect();
    assert_eq!((all.len(), unique.len()), (400, 400));
    assert!(all.iter().all(|one| one.deliveries == 1 && one.receipt.epoch == 1));
}

pub(crate) async fn oldest_message_is_received_first(fixture: QueueFixture) {
    for (id, secs) in [("c", 0), ("a", 1), ("b", 2)] {
        fixture.send_one(id, at(secs)).await;
    }
    assert_eq!(ids(&fixture.receive(fixture.ann, 1, at(3)).await), ["c"]);
    assert_eq!(ids(&fixture.receive(fixture.ann, 2, at(3)).await), ["a", "b"]);
}

pub(crate) async fn expired_lock_redelivers_with_a_higher_epoch(fixture: QueueFixture) {
    fixture.send_one("a", at(0)).await;
    let first = fixture.receive_one(fixture.ann, at(0)).await;
    assert!(fixture.receive(fixture.bob, 10, at(119)).await.is_empty());
    let second = fixture.receive_one(fixture.bob, at(120)).await;
    assert!(second.receipt.epoch > first.receipt.epoch);
    assert_eq!(second.deliveries, 2);

    let late = first.receipt;
    assert_eq!(fixture.complete(&late, at(121)).await, ChangeOutcome::Stale);
    let none = TimeDelta::zero();
    let abandoned =
        fixture.queue.abandon(late.clone(), none, DeliveryCounting::Forgiven, None, Some(at(121))).await;
    assert_eq!(abandoned.ok(), Some(ChangeOutcome::Stale));
    assert_eq!(fixture.queue.renew(vec![late.clone()], Some(at(121))).await.ok(), Some(vec![None]));
    let killed = fixture.queue.kill(late.clone(), DeadReason::Permanent, None, Some(at(121))).await;
    assert_eq!(killed.ok(), Some(ChangeOutcome::Stale));
    assert!(fixture.receive(fixture.ann, 10, at(122)).await.is_empty(), "it had no effect");
    assert_eq!(fixture.complete(&second.receipt, at(123)).await, ChangeOutcome::Applied);
    assert_eq!(
        fixture.complete(&late, at(124)).await,
        ChangeOutcome::Stale,
        "a report of another worker does not count"
    );
}

pub(crate) async fn expired_lock_is_valid_until_the_message_is_received_again(fixture: QueueFixture) {
    fixture.send(vec![item("a"), item("b")], at(0)).await;
    let held = fixture.receive(fixture.ann, 10, at(0)).await;
    let renewed = fixture.queue.renew(vec![held[0].receipt.clone()], Some(at(500))).await;
    assert_eq!(renewed.ok(), Some(vec![Some(at(620))]));
    assert_eq!(fixture.complete(&held[1].receipt, at(500)).await, ChangeOutcome::Applied);
    assert!(fixture.receive(fixture.bob, 10, at(619)).await.is_empty());
}

pub(crate) async fn message_over_its_delivery_limit_is_a_dead_letter(fixture: QueueFixture) {
    fixture.send_one("a", at(0)).await;
    for delivery in 1..=5 {
        let received = fixture.receive_one(fixture.ann, at(delivery * 200)).await;
        assert_eq!(i64::from(received.deliveries), delivery);
        assert_eq!(received.is_last(), delivery == 5);
    }
    let end = fixture.ask(ReceiveRequest::new(WORK_ITEMS, fixture.ann, 10), at(1_200)).await;
    assert!(end.received.is_empty());
    assert_eq!(end.dead.len(), 1, "the receiver is notified");
    assert_eq!((end.dead[0].reason, end.dead[0].deliveries), (DeadReason::Deliveries, 5));
    assert_eq!(end.dead[0].dead_at, at(1_200));
    let listed = fixture.queue.dead(WORK_ITEMS.to_owned(), 10, None).await;
    assert_eq!(listed.ok(), Some(end.dead));
    assert_eq!(fixture.ask(ReceiveRequest::new(WORK_ITEMS, fixture.ann, 10), at(2_000)).await.dead, []);
}

pub(crate) async fn expired_message_is_a_dead_letter(fixture: QueueFixture) {
    let day = 24 * 3_600;
    fixture.send_one("old", at(0)).await;
    fixture.send(vec![NewMessage { delay: TimeDelta::seconds(10), ..item("delayed") }], at(0)).await;
    let end = fixture.ask(ReceiveRequest::new(WORK_ITEMS, fixture.ann, 10), at(day)).await;
    assert_eq!(ids(&end.received), ["delayed"], "its time began after its delay");
    let dead: Vec<_> = end.dead.iter().map(|one| (one.message_id.as_str(), one.reason)).collect();
    assert_eq!(dead, [("old", DeadReason::Expired)]);
}

pub(crate) async fn receive_skips_dead_letters(fixture: QueueFixture) {
    fixture.send(items("nivoda", 5), at(0)).await;
    fixture.send_one("alive", at(1_000)).await;
    let end = fixture.ask(ReceiveRequest::new(WORK_ITEMS, fixture.ann, 1), at(24 * 3_600)).await;
    assert_eq!(ids(&end.received), ["alive"]);
    assert_eq!(end.dead.len(), 5);
}

pub(crate) async fn message_that_expires_without_receivers_is_found(fixture: QueueFixture) {
    let day = 24 * 3_600;
    fixture.send(items("nivoda", 5), at(0)).await;
    fixture.receive(fixture.ann, 1, at(day - 10)).await;
    assert_eq!(fixture.queue.expire(100, Some(at(day - 1))).await.ok(), Some(Vec::new()));
    let first = fixture.queue.expire(3, Some(at(day))).await.expect("the queue answers");
    assert_eq!(first.len(), 3, "in batches");
    assert!(first.iter().all(|one| one.reason == DeadReason::Expired));
    let rest = fixture.queue.expire(100, Some(at(day))).await.expect("the queue answers");
    assert_eq!(rest.len(), 1, "one is held by a worker that may still complete it");
    assert_eq!(fixture.queue.expire(100, Some(at(day + 110))).await.map(|dead| dead.len()).ok(), Some(1));
}

pub(crate) async fn excluded_groups_wait_without_counting_deliveries(fixture: QueueFixture) {
    fixture.send([items("nivoda", 3), items("other", 2)].concat(), at(0)).await;
    let mut ask = ReceiveRequest::new(WORK_ITEMS, fixture.ann, 10);
    ask.except = vec!["nivoda".to_owned(), "paused".to_owned()];
    let received = fixture.ask(ask.clone(), at(1)).await.received;
    assert_eq!(ids(&received), ["other:00000", "other:00001"]);
    for secs in 2..20 {
        assert_eq!(fixture.ask(ask.clone(), at(secs)).await.received, []);
    }
    let received = fixture.receive(fixture.bob, 10, at(20)).await;
    assert_eq!(received.len(), 3);
    assert!(received.iter().all(|one| one.deliveries == 1 && one.group == "nivoda"));
}

pub(crate) async fn receive_batch_is_limited(fixture: QueueFixture) {
    fixture.send(items("nivoda", BATCH_MAX), at(0)).await;
    fixture.send(items("other", 10), at(0)).await;
    assert!(fixture.receive(fixture.ann, 0, at(1)).await.is_empty());
    assert_eq!(fixture.receive(fixture.ann, usize::MAX, at(1)).await.len(), BATCH_MAX);
    assert_eq!(fixture.receive(fixture.ann, usize::MAX, at(1)).await.len(), 10);
}

pub(crate) async fn draining_process_receives_nothing(fixture: QueueFixture) {
    fixture.send(items("nivoda", 3), at(0)).await;
    let ann = fixture.base.register("ann", at(0)).await;
    let held = fixture.receive(ann, 1, at(1)).await;
    fixture.base.store.drain_worker(ann, true).await.expect("the drain is requested");
    assert_eq!(fixture.receive(ann, 10, at(2)).await, [], "it sent no heartbeat since");
    assert_eq!(
        fixture.complete(&held[0].receipt, at(3)).await,
        ChangeOutcome::Applied,
        "it finishes its tasks"
    );
    assert_eq!(fixture.receive(fixture.bob, 1, at(4)).await.len(), 1, "others go on");
    fixture.base.store.drain_worker(ann, false).await.expect("it is withdrawn");
    let rest = fixture.receive(ann, 10, at(5)).await;
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0].deliveries, 1, "a message that was not received is no delivery");
}
