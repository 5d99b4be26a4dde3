//! What people and upkeep do: settings, peek, depth, dead letters, replay, purge.

use chrono::TimeDelta;
use tidemill_core::queue::{
    DeadReason, MessageState, NewMessage, QueueSettings, Replay, Sent, WORK_DONE, WORK_ITEMS,
};
use tidemill_core::run::Applied;
use tidemill_store::{Error, Purged, Receive, RefusalCode};
use tidemill_testkit::conformance::at_once;
use tidemill_testkit::door::{at, refused};

use crate::{Desk, ids, item, items};

impl Desk {
    /// Makes dead letters of the messages that wait.
    async fn kill_all(&self, now: i64) -> usize {
        let held = self.receive(self.ann, 1_000, at(now)).await;
        for one in &held {
            let killed =
                self.queue.kill(one.receipt.clone(), DeadReason::Permanent, None, Some(at(now))).await;
            assert_eq!(killed.ok(), Some(Applied::Applied));
        }
        held.len()
    }

    async fn replay(&self, which: Replay, now: i64) -> u64 {
        let answer = self.queue.replay(WORK_ITEMS.to_owned(), which, Some(at(now))).await;
        answer.expect("the queue answers")
    }
}

pub(crate) async fn the_queues_have_the_settings_of_the_design(desk: Desk) {
    assert_eq!(desk.queue.queues().await.ok(), Some(QueueSettings::defaults()));
}

pub(crate) async fn changed_settings_hold_from_then_on(desk: Desk) {
    let settings = QueueSettings {
        queue: WORK_ITEMS.to_owned(),
        lock_secs: 10,
        deliveries_max: 1,
        window_secs: None,
        expiry_secs: 60,
    };
    let bad = QueueSettings { lock_secs: 0, ..settings.clone() };
    assert!(matches!(desk.queue.set_queue(bad).await, Err(Error::Invalid(_))));
    assert!(desk.queue.set_queue(settings).await.is_ok());
    desk.send_one("a", at(0)).await;
    let received = desk.take(desk.ann, at(0)).await;
    assert_eq!((received.locked_until, received.expires_at), (at(10), at(60)));
    assert!(received.is_last());
    let end = desk.ask(Receive::new(WORK_ITEMS, desk.ann, 1), at(10)).await;
    assert_eq!(end.dead[0].reason, DeadReason::Deliveries);
    let new = QueueSettings { queue: "more-work".to_owned(), ..QueueSettings::defaults().remove(0) };
    assert!(desk.queue.set_queue(new).await.is_ok());
    let elsewhere = NewMessage { queue: "more-work".to_owned(), ..item("a") };
    assert_eq!(desk.send(vec![elsewhere], at(0)).await, [Sent::Sent]);
}

pub(crate) async fn a_peek_shows_where_each_message_is_and_takes_none(desk: Desk) {
    desk.send_one("held", at(0)).await;
    desk.take(desk.ann, at(1)).await;
    desk.send_one("waits", at(2)).await;
    desk.send(vec![NewMessage { delay: TimeDelta::hours(1), ..item("later") }], at(2)).await;
    let peek = |limit, now| desk.queue.peek(WORK_ITEMS.to_owned(), limit, Some(at(now)));
    let seen = peek(10, 3).await.expect("the queue answers");
    let states: Vec<_> = seen.iter().map(|one| (one.message_id.as_str(), one.state)).collect();
    let expected = [
        ("waits", MessageState::Waiting),
        ("held", MessageState::InFlight),
        ("later", MessageState::Delayed),
    ];
    assert_eq!(states, expected);
    assert_eq!(seen[1].locked_by, Some(desk.ann));
    assert_eq!(peek(1, 3).await.map(|seen| seen.len()).ok(), Some(1));
    assert_eq!(ids(&desk.receive(desk.bob, 10, at(4)).await), ["waits"]);
    refused(desk.queue.peek("nowhere".to_owned(), 1, Some(at(0))).await, RefusalCode::BadValue);
}

pub(crate) async fn the_depth_is_counted_by_group(desk: Desk) {
    let depth = |now| desk.queue.depth(WORK_ITEMS.to_owned(), Some(at(now)));
    assert_eq!(depth(0).await.ok(), Some(tidemill_core::queue::QueueDepth::default()));
    desk.send(items("dead", 2), at(0)).await;
    assert_eq!(desk.kill_all(1).await, 2);
    desk.send(items("a", 5), at(2)).await;
    assert_eq!(desk.receive(desk.ann, 2, at(3)).await.len(), 2);
    desk.send(items("b", 3), at(4)).await;
    desk.send(vec![NewMessage { delay: TimeDelta::hours(1), ..item("later") }], at(4)).await;
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

pub(crate) async fn dead_letters_are_listed_page_by_page(desk: Desk) {
    for (number, message) in items("nivoda", 7).into_iter().enumerate() {
        desk.send(vec![message], at(0)).await;
        // Three moments, so that pages end within one and between two.
        assert_eq!(desk.kill_all(1 + i64::try_from(number).unwrap_or(0) / 3).await, 1);
    }
    let mut listed = Vec::new();
    let mut after = None;
    loop {
        let page = desk.queue.dead(WORK_ITEMS.to_owned(), 2, after.clone()).await.expect("a page");
        let Some(last) = page.last() else { break };
        assert!(page.len() <= 2);
        after = Some(last.cursor());
        listed.extend(page.into_iter().map(|one| one.message_id));
    }
    let sent: Vec<_> = items("nivoda", 7).into_iter().map(|one| one.message_id).collect();
    assert_eq!(listed, sent);
    assert_eq!(desk.queue.dead(WORK_DONE.to_owned(), 10, None).await.ok(), Some(Vec::new()));
}

pub(crate) async fn a_replay_raises_the_generation_and_is_made_once(desk: Desk) {
    desk.send(items("nivoda", 3), at(0)).await;
    assert_eq!(desk.kill_all(1).await, 3);
    let two = Replay::Ids(vec!["nivoda:00000".to_owned(), "nivoda:00002".to_owned(), "unknown".to_owned()]);
    assert_eq!(desk.replay(two.clone(), 2).await, 2, "within the duplicate window too");
    assert_eq!(desk.replay(two, 2).await, 0, "pressed twice");
    let received = desk.receive(desk.bob, 10, at(3)).await;
    assert_eq!(ids(&received), ["nivoda:00000", "nivoda:00002"]);
    for one in &received {
        assert_eq!((one.receipt.generation, one.deliveries, one.enqueued_at), (1, 1, at(2)));
        assert_eq!(one.expires_at, at(2 + 24 * 3_600));
    }
    let old = items("nivoda", 3);
    assert_eq!(desk.send(old, at(4)).await, [Sent::Duplicate; 3], "the first generation is remembered");
    assert_eq!(desk.replay(Replay::All, 5).await, 1);
    assert_eq!(desk.replay(Replay::All, 5).await, 0);
    assert_eq!(desk.queue.dead(WORK_ITEMS.to_owned(), 10, None).await.ok(), Some(Vec::new()));
    let last = desk.take(desk.bob, at(6)).await;
    assert_eq!(
        desk.queue.kill(last.receipt, DeadReason::Permanent, None, Some(at(7))).await.ok(),
        Some(Applied::Applied)
    );
    assert_eq!(desk.replay(Replay::All, 8).await, 1, "and once more after it died again");
    assert_eq!(desk.take(desk.bob, at(9)).await.receipt.generation, 2);
}

pub(crate) async fn a_replay_at_one_instant_is_made_once(desk: Desk) {
    desk.send(items("nivoda", 10), at(0)).await;
    assert_eq!(desk.kill_all(1).await, 10);
    let replayed = at_once(8, |_| {
        let desk = desk.clone();
        async move { desk.replay(Replay::All, 2).await }
    })
    .await;
    assert_eq!(replayed.iter().sum::<u64>(), 10);
    assert_eq!(desk.receive(desk.ann, 100, at(3)).await.len(), 10);
}

/// A retry may have sent the next generation already: that one counts, and the dead letter is settled.
pub(crate) async fn a_replay_of_what_was_sent_again_makes_no_second_copy(desk: Desk) {
    desk.send_one("a", at(0)).await;
    assert_eq!(desk.kill_all(1).await, 1);
    let next = NewMessage { generation: 1, ..item("a") };
    assert_eq!(desk.send(vec![next], at(2)).await, [Sent::Sent]);
    assert_eq!(desk.replay(Replay::All, 3).await, 0);
    assert_eq!(desk.take(desk.bob, at(4)).await.receipt.generation, 1);
    assert_eq!(desk.rows("state = 'dead'").await, 0);
}

pub(crate) async fn what_need_not_be_remembered_is_purged_in_batches(desk: Desk) {
    let purge = |limit, now| desk.queue.purge(limit, Some(at(now)));
    desk.send(items("dead", 3), at(0)).await;
    assert_eq!(desk.kill_all(0).await, 3);
    let done = NewMessage { queue: WORK_DONE.to_owned(), ..item("done") };
    desk.send(vec![done], at(0)).await;
    let other = desk.ask(Receive::new(WORK_DONE, desk.ann, 1), at(0)).await.received.remove(0).receipt;
    desk.send(items("nivoda", 5), at(0)).await;
    let held: Vec<_> = desk.receive(desk.ann, 5, at(0)).await.into_iter().map(|one| one.receipt).collect();
    assert!(desk.queue.complete(held, Some(at(10))).await.is_ok());
    assert_eq!(desk.complete(&other, at(10)).await, Applied::Applied);
    desk.send(items("alive", 2), at(10)).await;

    assert_eq!(purge(100, 11).await.ok(), Some(Purged { done: 1, dead: 0 }), "that queue has no window");
    assert_eq!(purge(100, 609).await.ok(), Some(Purged::default()));
    assert_eq!(purge(3, 610).await.ok(), Some(Purged { done: 3, dead: 0 }), "in batches");
    assert_eq!(purge(3, 610).await.ok(), Some(Purged { done: 2, dead: 0 }));
    let kept = 14 * 24 * 3_600;
    assert_eq!(purge(100, kept - 1).await.ok(), Some(Purged::default()));
    assert_eq!(purge(2, kept).await.ok(), Some(Purged { done: 0, dead: 2 }));
    assert_eq!(purge(2, kept).await.ok(), Some(Purged { done: 0, dead: 1 }));
    assert_eq!(desk.rows("true").await, 2);
    assert_eq!(desk.send(items("dead", 1), at(kept)).await, [Sent::Sent], "nobody remembers it");
}
