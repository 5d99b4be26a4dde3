//! The end of a delivery: completed, released, renewed, killed, or lost with its worker.

use chrono::TimeDelta;
use tidemill_core::WorkerId;
use tidemill_core::queue::{DeadReason, DeliveryCounting, NewMessage, Receipt, WORK_DONE, WORK_ITEMS};
use tidemill_core::run::ChangeOutcome;
use tidemill_store::{Error, ReceiveRequest, RefusalCode};
use tidemill_testkit::interface::{at, refused};
use uuid::Uuid;

use crate::{QueueFixture, ids, item, items};

async fn give_back(
    fixture: &QueueFixture,
    receipt: &Receipt,
    secs: i64,
    counts: DeliveryCounting,
    now: i64,
) -> ChangeOutcome {
    let error = Some("the supplier answered 503".to_owned());
    let delay = TimeDelta::seconds(secs);
    let answer = fixture.queue.abandon(receipt.clone(), delay, counts, error, Some(at(now))).await;
    answer.expect("the queue answers")
}

pub(crate) async fn batch_of_receipts_returns_one_outcome_each(fixture: QueueFixture) {
    fixture.send(items("nivoda", 4), at(0)).await;
    let held: Vec<_> =
        fixture.receive(fixture.ann, 4, at(0)).await.into_iter().map(|one| one.receipt).collect();
    assert_eq!(fixture.complete(&held[0], at(1)).await, ChangeOutcome::Applied);
    let unknown = Receipt { message_id: "unknown".to_owned(), ..held[0].clone() };
    let of_another_delivery = Receipt { epoch: held[2].epoch + 1, ..held[2].clone() };
    let of_another_worker = Receipt { worker: fixture.bob, ..held[2].clone() };
    let batch = vec![
        held[3].clone(),
        held[0].clone(),
        unknown,
        of_another_delivery,
        held[1].clone(),
        held[1].clone(),
        of_another_worker,
    ];
    let outcomes = fixture.queue.complete(batch, Some(at(2))).await.expect("the queue answers");
    let (applied, duplicate, stale) =
        (ChangeOutcome::Applied, ChangeOutcome::Duplicate, ChangeOutcome::Stale);
    assert_eq!(outcomes, [applied, duplicate, stale, stale, applied, duplicate, stale]);
    assert_eq!(fixture.rows("state = 'live'").await, 1);
    assert_eq!(fixture.queue.complete(Vec::new(), Some(at(3))).await.ok(), Some(Vec::new()));
    let many = vec![held[0].clone(); 1_001];
    assert!(matches!(fixture.queue.complete(many, Some(at(3))).await, Err(Error::Invalid(_))));
}

pub(crate) async fn released_message_waits_for_its_delay(fixture: QueueFixture) {
    fixture.send_one("a", at(0)).await;
    let first = fixture.receive_one(fixture.ann, at(0)).await.receipt;
    assert_eq!(give_back(&fixture, &first, 30, DeliveryCounting::Counted, 10).await, ChangeOutcome::Applied);
    assert_eq!(
        give_back(&fixture, &first, 30, DeliveryCounting::Counted, 11).await,
        ChangeOutcome::Duplicate
    );
    assert_eq!(fixture.complete(&first, at(12)).await, ChangeOutcome::Stale, "it is given back");
    assert!(fixture.receive(fixture.bob, 10, at(39)).await.is_empty());
    let second = fixture.receive_one(fixture.bob, at(40)).await;
    assert_eq!(second.deliveries, 2);
    assert_eq!(give_back(&fixture, &first, 30, DeliveryCounting::Counted, 41).await, ChangeOutcome::Stale);
    let seen = fixture.queue.peek(WORK_ITEMS.to_owned(), 10, Some(at(41))).await.expect("the queue answers");
    assert_eq!(seen[0].last_error.as_deref(), Some("the supplier answered 503"));
}

/// An extreme delay is capped at the longest one, and the queue continues.
pub(crate) async fn release_delay_is_capped_at_thirty_days(fixture: QueueFixture) {
    let month = 30 * 24 * 3_600;
    let delays = [TimeDelta::MAX, TimeDelta::seconds(10_000_000_000_000), TimeDelta::days(365 * 8_000)];
    for (number, delay) in delays.into_iter().enumerate() {
        fixture.send_one(&format!("m-{number}"), at(0)).await;
        let receipt = fixture.receive_one(fixture.ann, at(0)).await.receipt;
        let answer =
            fixture.queue.abandon(receipt, delay, DeliveryCounting::Forgiven, None, Some(at(10))).await;
        assert_eq!(answer.expect("the queue answers"), ChangeOutcome::Applied, "{delay}");
    }
    let seen = fixture.queue.peek(WORK_ITEMS.to_owned(), 10, Some(at(11))).await.expect("the queue answers");
    assert_eq!(seen.iter().map(|one| one.visible_at).collect::<Vec<_>>(), [at(10 + month); 3]);
    fixture.send_one("next", at(12)).await;
    assert_eq!(fixture.receive_one(fixture.bob, at(12)).await.receipt.message_id, "next");
}

/// An outage of ten minutes with an attempt every few seconds uses no deliveries.
pub(crate) async fn forgiven_delivery_is_not_counted(fixture: QueueFixture) {
    fixture.send_one("a", at(0)).await;
    for round in 0..60 {
        let received = fixture.receive_one(fixture.ann, at(round * 10)).await;
        assert_eq!(received.deliveries, 1);
        let given = give_back(&fixture, &received.receipt, 10, DeliveryCounting::Forgiven, round * 10).await;
        assert_eq!(given, ChangeOutcome::Applied);
    }
    let last = fixture.receive_one(fixture.ann, at(600)).await;
    assert_eq!((last.deliveries, last.receipt.epoch), (1, 61), "the epoch never goes back");
}

pub(crate) async fn renewed_lock_lasts_longer(fixture: QueueFixture) {
    fixture.send(items("nivoda", 2), at(0)).await;
    let held: Vec<_> =
        fixture.receive(fixture.ann, 2, at(0)).await.into_iter().map(|one| one.receipt).collect();
    let stale = Receipt { epoch: 0, ..held[1].clone() };
    let renewed = fixture.queue.renew(vec![stale, held[0].clone()], Some(at(100))).await;
    assert_eq!(renewed.ok(), Some(vec![None, Some(at(220))]));
    let free = fixture.receive(fixture.bob, 10, at(219)).await;
    assert_eq!(ids(&free), [held[1].message_id.as_str()], "the other lock ended");
    assert_eq!(fixture.complete(&held[0], at(219)).await, ChangeOutcome::Applied);
    assert_eq!(fixture.queue.renew(vec![held[0].clone()], Some(at(219))).await.ok(), Some(vec![None]));
}

pub(crate) async fn killed_message_is_a_dead_letter_with_its_reason(fixture: QueueFixture) {
    fixture.send_one("a", at(0)).await;
    let receipt = fixture.receive_one(fixture.ann, at(1)).await.receipt;
    let kill = || {
        let error = format!("a page without ids{}\0", "!".repeat(20_000));
        fixture.queue.kill(receipt.clone(), DeadReason::Permanent, Some(error), Some(at(2)))
    };
    assert_eq!(kill().await.ok(), Some(ChangeOutcome::Applied));
    assert_eq!(kill().await.ok(), Some(ChangeOutcome::Duplicate));
    assert_eq!(fixture.complete(&receipt, at(3)).await, ChangeOutcome::Stale);
    let dead = fixture.queue.dead(WORK_ITEMS.to_owned(), 10, None).await.expect("the queue answers");
    assert_eq!(dead.len(), 1);
    assert_eq!((dead[0].reason, dead[0].dead_at, dead[0].deliveries), (DeadReason::Permanent, at(2), 1));
    let error = dead[0].last_error.as_deref().unwrap_or_default();
    assert!(error.starts_with("a page without ids!") && error.len() == 8 * 1024, "{}", error.len());
    assert_eq!(dead[0].body, item("a").body);
}

pub(crate) async fn messages_of_a_dead_worker_are_released_at_once(fixture: QueueFixture) {
    fixture.send_one("first", at(0)).await;
    let held = fixture.receive_one(fixture.ann, at(1)).await.receipt;
    fixture.send([items("nivoda", 3), items("other", 2)].concat(), at(2)).await;
    assert_eq!(fixture.receive(fixture.ann, 2, at(3)).await.len(), 2);
    let others = fixture.receive(fixture.bob, 1, at(3)).await;
    assert_eq!(fixture.queue.release_worker(fixture.ann, Some(at(4))).await.ok(), Some(3));
    assert_eq!(fixture.queue.release_worker(fixture.ann, Some(at(4))).await.ok(), Some(0));
    assert_eq!(fixture.complete(&held, at(5)).await, ChangeOutcome::Stale, "a dead worker stays dead");
    let free = fixture.receive(fixture.bob, 10, at(5)).await;
    assert_eq!(free.len(), 5);
    assert_eq!(free[0].receipt.message_id, "first", "it has its old position");
    assert_eq!(free[0].deliveries, 2, "a crash counts");
    assert_eq!(fixture.complete(&others[0].receipt, at(6)).await, ChangeOutcome::Applied);
}

pub(crate) async fn messages_of_every_ended_worker_are_released(fixture: QueueFixture) {
    let alive = fixture.base.register("alive", at(0)).await;
    let gone = fixture.base.register("gone", at(0)).await;
    let unknown = WorkerId(Uuid::new_v4());
    fixture.send(items("nivoda", 3), at(0)).await;
    for worker in [alive, gone, unknown] {
        assert_eq!(fixture.receive(worker, 1, at(1)).await.len(), 1);
    }
    assert_eq!(fixture.queue.release_dead(Some(at(2))).await.ok(), Some(0));
    assert!(fixture.base.interface.retire(gone, at(2)).await.is_ok());
    assert_eq!(fixture.queue.release_dead(Some(at(3))).await.ok(), Some(1));
    assert_eq!(fixture.receive_one(fixture.bob, at(4)).await.deliveries, 2);
}

/// Sends the next message and completes this one, like a page transaction. With `fault` it fails before the commit.
async fn step(
    fixture: &QueueFixture,
    held: Receipt,
    next: NewMessage,
    fault: bool,
) -> Result<Vec<ChangeOutcome>, Error> {
    let done = NewMessage { queue: WORK_DONE.to_owned(), ..item("done") };
    let worker = held.worker;
    fixture
        .base
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

pub(crate) async fn failed_transaction_sends_and_completes_nothing(fixture: QueueFixture) {
    fixture.send_one("a", at(0)).await;
    let held = fixture.receive_one(fixture.ann, at(1)).await.receipt;
    refused(step(&fixture, held.clone(), item("b"), true).await, RefusalCode::Frozen);
    assert_eq!(fixture.rows("true").await, 1);
    assert_eq!(fixture.rows("state = 'live'").await, 1);
    assert_eq!(fixture.complete(&held, at(3)).await, ChangeOutcome::Applied, "it is still held");
}

pub(crate) async fn transaction_sends_and_completes_together(fixture: QueueFixture) {
    fixture.send_one("a", at(0)).await;
    let held = fixture.receive_one(fixture.ann, at(1)).await.receipt;
    let outcomes = step(&fixture, held.clone(), item("b"), false).await;
    assert_eq!(outcomes.ok(), Some(vec![ChangeOutcome::Applied]));
    assert!(
        fixture.receive(fixture.bob, 10, at(3)).await.is_empty(),
        "the next is leased to the same worker"
    );
    assert_eq!(fixture.receive_one(fixture.bob, at(2 + 120)).await.receipt.message_id, "b");
    let done = fixture.ask(ReceiveRequest::new(WORK_DONE, fixture.bob, 10), at(3)).await.received;
    assert_eq!(ids(&done), ["done"]);
    let again = step(&fixture, held, item("b"), false).await;
    assert_eq!(again.ok(), Some(vec![ChangeOutcome::Duplicate]), "repeated after a lost answer");
}
