//! Operations on queues: settings, peek, depth, dead letters, replay, purge.

use chrono::TimeDelta;
use tidemill_core::queue::{
    DeadReason, MessageState, NewMessage, QueueSettings, Replay, SendOutcome, WORK_DONE, WORK_ITEMS,
};
use tidemill_core::run::ChangeOutcome;
use tidemill_store::{Error, PurgeCounts, ReceiveRequest, RefusalCode};
use tidemill_testkit::conformance::at_once;
use tidemill_testkit::interface::{at, refused};

use crate::{QueueFixture, ids, item, items};

impl QueueFixture {
    /// Turns the waiting messages into dead letters.
    async fn kill_all(&self, now: i64) -> usize {
        let held = self.receive(self.ann, 1_000, at(now)).await;
        for one in &held {
            let killed =
                self.queue.kill(one.receipt.clone(), DeadReason::Permanent, None, Some(at(now))).await;
            assert_eq!(killed.ok(), Some(ChangeOutcome::Applied));
        }
        held.len()
    }

    async fn replay(&self, which: Replay, now: i64) -> u64 {
        let answer = self.queue.replay(WORK_ITEMS.to_owned(), which, Some(at(now))).await;
        answer.expect("the queue answers")
    }
}

pub(crate) async fn queues_have_their_default_settings(fixture: QueueFixture) {
    assert_eq!(fixture.queue.queues().await.ok(), Some(QueueSettings::defaults()));
}

pub(crate) async fn changed_settings_apply_immediately(fixture: QueueFixture) {
    let settings = QueueSettings {
        queue: WORK_ITEMS.to_owned(),
        lock_secs: 10,
        deliveries_max: 1,
        window_secs: None,
        expiry_secs: 60,
    };
    let bad = QueueSettings { lock_secs: 0, ..settings.clone() };
    assert!(matches!(fixture.queue.set_queue(bad).await, Err(Error::Invalid(_))));
    assert!(fixture.queue.set_queue(settings).await.is_ok());
    fixture.send_one("a", at(0)).await;
    let received = fixture.receive_one(fixture.ann, at(0)).await;
    assert_eq!((received.locked_until, received.expires_at), (at(10), at(60)));
    assert!(received.is_last());
    let end = fixture.ask(ReceiveRequest::new(WORK_ITEMS, fixture.ann, 1), at(10)).await;
    assert_eq!(end.dead[0].reason, DeadReason::Deliveries);
    let new = QueueSettings { queue: "more-work".to_owned(), ..QueueSettings::defaults().remove(0) };
    assert!(fixture.queue.set_queue(new).await.is_ok());
    let elsewhere = NewMessage { queue: "more-work".to_owned(), ..item("a") };
    assert_eq!(fixture.send(vec![elsewhere], at(0)).await, [SendOutcome::Sent]);
}

pub(crate) async fn peek_shows_message_states_and_takes_none(fixture: QueueFixture) {
    fixture.send_one("held", at(0)).await;
    fixture.receive_one(fixture.ann, at(1)).await;
    fixture.send_one("waits", at(2)).await;
    fixture.send(vec![NewMessage { delay: TimeDelta::hours(1), ..item("later") }], at(2)).await;
    let peek = |limit, now| fixture.queue.peek(WORK_ITEMS.to_owned(), limit, Some(at(now)));
    let seen = peek(10, 3).await.expect("the queue answers");
    let states: Vec<_> = seen.iter().map(|one| (one.message_id.as_str(), one.state)).collect();
    let expected = [
        ("waits", MessageState::Waiting),
        ("held", MessageState::InFlight),
        ("later", MessageState::Delayed),
    ];
    assert_eq!(states, expected);
    assert_eq!(seen[1].locked_by, Some(fixture.ann));
    assert_eq!(peek(1, 3).await.map(|seen| seen.len()).ok(), Some(1));
    assert_eq!(ids(&fixture.receive(fixture.bob, 10, at(4)).await), ["waits"]);
    refused(fixture.queue.peek("nowhere".to_owned(), 1, Some(at(0))).await, RefusalCode::BadValue);
}

pub(crate) async fn depth_is_counted_by_group(fixture: QueueFixture) {
    let depth = |now| fixture.queue.depth(WORK_ITEMS.to_owned(), Some(at(now)));
    assert_eq!(depth(0).await.ok(), Some(tidemill_core::queue::QueueDepth::default()));
    fixture.send(items("dead", 2), at(0)).await;
    assert_eq!(fixture.kill_all(1).await, 2);
    fixture.send(items("a", 5), at(2)).await;
    assert_eq!(fixture.receive(fixture.ann, 2, at(3)).await.len(), 2);
    fixture.send(items("b", 3), at(4)).await;
    fixture.send(vec![NewMessage { delay: TimeDelta::hours(1), ..item("later") }], at(4)).await;
    let seen = depth(10).await.expect("the queue answers");
    assert_eq!((seen.waiting, seen.delayed, seen.in_flight, seen.dead), (6, 1, 2, 2));
    assert_eq!(seen.oldest_age(at(10)), Some(TimeDelta::seconds(8)));
    let groups: Vec<_> = seen
        .groups
        .iter()
        .map(|one| (one.group.as_str(), one.waiting, one.delayed, one.in_flight, one.dead))
        .collect();
    assert_eq!(groups, [("a", 3, 0, 2, 0), ("b", 3, 0, 0, 0), ("dead", 0, 0, 0, 2), ("nivoda", 0, 1, 0, 0)]);
    assert_eq!(seen.groups[1].oldest_at, Some(at(4)));
}

pub(crate) async fn dead_letters_are_listed_in_pages(fixture: QueueFixture) {
    for (number, message) in items("nivoda", 7).into_iter().enumerate() {
        fixture.send(vec![message], at(0)).await;
        // Three times, so that pages end within one time and between two.
        assert_eq!(fixture.kill_all(1 + i64::try_from(number).unwrap_or(0) / 3).await, 1);
    }
    let mut listed = Vec::new();
    let mut after = None;
    loop {
        let page = fixture.queue.dead(WORK_ITEMS.to_owned(), 2, after.clone()).await.expect("a page");
        let Some(last) = page.last() else { break };
        assert!(page.len() <= 2);
        after = Some(last.cursor());
        listed.extend(page.into_iter().map(|one| one.message_id));
    }
    let sent: Vec<_> = items("nivoda", 7).into_iter().map(|one| one.message_id).collect();
    assert_eq!(listed, sent);
    assert_eq!(fixture.queue.dead(WORK_DONE.to_owned(), 10, None).await.ok(), Some(Vec::new()));
}

pub(crate) async fn replay_increments_the_generation_once(fixture: QueueFixture) {
    fixture.send(items("nivoda", 3), at(0)).await;
    assert_eq!(fixture.kill_all(1).await, 3);
    let two = Replay::Ids(vec!["nivoda:00000".to_owned(), "nivoda:00002".to_owned(), "unknown".to_owned()]);
    assert_eq!(fixture.replay(two.clone(), 2).await, 2, "within the duplicate window too");
    assert_eq!(fixture.replay(two, 2).await, 0, "pressed twice");
    let received = fixture.receive(fixture.bob, 10, at(3)).await;
    assert_eq!(ids(&received), ["nivoda:00000", "nivoda:00002"]);
    for one in &received {
        assert_eq!((one.receipt.generation, one.deliveries, one.enqueued_at), (1, 1, at(2)));
        assert_eq!(one.expires_at, at(2 + 24 * 3_600));
    }
    let old = items("nivoda", 3);
    assert_eq!(
        fixture.send(old, at(4)).await,
        [SendOutcome::Duplicate; 3],
        "the first generation is remembered"
    );
    assert_eq!(fixture.replay(Replay::All, 5).await, 1);
    assert_eq!(fixture.replay(Replay::All, 5).await, 0);
    assert_eq!(fixture.queue.dead(WORK_ITEMS.to_owned(), 10, None).await.ok(), Some(Vec::new()));
    let last = fixture.receive_one(fixture.bob, at(6)).await;
    assert_eq!(
        fixture.queue.kill(last.receipt, DeadReason::Permanent, None, Some(at(7))).await.ok(),
        Some(ChangeOutcome::Applied)
    );
    assert_eq!(fixture.replay(Replay::All, 8).await, 1, "and once more after it died again");
    assert_eq!(fixture.receive_one(fixture.bob, at(9)).await.receipt.generation, 2);
}

pub(crate) async fn simultaneous_replays_replay_once(fixture: QueueFixture) {
    fixture.send(items("nivoda", 10), at(0)).await;
    assert_eq!(fixture.kill_all(1).await, 10);
    let replayed = at_once(8, |_| {
        let fixture = fixture.clone();
        async move { fixture.replay(Replay::All, 2).await }
    })
    .await;
    assert_eq!(replayed.iter().sum::<u64>(), 10);
    assert_eq!(fixture.receive(fixture.ann, 100, at(3)).await.len(), 10);
}

/// A retry may already have sent the next generation: that one counts, and the dead letter is settled.
pub(crate) async fn replay_of_a_resent_message_makes_no_copy(fixture: QueueFixture) {
    fixture.send_one("a", at(0)).await;
    assert_eq!(fixture.kill_all(1).await, 1);
    let next = NewMessage { generation: 1, ..item("a") };
    assert_eq!(fixture.send(vec![next], at(2)).await, [SendOutcome::Sent]);
    assert_eq!(fixture.replay(Replay::All, 3).await, 0);
    assert_eq!(fixture.receive_one(fixture.bob, at(4)).await.receipt.generation, 1);
    assert_eq!(fixture.rows("state = 'dead'").await, 0);
}

pub(crate) async fn expired_message_ids_are_purged_in_batches(fixture: QueueFixture) {
    let purge = |limit, now| fixture.queue.purge(limit, Some(at(now)));
    fixture.send(items("dead", 3), at(0)).await;
    assert_eq!(fixture.kill_all(0).await, 3);
    let done = NewMessage { queue: WORK_DONE.to_owned(), ..item("done") };
    fixture.send(vec![done], at(0)).await;
    let other =
        fixture.ask(ReceiveRequest::new(WORK_DONE, fixture.ann, 1), at(0)).await.received.remove(0).receipt;
    fixture.send(items("nivoda", 5), at(0)).await;
    let held: Vec<_> =
        fixture.receive(fixture.ann, 5, at(0)).await.into_iter().map(|one| one.receipt).collect();
    assert!(fixture.queue.complete(held, Some(at(10))).await.is_ok());
    assert_eq!(fixture.complete(&other, at(10)).await, ChangeOutcome::Applied);
    fixture.send(items("alive", 2), at(10)).await;

    assert_eq!(purge(100, 11).await.ok(), Some(PurgeCounts { done: 1, dead: 0 }), "that queue has no window");
    assert_eq!(purge(100, 609).await.ok(), Some(PurgeCounts::default()));
    assert_eq!(purge(3, 610).await.ok(), Some(PurgeCounts { done: 3, dead: 0 }), "in batches");
    assert_eq!(purge(3, 610).await.ok(), Some(PurgeCounts { done: 2, dead: 0 }));
    let stored = 14 * 24 * 3_600;
    assert_eq!(purge(100, stored - 1).await.ok(), Some(PurgeCounts::default()));
    assert_eq!(purge(2, stored).await.ok(), Some(PurgeCounts { done: 0, dead: 2 }));
    assert_eq!(purge(2, stored).await.ok(), Some(PurgeCounts { done: 0, dead: 1 }));
    assert_eq!(fixture.rows("true").await, 2);
    assert_eq!(fixture.send(items("dead", 1), at(stored)).await, [SendOutcome::Sent], "it is not remembered");
}
