//! Request body that is read on demand, within its limits, and response body that holds resources of its request.
//!
//! The body is read only when the handler asks for it, that is after the guard has checked the credentials. The reasons
//! of a failed read are kept for the response, because extractors report them all alike.

use super::Limits;
use super::admission::{Admission, Resource, refusal};
use super::budget::Exceeded;
use crate::error::ApiError;
use axum::BoxError;
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http::StatusCode;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// Time before the minimum rate applies.
const RATE_GRACE: Duration = Duration::from_secs(5);
/// Minimum rate of a body.
const RATE_MIN_BYTES_PER_MILLI: usize = 4;
/// Time for which the rest of an unread body is discarded. A client that is still sending does not read the response,
/// and closing a socket with unread data would lose it.
const DISCARD_TIME: Duration = Duration::from_secs(5);

/// Reason why a body could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyFailure {
    TooLarge { most: usize },
    TooSlow,
    Incomplete,
    Exceeded(Exceeded),
}

impl BodyFailure {
    pub(super) fn into_error(self) -> ApiError {
        let refused = |why: &'static str| {
            metrics::counter!("tidemill_http_refused_total", "why" => why).increment(1);
        };
        match self {
            Self::TooLarge { most } => {
                refused("large");
                let message = format!("the request body is larger than {most} bytes");
                ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
            }
            Self::TooSlow => {
                refused("slow");
                let message = "the request body took too long to arrive";
                ApiError::new(StatusCode::REQUEST_TIMEOUT, "too_slow", message)
            }
            Self::Incomplete => {
                let message = "the request body could not be read completely";
                ApiError::new(StatusCode::BAD_REQUEST, "unread", message)
            }
            Self::Exceeded(exceeded) => refusal(exceeded, Resource::Bodies),
        }
    }
}

/// A body that was not read, for the handler. The response names the reason.
#[derive(Debug, thiserror::Error)]
#[error("the request body could not be read")]
struct UnreadBodyError;

/// Whether the client waits for permission before it sends its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sending {
    AtOnce,
    OnDemand,
}

/// Request body within its limits.
pub(super) struct LimitedBody {
    /// `None` after the end or a failure.
    inner: Option<Body>,
    admission: Admission,
    sending: Sending,
    most: usize,
    received: usize,
    body_time: Duration,
    /// Time of the first read, and the deadline for the next part.
    read: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl LimitedBody {
    pub(super) fn new(
        body: Body,
        admission: Admission,
        sending: Sending,
        most: usize,
        limits: &Limits,
    ) -> Self {
        let body_time = limits.body_time;
        Self { inner: Some(body), admission, sending, most, received: 0, body_time, read: None }
    }

    fn fail(&mut self, failure: BodyFailure) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.admission.fail_body(failure);
        self.discard();
        Poll::Ready(Some(Err(Box::new(UnreadBodyError))))
    }

    /// Time by which the next part must have arrived.
    fn deadline(&self, began: Instant) -> Instant {
        let millis = u64::try_from(self.received / RATE_MIN_BYTES_PER_MILLI).unwrap_or(u64::MAX);
        let earned = Duration::from_millis(millis);
        began + self.body_time.min(RATE_GRACE.saturating_add(earned))
    }

    /// Discards the rest in the background, so that the client gets to read the response.
    fn discard(&mut self) {
        let Some(mut body) = self.inner.take().filter(|body| !body.is_end_stream()) else { return };
        self.admission.leave_body_unread();
        // Reading would ask a waiting client for its body.
        if self.sending == Sending::OnDemand && self.read.is_none() {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let most = self.most;
        runtime.spawn(async move {
            let read = async {
                let mut discarded = 0;
                while let Some(Ok(frame)) = body.frame().await {
                    discarded += frame.data_ref().map_or(0, Bytes::len);
                    if discarded > most {
                        break;
                    }
                }
            };
            let _ = tokio::time::timeout(DISCARD_TIME, read).await;
        });
    }
}

impl Drop for LimitedBody {
    fn drop(&mut self) {
        self.discard();
    }
}

impl HttpBody for LimitedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let Some(inner) = &mut this.inner else { return Poll::Ready(None) };
        let frame = Pin::new(inner).poll_frame(context);
        if this.read.is_none() {
            let began = Instant::now();
            this.read = Some((began, Box::pin(sleep_until(this.deadline(began)))));
        }
        let Poll::Ready(frame) = frame else {
            if let Some((_, deadline)) = &mut this.read {
                ready!(deadline.as_mut().poll(context));
            }
            return this.fail(BodyFailure::TooSlow);
        };
        let frame = match frame {
            Some(Ok(frame)) => frame,
            Some(Err(_)) => return this.fail(BodyFailure::Incomplete),
            None => {
                this.inner = None;
                return Poll::Ready(None);
            }
        };
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        if this.received + bytes > this.most {
            return this.fail(BodyFailure::TooLarge { most: this.most });
        }
        if let Err(exceeded) = this.admission.take_body(bytes) {
            return this.fail(BodyFailure::Exceeded(exceeded));
        }
        this.received += bytes;
        let deadline = this.read.as_ref().map(|(began, _)| this.deadline(*began));
        if let (Some(deadline), Some((_, sleep))) = (deadline, &mut this.read) {
            sleep.as_mut().reset(deadline);
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint)
    }
}

/// Response body that holds the resources of its request until it is sent.
pub(super) struct HoldingBody {
    inner: Body,
    _admission: Admission,
}

impl HoldingBody {
    pub(super) fn new(inner: Body, admission: Admission) -> Self {
        Self { inner, _admission: admission }
    }
}

impl HttpBody for HoldingBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::super::admission::{Budgets, RequestKind};
    use super::super::budget::Source;
    use super::*;
    use std::convert::Infallible;
    use tokio::time::{Interval, interval};

    /// Body that sends one part per second.
    struct TrickleBody {
        timer: Interval,
        part: Bytes,
        parts_left: usize,
    }

    impl HttpBody for TrickleBody {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if self.parts_left == 0 {
                return Poll::Ready(None);
            }
            ready!(self.timer.poll_tick(context));
            self.parts_left -= 1;
            Poll::Ready(Some(Ok(Frame::data(self.part.clone()))))
        }
    }

    /// Reads a body of 100 parts. Returns the failure and the seconds that it took.
    async fn read(part: usize, limits: &Limits) -> (Option<BodyFailure>, u64) {
        let budgets = Budgets::new(limits, limits.body_bytes);
        let admission = Admission::new(budgets, RequestKind::Short, Source::new(None), None);
        let (timer, part) = (interval(Duration::from_secs(1)), Bytes::from(vec![0; part]));
        let body = Body::new(TrickleBody { timer, part, parts_left: 100 });
        let began = Instant::now();
        let body = LimitedBody::new(body, admission.clone(), Sending::AtOnce, limits.body_bytes, limits)
            .collect()
            .await;
        assert_eq!(body.is_err(), admission.body_failure().is_some());
        (admission.body_failure(), began.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn slow_body_is_refused_and_a_fast_one_is_read() {
        let limits = Limits { body_time: Duration::from_mins(10), ..Limits::default() };
        assert_eq!(read(1, &limits).await, (Some(BodyFailure::TooSlow), 5));
        assert_eq!(read(1_000, &limits).await, (Some(BodyFailure::TooSlow), 6));
        assert_eq!(read(5_000, &limits).await, (None, 99));
        assert_eq!(read(5_000, &Limits::default()).await, (Some(BodyFailure::TooSlow), 15));
    }

    #[tokio::test(start_paused = true)]
    async fn body_over_the_limit_is_not_stored() {
        let limits = Limits { body_bytes: 10_000, ..Limits::default() };
        assert_eq!(read(6_000, &limits).await, (Some(BodyFailure::TooLarge { most: 10_000 }), 1));
    }
}
