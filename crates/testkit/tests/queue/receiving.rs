//! Receiving: each message to one worker at a time, and to none for ever.

use std::collections::HashSet;

use chrono::TimeDelta;
use tidemill_core::limits::BATCH_MAX;
use tidemill_core::queue::{Counts, DeadReason, NewMessage, WORK_ITEMS};
use tidemill_core::run::Applied;
use tidemill_store::Receive;
use tidemill_testkit::conformance::at_once;
use tidemill_testkit::door::at;

use crate::{Desk, ids, item, items};

pub(crate) async fn receivers_at_one_instant_never_get_the_same_message(desk: Desk) {
    desk.send([items("nivoda", 200), items("other", 200)].concat(), at(0)).await;
    let received = at_once(8, |number| {
        let desk = desk.clone();
        let worker = if number % 2 == 0 { desk.ann } else { desk.bob };
        async move {
            let mut all = Vec::new();
            // Nothing may mean that others have the rows locked just now; the rest is counted below.
            while let Some(batch) = Some(desk.receive(worker, 7, at(1)).await).filter(|one| !one.is_empty()) {
                all.extend(batch);
            }
            all
        }
    })
    .await;
    let mut all = received.concat();
    all.extend(desk.receive(desk.ann, BATCH_MAX, at(1)).await);
    let unique: HashSet<&str> = ids(&all).into_iter().collect();
    assert_eq!((all.len(), unique.len()), (400, 400));
    assert!(all.iter().all(|one| one.deliveries == 1 && one.receipt.epoch == 1));
}

pub(crate) async fn the_oldest_comes_first(desk: Desk) {
    for (id, secs) in [("c", 0), ("a", 1), ("b", 2)] {
        desk.send_one(id, at(secs)).await;
    }
    assert_eq!(ids(&desk.receive(desk.ann, 1, at(3)).await), ["c"]);
    assert_eq!(ids(&desk.receive(desk.ann, 2, at(3)).await), ["a", "b"]);
}

pub(crate) async fn a_lock_that_ends_delivers_again_under_a_higher_epoch(desk: Desk) {
    desk.send_one("a", at(0)).await;
    let first = desk.take(desk.ann, at(0)).await;
    assert!(desk.receive(desk.bob, 10, at(119)).await.is_empty());
    let second = desk.take(desk.bob, at(120)).await;
    assert!(second.receipt.epoch > first.receipt.epoch);
    assert_eq!(second.deliveries, 2);

    let late = first.receipt;
    assert_eq!(desk.complete(&late, at(121)).await, Applied::Stale);
    let none = TimeDelta::zero();
    let abandoned = desk.queue.abandon(late.clone(), none, Counts::Forgiven, None, Some(at(121))).await;
    assert_eq!(abandoned.ok(), Some(Applied::Stale));
    assert_eq!(desk.queue.renew(vec![late.clone()], Some(at(121))).await.ok(), Some(vec![None]));
    let killed = desk.queue.kill(late.clone(), DeadReason::Permanent, None, Some(at(121))).await;
    assert_eq!(killed.ok(), Some(Applied::Stale));
    assert!(desk.receive(desk.ann, 10, at(122)).await.is_empty(), "nothing of it had an effect");
    assert_eq!(desk.complete(&second.receipt, at(123)).await, Applied::Applied);
    assert_eq!(desk.complete(&late, at(124)).await, Applied::Stale, "somebody else's end is not his");
}

pub(crate) async fn what_has_expired_but_was_not_taken_is_still_valid(desk: Desk) {
    desk.send(vec![item("a"), item("b")], at(0)).await;
    let held = desk.receive(desk.ann, 10, at(0)).await;
    let renewed = desk.queue.renew(vec![held[0].receipt.clone()], Some(at(500))).await;
    assert_eq!(renewed.ok(), Some(vec![Some(at(620))]));
    assert_eq!(desk.complete(&held[1].receipt, at(500)).await, Applied::Applied);
    assert!(desk.receive(desk.bob, 10, at(619)).await.is_empty());
}

pub(crate) async fn a_message_that_used_up_its_deliveries_is_a_dead_letter(desk: Desk) {
    desk.send_one("a", at(0)).await;
    for delivery in 1..=5 {
        let received = desk.take(desk.ann, at(delivery * 200)).await;
        assert_eq!(i64::from(received.deliveries), delivery);
        assert_eq!(received.is_last(), delivery == 5);
    }
    let end = desk.ask(Receive::new(WORK_ITEMS, desk.ann, 10), at(1_200)).await;
    assert!(end.received.is_empty());
    assert_eq!(end.dead.len(), 1, "whoever receives is told");
    assert_eq!((end.dead[0].reason, end.dead[0].deliveries), (DeadReason::Deliveries, 5));
    assert_eq!(end.dead[0].dead_at, at(1_200));
    let listed = desk.queue.dead(WORK_ITEMS.to_owned(), 10, None).await;
    assert_eq!(listed.ok(), Some(end.dead));
    assert_eq!(desk.ask(Receive::new(WORK_ITEMS, desk.ann, 10), at(2_000)).await.dead, []);
}

pub(crate) async fn a_message_that_expired_is_a_dead_letter(desk: Desk) {
    let day = 24 * 3_600;
    desk.send_one("old", at(0)).await;
    desk.send(vec![NewMessage { delay: TimeDelta::seconds(10), ..item("delayed") }], at(0)).await;
    let end = desk.ask(Receive::new(WORK_ITEMS, desk.ann, 10), at(day)).await;
    assert_eq!(ids(&end.received), ["delayed"], "its time began after its delay");
    let dead: Vec<_> = end.dead.iter().map(|one| (one.message_id.as_str(), one.reason)).collect();
    assert_eq!(dead, [("old", DeadReason::Expired)]);
}

pub(crate) async fn a_receive_goes_on_past_dead_letters(desk: Desk) {
    desk.send(items("nivoda", 5), at(0)).await;
    desk.send_one("alive", at(1_000)).await;
    let end = desk.ask(Receive::new(WORK_ITEMS, desk.ann, 1), at(24 * 3_600)).await;
    assert_eq!(ids(&end.received), ["alive"]);
    assert_eq!(end.dead.len(), 5);
}

pub(crate) async fn what_expires_while_nobody_receives_is_found(desk: Desk) {
    let day = 24 * 3_600;
    desk.send(items("nivoda", 5), at(0)).await;
    desk.receive(desk.ann, 1, at(day - 10)).await;
    assert_eq!(desk.queue.expire(100, Some(at(day - 1))).await.ok(), Some(Vec::new()));
    let first = desk.queue.expire(3, Some(at(day))).await.expect("the queue answers");
    assert_eq!(first.len(), 3, "in batches");
    assert!(first.iter().all(|one| one.reason == DeadReason::Expired));
    let rest = desk.queue.expire(100, Some(at(day))).await.expect("the queue answers");
    assert_eq!(rest.len(), 1, "one is in the hands of a worker, who may still complete it");
    assert_eq!(desk.queue.expire(100, Some(at(day + 110))).await.map(|dead| dead.len()).ok(), Some(1));
}

pub(crate) async fn groups_that_are_excepted_wait_and_no_delivery_counts(desk: Desk) {
    desk.send([items("nivoda", 3), items("other", 2)].concat(), at(0)).await;
    let mut ask = Receive::new(WORK_ITEMS, desk.ann, 10);
    ask.except = vec!["nivoda".to_owned(), "paused".to_owned()];
    let received = desk.ask(ask.clone(), at(1)).await.received;
    assert_eq!(ids(&received), ["other:00000", "other:00001"]);
    for secs in 2..20 {
        assert_eq!(desk.ask(ask.clone(), at(secs)).await.received, []);
    }
    let received = desk.receive(desk.bob, 10, at(20)).await;
    assert_eq!(received.len(), 3);
    assert!(received.iter().all(|one| one.deliveries == 1 && one.group == "nivoda"));
}

pub(crate) async fn a_receive_is_bounded(desk: Desk) {
    desk.send(items("nivoda", BATCH_MAX), at(0)).await;
    desk.send(items("other", 10), at(0)).await;
    assert!(desk.receive(desk.ann, 0, at(1)).await.is_empty());
    assert_eq!(desk.receive(desk.ann, usize::MAX, at(1)).await.len(), BATCH_MAX);
    assert_eq!(desk.receive(desk.ann, usize::MAX, at(1)).await.len(), 10);
}

pub(crate) async fn a_process_that_drains_receives_nothing(desk: Desk) {
    desk.send(items("nivoda", 3), at(0)).await;
    let ann = desk.stage.register("ann", at(0)).await;
    let held = desk.receive(ann, 1, at(1)).await;
    desk.stage.store.drain_worker(ann, true).await.expect("it is asked to drain");
    assert_eq!(desk.receive(ann, 10, at(2)).await, [], "it has not beaten since");
    assert_eq!(desk.complete(&held[0].receipt, at(3)).await, Applied::Applied, "it ends what it has");
    assert_eq!(desk.receive(desk.bob, 1, at(4)).await.len(), 1, "others go on");
    desk.stage.store.drain_worker(ann, false).await.expect("it is taken back");
    let rest = desk.receive(ann, 10, at(5)).await;
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0].deliveries, 1, "what it was not given is no delivery");
}
