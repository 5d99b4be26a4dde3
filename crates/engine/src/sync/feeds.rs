//! Feeds as they are asked for and spoken to.

use super::{PAGES_LABEL, SYNC_LABEL, SyncSettings, Syncs};
use crate::NewSchedule;
use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tidemill_core::feed::{Feed, RunType, Watermark};
use tidemill_core::records::{FeedRecord, WatermarkChange};
use tidemill_core::run::QueueRun;
use tidemill_core::schedule::{Missed, Overlap};
use tidemill_core::{Json, Timestamp, limits, request};
use tidemill_feeds::{Feed as Source, FeedError, Secret};
use tidemill_store::{Error, Queued, Refusal, RefusalCode};
use tokio::time::Instant;

/// The environment, within a feed's project, that its runs belong to.
pub(super) const SYNC_ENV: &str = "sync";

/// A feed that somebody wants, or wants changed.
#[derive(Debug, Clone)]
pub struct FeedChange {
    /// The feed.
    pub feed: Feed,
    /// Where a copy of its watermark goes.
    pub copy_url: Option<String>,
    /// When it is brought in by itself.
    pub schedule: Option<String>,
    /// When all of it is read by itself, so that what the feed no longer offers is found.
    pub full_schedule: Option<String>,
    /// On which wall clock.
    pub time_zone: String,
}

/// Something of each feed.
type ByName<T> = Arc<Mutex<HashMap<String, T>>>;

/// The feeds that this process speaks to.
#[derive(Clone)]
pub struct Feeds {
    settings: Arc<SyncSettings>,
    open: ByName<(Feed, Arc<dyn Source>)>,
    /// What the database said of each feed, and when.
    recent: ByName<(Instant, Arc<FeedRecord>)>,
    /// The number of questions that wait for each feed that is down or slow.
    waiting: ByName<usize>,
    /// The processes that share the rates, as far as is known.
    processes: Arc<AtomicUsize>,
}

/// One question that waits for a feed that is down or slow, for as long as this is held.
pub(super) struct Waits {
    feed: String,
    waiting: ByName<usize>,
}

impl Drop for Waits {
    fn drop(&mut self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(questions) = waiting.get_mut(&self.feed) {
            *questions -= 1;
            if *questions == 0 {
                waiting.remove(&self.feed);
            }
        }
    }
}

/// How long what the database said of a feed is good enough for a page.
const RECENT: Duration = Duration::from_secs(1);

impl Feeds {
    pub(super) fn new(settings: Arc<SyncSettings>) -> Self {
        Self {
            settings,
            open: Arc::default(),
            recent: Arc::default(),
            waiting: Arc::default(),
            processes: Arc::new(AtomicUsize::new(1)),
        }
    }

    /// Notes that a question waits for a feed that is down or slow.
    pub(super) fn wait_for(&self, feed: &str) -> Waits {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        *waiting.entry(feed.to_owned()).or_default() += 1;
        Waits { feed: feed.to_owned(), waiting: self.waiting.clone() }
    }

    /// The number of feeds, down or slow, that questions of this process wait for.
    pub(super) fn waited_for(&self) -> usize {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether a feed of that name was opened before.
    pub(super) fn is_open(&self, name: &str) -> bool {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).contains_key(name)
    }

    /// The feed, opened once for as long as what was asked for stays the same.
    pub fn open(&self, feed: &Feed) -> Result<Arc<dyn Source>, FeedError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, source)) = open.get(&feed.feed)
            && known == feed
        {
            return Ok(source.clone());
        }
        let password = feed.password_env.as_ref().and_then(|name| std::env::var(name).ok());
        let source = tidemill_feeds::open(feed, password.map(Secret::new), self.settings.tuning.clone())?;
        source.set_rate(self.rate_of(feed));
        open.insert(feed.feed.clone(), (feed.clone(), source.clone()));
        Ok(source)
    }

    /// What the database said of a feed a moment ago, or says now.
    pub(super) async fn recent<F>(&self, name: &str, read: impl Fn() -> F) -> Result<Arc<FeedRecord>, Error>
    where
        F: Future<Output = Result<FeedRecord, Error>>,
    {
        let known = {
            let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            recent.get(name).filter(|(at, _)| at.elapsed() < RECENT).map(|(_, feed)| feed.clone())
        };
        if let Some(feed) = known {
            return Ok(feed);
        }
        let feed = Arc::new(read().await?);
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.insert(name.to_owned(), (Instant::now(), feed.clone()));
        Ok(feed)
    }

    /// Asks the database about a feed at the next page.
    pub(super) fn forget(&self, name: &str) {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Divides the rate of each feed by the processes that ask it.
    pub(super) fn share(&self, processes: usize) {
        self.processes.store(processes.max(1), Ordering::Relaxed);
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        for (feed, source) in open.values() {
            source.set_rate(self.rate_of(feed));
        }
    }

    /// This process' share of a feed's rate.
    #[expect(clippy::cast_precision_loss, reason = "there are few processes")]
    fn rate_of(&self, feed: &Feed) -> f64 {
        let rate = if self.settings.unlimited { 0.0 } else { f64::from(feed.rate) };
        rate / self.processes.load(Ordering::Relaxed).max(1) as f64
    }
}

/// The name of the schedule that a feed may have.
pub fn schedule_name(feed: &str) -> String {
    format!("feed-{feed}")
}

/// The name of the schedule by which all of a feed is read. No other feed's schedule is named like that.
pub fn full_schedule_name(feed: &str) -> String {
    format!("full-feed-{feed}")
}

impl Syncs {
    /// Adds a feed, or changes how it is reached, with its schedule.
    pub async fn put_feed(&self, change: FeedChange) -> Result<FeedRecord, Error> {
        let feed = &change.feed;
        request::check_name("feed", &feed.feed)?;
        request::check_name("project", &feed.project_id)?;
        // A feed that cannot be opened is refused here, and not by a worker in the night.
        // The password is where the workers are, and not asked for here.
        let password = feed.password_env.as_ref().map(|_| Secret::new("unknown"));
        tidemill_feeds::open(feed, password, self.settings.tuning.clone())
            .map_err(|error| Error::refused(RefusalCode::BadValue, error.to_string()))?;
        change
            .copy_url
            .as_deref()
            .map_or(Ok(()), super::check_copy_url)
            .map_err(|told| Error::refused(RefusalCode::BadValue, told))?;
        for cron in change.schedule.iter().chain(&change.full_schedule) {
            crate::schedules::parse(cron, &change.time_zone)?;
        }
        let (kept, copy_url, now) = (feed.clone(), change.copy_url.clone(), self.now());
        self.engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    tx.create_project(&kept.project_id, &[SYNC_ENV.to_owned()], now).await?;
                    tx.put_feed(&kept, copy_url.as_deref(), now).await
                })
            })
            .await?;
        let of_changes = change.schedule.map(|cron| (schedule_name(&feed.feed), cron, None));
        let of_all =
            change.full_schedule.map(|cron| (full_schedule_name(&feed.feed), cron, Some(RunType::Full)));
        for (name, cron, run_type) in of_changes.into_iter().chain(of_all) {
            let wanted = NewSchedule {
                name,
                cron,
                time_zone: change.time_zone.clone(),
                request: request_for(&feed.feed, &feed.project_id, run_type),
                missed: Missed::Once,
                overlap: Overlap::Skip,
            };
            self.engine.put_schedule(wanted).await?;
        }
        self.engine.store().feed(feed.feed.clone()).await
    }

    /// Queues a sync of a feed.
    pub async fn start(
        &self,
        feed: &str,
        full: bool,
        idempotency_key: Option<String>,
    ) -> Result<Queued, Error> {
        let record = self.engine.store().feed(feed.to_owned()).await?;
        let run_type = full.then_some(RunType::Full);
        let mut request = request_for(feed, &record.feed.project_id, run_type);
        request.idempotency_key = idempotency_key;
        request.check()?;
        let request = request.normal();
        let (run_id, now) = (self.engine.clock().run_id(), self.now());
        let queued = self
            .engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    let queued = tx.queue_run(&request, &run_id, now).await?;
                    tx.mark_sync_run(&queued.run_id).await?;
                    Ok(queued)
                })
            })
            .await?;
        self.engine.store().wake_soon();
        self.ring();
        Ok(queued)
    }

    /// Moves a feed's watermark because a person said so, with the reason on record.
    pub async fn set_watermark(
        &self,
        feed: &str,
        watermark: Option<Watermark>,
        by: &str,
        note: Option<String>,
    ) -> Result<FeedRecord, Error> {
        let (name, by, now) = (feed.to_owned(), by.to_owned(), self.now());
        self.engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    let Some(found) = tx.lock_feed(&name).await? else {
                        let message = format!("feed `{name}` does not exist");
                        return Err(Error::refused(RefusalCode::UnknownFeed, message));
                    };
                    let moment = tx.database_now(now).await?;
                    check_passed(&name, watermark.as_ref(), moment)?;
                    let change = WatermarkChange {
                        changed_at: moment,
                        before: found.watermark.map(|watermark| watermark.last_updated_at),
                        after: watermark.map(|watermark| watermark.last_updated_at),
                        run_id: None,
                        by,
                        note,
                    };
                    tx.set_watermark(&name, &change, now).await
                })
            })
            .await?;
        self.engine.store().feed(feed.to_owned()).await
    }

    /// Divides the rates of feeds by the processes that carry out pages now.
    pub(super) async fn share_rates(&self) {
        let Ok(workers) = self.engine.store().workers().await else { return };
        let Ok(now) = self.engine.store().now(self.now()).await else { return };
        let since = now - chrono::TimeDelta::seconds(i64::try_from(limits::DEAD_AFTER_SECS).unwrap_or(20));
        let alive = |worker: &&tidemill_core::worker::Worker| {
            worker.ended_at.is_none()
                && worker.beat_at > since
                && !worker.draining
                && worker.labels.iter().any(|label| label == PAGES_LABEL)
        };
        self.feeds.share(workers.iter().filter(alive).count());
    }
}

/// Refuses a watermark in the future: syncs would miss every change until then.
fn check_passed(feed: &str, watermark: Option<&Watermark>, now: Timestamp) -> Result<(), Error> {
    let Some(mark) = watermark.map(|mark| mark.last_updated_at).filter(|mark| *mark > now) else {
        return Ok(());
    };
    let time = |at: Timestamp| at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    Err(Error::Refused(Refusal {
        code: RefusalCode::BadValue,
        message: format!(
            "watermark {} of feed {feed} is in the future, and syncs would miss every change until then; it is {} now",
            time(mark),
            time(now)
        ),
        hint: Some(format!("tidemill feed watermark {feed} --set {}", time(now))),
    }))
}

/// The end of a sync's window in the source's time, which is the next watermark.
///
/// A source that does not tell its time may be behind ours. A watermark by our clock would then pass changes that the
/// source has yet to stamp, so the window ends as far back as a source can plausibly be behind.
pub(super) fn sealed_end(ours: Timestamp, theirs: Option<Timestamp>) -> Timestamp {
    let unknown = chrono::TimeDelta::seconds(i64::from(limits::UNKNOWN_CLOCK_SECS));
    theirs.map_or(ours - unknown, |theirs| theirs.min(ours))
}

/// What a run of a feed asks for. One sync of a feed at a time: its name is the key.
fn request_for(feed: &str, project: &str, run_type: Option<RunType>) -> QueueRun {
    let mut request = QueueRun::new(project, SYNC_ENV);
    let mut metadata = serde_json::Map::new();
    metadata.insert("feed".to_owned(), feed.into());
    if let Some(run_type) = run_type {
        metadata.insert("run_type".to_owned(), run_type.as_str().into());
    }
    request.metadata = Json::Object(metadata);
    request.labels = vec![SYNC_LABEL.to_owned()];
    request.concurrency_key = Some(format!("feed:{feed}"));
    request
}
