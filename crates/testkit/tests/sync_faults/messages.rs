//! Messages that come twice, late and out of order, under every generation.

use std::collections::HashSet;
use std::time::Duration;

use tidemill_core::message::Message as Body;
use tidemill_core::queue::{CONSOLIDATE, Message, MessageState, NewMessage, WORK_DONE, WORK_ITEMS};
use tidemill_core::records::Sync;
use tidemill_core::run::RunState;
use tidemill_core::sync::SyncState;
use tidemill_engine::sync::{PagerOptions, Syncs};
use tidemill_store::Queue as _;
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::{Mill, Offsets};
use tokio::time::sleep;

use crate::ground::{
    Crew, Dice, Role, check_marked_once, drained, ended, good, mill, planned, stored, until,
};

/// Sends a message once more, as if a broker had lost count.
async fn again(mill: &Mill, message: &Message, generation: i32, offset: Option<u64>) {
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
    mill.stage.store.send(vec![sent], None).await.expect("it is sent");
}

async fn peek(mill: &Mill, queue: &str) -> Vec<Message> {
    mill.stage.store.peek(queue.to_owned(), 500, None).await.expect("the queue is looked at")
}

/// What must not change after the end.
async fn picture(mill: &Mill, sync: &Sync) -> String {
    let sync = mill.stage.store.sync(sync.run_id.to_string()).await.expect("the sync is read");
    let sync = Sync { updated_at: sync.started_at, ..sync };
    let partitions = mill.stage.store.partitions(sync.run_id).await.expect("the partitions are read");
    let feed = mill.stage.store.feed(sync.feed.clone()).await.expect("the feed is read");
    format!("{sync:?} {partitions:?} {:?}", feed.watermark)
}

/// While the sync runs, everything that was ever seen in the queues is sent again, at other places too.
pub(crate) async fn pages_come_twice_late_and_out_of_order(kind: Kind) {
    let (mut dice, mill) = (Dice::thrown(), mill(kind).await);
    let crew = Crew::of(&mill.syncs, &[Role::Scheduler]);
    let run = mill.queue(true).await;
    let sync = planned(&mill, &run).await;
    let offsets = Offsets::watch(&mill, &sync);
    let mut seen = peek(&mill, WORK_ITEMS).await;
    for message in &seen {
        again(&mill, message, 900, None).await;
        again(&mill, message, 901, None).await;
        // A place that is not reached yet, and one that no page begins at.
        again(&mill, message, 902, Some(30)).await;
        again(&mill, message, 903, Some(7)).await;
    }
    let mut crew = crew;
    for role in [Role::Worker, Role::Worker, Role::Consolidator, Role::Consolidator] {
        crew.start(role);
    }
    let mut generation = 1_000;
    loop {
        let now = mill.stage.store.sync(sync.run_id.to_string()).await.expect("the sync is read");
        if now.state == SyncState::Completed || now.state == SyncState::Failed {
            break;
        }
        seen.extend(peek(&mill, WORK_ITEMS).await);
        seen.extend(peek(&mill, WORK_DONE).await);
        seen.extend(peek(&mill, CONSOLIDATE).await);
        for _ in 0..5 {
            let place = usize::try_from(dice.below(seen.len() as u64)).unwrap_or(0);
            generation += 1;
            again(&mill, &seen[place].clone(), generation, None).await;
        }
        sleep(Duration::from_millis(5)).await;
    }
    let done = good(&mill, &run).await;
    assert_eq!(done.consolidation_processed, 2_000, "each stone is counted once");
    assert_eq!(stored(&mill, &done).await, 2_000, "each stone is stored once");
    mill.check_equal().await;
    for queue in [WORK_ITEMS, WORK_DONE, CONSOLIDATE] {
        drained(&mill, queue).await;
    }
    good(&mill, &run).await;
    offsets.check().await;
    crew.stop().await;
}

/// Two workers fetch the same page at the same time: one of them commits.
pub(crate) async fn one_page_comes_to_two_workers_at_once(kind: Kind) {
    let mill = mill(kind).await;
    let mut crew = Crew::of(&mill.syncs, &[Role::Scheduler]);
    let run = mill.queue(true).await;
    let sync = planned(&mill, &run).await;
    let offsets = Offsets::watch(&mill, &sync);
    for message in peek(&mill, WORK_ITEMS).await {
        again(&mill, &message, 900, None).await;
    }
    // Long enough that both are between guard and commit together.
    mill.supplier.handle.behave(|behaviour| behaviour.latency_ms = 300);
    for role in [Role::Worker, Role::Worker, Role::Consolidator] {
        crew.start(role);
    }
    until("one page is in two hands", || async {
        let messages = peek(&mill, WORK_ITEMS).await;
        let held: Vec<_> =
            messages.iter().filter(|message| message.state == MessageState::InFlight).collect();
        let ids: HashSet<_> = held.iter().map(|message| &message.message_id).collect();
        ids.len() < held.len()
    })
    .await;
    mill.supplier.handle.behave(|behaviour| behaviour.latency_ms = 3);
    let done = good(&mill, &run).await;
    assert_eq!((done.consolidation_processed, stored(&mill, &done).await), (2_000, 2_000));
    mill.check_equal().await;
    offsets.check().await;
    crew.stop().await;
}

pub(crate) async fn what_comes_after_the_end_changes_nothing(kind: Kind) {
    let mill = mill(kind).await;
    let mut crew = Crew::of(&mill.syncs, &[Role::Scheduler]);
    let run = mill.queue(true).await;
    let sync = planned(&mill, &run).await;
    let mut seen = peek(&mill, WORK_ITEMS).await;
    for role in [Role::Worker, Role::Consolidator] {
        crew.start(role);
    }
    let done = good(&mill, &run).await;
    let before = picture(&mill, &done).await;
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
            again(&mill, message, generation, None).await;
        }
    }
    for queue in [WORK_ITEMS, WORK_DONE, CONSOLIDATE] {
        drained(&mill, queue).await;
    }
    assert_eq!(picture(&mill, &done).await, before);
    check_marked_once(&mill, &done).await;
    mill.check_equal().await;
    crew.stop().await;
}

pub(crate) async fn what_comes_after_a_failure_changes_nothing(kind: Kind) {
    let mill = mill(kind).await;
    let mut crew = Crew::of(&mill.syncs, &[Role::Scheduler]);
    let run = mill.queue(true).await;
    let sync = planned(&mill, &run).await;
    let seen = peek(&mill, WORK_ITEMS).await;
    mill.supplier.handle.behave(|behaviour| behaviour.html = true);
    for role in [Role::Worker, Role::Consolidator] {
        crew.start(role);
    }
    assert_eq!(ended(&mill, &run).await.status, RunState::Failed);
    drained(&mill, WORK_ITEMS).await;
    mill.supplier.handle.behave(|behaviour| behaviour.html = false);
    let before = picture(&mill, &sync).await;
    for generation in 5..8 {
        for message in &seen {
            again(&mill, message, generation, None).await;
        }
    }
    drained(&mill, WORK_ITEMS).await;
    assert_eq!(picture(&mill, &sync).await, before);
    assert!(mill.rows("active").await.is_empty(), "nothing of a failed sync is in the table");
    // The same messages are about again while the sync is retried, and nothing doubles.
    let retried = mill.syncs.retry_sync(&sync.run_id.to_string(), false, None, "ann").await;
    let retried = retried.expect("it is retried").run_id;
    for message in &seen {
        again(&mill, message, 20, None).await;
    }
    let done = good(&mill, &retried).await;
    assert_eq!((done.run_id, done.consolidation_processed), (sync.run_id, 2_000));
    mill.check_equal().await;
    crew.stop().await;
}

/// Two orders to consolidate, carried out side by side.
pub(crate) async fn consolidation_is_ordered_twice(kind: Kind) {
    let mill = mill(kind).await;
    let mut crew = Crew::of(&mill.syncs, &[Role::Scheduler]);
    let run = mill.queue(true).await;
    let sync = planned(&mill, &run).await;
    read_all(&mill.syncs).await;
    mill.syncs.evaluate(sync.run_id).await.expect("it is evaluated");
    until("consolidation is triggered", || async { peek(&mill, CONSOLIDATE).await.len() == 1 }).await;
    let order = peek(&mill, CONSOLIDATE).await.remove(0);
    again(&mill, &order, order.generation + 1, None).await;
    again(&mill, &order, order.generation + 2, None).await;
    for _ in 0..3 {
        crew.start(Role::Consolidator);
    }
    let done = good(&mill, &run).await;
    assert_eq!(done.consolidation_processed, 2_000);
    drained(&mill, CONSOLIDATE).await;
    drained(&mill, WORK_DONE).await;
    good(&mill, &run).await;
    mill.check_equal().await;
    crew.stop().await;
}

/// Carries out every page that there is.
async fn read_all(syncs: &Syncs) {
    let stop = tokio::sync::watch::Sender::new(false);
    let name = tidemill_engine::Identity {
        name: "test-reader".to_owned(),
        host: "here".to_owned(),
        labels: Vec::new(),
    };
    let options = PagerOptions { once: true, ..PagerOptions::default() };
    syncs.work_pages(name, &options, stop.subscribe()).await.expect("the pages are carried out");
}
