//! The contract of the message queue: one list of cases, run on each store. A message broker would have to pass it too.
#![expect(clippy::expect_used, reason = "a failed step must end the test")]

#[path = "queue/delivery_end.rs"]
mod delivery_end;
#[path = "queue/fairness.rs"]
mod fairness;
#[path = "queue/operations.rs"]
mod operations;
#[path = "queue/receive.rs"]
mod receive;
#[path = "queue/send.rs"]
mod send;

use std::sync::Arc;

use serde_json::json;
use tidemill_core::queue::{Delivery, NewMessage, Receipt, ReceivedMessage, SendOutcome, WORK_ITEMS};
use tidemill_core::run::ChangeOutcome;
use tidemill_core::{Timestamp, WorkerId};
use tidemill_store::{Queue, ReceiveRequest};
use tidemill_testkit::interface::{Fixture, Kind};
use uuid::Uuid;

/// A queue under test, on a database of its own, and two workers.
#[derive(Clone)]
struct QueueFixture {
    queue: Arc<dyn Queue>,
    base: Fixture,
    ann: WorkerId,
    bob: WorkerId,
}

impl QueueFixture {
    async fn open(kind: Kind) -> Self {
        let base = Fixture::open_bare(kind).await;
        let queue = Arc::new(base.store.clone());
        Self { queue, base, ann: WorkerId(Uuid::new_v4()), bob: WorkerId(Uuid::new_v4()) }
    }

    async fn send(&self, messages: Vec<NewMessage>, now: Timestamp) -> Vec<SendOutcome> {
        self.queue.send(messages, Some(now)).await.expect("the messages are sent")
    }

    async fn send_one(&self, id: &str, now: Timestamp) -> SendOutcome {
        self.send(vec![item(id)], now).await[0]
    }

    async fn ask(&self, ask: ReceiveRequest, now: Timestamp) -> Delivery {
        self.queue.receive(ask, Some(now)).await.expect("the queue answers")
    }

    async fn receive(&self, worker: WorkerId, max: usize, now: Timestamp) -> Vec<ReceivedMessage> {
        self.ask(ReceiveRequest::new(WORK_ITEMS, worker, max), now).await.received
    }

    /// Receives the only waiting message.
    async fn receive_one(&self, worker: WorkerId, now: Timestamp) -> ReceivedMessage {
        let mut received = self.receive(worker, 10, now).await;
        assert_eq!(received.len(), 1, "{received:?}");
        received.remove(0)
    }

    async fn complete(&self, receipt: &Receipt, now: Timestamp) -> ChangeOutcome {
        let outcomes = self.queue.complete(vec![receipt.clone()], Some(now)).await;
        outcomes.expect("the queue answers")[0]
    }

    /// Counts the messages that match a condition.
    async fn rows(&self, condition: &str) -> i64 {
        let text = format!("SELECT count(*) FROM {{ops}}.messages WHERE {condition}");
        self.base.plain.number(&text).await.expect("the messages are counted")
    }
}

/// Returns a message of the feed `nivoda`.
fn item(id: &str) -> NewMessage {
    NewMessage::new(WORK_ITEMS, id, "nivoda", json!({ "offset": id }))
}

/// Returns this many messages of a feed.
fn items(feed: &str, count: usize) -> Vec<NewMessage> {
    let one = |n| NewMessage::new(WORK_ITEMS, format!("{feed}:{n:05}"), feed, json!({ "offset": n }));
    (0..count).map(one).collect()
}

fn ids(received: &[ReceivedMessage]) -> Vec<&str> {
    received.iter().map(|one| one.receipt.message_id.as_str()).collect()
}

/// Makes a test of each case on each store.
macro_rules! cases {
    ($($topic:ident: $($case:ident),+ $(,)?;)+) => {
        /// The names of all listed cases.
        const LISTED: &[&str] = &[$($(stringify!($case)),+),+];
        mod postgres { cases! { @store Postgres, $($topic: $($case),+;)+ } }
        mod pgbouncer { cases! { @store Pgbouncer, $($topic: $($case),+;)+ } }
        mod sqlite { cases! { @store Sqlite, $($topic: $($case),+;)+ } }
    };
    (@store $kind:ident, $($topic:ident: $($case:ident),+;)+) => {
        $($(
            #[tokio::test]
            async fn $case() {
                let fixture = crate::QueueFixture::open(tidemill_testkit::interface::Kind::$kind).await;
                crate::$topic::$case(fixture.clone()).await;
                fixture.base.close().await;
            }
        )+)+
    };
}

cases! {
    send:
        message_is_received_unchanged,
        resent_message_is_a_duplicate,
        completed_message_is_a_duplicate_within_the_window,
        completed_id_without_window_is_free_at_once,
        other_generation_or_queue_is_another_message,
        dead_letter_is_not_resent_by_send,
        delayed_message_is_not_received_early,
        message_sent_locked_is_held_by_its_sender,
        simultaneous_senders_send_once,
        duplicate_during_completion_is_detected,
        oversized_or_unknown_message_is_refused;
    receive:
        simultaneous_receivers_never_get_the_same_message,
        oldest_message_is_received_first,
        expired_lock_redelivers_with_a_higher_epoch,
        expired_lock_is_valid_until_the_message_is_received_again,
        message_over_its_delivery_limit_is_a_dead_letter,
        expired_message_is_a_dead_letter,
        receive_skips_dead_letters,
        message_that_expires_without_receivers_is_found,
        excluded_groups_wait_without_counting_deliveries,
        receive_batch_is_limited,
        draining_process_receives_nothing;
    fairness:
        lone_message_is_not_delayed_by_ten_thousand_others,
        batch_is_shared_between_groups,
        in_flight_messages_count_in_the_share_of_a_group;
    delivery_end:
        batch_of_receipts_returns_one_outcome_each,
        release_delay_is_capped_at_thirty_days,
        released_message_waits_for_its_delay,
        forgiven_delivery_is_not_counted,
        renewed_lock_lasts_longer,
        killed_message_is_a_dead_letter_with_its_reason,
        messages_of_a_dead_worker_are_released_at_once,
        messages_of_every_ended_worker_are_released,
        failed_transaction_sends_and_completes_nothing,
        transaction_sends_and_completes_together;
    operations:
        queues_have_their_default_settings,
        changed_settings_apply_immediately,
        peek_shows_message_states_and_takes_none,
        depth_is_counted_by_group,
        dead_letters_are_listed_in_pages,
        replay_increments_the_generation_once,
        simultaneous_replays_replay_once,
        replay_of_a_resent_message_makes_no_copy,
        expired_message_ids_are_purged_in_batches;
}

/// An unlisted case would never run.
#[test]
fn every_case_is_listed() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/queue");
    let mut cases = 0;
    for file in std::fs::read_dir(folder).expect("the folder is read") {
        let text = std::fs::read_to_string(file.expect("an entry").path()).expect("the file is read");
        for line in text.lines().filter_map(|line| line.strip_prefix("pub(crate) async fn ")) {
            let name = line.split('(').next().unwrap_or_default();
            assert!(LISTED.contains(&name), "{name} is on no list in queue.rs");
            cases += 1;
        }
    }
    assert_eq!(cases, LISTED.len());
}
