//! Fairness: many messages of one group do not delay the few of another.

use chrono::TimeDelta;
use tidemill_core::Timestamp;
use tidemill_core::limits::BATCH_MAX;
use tidemill_core::queue::ReceivedMessage;
use tidemill_core::run::ChangeOutcome;
use tidemill_testkit::interface::at;

use crate::{QueueFixture, items};

fn of(received: &[ReceivedMessage], group: &str) -> usize {
    received.iter().filter(|one| one.group == group).count()
}

/// Neither group has messages in flight when the worker receives, so the choice is random: 64 misses in a row are
/// practically impossible.
pub(crate) async fn lone_message_is_not_delayed_by_ten_thousand_others(fixture: QueueFixture) {
    for part in items("large", 10_000).chunks(BATCH_MAX) {
        fixture.send(part.to_vec(), at(0)).await;
    }
    fixture.send(items("small", 1), at(60)).await;
    for turn in 1.. {
        let received = fixture.receive(fixture.ann, 1, at(61)).await;
        assert_eq!(received.len(), 1);
        assert_eq!(fixture.complete(&received[0].receipt, at(61)).await, ChangeOutcome::Applied);
        if received[0].group == "small" {
            break;
        }
        assert!(turn < 64, "the lone message still waits");
    }
    fixture.send(items("tiny", 1), at(62)).await;
    assert_eq!(of(&fixture.receive(fixture.ann, 2, at(62)).await, "tiny"), 1, "a batch has room for each");
}

pub(crate) async fn batch_is_shared_between_groups(fixture: QueueFixture) {
    fixture.send([items("a", 300), items("b", 30), items("c", 200)].concat(), at(0)).await;
    let received = fixture.receive(fixture.ann, 100, at(1)).await;
    assert_eq!((of(&received, "a"), of(&received, "b"), of(&received, "c")), (35, 30, 35));
}

/// Sends three hundred messages, ten at a time, because PostgreSQL may pick any of equal ones first.
async fn send_in_line(fixture: &QueueFixture, group: &str, from: Timestamp) {
    let mut now = from;
    for part in items(group, 300).chunks(10) {
        fixture.send(part.to_vec(), now).await;
        now += TimeDelta::milliseconds(1);
    }
}

pub(crate) async fn in_flight_messages_count_in_the_share_of_a_group(fixture: QueueFixture) {
    send_in_line(&fixture, "a", at(0)).await;
    assert_eq!(fixture.receive(fixture.ann, 50, at(1)).await.len(), 50);
    send_in_line(&fixture, "b", at(2)).await;
    let received = fixture.receive(fixture.bob, 40, at(3)).await;
    assert_eq!(of(&received, "b"), 40, "it is behind by fifty");
    let received = fixture.receive(fixture.bob, 30, at(4)).await;
    assert_eq!((of(&received, "a"), of(&received, "b")), (10, 20), "ten to catch up, and then in turns");
    // Expired locks no longer count as in flight.
    let received = fixture.receive(fixture.bob, 40, at(500)).await;
    assert_eq!((of(&received, "a"), of(&received, "b")), (20, 20));
}
