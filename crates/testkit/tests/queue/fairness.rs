//! Groups take turns: the many messages of one do not hold up the few of another.

use chrono::TimeDelta;
use tidemill_core::Timestamp;
use tidemill_core::limits::BATCH_MAX;
use tidemill_core::queue::Received;
use tidemill_core::run::Applied;
use tidemill_testkit::door::at;

use crate::{Desk, items};

fn of(received: &[Received], group: &str) -> usize {
    received.iter().filter(|one| one.group == group).count()
}

/// Both groups have nothing in flight whenever the worker asks, so chance decides: not to come up in 64 tosses is
/// rarer than a broken machine.
pub(crate) async fn a_lone_message_is_not_held_up_by_ten_thousand_others(desk: Desk) {
    for part in items("large", 10_000).chunks(BATCH_MAX) {
        desk.send(part.to_vec(), at(0)).await;
    }
    desk.send(items("small", 1), at(60)).await;
    for turn in 1.. {
        let received = desk.receive(desk.ann, 1, at(61)).await;
        assert_eq!(received.len(), 1);
        assert_eq!(desk.complete(&received[0].receipt, at(61)).await, Applied::Applied);
        if received[0].group == "small" {
            break;
        }
        assert!(turn < 64, "the lone message still waits");
    }
    desk.send(items("tiny", 1), at(62)).await;
    assert_eq!(of(&desk.receive(desk.ann, 2, at(62)).await, "tiny"), 1, "a batch has room for each");
}

pub(crate) async fn a_batch_is_shared_between_groups(desk: Desk) {
    desk.send([items("a", 300), items("b", 30), items("c", 200)].concat(), at(0)).await;
    let received = desk.receive(desk.ann, 100, at(1)).await;
    assert_eq!((of(&received, "a"), of(&received, "b"), of(&received, "c")), (35, 30, 35));
}

/// Three hundred messages, ten at a time: of equal ones PostgreSQL may look at any first.
async fn send_in_line(desk: &Desk, group: &str, from: Timestamp) {
    let mut now = from;
    for part in items(group, 300).chunks(10) {
        desk.send(part.to_vec(), now).await;
        now += TimeDelta::milliseconds(1);
    }
}

pub(crate) async fn what_a_group_has_in_flight_counts_as_its_share(desk: Desk) {
    send_in_line(&desk, "a", at(0)).await;
    assert_eq!(desk.receive(desk.ann, 50, at(1)).await.len(), 50);
    send_in_line(&desk, "b", at(2)).await;
    let received = desk.receive(desk.bob, 40, at(3)).await;
    assert_eq!(of(&received, "b"), 40, "it is behind by fifty");
    let received = desk.receive(desk.bob, 30, at(4)).await;
    assert_eq!((of(&received, "a"), of(&received, "b")), (10, 20), "ten to catch up, and then in turns");
    // What was locked long ago is in flight no more.
    let received = desk.receive(desk.bob, 40, at(500)).await;
    assert_eq!((of(&received, "a"), of(&received, "b")), (20, 20));
}
