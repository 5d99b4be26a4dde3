//! Awa: many workers, several claimers, and COPY for batches.

use anyhow::Result;
use awa::{Client, InsertOpts, JobArgs, JobResult, QueueConfig};
use peer_driver::{Peer, payload};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[derive(Debug, Serialize, Deserialize, JobArgs)]
struct Noop {
    payload: String,
}

#[derive(Clone)]
struct Awa {
    pool: PgPool,
}

impl Peer for Awa {
    const DRAIN_RATE_MAX: usize = 25_000;

    async fn open(url: &str) -> Result<Self> {
        let pool = PgPoolOptions::new().max_connections(20).connect(url).await?;
        awa::migrations::run(&pool).await?;
        Ok(Self { pool })
    }

    async fn insert(&self) -> Result<()> {
        awa::insert_with(&self.pool, &Noop { payload: payload() }, InsertOpts::default()).await?;
        Ok(())
    }

    async fn insert_many(&self, count: usize) -> Result<()> {
        let job = awa::model::insert::params(&Noop { payload: payload() })?;
        awa::insert_many_copy_from_pool(&self.pool, &vec![job; count]).await?;
        Ok(())
    }

    async fn work(&self, done: Arc<AtomicU64>) -> Result<()> {
        let queue = QueueConfig {
            max_workers: 1_024,
            poll_interval: Duration::from_millis(10),
            claimers: 2,
            ..QueueConfig::default()
        };
        let client = Client::builder(self.pool.clone())
            .queue("default", queue)
            .register::<Noop, _, _>(move |_job, _context| {
                let done = done.clone();
                async move {
                    done.fetch_add(1, Ordering::Relaxed);
                    Ok(JobResult::Completed)
                }
            })
            .build()?;
        client.start().await?;
        std::future::pending().await
    }
}

fn main() -> Result<()> {
    peer_driver::main::<Awa>()
}
