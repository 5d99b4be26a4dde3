//! A step that has begun is brought to its end, also when nobody waits for it any more.
//!
//! A caller may go away in the middle of a step: its own caller hung up, or its time was over. Were the step dropped,
//! its connection could only be closed, because a transaction of which nobody knows may be open on it; and callers that
//! give up because the server is slow would each cost it a new session. SQLite's writer ends its steps as well.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;

/// How long a step may go on after its caller went away. Then its connection is closed.
const LEFT_MAX: Duration = Duration::from_secs(5);

/// A step that goes on in a task of its own, should it be dropped before its end.
pub(crate) struct Whole<T: Send + 'static> {
    /// There until it has ended, or broken off.
    step: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    left_max: Duration,
}

pub(crate) fn whole<T: Send + 'static>(step: impl Future<Output = T> + Send + 'static) -> Whole<T> {
    Whole { step: Some(Box::pin(step)), left_max: LEFT_MAX }
}

impl<T: Send + 'static> Future for Whole<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        // Taken out: one that panics does not come back.
        let Some(mut step) = self.step.take() else { unreachable!("a step is asked again after its end") };
        let polled = step.as_mut().poll(context);
        if polled.is_pending() {
            self.step = Some(step);
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Whole<T> {
    fn drop(&mut self) {
        if let Some(step) = self.step.take()
            && let Ok(runtime) = Handle::try_current()
        {
            let left_max = self.left_max;
            runtime.spawn(async move {
                let _ = tokio::time::timeout(left_max, step).await;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::whole;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Context, Waker};
    use std::time::Duration;
    use tokio::sync::oneshot;
    use tokio::time::timeout;

    #[tokio::test]
    async fn a_step_that_is_dropped_goes_on() {
        let (go, told) = oneshot::channel::<()>();
        let (done, is_done) = oneshot::channel();
        let mut step = whole(async move {
            told.await.unwrap();
            done.send(7).unwrap();
        });
        assert!(timeout(Duration::from_millis(1), &mut step).await.is_err());
        drop(step);
        go.send(()).unwrap();
        assert_eq!(timeout(Duration::from_mins(1), is_done).await.unwrap(), Ok(7));
    }

    #[tokio::test]
    async fn a_step_that_does_not_end_is_dropped_at_last() {
        let (held, is_held) = oneshot::channel::<()>();
        let mut step = whole(async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        step.left_max = Duration::from_millis(20);
        drop(step);
        assert!(timeout(Duration::from_mins(1), is_held).await.unwrap().is_err());
    }

    #[tokio::test]
    async fn a_step_that_panicked_is_not_asked_again() {
        let asked = Arc::new(AtomicU32::new(0));
        let count = asked.clone();
        let mut step = Box::pin(whole(async move {
            count.fetch_add(1, Ordering::Relaxed);
            panic!("it broke off");
        }));
        let mut context = Context::from_waker(Waker::noop());
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let _ = step.as_mut().poll(&mut context);
        }));
        assert!(polled.is_err());
        drop(step);
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }
}
