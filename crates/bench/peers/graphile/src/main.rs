//! Graphile Worker for Rust: jobs are fetched 500 at a time by several local queues, and completed in batches.

use anyhow::Result;
use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, Worker, WorkerContext,
    WorkerOptions,
};
use peer_driver::{Peer, payload};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[derive(Deserialize, Serialize)]
struct Noop {
    payload: String,
}

#[derive(Clone, Debug)]
struct Done(Arc<AtomicU64>);

impl TaskHandler for Noop {
    const IDENTIFIER: &'static str = "noop";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        if let Some(done) = context.get_ext::<Done>() {
            done.0.fetch_add(1, Ordering::Relaxed);
        }
        Ok::<(), String>(())
    }
}

#[derive(Clone)]
struct Graphile {
    url: String,
    worker: Arc<Worker>,
}

async fn worker(url: &str, done: Arc<AtomicU64>) -> Result<Worker> {
    let options = WorkerOptions::default()
        .database_url(url)
        .max_pg_conn(20)
        .schema("graphile_worker")
        .concurrency(64)
        .poll_interval(Duration::from_millis(100))
        .local_queue(LocalQueueConfig::default().with_size(500).with_queue_count(4))
        .complete_job_batch_delay(Duration::from_millis(2))
        .listen_os_shutdown_signals(false)
        .add_extension(Done(done))
        .define_job::<Noop>();
    Ok(options.init().await?)
}

impl Peer for Graphile {
    const DRAIN_RATE_MAX: usize = 70_000;

    async fn open(url: &str) -> Result<Self> {
        Ok(Self { url: url.to_owned(), worker: Arc::new(worker(url, Arc::default()).await?) })
    }

    async fn insert(&self) -> Result<()> {
        self.worker.create_utils().add_job(Noop { payload: payload() }, JobSpec::default()).await?;
        Ok(())
    }

    async fn insert_many(&self, count: usize) -> Result<()> {
        let payload = serde_json::to_value(Noop { payload: payload() })?;
        let jobs: Vec<RawJobSpec> = (0..count)
            .map(|_| RawJobSpec {
                identifier: Noop::IDENTIFIER.to_owned(),
                payload: payload.clone(),
                spec: JobSpec::default(),
            })
            .collect();
        self.worker.create_utils().add_raw_jobs(&jobs).await?;
        Ok(())
    }

    async fn work(&self, done: Arc<AtomicU64>) -> Result<()> {
        worker(&self.url, done).await?.run().await?;
        Ok(())
    }
}

fn main() -> Result<()> {
    peer_driver::main::<Graphile>()
}
