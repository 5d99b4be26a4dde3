//! The message queue alone, every guarantee on, beside the barest claim and finish of as many rows.

use crate::Plan;
use crate::floor;
use crate::ground::{Ground, open};
use crate::report::{Pairs, Report, say};
use anyhow::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tidemill_core::WorkerId;
use tidemill_core::queue::{NewMessage, WORK_ITEMS};
use tidemill_engine::Engine;
use tidemill_store::{Pooler, Queue as _, Receive};

/// Messages in one call, and callers.
const BATCH: usize = 100;
const CALLERS: u32 = 4;
/// Messages that wait when a measurement begins, at the least; more are sent for fast machines.
const WAITING: usize = 200_000;

/// Measures batches of one feed's messages.
pub(crate) async fn all(ground: &Ground, plan: &Plan, report: &mut Report) -> Result<()> {
    say("receive and complete in batches of 100");
    let mut pairs = Pairs::default();
    for _ in 0..plan.pairs {
        let bare = ground.bare()?;
        let floor = floor::BATCH.rate(&bare, CALLERS, plan)?;
        let database = ground.fresh().await?;
        let engine = open(&database.url, CALLERS, Pooler::Session).await?;
        fill(&engine, WAITING).await?;
        let ours = drain(&engine, plan).await?;
        engine.store().close().await;
        pairs.add(floor, ours);
    }
    report.add(pairs.line(format!("messages in batches of {BATCH}, {CALLERS} callers"), 50.0, None));
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
async fn drain(engine: &Engine, plan: &Plan) -> Result<f64> {
    let done = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..CALLERS {
        let (store, done, time) = (engine.store().clone(), done.clone(), plan.time);
        tasks.spawn(async move {
            let worker = WorkerId(uuid::Uuid::new_v4());
            while began.elapsed() < time {
                let delivery = store.receive(Receive::new(WORK_ITEMS, worker, BATCH), None).await?;
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
