//! Messages that arrive twice, late and unordered, with every generation.

use std::collections::HashSet;
use std::time::Duration;

use tidemill_core::message::Message as Body;
use tidemill_core::queue::{CONSOLIDATE, Message, MessageState, NewMessage, WORK_DONE, WORK_ITEMS};
use tidemill_core::records::Sync;
use tidemill_core::run::RunState;
use tidemill_core::sync::SyncState;
use tidemill_engine::sync::{PagerOptions, Syncs};
use tidemill_store::Queue as _;
use tidemill_testkit::sync_fixture::{Offsets, SyncFixture};
use tokio::time::sleep;

use crate::fixture::{
    Rng, Role, RoleSet, Subject, check_watermark_moved_once, drained, ended, fixture, planned, stored,
    succeeded, until,
};

/// Sends a message again, like a broker that lost track.
async fn resend(fixture: &SyncFixture, message: &Message, generation: i32, offset: Option<u64>) {
    let mut body = message.body.clone();
    if let Some(offset) = offset {
        body["offset"] = offset.into();
    }
    let id = match serde_json::from_value(body.clone()).expect("it is a message of ours") {
        Body::WorkItem(item) => item.id(),
        Body::WorkDone(done) => done.id(),
        Body::Consolidate(order) => order.id(),
    };
    let mut sent = NewMessage::new(&message.queue, id, message.group.clone(), body);
    (sent.generation, sent.run_id) = (generation, message.run_id.clone());
    fixture.base.store.send(vec![sent], None).await.expect("it is sent");
}

async fn peek(fixture: &SyncFixture, queue: &str) -> Vec<Message> {
    fixture.base.store.peek(queue.to_owned(), 500, None).await.expect("the queue is read")
}

/// Returns the state that must not change after the end.
async fn state_text(fixture: &SyncFixture, sync: &Sync) -> String {
    let sync = fixture.base.store.sync(sync.run_id.to_string()).await.expect("the sync is read");
    let sync = Sync { updated_at: sync.started_at, ..sync };
    let partitions = fixture.base.store.partitions(sync.run_id).await.expect("the partitions are read");
    let feed = fixture.base.store.feed(sync.feed.clone()).await.expect("the feed is read");
    format!("{sync:?} {partitions:?} {:?}", feed.watermark)
}

/// During the sync, every message ever seen in the queues is sent again, also with other offsets.
pub(crate) async fn repeated_late_and_unordered_page_messages_are_safe(subject: impl Into<Subject>) {
    let (mut dice, fixture) = (Rng::seeded(), fixture(subject).await);
    let roles = RoleSet::of(&fixture.syncs, &[Role::Scheduler]);
    let run = fixture.queue(true).await;
    let sync = planned(&fixture, &run).await;
    let offsets = Offsets::watch(&fixture, &sync);
    let mut seen = peek(&fixture, WORK_ITEMS).await;
    for message in &seen {
        resend(&fixture, message, 900, None).await;
        resend(&fixture, message, 901, None).await;
        // An offset that is not reached yet, and one at which no page begins.
        resend(&fixture, message, 902, Some(30)).await;
        resend(&fixture, message, 903, Some(7)).await;
    }
    let mut roles = roles;
    for role in [Role::Worker, Role::Worker, Role::Consolidator, Role::Consolidator] {
        roles.start(role);
    }
    let mut generation = 1_000;
    loop {
        let now = fixture.base.store.sync(sync.run_id.to_string()).await.expect("the sync is read");
        if now.state == SyncState::Completed || now.state == SyncState::Failed {
            break;
        }
        seen.extend(peek(&fixture, WORK_ITEMS).await);
        seen.extend(peek(&fixture, WORK_DONE).await);
        seen.extend(peek(&fixture, CONSOLIDATE).await);
        for _ in 0..5 {
            let place = usize::try_from(dice.below(seen.len() as u64)).unwrap_or(0);
            generation += 1;
            resend(&fixture, &seen[place].clone(), generation, None).await;
        }
        sleep(Duration::from_millis(5)).await;
    }
    let done = succeeded(&fixture, &run).await;
    assert_eq!(done.consolidation_processed, 2_000, "each record is counted once");
    assert_eq!(stored(&fixture, &done).await, 2_000, "each record is stored once");
    fixture.check_equal().await;
    for queue in [WORK_ITEMS, WORK_DONE, CONSOLIDATE] {
        drained(&fixture, queue).await;
    }
    succeeded(&fixture, &run).await;
    offsets.check().await;
    roles.stop().await;
}

/// Two workers fetch the same page at the same time: one of them commits.
pub(crate) async fn page_delivered_to_two_workers_is_stored_once(subject: impl Into<Subject>) {
    let fixture = fixture(subject).await;
    let mut roles = RoleSet::of(&fixture.syncs, &[Role::Scheduler]);
    let run = fixture.queue(true).await;
    let sync = planned(&fixture, &run).await;
    let offsets = Offsets::watch(&fixture, &sync);
    for message in peek(&fixture, WORK_ITEMS).await {
        resend(&fixture, &message, 900, None).await;
    }
    // Long enough that both are between guard and commit at the same time.
    fixture.supplier.handle.behave(|behaviour| behaviour.latency_ms = 300);
    for role in [Role::Worker, Role::Worker, Role::Consolidator] {
        roles.start(role);
    }
    until("one page is in two hands", || async {
        let messages = peek(&fixture, WORK_ITEMS).await;
        let held: Vec<_> =
            messages.iter().filter(|message| message.state == MessageState::InFlight).collect();
        let ids: HashSet<_> = held.iter().map(|message| &message.message_id).collect();
        ids.len() < held.len()
    })
    .await;
    fixture.supplier.handle.behave(|behaviour| behaviour.latency_ms = 3);
    let done = succeeded(&fixture, &run).await;
    assert_eq!((done.consolidation_processed, stored(&fixture, &done).await), (2_000, 2_000));
    fixture.check_equal().await;
    offsets.check().await;
    roles.stop().await;
}

pub(crate) async fn messages_after_completion_change_nothing(subject: impl Into<Subject>) {
    let fixture = fixture(subject).await;
    let mut roles = RoleSet::of(&fixture.syncs, &[Role::Scheduler]);
    let run = fixture.queue(true).await;
    let sync = planned(&fixture, &run).await;
    let mut seen = peek(&fixture, WORK_ITEMS).await;
    for role in [Role::Worker, Role::Consolidator] {
        roles.start(role);
    }
    let done = succeeded(&fixture, &run).await;
    let before = state_text(&fixture, &done).await;
    let order = Body::Consolidate(tidemill_core::message::Consolidate {
        run_id: sync.run_id,
        trace_id: sync.trace_id.clone(),
        force: Some(true),
        updated_to: Some(sync.updated_to),
        feed: sync.feed.clone(),
    });
    let model = seen.first().expect("there was a message").clone();
    let body = serde_json::to_value(order).expect("it is JSON");
    seen.push(Message { queue: CONSOLIDATE.to_owned(), body, ..model });
    for generation in 5..8 {
        for message in &seen {
            resend(&fixture, message, generation, None).await;
        }
    }
    for queue in [WORK_ITEMS, WORK_DONE, CONSOLIDATE] {
        drained(&fixture, queue).await;
    }
    assert_eq!(state_text(&fixture, &done).await, before);
    check_watermark_moved_once(&fixture, &done).await;
    fixture.check_equal().await;
    roles.stop().await;
}

pub(crate) async fn messages_after_a_failure_change_nothing(subject: impl Into<Subject>) {
    let fixture = fixture(subject).await;
    let mut roles = RoleSet::of(&fixture.syncs, &[Role::Scheduler]);
    let run = fixture.queue(true).await;
    let sync = planned(&fixture, &run).await;
    let seen = peek(&fixture, WORK_ITEMS).await;
    fixture.supplier.handle.behave(|behaviour| behaviour.html = true);
    for role in [Role::Worker, Role::Consolidator] {
        roles.start(role);
    }
    assert_eq!(ended(&fixture, &run).await.status, RunState::Failed);
    drained(&fixture, WORK_ITEMS).await;
    fixture.supplier.handle.behave(|behaviour| behaviour.html = false);
    let before = state_text(&fixture, &sync).await;
    for generation in 5..8 {
        for message in &seen {
            resend(&fixture, message, generation, None).await;
        }
    }
    drained(&fixture, WORK_ITEMS).await;
    assert_eq!(state_text(&fixture, &sync).await, before);
    assert!(fixture.rows("active").await.is_empty(), "the table has no record of a failed sync");
    // The same messages are sent again during the retry, and nothing is duplicated.
    let retried = fixture.syncs.retry_sync(&sync.run_id.to_string(), false, None, "ann").await;
    let retried = retried.expect("it is retried").run_id;
    for message in &seen {
        resend(&fixture, message, 20, None).await;
    }
    let done = succeeded(&fixture, &retried).await;
    assert_eq!((done.run_id, done.consolidation_processed), (sync.run_id, 2_000));
    fixture.check_equal().await;
    roles.stop().await;
}

/// Two consolidation messages, processed at the same time.
pub(crate) async fn repeated_consolidation_message_consolidates_once(subject: impl Into<Subject>) {
    let fixture = fixture(subject).await;
    let mut roles = RoleSet::of(&fixture.syncs, &[Role::Scheduler]);
    let run = fixture.queue(true).await;
    let sync = planned(&fixture, &run).await;
    read_all(&fixture.syncs).await;
    fixture.syncs.evaluate(sync.run_id).await.expect("it is evaluated");
    until("consolidation is triggered", || async { peek(&fixture, CONSOLIDATE).await.len() == 1 }).await;
    let order = peek(&fixture, CONSOLIDATE).await.remove(0);
    resend(&fixture, &order, order.generation + 1, None).await;
    resend(&fixture, &order, order.generation + 2, None).await;
    for _ in 0..3 {
        roles.start(Role::Consolidator);
    }
    let done = succeeded(&fixture, &run).await;
    assert_eq!(done.consolidation_processed, 2_000);
    drained(&fixture, CONSOLIDATE).await;
    drained(&fixture, WORK_DONE).await;
    succeeded(&fixture, &run).await;
    fixture.check_equal().await;
    roles.stop().await;
}

async fn read_all(syncs: &Syncs) {
    let stop = tokio::sync::watch::Sender::new(false);
    let name = tidemill_engine::Identity {
        name: "test-reader".to_owned(),
        host: "here".to_owned(),
        labels: Vec::new(),
    };
    let options = PagerOptions { once: true, ..PagerOptions::default() };
    syncs.work_pages(name, &options, stop.subscribe()).await.expect("the pages are executed");
}
