//! Runs a transaction to completion even if its caller is cancelled.
//!
//! Dropping the future in the middle of a transaction would leave the connection in an unknown state, so the pool would
//! have to close it. Under load, clients that time out would then cost the server one new session each. On SQLite the
//! writer task completes its transactions anyway.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;

/// Time limit for a transaction whose caller is gone. After it, the connection is closed.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(5);

/// A transaction that continues in a task of its own if this future is dropped before it completes.
pub(crate) struct RunToCompletion<T: Send + 'static> {
    /// `None` once it has completed or panicked.
    step: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    orphan_timeout: Duration,
}

pub(crate) fn run_to_completion<T: Send + 'static>(
    step: impl Future<Output = T> + Send + 'static,
) -> RunToCompletion<T> {
    RunToCompletion { step: Some(Box::pin(step)), orphan_timeout: ORPHAN_TIMEOUT }
}

impl<T: Send + 'static> Future for RunToCompletion<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        // Taken out of `self` while it is polled, so that a future that panicked is never polled again.
        let Some(mut step) = self.step.take() else { unreachable!("polled after completion") };
        let polled = step.as_mut().poll(context);
        if polled.is_pending() {
            self.step = Some(step);
        }
        polled
    }
}

impl<T: Send + 'static> Drop for RunToCompletion<T> {
    fn drop(&mut self) {
        if let Some(step) = self.step.take()
            && let Ok(runtime) = Handle::try_current()
        {
            let orphan_timeout = self.orphan_timeout;
            runtime.spawn(async move {
                let _ = tokio::time::timeout(orphan_timeout, step).await;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::run_to_completion;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Context, Waker};
    use std::time::Duration;
    use tokio::sync::oneshot;
    use tokio::time::timeout;

    #[tokio::test]
    async fn dropped_future_runs_to_completion() {
        let (go, start) = oneshot::channel::<()>();
        let (done, is_done) = oneshot::channel();
        let mut step = run_to_completion(async move {
            start.await.unwrap();
            done.send(7).unwrap();
        });
        assert!(timeout(Duration::from_millis(1), &mut step).await.is_err());
        drop(step);
        go.send(()).unwrap();
        assert_eq!(timeout(Duration::from_mins(1), is_done).await.unwrap(), Ok(7));
    }

    #[tokio::test]
    async fn dropped_future_is_cancelled_after_the_timeout() {
        let (held, is_held) = oneshot::channel::<()>();
        let mut step = run_to_completion(async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        step.orphan_timeout = Duration::from_millis(20);
        drop(step);
        assert!(timeout(Duration::from_mins(1), is_held).await.unwrap().is_err());
    }

    #[tokio::test]
    async fn panicked_future_is_not_polled_again() {
        let polls = Arc::new(AtomicU32::new(0));
        let count = polls.clone();
        let mut step = Box::pin(run_to_completion(async move {
            count.fetch_add(1, Ordering::Relaxed);
            panic!("broken");
        }));
        let mut context = Context::from_waker(Waker::noop());
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let _ = step.as_mut().poll(&mut context);
        }));
        assert!(polled.is_err());
        drop(step);
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(polls.load(Ordering::Relaxed), 1);
    }
}
