//! Long-polls the server for tasks, with one request at a time.

use crate::backoff::Backoff;
use crate::executor::Executor;
use crate::run::Agent;
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

/// Time that the server may delay its response until there is a task.
const WAIT_SECS: u16 = 30;
/// Minimum time between two polls without a new task.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(200);

/// Polls until the agent is superseded.
pub(crate) async fn poll<E: Executor>(agent: Arc<Agent<E>>) {
    let mut backoff = Backoff::new();
    // The first poll returns immediately, so that the waiting tasks are known.
    let mut wait_secs = 0;
    loop {
        let asked = tokio::time::Instant::now();
        match agent.server.poll(agent.held_ids(), wait_secs).await {
            Ok(orders) => {
                backoff.reset();
                let mut is_new = false;
                for raw in &orders {
                    match agent.accept(raw) {
                        Ok(is_accepted) => is_new |= is_accepted,
                        Err(error) => {
                            warn!("could not store an order, the server will send it again: {error}");
                        }
                    }
                }
                agent.polled.send_replace(true);
                if !is_new && asked.elapsed() < POLL_INTERVAL_MIN {
                    tokio::time::sleep(POLL_INTERVAL_MIN).await;
                }
                wait_secs = WAIT_SECS;
            }
            Err(error) => {
                if agent.end_if_superseded(&error) {
                    return;
                }
                wait_secs = 0;
                agent.wait(&mut backoff).await;
            }
        }
    }
}
