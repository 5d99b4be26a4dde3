//! One reader: catches up from the table, then gets what the hub hands out.

use super::frame::{Item, heartbeat, hello, numbered};
use super::hub::{Hub, Inner, PAGE, Seat, Wish};
use crate::access::Visit;
use crate::answer::Fail;
use crate::app::App;
use bytes::Bytes;
use http::StatusCode;
use std::sync::Arc;
use std::time::Duration;
use tidemill_core::RunId;
use tidemill_core::live::{Cursor, Point};
use tidemill_engine::access::Watched;
use tidemill_engine::patience::chain;
use tidemill_store::{Class, Error, EventPage, LivePage};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};

/// How often something is said when nothing happens.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How long a stream lasts, so that readers spread over the servers that there are.
const LIFE: Duration = Duration::from_hours(1);
/// How long a reader may take to take what it is told. It comes back, and is told from there on.
const TAKEN_WITHIN: Duration = Duration::from_secs(30);
/// The pause before the database is asked again.
const AGAIN: Duration = Duration::from_millis(250);
/// How long the hub may take to get to where a reader has been.
const BEHIND_MAX: Duration = Duration::from_secs(2);
/// Numbers that one query covers on SQLite, where they are the order in which events were committed.
const STRETCH: i64 = 2_000;

/// The reader is gone, or its time is over: nothing more is to be said.
struct Over;

/// Where a stream of everybody's events begins.
pub(super) enum Begin {
    /// Here, with what comes.
    Now(Seat),
    /// After what was told before.
    After(Cursor),
}

/// A reader, with its place among the streams of this server.
pub(super) struct Reader {
    inner: Arc<Inner>,
    closing: watch::Receiver<bool>,
    watched: Option<Watched>,
    _stream: OwnedSemaphorePermit,
}

/// Where a reader's frames go.
struct Out {
    frames: mpsc::Sender<Bytes>,
    closing: watch::Receiver<bool>,
    /// What let the reader in, where something was asked for.
    watched: Option<Watched>,
    end: Instant,
}

impl Out {
    /// Waits for something, for as long as there is a reader and a server.
    async fn unless_over<T>(&mut self, what: impl Future<Output = T>) -> Result<T, Over> {
        tokio::select! {
            biased;
            _ = self.closing.wait_for(|closing| *closing) => Err(Over),
            () = self.frames.closed() => Err(Over),
            () = tokio::time::sleep_until(self.end) => Err(Over),
            () = over(&mut self.watched) => Err(Over),
            done = what => Ok(done),
        }
    }

    async fn say(&mut self, frame: Bytes) -> Result<(), Over> {
        let frames = self.frames.clone();
        let sent = tokio::time::timeout(TAKEN_WITHIN, frames.send(frame));
        match self.unless_over(sent).await? {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Over),
        }
    }

    /// Asks the database until it answers; an error that stays is the end of the stream.
    async fn ask<T, F: Future<Output = Result<T, Error>>>(
        &mut self,
        mut call: impl FnMut() -> F,
    ) -> Result<T, Over> {
        loop {
            match self.unless_over(call()).await? {
                Ok(answer) => return Ok(answer),
                Err(error) if error.class() == Class::Transient => {
                    tracing::debug!("a live stream waits for the database: {}", chain(&error));
                    self.unless_over(tokio::time::sleep(AGAIN)).await?;
                }
                Err(error) => {
                    tracing::error!("a live stream ends: {}", chain(&error));
                    return Err(Over);
                }
            }
        }
    }
}

impl Reader {
    pub(super) fn new(app: &App, visit: &Visit) -> Result<Self, Fail> {
        let hub: &Hub = app.live();
        let stream = hub.stream().ok_or_else(|| {
            let message = "this server has as many live streams as it takes; ask again";
            Fail::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message).retry_after(1)
        })?;
        let shown = visit.hash.as_deref().zip(visit.token_id);
        let watched = shown.map(|(hash, token)| app.keyring().watch(hash, token));
        Ok(Self { inner: hub.inner().clone(), closing: app.closing(), watched, _stream: stream })
    }

    fn out(&self, frames: mpsc::Sender<Bytes>) -> Out {
        let watched = self.watched.clone();
        Out { frames, closing: self.closing.clone(), watched, end: Instant::now() + LIFE }
    }

    /// Streams one run's events after a number.
    pub(super) async fn follow_run(self, run: RunId, after: i32, frames: mpsc::Sender<Bytes>) {
        let mut out = self.out(frames);
        // Whatever ends it, the reader sees the end of the stream, and comes back.
        let _ = self.tell_run(run, after, &mut out).await;
    }

    async fn tell_run(&self, run: RunId, mut last: i32, out: &mut Out) -> Result<(), Over> {
        out.say(hello(None)).await?;
        // Long records are read before the queue is taken, which would fill up meanwhile.
        self.catch_up_run(&run, &mut last, out).await?;
        let mut seat = out.ask(|| self.inner.join(Wish::Run(run.clone()))).await?;
        self.catch_up_run(&run, &mut last, out).await?;
        let mut beat = beat();
        loop {
            let next = out.unless_over(next(&mut seat, &mut beat)).await?;
            match next {
                Next::Event(item) if item.seq <= last => {}
                Next::Event(item) if item.seq == last + 1 => {
                    last = item.seq;
                    out.say(item.numbered()).await?;
                }
                // The table knows what is missing; what it gives beyond this event is passed over when it comes.
                Next::Event(_) => self.catch_up_run(&run, &mut last, out).await?,
                Next::Nothing => out.say(heartbeat(None)).await?,
                Next::TooSlow => return Err(Over),
            }
        }
    }

    async fn catch_up_run(&self, run: &RunId, last: &mut i32, out: &mut Out) -> Result<(), Over> {
        loop {
            let page = EventPage { after: *last, limit: PAGE };
            let events = out
                .ask(|| async {
                    let _turn = self.inner.catching_up.acquire().await;
                    self.inner.store.events(run.clone(), page).await
                })
                .await?;
            for event in &events {
                *last = event.seq;
                out.say(numbered(event)).await?;
            }
            if events.len() < PAGE {
                return Ok(());
            }
        }
    }

    /// Streams the events of a project, or of all: after a cursor, or from a seat on.
    pub(super) async fn follow(self, wish: Wish, begin: Begin, frames: mpsc::Sender<Bytes>) {
        let mut out = self.out(frames);
        let _ = self.tell(wish, begin, &mut out).await;
    }

    async fn tell(&self, wish: Wish, begin: Begin, out: &mut Out) -> Result<(), Over> {
        let mut seat = match begin {
            Begin::Now(seat) => {
                out.say(hello(Some(&seat.point))).await?;
                seat
            }
            Begin::After(cursor) => {
                out.say(hello(None)).await?;
                self.catch_up(&wish, cursor, out).await?
            }
        };
        let mut beat = beat();
        loop {
            let next = out.unless_over(next(&mut seat, &mut beat)).await?;
            match next {
                Next::Event(item) => out.say(item.placed()).await?,
                Next::Nothing => out.say(heartbeat(seat.reached().as_ref())).await?,
                Next::TooSlow => return Err(Over),
            }
        }
    }

    /// Tells what was missed, up to exactly where the hub goes on.
    async fn catch_up(&self, wish: &Wish, cursor: Cursor, out: &mut Out) -> Result<Seat, Over> {
        let mut at = match cursor {
            Cursor::At(point) => point,
            Cursor::Within { since, until, run, seq } => {
                self.tell_between(wish, &since, &until, Some((run, seq)), out).await?;
                until
            }
        };
        // Numbers that the database has not given yet are of another database, or of a time before it crashed.
        let now = out.ask(|| self.inner.store.live_point()).await?;
        if at.next() > now.next() {
            at = Point::new(now.next(), at.open().to_vec());
        }
        // What takes long is told before the queue is taken, which would fill up meanwhile.
        if let Some(told) = self.inner.told().filter(|told| told.covers(&at)) {
            self.tell_between(wish, &at, &told, None, out).await?;
            at = told;
        }
        let seat = self.join_beyond(wish, &at, out).await?;
        self.tell_between(wish, &at, &seat.point, None, out).await?;
        Ok(seat)
    }

    /// A seat at a point that covers `at`. The hub of another process may have been a moment ahead of ours.
    async fn join_beyond(&self, wish: &Wish, at: &Point, out: &mut Out) -> Result<Seat, Over> {
        let patient_until = Instant::now() + BEHIND_MAX;
        loop {
            let seat = out.ask(|| self.inner.join(wish.clone())).await?;
            if seat.point.covers(at) || Instant::now() > patient_until {
                return Ok(seat);
            }
            out.unless_over(tokio::time::sleep(AGAIN / 5)).await?;
        }
    }

    /// Tells what ended between two points.
    async fn tell_between(
        &self,
        wish: &Wish,
        since: &Point,
        until: &Point,
        mut after: Option<(RunId, i32)>,
        out: &mut Out,
    ) -> Result<(), Over> {
        let project = match wish {
            Wish::Project(project) => Some(project.clone()),
            Wish::Run(_) | Wish::All => None,
        };
        let mut since = since.clone();
        while since != *until {
            let to = if after.is_none() { self.stretch(&since, until) } else { until.clone() };
            loop {
                let page = LivePage {
                    since: since.clone(),
                    until: to.clone(),
                    after: after.take(),
                    project: project.clone(),
                    limit: PAGE,
                };
                let events = out
                    .ask(|| async {
                        let _turn = self.inner.catching_up.acquire().await;
                        self.inner.store.live_page(page.clone()).await
                    })
                    .await?;
                let Some(last) = events.last() else { break };
                after = Some((last.event.run_id.clone(), last.event.seq));
                for event in &events {
                    let item = Item::new(&event.event, &since, &to);
                    out.say(item.placed()).await?;
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

    /// How far one query goes. On SQLite any number is a point; on PostgreSQL only a snapshot keeps a run in order.
    fn stretch(&self, since: &Point, until: &Point) -> Point {
        let to = since.next().saturating_add(STRETCH);
        let short = !self.inner.store.is_postgres() && to < until.next();
        if short { Point::new(to, Vec::new()) } else { until.clone() }
    }
}

/// Waits until what let the reader in is worth nothing any more.
async fn over(watched: &mut Option<Watched>) {
    match watched {
        Some(watched) => watched.over().await,
        None => std::future::pending().await,
    }
}

fn beat() -> tokio::time::Interval {
    let mut beat = tokio::time::interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    beat
}

/// What happens next in a stream.
enum Next {
    Event(Arc<Item>),
    Nothing,
    TooSlow,
}

async fn next(seat: &mut Seat, beat: &mut tokio::time::Interval) -> Next {
    tokio::select! {
        biased;
        item = seat.queue.recv() => item.map_or(Next::TooSlow, Next::Event),
        _ = beat.tick() => Next::Nothing,
    }
}
