//! Catches panics, so that a bug of the agent affects only the task in which it happens.
//!
//! Endless loops, and work that others wait for, run through this module. Panic messages are truncated, because they
//! are logged and reported.

use crate::backoff::Backoff;
use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tracing::error;

/// Maximum length of a panic message.
const MESSAGE_CHARS_MAX: usize = 500;
/// Longest delay before a panicked loop is restarted.
const RESTART_DELAY_MAX: Duration = Duration::from_secs(5);

/// Message of a caught panic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("internal error of the agent (panic): {0}")]
pub(crate) struct PanicError(String);

impl PanicError {
    fn new(cause: &(dyn Any + Send)) -> Self {
        let plain = cause.downcast_ref::<&'static str>().copied();
        let message = plain.or_else(|| cause.downcast_ref::<String>().map(String::as_str));
        Self(message.unwrap_or("no message").chars().take(MESSAGE_CHARS_MAX).collect())
    }
}

/// Calls a function and catches a panic.
///
/// This is unwind-safe: shared state is on disk, where each step determines the progress again, or behind locks that
/// hold complete values.
pub(crate) fn catch<T>(function: impl FnOnce() -> T) -> Result<T, PanicError> {
    catch_unwind(AssertUnwindSafe(function)).map_err(|cause| PanicError::new(cause.as_ref()))
}

/// Like [`catch`], for a future.
pub(crate) async fn catch_async<F: Future>(future: F) -> Result<F::Output, PanicError> {
    let mut future = pin!(future);
    poll_fn(|context| match catch(|| future.as_mut().poll(context)) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
        Err(error) => Poll::Ready(Err(error)),
    })
    .await
}

/// Runs a loop until it ends by itself; restarts it after a panic.
pub(crate) async fn restart_on_panic<F: Future<Output = ()>>(name: &'static str, start: impl Fn() -> F) {
    let mut backoff = Backoff::up_to(RESTART_DELAY_MAX);
    while let Err(error) = catch_async(start()).await {
        let wait = backoff.next();
        error!("{name} panicked, restarting in {} ms: {error}", wait.as_millis());
        tokio::time::sleep(wait).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test]
    async fn panic_message_is_returned_and_truncated() {
        let error = catch_async(async { panic!("a test panic") }).await.unwrap_err();
        assert_eq!(error.to_string(), "internal error of the agent (panic): a test panic");
        let late = catch_async(async {
            tokio::task::yield_now().await;
            panic!("{}", "x".repeat(MESSAGE_CHARS_MAX * 2))
        });
        assert_eq!(late.await.unwrap_err(), PanicError("x".repeat(MESSAGE_CHARS_MAX)));
        let silent = catch(|| std::panic::panic_any(7));
        assert_eq!(silent.unwrap_err(), PanicError("no message".to_owned()));
        assert_eq!(catch_async(async { 7 }).await, Ok(7));
    }

    #[tokio::test]
    async fn panicked_loop_is_restarted() {
        let starts = AtomicU32::new(0);
        restart_on_panic("a test", || async {
            assert!(starts.fetch_add(1, Ordering::Relaxed) >= 3, "not yet");
        })
        .await;
        assert_eq!(starts.load(Ordering::Relaxed), 4);
    }
}
