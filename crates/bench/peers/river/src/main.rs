//! River for Rust: many workers, the shortest time between fetches, and no notifications.

use anyhow::Result;
use peer_driver::{Peer, payload};
use riverqueue::migrate::PostgresMigrator;
use riverqueue::sqlx::PgPool;
use riverqueue::sqlx::postgres::PgPoolOptions;
use riverqueue::{BoxError, Client, Job, JobArgs, QueueConfig, WorkContext, WorkOutcome, Workers};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The counter of the only worker of this process.
static DONE: OnceLock<Arc<AtomicU64>> = OnceLock::new();

#[derive(Clone, Debug, Deserialize, JobArgs, Serialize)]
#[river(kind = "noop")]
struct Noop {
    payload: String,
}

async fn noop(_context: WorkContext, _job: Job<Noop>) -> Result<WorkOutcome, BoxError> {
    if let Some(done) = DONE.get() {
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(WorkOutcome::Complete)
}

#[derive(Clone)]
struct River {
    pool: PgPool,
    client: Client,
}

impl Peer for River {
    const DRAIN_RATE_MAX: usize = 35_000;

    async fn open(url: &str) -> Result<Self> {
        let pool = PgPoolOptions::new().max_connections(20).connect(url).await?;
        PostgresMigrator::new(pool.clone()).migrate_up().await?;
        let client = Client::builder(pool.clone()).without_notifications().build()?;
        Ok(Self { pool, client })
    }

    async fn insert(&self) -> Result<()> {
        self.client.insert(Noop { payload: payload() }).await?;
        Ok(())
    }

    async fn insert_many(&self, count: usize) -> Result<()> {
        self.client.insert_many((0..count).map(|_| Noop { payload: payload() })).await?;
        Ok(())
    }

    async fn work(&self, done: Arc<AtomicU64>) -> Result<()> {
        let _ = DONE.set(done);
        let mut workers = Workers::new();
        workers.add_fn(noop)?;
        let shortest = Duration::from_millis(1);
        let queue = QueueConfig::new(2_000).with_fetch_cooldown(shortest).with_fetch_poll_interval(shortest);
        let client = Client::builder(self.pool.clone())
            .without_notifications()
            .workers(workers)
            .queue("default", queue)
            .build()?;
        let _run = client.start()?;
        std::future::pending().await
    }
}

fn main() -> Result<()> {
    peer_driver::main::<River>()
}
