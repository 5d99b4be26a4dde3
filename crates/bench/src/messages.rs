//! The message queue with all guarantees, compared with a minimal claim and finish of as many rows.

use crate::Plan;
use crate::bench_cluster::{BenchCluster, open};
use crate::floor;
use crate::report::{Line, Pairs, Report, log, median, percentile};
use crate::sync::ratio_line;
use anyhow::{Context as _, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tidemill_core::WorkerId;
use tidemill_core::queue::{NewMessage, QueueSettings, WORK_ITEMS};
use tidemill_engine::Engine;
use tidemill_store::{Pooler, Queue as _, ReceiveRequest};
use tokio::sync::Notify;

/// Messages per call, and concurrent callers.
const BATCH: usize = 100;
const CALLERS: u32 = 4;
/// Messages in the queue at the start of a measurement.
const WAITING: usize = 200_000;

/// Measures batches of the messages of one feed.
pub(crate) async fn batches(cluster: &BenchCluster, plan: &Plan, report: &mut Report) -> Result<()> {
    log("receive and complete in batches of 100");
    let mut pairs = Pairs::default();
    for _ in 0..plan.pairs {
        let floor = 100.0 * floor::BATCH.rate(cluster, CALLERS, plan.time())?;
        let database = cluster.migrated_database().await?;
        let engine = open(&database.url, CALLERS, Pooler::Session).await?;
        fill(&engine, WAITING).await?;
        let ours = consume(&engine, BATCH, plan).await?;
        engine.store().close().await;
        pairs.add(floor, ours);
    }
    report.add(pairs.line(format!("messages in batches of {BATCH}, {CALLERS} callers"), 50.0, None));
    Ok(())
}

/// Batch sizes, and whether the queue detects duplicates. The defaults come first.
const CASES: [(usize, bool); 4] = [(BATCH, true), (10, true), (1_000, true), (BATCH, false)];

/// Compares batch sizes, and a queue without duplicate detection, with the defaults.
pub(crate) async fn sizes(cluster: &BenchCluster, plan: &Plan, report: &mut Report) -> Result<()> {
    log("receive and complete in batches of other sizes, and without duplicate detection");
    let mut rates: [Vec<f64>; CASES.len()] = std::array::from_fn(|_| Vec::new());
    for _ in 0..plan.pairs {
        for ((batch, detects_duplicates), rates) in CASES.into_iter().zip(&mut rates) {
            let database = cluster.migrated_database().await?;
            let engine = open(&database.url, CALLERS, Pooler::Session).await?;
            if !detects_duplicates {
                let queues = engine.store().queues().await?;
                let default = queues.into_iter().find(|queue| queue.queue == WORK_ITEMS);
                let default = default.context("the queue exists")?;
                engine.store().set_queue(QueueSettings { window_secs: None, ..default }).await?;
            }
            fill(&engine, WAITING).await?;
            rates.push(consume(&engine, batch, plan).await?);
            engine.store().close().await;
        }
    }
    let default = median(&rates[0]);
    let mut best = default;
    for ((batch, detects_duplicates), rates) in CASES.into_iter().zip(&rates).skip(1) {
        best = best.max(median(rates));
        let suffix = if detects_duplicates { "" } else { ", without duplicate detection" };
        report.add(Line {
            what: format!("messages in batches of {batch}{suffix}"),
            floor: format!("{default:.0}/s in batches of {BATCH}"),
            ours: format!("{:.0}/s", median(rates)),
            figure: format!("{:.2} ×", median(rates) / default),
            ..Line::default()
        });
    }
    let what = "the default queue, batches of 100, compared with the best";
    report.add(ratio_line(what, default / best, "≥ 0.75", |value| value >= 0.75));
    Ok(())
}

/// Measures the time from the send of a message to its receipt by a waiting receiver in the same process.
///
/// The sender notifies the receiver, as the roles of a sync do.
pub(crate) async fn send_to_receive(cluster: &BenchCluster, plan: &Plan, report: &mut Report) -> Result<()> {
    let count = if plan.quick { 200 } else { 2_000 };
    let database = cluster.migrated_database().await?;
    let engine = open(&database.url, CALLERS, Pooler::Session).await?;
    let (store, wake) = (engine.store().clone(), Arc::new(Notify::new()));
    let (sender, waker) = (store.clone(), wake.clone());
    let (start_sender, mut starts) = tokio::sync::mpsc::channel::<Instant>(1);
    let (ack_sender, mut acks) = tokio::sync::mpsc::channel::<()>(1);
    let sending = tokio::spawn(async move {
        for number in 0..count {
            let body = serde_json::json!({"type": "WORK_ITEM", "offset": number, "limit": 30});
            let message = NewMessage::new(WORK_ITEMS, format!("run:partition-1:{number}"), "feed", body);
            let started = Instant::now();
            sender.send(vec![message], None).await?;
            waker.notify_one();
            // Waits for the receipt, because two notifications in a row wake the receiver once.
            if start_sender.send(started).await.is_err() || acks.recv().await.is_none() {
                break;
            }
        }
        Ok::<_, tidemill_store::Error>(())
    });
    let worker = WorkerId(uuid::Uuid::new_v4());
    let mut times = Vec::new();
    for _ in 0..count {
        wake.notified().await;
        let delivery = store.receive(ReceiveRequest::new(WORK_ITEMS, worker, 1), None).await?;
        let received_at = Instant::now();
        let started = starts.recv().await.context("the sender has sent")?;
        times.push(received_at.duration_since(started).as_secs_f64() * 1e3);
        store.complete(delivery.received.into_iter().map(|message| message.receipt).collect(), None).await?;
        ack_sender.send(()).await?;
    }
    sending.await??;
    engine.store().close().await;
    log(&format!("  send to receive: p99 {:.1} ms", percentile(&times, 99)));
    report.add(ratio_line("send to receive in one process, p50 in ms", median(&times), "≤ 3", |value| {
        value <= 3.0
    }));
    Ok(())
}

async fn fill(engine: &Engine, count: usize) -> Result<()> {
    for first in (0..count).step_by(1_000) {
        let messages = (first..first + 1_000).map(|number| {
            let body = serde_json::json!({"type": "WORK_ITEM", "offset": number, "limit": 30});
            NewMessage::new(WORK_ITEMS, format!("run:partition-1:{number}"), "feed", body)
        });
        engine.store().send(messages.collect(), None).await?;
    }
    Ok(())
}

/// Receives and completes messages, and returns messages per second.
async fn consume(engine: &Engine, batch: usize, plan: &Plan) -> Result<f64> {
    let done = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..CALLERS {
        let (store, done, time) = (engine.store().clone(), done.clone(), plan.time());
        tasks.spawn(async move {
            let worker = WorkerId(uuid::Uuid::new_v4());
            while started.elapsed() < time {
                let delivery = store.receive(ReceiveRequest::new(WORK_ITEMS, worker, batch), None).await?;
                let receipts: Vec<_> = delivery.received.into_iter().map(|message| message.receipt).collect();
                if receipts.is_empty() {
                    break;
                }
                done.fetch_add(receipts.len() as u64, Ordering::Relaxed);
                store.complete(receipts, None).await?;
            }
            Ok::<_, tidemill_store::Error>(())
        });
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let count = done.load(Ordering::Relaxed) as f64;
    Ok(count / started.elapsed().as_secs_f64())
}
