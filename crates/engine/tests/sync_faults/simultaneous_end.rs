//! Two last partitions that end at the same instant: exactly one consolidation follows.

use std::sync::Arc;
use std::time::Duration;

use tidemill_core::queue::CONSOLIDATE;
use tidemill_core::records::{Partition, Sync};
use tidemill_core::sync::{ConsolidationDecision, SyncState};
use tidemill_engine::clock::{Clock, host_now};
use tidemill_engine::sync::Syncs;
use tidemill_engine::{Engine, Identity, RetryPolicy};
use tidemill_store::{Options, PartitionPosition, Queue as _, Store};
use tidemill_testkit::interface::Kind;
use tidemill_testkit::proxy::{Fault, Proxy};
use tidemill_testkit::sync_fixture::{SyncFixture, quick, syncs};
use tokio::sync::{Barrier, watch};

use crate::fixture::{Subject, open, settings, slow};

/// Rounds of the race.
const ROUNDS: usize = 12;

/// Plans a sync with two received partitions, without workers.
async fn two_partitions(fixture: &SyncFixture) -> (Sync, Vec<Partition>) {
    let run = fixture.queue(true).await;
    let name = Identity { name: "test-scheduler".to_owned(), host: "here".to_owned(), labels: Vec::new() };
    let stop = watch::Sender::new(false);
    fixture.syncs.schedule(name, true, stop.subscribe()).await.expect("the sync is planned");
    let sync = fixture.record(&run).await;
    let partitions = fixture.base.store.partitions(sync.run_id).await.expect("the partitions are read");
    assert_eq!((sync.state, partitions.len()), (SyncState::Created, 2));
    take(&fixture.base.store, partitions.clone()).await;
    (sync, partitions)
}

/// Receives partitions, like workers with their first pages.
async fn take(store: &Store, partitions: Vec<Partition>) {
    let taken = store
        .write(move |mut tx| {
            let partitions = partitions.clone();
            Box::pin(async move {
                let (from, to) = (SyncState::Created, SyncState::WorkersRunning);
                tx.move_sync(partitions[0].run_id, from, to, None, None).await?;
                for partition in &partitions {
                    tx.receive_partition(partition.run_id, &partition.partition_id, None).await?;
                }
                Ok(())
            })
        })
        .await;
    taken.expect("the partitions are received");
}

async fn fixture(subject: impl Into<Subject>) -> SyncFixture {
    let mut settings = settings();
    settings.partitions_full = 2;
    open(subject, slow(400, 0), settings).await
}

/// Ends a partition, like a worker after its last page.
async fn end(store: &Store, partition: Partition) {
    let ended = store
        .write(move |mut tx| {
            Box::pin(async move {
                let place = PartitionPosition {
                    run_id: partition.run_id,
                    partition: &partition.partition_id,
                    offset: partition.next_offset,
                    pass: partition.pass,
                };
                tx.end_partition(place, None, None, None).await
            })
        })
        .await;
    assert!(ended.expect("the partition ends"), "the partition was elsewhere");
}

/// Returns the number of consolidation messages.
async fn orders(fixture: &SyncFixture) -> usize {
    fixture.base.store.peek(CONSOLIDATE.to_owned(), 100, None).await.expect("the queue is read").len()
}

pub(crate) async fn simultaneous_last_partitions_trigger_one_consolidation(subject: impl Into<Subject>) {
    let fixture = fixture(subject).await;
    for round in 1..=ROUNDS {
        let (sync, partitions) = two_partitions(&fixture).await;
        let before = orders(&fixture).await;
        let barrier = Arc::new(Barrier::new(2));
        let mut tasks = Vec::new();
        for (number, partition) in partitions.into_iter().enumerate() {
            let (store, barrier) = (fixture.base.store.clone(), barrier.clone());
            let syncs = fixture.syncs.clone();
            tasks.push(tokio::spawn(async move {
                // In half of the rounds both have ended before either counts, in the other half neither waits.
                barrier.wait().await;
                end(&store, partition).await;
                if round % 2 == 0 {
                    barrier.wait().await;
                }
                (number, syncs.evaluate(sync.run_id).await.expect("it is evaluated"))
            }));
        }
        let mut verdicts = Vec::new();
        for task in tasks {
            verdicts.push(task.await.expect("a partition ends").1);
        }
        let triggers = verdicts.iter().filter(|verdict| **verdict == ConsolidationDecision::Trigger).count();
        assert_eq!(triggers, 1, "round {round}: {verdicts:?}");
        assert_eq!(orders(&fixture).await - before, 1, "round {round}");
        let now = fixture.base.store.sync(sync.run_id.to_string()).await.expect("the sync is read");
        assert_eq!((now.state, now.completed_workers), (SyncState::ConsolidationTriggered, 2));
        fixture.syncs.cancel_sync(&sync.run_id.to_string(), "ann", None).await.expect("it is cancelled");
    }
}

/// The first has counted and is about to write its count when the second ends: the second must wait for it, or the
/// count would be stale. A build that counts without the lock fails here.
pub(crate) async fn second_last_partition_counts_the_first() {
    let fixture = Box::pin(fixture(Kind::Postgres)).await;
    let (sync, partitions) = two_partitions(&fixture).await;
    let [first, second] = <[Partition; 2]>::try_from(partitions).expect("there are two");
    let proxy = Proxy::in_front_of(&fixture.base.url).await.expect("the proxy starts");
    let database = fixture.base.url.rsplit('/').next().expect("the address names a database");
    let slow = Store::open(&Options::new(proxy.url(database), host_now)).await.expect("the store opens");
    let slow = Syncs::new(Engine::new(slow, Clock::Database, RetryPolicy::None), quick());
    let id = sync.run_id;
    end(&fixture.base.store, first).await;
    let held = proxy.arm(Fault::stall("SET completed_workers"));
    let counting = tokio::spawn(async move { slow.evaluate(id).await.expect("it is evaluated") });
    held.wait_fired(1).await;
    end(&fixture.base.store, second).await;
    let quick = syncs(&fixture.base, quick());
    let mut asking = tokio::spawn(async move { quick.evaluate(id).await.expect("it is evaluated") });
    let early = tokio::time::timeout(Duration::from_millis(700), &mut asking).await;
    held.release();
    let first = counting.await.expect("the first is evaluated");
    let second = match early {
        Ok(verdict) => verdict.expect("the second is evaluated"),
        Err(_) => asking.await.expect("the second is evaluated"),
    };
    assert_eq!((first, second), (ConsolidationDecision::Wait, ConsolidationDecision::Trigger));
    let now = fixture.base.store.sync(id.to_string()).await.expect("the sync is read");
    assert_eq!((now.state, now.completed_workers), (SyncState::ConsolidationTriggered, 2), "{now:?}");
    assert_eq!(orders(&fixture).await, 1);
}
