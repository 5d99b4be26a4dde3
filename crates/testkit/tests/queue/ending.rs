//! Ending a delivery: completed, given back, renewed, killed, or left behind by a worker that died.

use chrono::TimeDelta;
use tidemill_core::WorkerId;
use tidemill_core::queue::{Counts, DeadReason, NewMessage, Receipt, WORK_DONE, WORK_ITEMS};
use tidemill_core::run::Applied;
use tidemill_store::{Error, Receive, RefusalCode};
use tidemill_testkit::door::{at, refused};
use uuid::Uuid;

use crate::{Desk, ids, item, items};

async fn give_back(desk: &Desk, receipt: &Receipt, secs: i64, counts: Counts, now: i64) -> Applied {
    let error = Some("the supplier said 503".to_owned());
    let delay = TimeDelta::seconds(secs);
    let answer = desk.queue.abandon(receipt.clone(), delay, counts, error, Some(at(now))).await;
    answer.expect("the queue answers")
}

pub(crate) async fn a_batch_of_receipts_has_an_outcome_for_each(desk: Desk) {
    desk.send(items("nivoda", 4), at(0)).await;
    let held: Vec<_> = desk.receive(desk.ann, 4, at(0)).await.into_iter().map(|one| one.receipt).collect();
    assert_eq!(desk.complete(&held[0], at(1)).await, Applied::Applied);
    let unknown = Receipt { message_id: "unknown".to_owned(), ..held[0].clone() };
    let of_another_delivery = Receipt { epoch: held[2].epoch + 1, ..held[2].clone() };
    let of_another_worker = Receipt { worker: desk.bob, ..held[2].clone() };
    let batch = vec![
        held[3].clone(),
        held[0].clone(),
        unknown,
        of_another_delivery,
        held[1].clone(),
        held[1].clone(),
        of_another_worker,
    ];
    let outcomes = desk.queue.complete(batch, Some(at(2))).await.expect("the queue answers");
    let (applied, duplicate, stale) = (Applied::Applied, Applied::Duplicate, Applied::Stale);
    assert_eq!(outcomes, [applied, duplicate, stale, stale, applied, duplicate, stale]);
    assert_eq!(desk.rows("state = 'live'").await, 1);
    assert_eq!(desk.queue.complete(Vec::new(), Some(at(3))).await.ok(), Some(Vec::new()));
    let many = vec![held[0].clone(); 1_001];
    assert!(matches!(desk.queue.complete(many, Some(at(3))).await, Err(Error::Invalid(_))));
}

pub(crate) async fn a_message_given_back_waits_for_its_delay(desk: Desk) {
    desk.send_one("a", at(0)).await;
    let first = desk.take(desk.ann, at(0)).await.receipt;
    assert_eq!(give_back(&desk, &first, 30, Counts::Counted, 10).await, Applied::Applied);
    assert_eq!(give_back(&desk, &first, 30, Counts::Counted, 11).await, Applied::Duplicate);
    assert_eq!(desk.complete(&first, at(12)).await, Applied::Stale, "it is given back");
    assert!(desk.receive(desk.bob, 10, at(39)).await.is_empty());
    let second = desk.take(desk.bob, at(40)).await;
    assert_eq!(second.deliveries, 2);
    assert_eq!(give_back(&desk, &first, 30, Counts::Counted, 41).await, Applied::Stale);
    let seen = desk.queue.peek(WORK_ITEMS.to_owned(), 10, Some(at(41))).await.expect("the queue answers");
    assert_eq!(seen[0].last_error.as_deref(), Some("the supplier said 503"));
}

/// A delay beyond all times is cut to the longest that a message may wait, and the queue goes on.
pub(crate) async fn a_message_given_back_for_ever_waits_for_thirty_days(desk: Desk) {
    let month = 30 * 24 * 3_600;
    let delays = [TimeDelta::MAX, TimeDelta::seconds(10_000_000_000_000), TimeDelta::days(365 * 8_000)];
    for (number, delay) in delays.into_iter().enumerate() {
        desk.send_one(&format!("m-{number}"), at(0)).await;
        let receipt = desk.take(desk.ann, at(0)).await.receipt;
        let answer = desk.queue.abandon(receipt, delay, Counts::Forgiven, None, Some(at(10))).await;
        assert_eq!(answer.expect("the queue answers"), Applied::Applied, "{delay}");
    }
    let seen = desk.queue.peek(WORK_ITEMS.to_owned(), 10, Some(at(11))).await.expect("the queue answers");
    assert_eq!(seen.iter().map(|one| one.visible_at).collect::<Vec<_>>(), [at(10 + month); 3]);
    desk.send_one("next", at(12)).await;
    assert_eq!(desk.take(desk.bob, at(12)).await.receipt.message_id, "next");
}

/// An outage of ten minutes, met every few seconds, leaves the message with all its deliveries.
pub(crate) async fn a_delivery_that_is_forgiven_does_not_count(desk: Desk) {
    desk.send_one("a", at(0)).await;
    for round in 0..60 {
        let received = desk.take(desk.ann, at(round * 10)).await;
        assert_eq!(received.deliveries, 1);
        let given = give_back(&desk, &received.receipt, 10, Counts::Forgiven, round * 10).await;
        assert_eq!(given, Applied::Applied);
    }
    let last = desk.take(desk.ann, at(600)).await;
    assert_eq!((last.deliveries, last.receipt.epoch), (1, 61), "the epoch never goes back");
}

pub(crate) async fn a_renewed_lock_lasts_longer(desk: Desk) {
    desk.send(items("nivoda", 2), at(0)).await;
    let held: Vec<_> = desk.receive(desk.ann, 2, at(0)).await.into_iter().map(|one| one.receipt).collect();
    let stale = Receipt { epoch: 0, ..held[1].clone() };
    let renewed = desk.queue.renew(vec![stale, held[0].clone()], Some(at(100))).await;
    assert_eq!(renewed.ok(), Some(vec![None, Some(at(220))]));
    let free = desk.receive(desk.bob, 10, at(219)).await;
    assert_eq!(ids(&free), [held[1].message_id.as_str()], "the other lock ended");
    assert_eq!(desk.complete(&held[0], at(219)).await, Applied::Applied);
    assert_eq!(desk.queue.renew(vec![held[0].clone()], Some(at(219))).await.ok(), Some(vec![None]));
}

pub(crate) async fn a_killed_message_is_a_dead_letter_with_its_reason(desk: Desk) {
    desk.send_one("a", at(0)).await;
    let receipt = desk.take(desk.ann, at(1)).await.receipt;
    let kill = || {
        let error = format!("a page without ids{}\0", "!".repeat(20_000));
        desk.queue.kill(receipt.clone(), DeadReason::Permanent, Some(error), Some(at(2)))
    };
    assert_eq!(kill().await.ok(), Some(Applied::Applied));
    assert_eq!(kill().await.ok(), Some(Applied::Duplicate));
    assert_eq!(desk.complete(&receipt, at(3)).await, Applied::Stale);
    let dead = desk.queue.dead(WORK_ITEMS.to_owned(), 10, None).await.expect("the queue answers");
    assert_eq!(dead.len(), 1);
    assert_eq!((dead[0].reason, dead[0].dead_at, dead[0].deliveries), (DeadReason::Permanent, at(2), 1));
    let error = dead[0].last_error.as_deref().unwrap_or_default();
    assert!(error.starts_with("a page without ids!") && error.len() == 8 * 1024, "{}", error.len());
    assert_eq!(dead[0].body, item("a").body);
}

pub(crate) async fn the_messages_of_a_dead_worker_are_free_at_once(desk: Desk) {
    desk.send_one("first", at(0)).await;
    let held = desk.take(desk.ann, at(1)).await.receipt;
    desk.send([items("nivoda", 3), items("other", 2)].concat(), at(2)).await;
    assert_eq!(desk.receive(desk.ann, 2, at(3)).await.len(), 2);
    let others = desk.receive(desk.bob, 1, at(3)).await;
    assert_eq!(desk.queue.release_worker(desk.ann, Some(at(4))).await.ok(), Some(3));
    assert_eq!(desk.queue.release_worker(desk.ann, Some(at(4))).await.ok(), Some(0));
    assert_eq!(desk.complete(&held, at(5)).await, Applied::Stale, "the dead do not come back");
    let free = desk.receive(desk.bob, 10, at(5)).await;
    assert_eq!(free.len(), 5);
    assert_eq!(free[0].receipt.message_id, "first", "it is at its old place");
    assert_eq!(free[0].deliveries, 2, "a crash counts");
    assert_eq!(desk.complete(&others[0].receipt, at(6)).await, Applied::Applied);
}

pub(crate) async fn the_messages_of_every_worker_whose_end_is_on_record_are_free(desk: Desk) {
    let alive = desk.stage.register("alive", at(0)).await;
    let gone = desk.stage.register("gone", at(0)).await;
    let unknown = WorkerId(Uuid::new_v4());
    desk.send(items("nivoda", 3), at(0)).await;
    for worker in [alive, gone, unknown] {
        assert_eq!(desk.receive(worker, 1, at(1)).await.len(), 1);
    }
    assert_eq!(desk.queue.release_dead(Some(at(2))).await.ok(), Some(0));
    assert!(desk.stage.door.retire(gone, at(2)).await.is_ok());
    assert_eq!(desk.queue.release_dead(Some(at(3))).await.ok(), Some(1));
    assert_eq!(desk.take(desk.bob, at(4)).await.deliveries, 2);
}

/// What a page step does: the next message and the end of this one. `fault`: it dies before the commit.
async fn step(desk: &Desk, held: Receipt, next: NewMessage, fault: bool) -> Result<Vec<Applied>, Error> {
    let done = NewMessage { queue: WORK_DONE.to_owned(), ..item("done") };
    let worker = held.worker;
    desk.stage
        .store
        .write(move |mut tx| {
            Box::pin(async move {
                tx.send_messages(&[done], Some(at(2))).await?;
                tx.send_locked_message(&next, worker, Some(at(2))).await?;
                let outcomes = tx.complete_messages(&[held], Some(at(2))).await?;
                if fault { Err(Error::refused(RefusalCode::Frozen, "on purpose")) } else { Ok(outcomes) }
            })
        })
        .await
}

pub(crate) async fn a_step_that_fails_sends_nothing_and_completes_nothing(desk: Desk) {
    desk.send_one("a", at(0)).await;
    let held = desk.take(desk.ann, at(1)).await.receipt;
    refused(step(&desk, held.clone(), item("b"), true).await, RefusalCode::Frozen);
    assert_eq!(desk.rows("true").await, 1);
    assert_eq!(desk.rows("state = 'live'").await, 1);
    assert_eq!(desk.complete(&held, at(3)).await, Applied::Applied, "it is still held");
}

pub(crate) async fn a_step_sends_and_completes_together(desk: Desk) {
    desk.send_one("a", at(0)).await;
    let held = desk.take(desk.ann, at(1)).await.receipt;
    let outcomes = step(&desk, held.clone(), item("b"), false).await;
    assert_eq!(outcomes.ok(), Some(vec![Applied::Applied]));
    assert!(desk.receive(desk.bob, 10, at(3)).await.is_empty(), "the next is leased to the same worker");
    assert_eq!(desk.take(desk.bob, at(2 + 120)).await.receipt.message_id, "b");
    let done = desk.ask(Receive::new(WORK_DONE, desk.bob, 10), at(3)).await.received;
    assert_eq!(ids(&done), ["done"]);
    let again = step(&desk, held, item("b"), false).await;
    assert_eq!(again.ok(), Some(vec![Applied::Duplicate]), "asked again after a lost answer");
}
