//! The contract of the message queue: one list of cases, run on each store. A broker would have to pass it too.
#![expect(clippy::expect_used, reason = "what fails here ends the test, loudly")]

#[path = "queue/ending.rs"]
mod ending;
#[path = "queue/fairness.rs"]
mod fairness;
#[path = "queue/keeping.rs"]
mod keeping;
#[path = "queue/receiving.rs"]
mod receiving;
#[path = "queue/sending.rs"]
mod sending;

use std::sync::Arc;

use serde_json::json;
use tidemill_core::queue::{Delivery, NewMessage, Receipt, Received, Sent, WORK_ITEMS};
use tidemill_core::run::Applied;
use tidemill_core::{Timestamp, WorkerId};
use tidemill_store::{Queue, Receive};
use tidemill_testkit::door::{Kind, Stage};
use uuid::Uuid;

/// A queue under test, on a database of its own, and two workers.
#[derive(Clone)]
struct Desk {
    queue: Arc<dyn Queue>,
    stage: Stage,
    ann: WorkerId,
    bob: WorkerId,
}

impl Desk {
    async fn open(kind: Kind) -> Self {
        let stage = Stage::open_bare(kind).await;
        let queue = Arc::new(stage.store.clone());
        Self { queue, stage, ann: WorkerId(Uuid::new_v4()), bob: WorkerId(Uuid::new_v4()) }
    }

    async fn send(&self, messages: Vec<NewMessage>, now: Timestamp) -> Vec<Sent> {
        self.queue.send(messages, Some(now)).await.expect("the messages are sent")
    }

    async fn send_one(&self, id: &str, now: Timestamp) -> Sent {
        self.send(vec![item(id)], now).await[0]
    }

    async fn ask(&self, ask: Receive, now: Timestamp) -> Delivery {
        self.queue.receive(ask, Some(now)).await.expect("the queue answers")
    }

    async fn receive(&self, worker: WorkerId, max: usize, now: Timestamp) -> Vec<Received> {
        self.ask(Receive::new(WORK_ITEMS, worker, max), now).await.received
    }

    /// The one message that waits.
    async fn take(&self, worker: WorkerId, now: Timestamp) -> Received {
        let mut received = self.receive(worker, 10, now).await;
        assert_eq!(received.len(), 1, "{received:?}");
        received.remove(0)
    }

    async fn complete(&self, receipt: &Receipt, now: Timestamp) -> Applied {
        let outcomes = self.queue.complete(vec![receipt.clone()], Some(now)).await;
        outcomes.expect("the queue answers")[0]
    }

    /// Rows of the table of messages that a condition holds for.
    async fn rows(&self, condition: &str) -> i64 {
        let text = format!("SELECT count(*) FROM {{ops}}.messages WHERE {condition}");
        self.stage.plain.number(&text).await.expect("the messages are counted")
    }
}

/// A message of the feed `nivoda`.
fn item(id: &str) -> NewMessage {
    NewMessage::new(WORK_ITEMS, id, "nivoda", json!({ "offset": id }))
}

/// As many messages of a feed.
fn items(feed: &str, count: usize) -> Vec<NewMessage> {
    let one = |n| NewMessage::new(WORK_ITEMS, format!("{feed}:{n:05}"), feed, json!({ "offset": n }));
    (0..count).map(one).collect()
}

fn ids(received: &[Received]) -> Vec<&str> {
    received.iter().map(|one| one.receipt.message_id.as_str()).collect()
}

/// Makes a test of each case on each store.
macro_rules! cases {
    ($($topic:ident: $($case:ident),+ $(,)?;)+) => {
        /// The name of every case that is on the list.
        const LISTED: &[&str] = &[$($(stringify!($case)),+),+];
        mod postgres { cases! { @store Postgres, $($topic: $($case),+;)+ } }
        mod pgbouncer { cases! { @store Pgbouncer, $($topic: $($case),+;)+ } }
        mod sqlite { cases! { @store Sqlite, $($topic: $($case),+;)+ } }
    };
    (@store $kind:ident, $($topic:ident: $($case:ident),+;)+) => {
        $($(
            #[tokio::test]
            async fn $case() {
                let desk = crate::Desk::open(tidemill_testkit::door::Kind::$kind).await;
                crate::$topic::$case(desk.clone()).await;
                desk.stage.close().await;
            }
        )+)+
    };
}

cases! {
    sending:
        a_message_is_received_as_it_was_sent,
        a_message_sent_again_is_a_duplicate,
        a_completed_message_is_a_duplicate_until_the_window_is_over,
        without_a_window_a_completed_id_is_free_at_once,
        another_generation_or_queue_is_another_message,
        a_dead_letter_is_not_sent_again_by_another_door,
        a_message_is_not_received_before_its_delay,
        a_message_sent_locked_is_held_by_its_sender,
        sixteen_senders_at_one_instant_send_it_once,
        no_duplicate_slips_in_while_the_message_is_completed,
        what_is_too_large_or_unknown_is_refused_and_nothing_is_sent;
    receiving:
        receivers_at_one_instant_never_get_the_same_message,
        the_oldest_comes_first,
        a_lock_that_ends_delivers_again_under_a_higher_epoch,
        what_has_expired_but_was_not_taken_is_still_valid,
        a_message_that_used_up_its_deliveries_is_a_dead_letter,
        a_message_that_expired_is_a_dead_letter,
        a_receive_goes_on_past_dead_letters,
        what_expires_while_nobody_receives_is_found,
        groups_that_are_excepted_wait_and_no_delivery_counts,
        a_receive_is_bounded,
        a_process_that_drains_receives_nothing;
    fairness:
        a_lone_message_is_not_held_up_by_ten_thousand_others,
        a_batch_is_shared_between_groups,
        what_a_group_has_in_flight_counts_as_its_share;
    ending:
        a_batch_of_receipts_has_an_outcome_for_each,
        a_message_given_back_for_ever_waits_for_thirty_days,
        a_message_given_back_waits_for_its_delay,
        a_delivery_that_is_forgiven_does_not_count,
        a_renewed_lock_lasts_longer,
        a_killed_message_is_a_dead_letter_with_its_reason,
        the_messages_of_a_dead_worker_are_free_at_once,
        the_messages_of_every_worker_whose_end_is_on_record_are_free,
        a_step_that_fails_sends_nothing_and_completes_nothing,
        a_step_sends_and_completes_together;
    keeping:
        the_queues_have_the_settings_of_the_design,
        changed_settings_hold_from_then_on,
        a_peek_shows_where_each_message_is_and_takes_none,
        the_depth_is_counted_by_group,
        dead_letters_are_listed_page_by_page,
        a_replay_raises_the_generation_and_is_made_once,
        a_replay_at_one_instant_is_made_once,
        a_replay_of_what_was_sent_again_makes_no_second_copy,
        what_need_not_be_remembered_is_purged_in_batches;
}

/// A case that is on no list would never run, and nobody would notice.
#[test]
fn every_case_is_on_the_list() {
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
