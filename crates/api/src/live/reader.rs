//! One live stream: catches up from the database, then forwards events from the hub.

use super::frame::{Item, keep_alive, opening, with_seq_id};
use super::hub::{Hub, Inner, PAGE, StreamFilter, Subscription};
use crate::access::AuthContext;
use crate::app::App;
use crate::error::ApiError;
use bytes::Bytes;
use http::StatusCode;
use std::sync::Arc;
use std::time::Duration;
use tidemill_core::RunId;
use tidemill_core::live::{Cursor, Point};
use tidemill_engine::access::SecretWatch;
use tidemill_engine::retry_policy::chain;
use tidemill_store::{Class, Error, EventPage, LivePage};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};

/// Interval of keep-alive frames.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Maximum lifetime of a stream. After it, clients reconnect and spread over the running servers.
const STREAM_LIFETIME_MAX: Duration = Duration::from_hours(1);
/// Time limit for a client to accept a frame. A slower client is disconnected and resumes where it was.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// Delay before a failed query is retried.
const RETRY_DELAY: Duration = Duration::from_millis(250);
/// Time limit for the hub to reach the position of a reader.
const BEHIND_MAX: Duration = Duration::from_secs(2);
/// Events per query on SQLite, where the numbers follow the order of commits.
const QUERY_RANGE: i64 = 2_000;

/// The stream must end: the client or the server is gone, or the time is over.
struct StreamEnd;

/// Start of a stream over several runs.
pub(super) enum StreamStart {
    Now(Subscription),
    /// After a position of an earlier stream.
    After(Cursor),
}

/// A stream's reader. It holds one of the server's stream permits.
pub(super) struct Reader {
    inner: Arc<Inner>,
    closing: watch::Receiver<bool>,
    watched: Option<SecretWatch>,
    _stream: OwnedSemaphorePermit,
}

/// Output of a stream.
struct StreamWriter {
    frames: mpsc::Sender<Bytes>,
    closing: watch::Receiver<bool>,
    /// Watches the token or session that opened the stream.
    watched: Option<SecretWatch>,
    end: Instant,
}

impl StreamWriter {
    /// Awaits a future, unless the stream must end first.
    async fn unless_ended<T>(&mut self, what: impl Future<Output = T>) -> Result<T, StreamEnd> {
        tokio::select! {
            biased;
            _ = self.closing.wait_for(|closing| *closing) => Err(StreamEnd),
            () = self.frames.closed() => Err(StreamEnd),
            () = tokio::time::sleep_until(self.end) => Err(StreamEnd),
            () = access_ended(&mut self.watched) => Err(StreamEnd),
            done = what => Ok(done),
        }
    }

    async fn send(&mut self, frame: Bytes) -> Result<(), StreamEnd> {
        let frames = self.frames.clone();
        let sent = tokio::time::timeout(SEND_TIMEOUT, frames.send(frame));
        match self.unless_ended(sent).await? {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(StreamEnd),
        }
    }

    /// Runs a query until it succeeds. A permanent error ends the stream.
    async fn query<T, F: Future<Output = Result<T, Error>>>(
        &mut self,
        mut call: impl FnMut() -> F,
    ) -> Result<T, StreamEnd> {
        loop {
            match self.unless_ended(call()).await? {
                Ok(answer) => return Ok(answer),
                Err(error) if error.class() == Class::Transient => {
                    tracing::debug!("live stream is waiting for the database: {}", chain(&error));
                    self.unless_ended(tokio::time::sleep(RETRY_DELAY)).await?;
                }
                Err(error) => {
                    tracing::error!("live stream ends: {}", chain(&error));
                    return Err(StreamEnd);
                }
            }
        }
    }
}

impl Reader {
    pub(super) fn new(app: &App, auth: &AuthContext) -> Result<Self, ApiError> {
        let hub: &Hub = app.live();
        let stream = hub.reserve_stream().ok_or_else(|| {
            let message = "the maximum number of live streams is reached; try again";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message).retry_after(1)
        })?;
        let shown = auth.hash.as_deref().zip(auth.token_id);
        let watched = shown.map(|(hash, token)| app.keyring().watch(hash, token));
        Ok(Self { inner: hub.inner().clone(), closing: app.closing(), watched, _stream: stream })
    }

    fn writer(&self, frames: mpsc::Sender<Bytes>) -> StreamWriter {
        let watched = self.watched.clone();
        StreamWriter {
            frames,
            closing: self.closing.clone(),
            watched,
            end: Instant::now() + STREAM_LIFETIME_MAX,
        }
    }

    /// Streams one run's events after a sequence number.
    pub(super) async fn follow_run(self, run: RunId, after: i32, frames: mpsc::Sender<Bytes>) {
        let mut writer = self.writer(frames);
        // In every case the client sees the end of the stream and reconnects.
        let _ = self.stream_run(run, after, &mut writer).await;
    }

    async fn stream_run(
        &self,
        run: RunId,
        mut last: i32,
        writer: &mut StreamWriter,
    ) -> Result<(), StreamEnd> {
        writer.send(opening(None)).await?;
        // Catch up before subscribing: during a long catch-up, the queue would fill up.
        self.catch_up_run(&run, &mut last, writer).await?;
        let mut subscription = writer.query(|| self.inner.subscribe(StreamFilter::Run(run.clone()))).await?;
        self.catch_up_run(&run, &mut last, writer).await?;
        let mut timer = keep_alive_timer();
        loop {
            let next = writer.unless_ended(next(&mut subscription, &mut timer)).await?;
            match next {
                Next::Event(item) if item.seq <= last => {}
                Next::Event(item) if item.seq == last + 1 => {
                    last = item.seq;
                    writer.send(item.with_seq_id()).await?;
                }
                // Events are missing: read them from the table. Duplicates from the queue are skipped later.
                Next::Event(_) => self.catch_up_run(&run, &mut last, writer).await?,
                Next::KeepAlive => writer.send(keep_alive(None)).await?,
                Next::TooSlow => return Err(StreamEnd),
            }
        }
    }

    async fn catch_up_run(
        &self,
        run: &RunId,
        last: &mut i32,
        writer: &mut StreamWriter,
    ) -> Result<(), StreamEnd> {
        loop {
            let page = EventPage { after: *last, limit: PAGE };
            let events = writer
                .query(|| async {
                    let _permit = self.inner.catching_up.acquire().await;
                    self.inner.store.events(run.clone(), page).await
                })
                .await?;
            for event in &events {
                *last = event.seq;
                writer.send(with_seq_id(event)).await?;
            }
            if events.len() < PAGE {
                return Ok(());
            }
        }
    }

    /// Streams the events of a project, or of all projects.
    pub(super) async fn follow(self, filter: StreamFilter, start: StreamStart, frames: mpsc::Sender<Bytes>) {
        let mut writer = self.writer(frames);
        let _ = self.stream(filter, start, &mut writer).await;
    }

    async fn stream(
        &self,
        filter: StreamFilter,
        start: StreamStart,
        writer: &mut StreamWriter,
    ) -> Result<(), StreamEnd> {
        let mut subscription = match start {
            StreamStart::Now(subscription) => {
                writer.send(opening(Some(&subscription.point))).await?;
                subscription
            }
            StreamStart::After(cursor) => {
                writer.send(opening(None)).await?;
                self.catch_up(&filter, cursor, writer).await?
            }
        };
        let mut timer = keep_alive_timer();
        loop {
            let next = writer.unless_ended(next(&mut subscription, &mut timer)).await?;
            match next {
                Next::Event(item) => writer.send(item.with_cursor_id()).await?,
                Next::KeepAlive => writer.send(keep_alive(subscription.reached().as_ref())).await?,
                Next::TooSlow => return Err(StreamEnd),
            }
        }
    }

    /// Sends missed events up to the start of a subscription, and returns the subscription.
    async fn catch_up(
        &self,
        filter: &StreamFilter,
        cursor: Cursor,
        writer: &mut StreamWriter,
    ) -> Result<Subscription, StreamEnd> {
        let mut at = match cursor {
            Cursor::At(point) => point,
            Cursor::Within { since, until, run, seq } => {
                self.send_between(filter, &since, &until, Some((run, seq)), writer).await?;
                until
            }
        };
        // A number beyond the last one comes from another database, or from before a crash.
        let now = writer.query(|| self.inner.store.live_point()).await?;
        if at.next() > now.next() {
            at = Point::new(now.next(), at.open().to_vec());
        }
        // Catch up before subscribing: during a long catch-up, the queue would fill up.
        if let Some(delivered) = self.inner.delivered().filter(|delivered| delivered.covers(&at)) {
            self.send_between(filter, &at, &delivered, None, writer).await?;
            at = delivered;
        }
        let subscription = self.subscribe_beyond(filter, &at, writer).await?;
        self.send_between(filter, &at, &subscription.point, None, writer).await?;
        Ok(subscription)
    }

    /// Subscribes at a point that covers `at`. The hub of another process may have been slightly ahead of this one.
    async fn subscribe_beyond(
        &self,
        filter: &StreamFilter,
        at: &Point,
        writer: &mut StreamWriter,
    ) -> Result<Subscription, StreamEnd> {
        let deadline = Instant::now() + BEHIND_MAX;
        loop {
            let subscription = writer.query(|| self.inner.subscribe(filter.clone())).await?;
            if subscription.point.covers(at) || Instant::now() > deadline {
                return Ok(subscription);
            }
            writer.unless_ended(tokio::time::sleep(RETRY_DELAY / 5)).await?;
        }
    }

    /// Sends the events committed between two points.
    async fn send_between(
        &self,
        filter: &StreamFilter,
        since: &Point,
        until: &Point,
        mut after: Option<(RunId, i32)>,
        writer: &mut StreamWriter,
    ) -> Result<(), StreamEnd> {
        let project = match filter {
            StreamFilter::Project(project) => Some(project.clone()),
            StreamFilter::Run(_) | StreamFilter::All => None,
        };
        let mut since = since.clone();
        while since != *until {
            let to = if after.is_none() { self.query_end(&since, until) } else { until.clone() };
            loop {
                let page = LivePage {
                    since: since.clone(),
                    until: to.clone(),
                    after: after.take(),
                    project: project.clone(),
                    limit: PAGE,
                };
                let events = writer
                    .query(|| async {
                        let _permit = self.inner.catching_up.acquire().await;
                        self.inner.store.live_page(page.clone()).await
                    })
                    .await?;
                let Some(last) = events.last() else { break };
                after = Some((last.event.run_id.clone(), last.event.seq));
                for event in &events {
                    let item = Item::new(&event.event, &since, &to);
                    writer.send(item.with_cursor_id()).await?;
                }
                if events.len() < PAGE {
                    break;
                }
            }
            after = None;
            since = to;
        }
        Ok(())
    }

    /// End of one query. On SQLite any number is a valid point; on PostgreSQL only a snapshot keeps a run's order.
    fn query_end(&self, since: &Point, until: &Point) -> Point {
        let to = since.next().saturating_add(QUERY_RANGE);
        let short = !self.inner.store.is_postgres() && to < until.next();
        if short { Point::new(to, Vec::new()) } else { until.clone() }
    }
}

/// Waits until the token or session that opened the stream is no longer valid.
async fn access_ended(watched: &mut Option<SecretWatch>) {
    match watched {
        Some(watched) => watched.over().await,
        None => std::future::pending().await,
    }
}

fn keep_alive_timer() -> tokio::time::Interval {
    let mut timer = tokio::time::interval_at(Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    timer
}

/// Next action of a stream.
enum Next {
    Event(Arc<Item>),
    KeepAlive,
    TooSlow,
}

async fn next(subscription: &mut Subscription, timer: &mut tokio::time::Interval) -> Next {
    tokio::select! {
        biased;
        item = subscription.queue.recv() => item.map_or(Next::TooSlow, Next::Event),
        _ = timer.tick() => Next::KeepAlive,
    }
}
