//! Panics: a fault of our own, which must cost no more than what it happened in.
//!
//! Whoever would never end, or is waited for by others, is run in here. What it says is for the log and for people,
//! so it is cut short.

use crate::wait::Backoff;
use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tracing::error;

/// Characters that are told of a panic.
const WORDS_MAX: usize = 500;
/// How long a loop that broke off waits at most before it begins again.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// What somebody said who broke off.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a fault in the agent itself: {0}")]
pub(crate) struct Panicked(String);

impl Panicked {
    fn new(cause: &(dyn Any + Send)) -> Self {
        let plain = cause.downcast_ref::<&'static str>().copied();
        let words = plain.or_else(|| cause.downcast_ref::<String>().map(String::as_str));
        Self(words.unwrap_or("it says nothing").chars().take(WORDS_MAX).collect())
    }
}

/// Calls a function; what it said, if it broke off.
///
/// What it was changing may be half done: it lives on the disk, where every step finds out anew how far it is, or
/// behind locks that hold whole values.
pub(crate) fn call<T>(function: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(function)).map_err(|cause| Panicked::new(cause.as_ref()))
}

/// The same for what takes its time.
pub(crate) async fn caught<F: Future>(future: F) -> Result<F::Output, Panicked> {
    let mut future = pin!(future);
    poll_fn(|context| match call(|| future.as_mut().poll(context)) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
        Err(panicked) => Poll::Ready(Err(panicked)),
    })
    .await
}

/// Runs a loop until it ends by itself; one that breaks off begins again.
pub(crate) async fn keep_on<F: Future<Output = ()>>(what: &'static str, begin: impl Fn() -> F) {
    let mut backoff = Backoff::up_to(PAUSE_MAX);
    while let Err(panicked) = caught(begin()).await {
        let wait = backoff.next();
        error!("{what} broke off, and begins again in {} ms: {panicked}", wait.as_millis());
        tokio::time::sleep(wait).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test]
    async fn whoever_breaks_off_says_why() {
        let told = caught(async { panic!("the sky fell") }).await;
        assert_eq!(told.unwrap_err().to_string(), "a fault in the agent itself: the sky fell");
        let late = caught(async {
            tokio::task::yield_now().await;
            panic!("{}", "x".repeat(WORDS_MAX * 2))
        });
        assert_eq!(late.await.unwrap_err(), Panicked("x".repeat(WORDS_MAX)));
        let silent = call(|| std::panic::panic_any(7));
        assert_eq!(silent.unwrap_err(), Panicked("it says nothing".to_owned()));
        assert_eq!(caught(async { 7 }).await, Ok(7));
    }

    #[tokio::test]
    async fn a_loop_that_breaks_off_begins_again() {
        let begun = AtomicU32::new(0);
        keep_on("a test", || async { assert!(begun.fetch_add(1, Ordering::Relaxed) >= 3, "not yet") }).await;
        assert_eq!(begun.load(Ordering::Relaxed), 4);
    }
}
