//! A stream whose other side has to read: a write that gets nowhere for too long is an error, and ends the connection.
//!
//! Without it a caller that asks and never reads keeps its seat for ever: nothing is late but its own reading.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// A stream, and how long a write may wait for its other side.
pub(super) struct Stalling<S> {
    stream: S,
    longest: Duration,
    /// When the write that waits has waited for too long; set anew for each one.
    end: Pin<Box<Sleep>>,
    is_waiting: bool,
}

impl<S> Stalling<S> {
    pub(super) fn new(stream: S, longest: Duration) -> Self {
        Self { stream, longest, end: Box::pin(sleep(longest)), is_waiting: false }
    }

    /// What a write came to; one that waits is waited for within its time.
    fn within<T>(&mut self, written: Poll<Result<T>>, context: &mut Context<'_>) -> Poll<Result<T>> {
        if written.is_ready() {
            self.is_waiting = false;
            return written;
        }
        if !self.is_waiting {
            self.is_waiting = true;
            self.end.as_mut().reset(Instant::now() + self.longest);
        }
        let late = || Err(Error::new(ErrorKind::TimedOut, "the caller did not read its answer in time"));
        self.end.as_mut().poll(context).map(|()| late())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stalling<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stalling<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.within(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.within(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        // Not timed: on a socket it is always done at once, and would only begin the time of a write anew.
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
