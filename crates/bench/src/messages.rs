//! The message queue alone, every guarantee on, beside the barest claim and finish of as many rows.

use crate::Plan;
use crate::floor;
use crate::ground::{Ground, open};
use crate::report::{Line, Pairs, Report, median, percentile, say};
use crate::sync::plain;
use anyhow::{Context as _, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tidemill_core::WorkerId;
use tidemill_core::queue::{NewMessage, QueueSettings, WORK_ITEMS};
use tidemill_engine::Engine;
use tidemill_store::{Pooler, Queue as _, Receive};
use tokio::sync::Notify;

/// Messages in one call, and callers.
const BATCH: usize = 100;
const CALLERS: u32 = 4;
/// Messages that wait when a measurement begins, at the least; more are sent for fast machines.
const WAITING: usize = 200_000;

/// Measures batches of one feed's messages.
pub(crate) async fn batches(ground: &Ground, plan: &Plan, report: &mut Report) -> Result<()> {
    say("receive and complete in batches of 100");
    let mut pairs = Pairs::default();
    for _ in 0..plan.pairs {
        let bare = ground.bare()?;
        let floor = floor::BATCH.rate(&bare, CALLERS, plan.time())?;
        let database = ground.fresh().await?;
        let engine = open(&database.url, CALLERS, Pooler::Session).await?;
        fill(&engine, WAITING).await?;
        let ours = drain(&engine, BATCH, plan).await?;
        engine.store().close().await;
        pairs.add(floor, ours);
    }
    report.add(pairs.line(format!("messages in batches of {BATCH}, {CALLERS} callers"), 50.0, None));
    Ok(())
}

/// Sizes of batches, and whether the queue remembers what was completed; what it is made with comes first.
const CASES: [(usize, bool); 4] = [(BATCH, true), (10, true), (1_000, true), (BATCH, false)];

/// Measures the settings of the queue as they are made beside one that remembers nothing, with batches of several
/// sizes.
pub(crate) async fn sizes(ground: &Ground, plan: &Plan, report: &mut Report) -> Result<()> {
    say("receive and complete in batches of other sizes, and without a memory for duplicates");
    let mut rates: [Vec<f64>; CASES.len()] = std::array::from_fn(|_| Vec::new());
    for _ in 0..plan.pairs {
        for ((batch, remembers), rates) in CASES.into_iter().zip(&mut rates) {
            let database = ground.fresh().await?;
            let engine = open(&database.url, CALLERS, Pooler::Session).await?;
            if !remembers {
                let queues = engine.store().queues().await?;
                let usual = queues.into_iter().find(|queue| queue.queue == WORK_ITEMS);
                let usual = usual.context("the queue of pages exists")?;
                engine.store().set_queue(QueueSettings { window_secs: None, ..usual }).await?;
            }
            fill(&engine, WAITING).await?;
            rates.push(drain(&engine, batch, plan).await?);
            engine.store().close().await;
        }
    }
    let usual = median(&rates[0]);
    let mut best = usual;
    for ((batch, remembers), rates) in CASES.into_iter().zip(&rates).skip(1) {
        best = best.max(median(rates));
        let memory = if remembers { "" } else { ", nothing remembered" };
        report.add(Line {
            what: format!("messages in batches of {batch}{memory}"),
            floor: format!("{usual:.0}/s in batches of {BATCH}"),
            ours: format!("{:.0}/s", median(rates)),
            figure: format!("{:.2} ×", median(rates) / usual),
            ..Line::default()
        });
    }
    let what = "the queue as it is made, batches of 100, beside the best";
    report.add(plain(what, usual / best, "≥ 0.75", |value| value >= 0.75));
    Ok(())
}

/// Measures the time from the call that sends a message to the answer that brings it to a receiver that waits in the
/// same process: the sender rings, as the roles of a sync do.
pub(crate) async fn send_to_receive(ground: &Ground, plan: &Plan, report: &mut Report) -> Result<()> {
    let count = if plan.quick { 200 } else { 2_000 };
    let database = ground.fresh().await?;
    let engine = open(&database.url, CALLERS, Pooler::Session).await?;
    let (store, bell) = (engine.store().clone(), Arc::new(Notify::new()));
    let (sender, rung) = (store.clone(), bell.clone());
    let (tell, mut told) = tokio::sync::mpsc::channel::<Instant>(1);
    let (answer, mut answered) = tokio::sync::mpsc::channel::<()>(1);
    let sending = tokio::spawn(async move {
        for number in 0..count {
            let body = serde_json::json!({"type": "WORK_ITEM", "offset": number, "limit": 30});
            let message = NewMessage::new(WORK_ITEMS, format!("run:partition-1:{number}"), "feed", body);
            let began = Instant::now();
            sender.send(vec![message], None).await?;
            rung.notify_one();
            // The next one goes out when this one has come: a bell that is rung twice is heard once.
            if tell.send(began).await.is_err() || answered.recv().await.is_none() {
                break;
            }
        }
        Ok::<_, tidemill_store::Error>(())
    });
    let worker = WorkerId(uuid::Uuid::new_v4());
    let mut times = Vec::new();
    for _ in 0..count {
        bell.notified().await;
        let delivery = store.receive(Receive::new(WORK_ITEMS, worker, 1), None).await?;
        let came = Instant::now();
        let began = told.recv().await.context("the sender has sent")?;
        times.push(came.duration_since(began).as_secs_f64() * 1e3);
        store.complete(delivery.received.into_iter().map(|one| one.receipt).collect(), None).await?;
        answer.send(()).await?;
    }
    sending.await??;
    engine.store().close().await;
    say(&format!("  send to receive: p99 {:.1} ms", percentile(&times, 99)));
    report.add(plain("send to receive in one process, p50 in ms", median(&times), "≤ 3", |value| {
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

/// Receives and completes for as long as a side lasts; messages per second.
async fn drain(engine: &Engine, batch: usize, plan: &Plan) -> Result<f64> {
    let done = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..CALLERS {
        let (store, done, time) = (engine.store().clone(), done.clone(), plan.time());
        tasks.spawn(async move {
            let worker = WorkerId(uuid::Uuid::new_v4());
            while began.elapsed() < time {
                let delivery = store.receive(Receive::new(WORK_ITEMS, worker, batch), None).await?;
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
    Ok(count / began.elapsed().as_secs_f64())
}
