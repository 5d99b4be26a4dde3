//! Asks for tasks, one question at a time.

use crate::executor::Executor;
use crate::run::Agent;
use crate::wait::Backoff;
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

/// How long the server may hold a question back.
const WAIT_SECS: u16 = 30;
/// What an answer that came at once and brought nothing new costs.
const PAUSE: Duration = Duration::from_millis(200);

/// Polls for ever.
pub(crate) async fn poll<E: Executor>(agent: Arc<Agent<E>>) {
    let mut backoff = Backoff::new();
    // The first question is not held back: what waits for us is known then.
    let mut wait_secs = 0;
    loop {
        let asked = tokio::time::Instant::now();
        match agent.door.poll(agent.have(), wait_secs).await {
            Ok(orders) => {
                backoff.reset();
                let mut is_new = false;
                for raw in &orders {
                    match agent.take(raw) {
                        Ok(is_taken) => is_new |= is_taken,
                        Err(error) => warn!("an order could not be kept, it will come again: {error}"),
                    }
                }
                agent.polled.send_replace(true);
                if !is_new && asked.elapsed() < PAUSE {
                    tokio::time::sleep(PAUSE).await;
                }
                wait_secs = WAIT_SECS;
            }
            Err(trouble) => {
                if agent.heed(&trouble) {
                    return;
                }
                wait_secs = 0;
                agent.wait(&mut backoff).await;
            }
        }
    }
}
