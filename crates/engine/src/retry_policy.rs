//! Retries of transient errors, with the same id on each attempt.
//!
//! Every operation is idempotent. A queue call carries the id of the new run, a claim its request id, an event its key,
//! and a finish is recognised by its holder. If the answer to a commit is lost, the repeated call returns the recorded
//! result, and nothing is done twice.

pub use tidemill_store::chain;

use std::future::Future;
use std::time::Duration;
use tidemill_store::{Class, Error};
use tokio::time::Instant;

/// How long transient errors are retried.
#[derive(Debug, Clone, Copy)]
pub enum RetryPolicy {
    /// No retries: the first error is returned.
    None,
    /// Until this much time has passed.
    For(Duration),
    /// Until the call succeeds or fails with a permanent error.
    Endless,
}

const WAIT_FIRST: Duration = Duration::from_millis(50);
const WAIT_MAX: Duration = Duration::from_secs(3);

/// An error that can be transient.
pub trait RetryableError: std::error::Error {
    /// Whether a retry may succeed.
    fn is_retryable(&self) -> bool;
}

impl RetryableError for Error {
    fn is_retryable(&self) -> bool {
        self.class() == Class::Transient
    }
}

impl RetryPolicy {
    /// Repeats `call` until it succeeds, fails with a permanent error, or the time is over.
    pub async fn retry<T, E, F>(self, what: &'static str, call: impl Fn() -> F) -> Result<T, E>
    where
        E: RetryableError,
        F: Future<Output = Result<T, E>>,
    {
        let began = Instant::now();
        let mut wait = WAIT_FIRST;
        loop {
            let error = match call().await {
                Err(error) if error.is_retryable() => error,
                answer => return answer,
            };
            let is_over = match self {
                Self::None => true,
                Self::For(longest) => began.elapsed() + wait > longest,
                Self::Endless => false,
            };
            if is_over {
                return Err(error);
            }
            tracing::warn!("could not {what}, retrying in {} ms: {}", wait.as_millis(), chain(&error));
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(WAIT_MAX);
        }
    }
}
