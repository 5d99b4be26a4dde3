//! Feeds: configuration, opened clients, and their share of the rate limit.

use super::circuit::FeedAccessError;
use super::{CONSOLIDATOR_LABEL, PAGES_LABEL, SYNC_LABEL, SyncSettings, Syncs};
use crate::NewSchedule;
use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tidemill_core::feed::{CursorUnit, Feed, RunType, Watermark};
use tidemill_core::feed_definition::TableName;
use tidemill_core::reach::{DefinedBy, Reach, ReachError, Use};
use tidemill_core::records::{FeedRecord, WatermarkChange};
use tidemill_core::run::QueueRun;
use tidemill_core::schedule::{MissedPolicy, OverlapPolicy};
use tidemill_core::worker::Worker;
use tidemill_core::{Json, Timestamp, limits, request};
use tidemill_feeds::{Budgets, Endpoint, Feed as Source, FeedError, ListedHosts, Network, Secret};
use tidemill_store::{Error, QueueOutcome, Refusal, RefusalCode};
use tokio::time::Instant;

/// Environment of sync runs within a feed's project.
pub(super) const SYNC_ENV: &str = "sync";

/// A feed to add or change.
#[derive(Debug, Clone)]
pub struct FeedChange {
    pub feed: Feed,
    /// Text of the definition file, for a feed of the kind `rest`. It determines endpoint, rate and settings.
    pub definition: Option<String>,
    /// Where a copy of its watermark is written.
    pub copy_url: Option<String>,
    /// Cron expression of incremental syncs.
    pub schedule: Option<String>,
    /// Cron expression of full syncs, which find records that the feed no longer offers.
    pub full_schedule: Option<String>,
    /// IANA time zone of the cron expressions.
    pub time_zone: String,
}

type ByName<T> = Arc<Mutex<HashMap<String, T>>>;

/// The opened feeds of this process.
#[derive(Clone)]
pub struct Feeds {
    settings: Arc<SyncSettings>,
    /// Lists of everything that feeds of projects may use.
    reach: Arc<Reach>,
    open: ByName<(Feed, Arc<dyn Source>)>,
    /// The last read record of each feed, and when it was read.
    recent: ByName<(Instant, Arc<FeedRecord>)>,
    /// Number of requests that wait for each feed that is down or slow.
    waiting: ByName<usize>,
    /// Number of processes that share the rates, as far as is known.
    processes: Arc<AtomicUsize>,
    /// Rate limits that several feeds share.
    budgets: Budgets,
}

/// Counts one request as waiting for a feed that is down or slow, until it is dropped.
pub(super) struct FeedWaitGuard {
    feed: String,
    waiting: ByName<usize>,
}

impl Drop for FeedWaitGuard {
    fn drop(&mut self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(requests) = waiting.get_mut(&self.feed) {
            *requests -= 1;
            if *requests == 0 {
                waiting.remove(&self.feed);
            }
        }
    }
}

/// How long a feed's record is cached for pages.
const RECENT: Duration = Duration::from_secs(1);

impl Feeds {
    pub(super) fn new(settings: Arc<SyncSettings>, reach: Arc<Reach>) -> Self {
        Self {
            settings,
            reach,
            open: Arc::default(),
            recent: Arc::default(),
            waiting: Arc::default(),
            processes: Arc::new(AtomicUsize::new(1)),
            budgets: Budgets::default(),
        }
    }

    /// Counts a request as waiting for a feed that is down or slow.
    pub(super) fn wait_for(&self, feed: &str) -> FeedWaitGuard {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        *waiting.entry(feed.to_owned()).or_default() += 1;
        FeedWaitGuard { feed: feed.to_owned(), waiting: self.waiting.clone() }
    }

    /// Whether requests of this process wait for a feed that is down or slow.
    pub(super) fn is_waiting(&self, feed: &str) -> bool {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).contains_key(feed)
    }

    /// Whether the feed with this name is open.
    pub(super) fn is_open(&self, name: &str) -> bool {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).contains_key(name)
    }

    /// Opens a feed, or returns the open one if its configuration is unchanged. The variable of a project's feed is
    /// read only if the lists of this process contain it.
    pub fn open(&self, feed: &Feed) -> Result<Arc<dyn Source>, FeedError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, source)) = open.get(&feed.feed)
            && known == feed
        {
            return Ok(source.clone());
        }
        let network = network(feed, &self.reach)?;
        let secrets = |name: &str| std::env::var(name).ok().map(Secret::new);
        let tuning = self.settings.tuning.clone();
        let source = tidemill_feeds::open(feed, &secrets, &network, tuning, &self.budgets)?;
        source.set_rate(self.rate_of(feed));
        open.insert(feed.feed.clone(), (feed.clone(), source.clone()));
        Ok(source)
    }

    /// Returns the cached record of a feed, or reads it.
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

    /// Drops the cached record of a feed.
    pub(super) fn forget(&self, name: &str) {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Divides the rate of each feed, and of each budget of the stored feeds, by the number of processes.
    pub(super) fn share(&self, processes: usize, stored: &[FeedRecord]) {
        self.processes.store(processes.max(1), Ordering::Relaxed);
        let lowest = lowest_rates(stored).into_iter().map(|(key, rate)| (key, self.share_of(rate)));
        self.budgets.set_lowest(lowest);
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        for (feed, source) in open.values() {
            source.set_rate(self.rate_of(feed));
        }
    }

    /// Returns this process's share of a feed's rate.
    fn rate_of(&self, feed: &Feed) -> f64 {
        self.share_of(feed.rate)
    }

    #[expect(clippy::cast_precision_loss, reason = "there are few processes")]
    fn share_of(&self, rate: u32) -> f64 {
        let rate = if self.settings.unlimited { 0.0 } else { f64::from(rate) };
        rate / self.processes.load(Ordering::Relaxed).max(1) as f64
    }
}

/// Returns the lowest rate of each budget, by project and name. 0 is no limit.
fn lowest_rates(stored: &[FeedRecord]) -> HashMap<(String, String), u32> {
    let mut lowest = HashMap::new();
    for FeedRecord { feed, .. } in stored.iter().filter(|record| record.feed.rate > 0) {
        if let Some(budget) = feed.budget() {
            let key = (feed.project_id.clone(), budget.to_owned());
            lowest.entry(key).and_modify(|rate: &mut u32| *rate = feed.rate.min(*rate)).or_insert(feed.rate);
        }
    }
    lowest
}

/// Returns the network that a feed may use, after a check of its variables, hosts and table.
pub(super) fn network(feed: &Feed, reach: &Reach) -> Result<Network, FeedError> {
    match feed.defined_by {
        DefinedBy::Operator => Ok(Network::Unrestricted),
        DefinedBy::Project => {
            let checked = FeedUses::of(feed)?.check(feed, None, reach);
            checked.map_err(|error| FeedError::out_of_reach(feed, format!("{error}; {}", error.hint())))?;
            Ok(Network::Listed(ListedHosts::new(reach.hosts(&feed.project_id))))
        }
    }
}

/// Everything that a feed uses outside our tables.
struct FeedUses {
    variables: Vec<String>,
    endpoints: Vec<Endpoint>,
    table: Option<TableName>,
}

impl FeedUses {
    fn of(feed: &Feed) -> Result<Self, FeedError> {
        let table = feed.definition().and_then(Result::ok).map(|definition| definition.into.table);
        let endpoints = tidemill_feeds::endpoints(feed)?;
        Ok(Self { variables: tidemill_feeds::variables(feed), endpoints, table })
    }

    /// Checks all of it, and the copies of the watermark, against the lists of the feed's project.
    fn check(&self, feed: &Feed, copy_url: Option<&str>, reach: &Reach) -> Result<(), ReachError> {
        let variables = self.variables.iter().map(|name| Use::Environment(name));
        let hosts = self.endpoints.iter().map(|at| Use::Host { host: &at.host, port: at.port });
        let table = self.table.as_ref().map(Use::Table);
        let copy = copy_url.map(Use::Destination);
        reach.check(&feed.project_id, variables.chain(hosts).chain(table).chain(copy))
    }
}

/// Returns the reason for which these lists refuse a stored feed, or the copies of its watermark.
pub fn refusal_of(record: &FeedRecord, reach: &Reach) -> Option<String> {
    let feed = &record.feed;
    match feed.defined_by {
        DefinedBy::Operator => None,
        DefinedBy::Project => match FeedUses::of(feed) {
            Err(error) => Some(error.to_string()),
            Ok(uses) => {
                let checked = uses.check(feed, record.copy_url.as_deref(), reach);
                checked.err().map(|error| format!("{error}; {}", error.hint()))
            }
        },
    }
}

/// Returns the author of a changed feed. A project that changes only the rate or the schedules of the operator's feed
/// leaves it the operator's; otherwise the lists apply to all of it.
fn author(change: &FeedChange, before: Option<&FeedRecord>, reach: &Reach) -> Result<DefinedBy, Error> {
    let feed = &change.feed;
    let is_unchanged =
        |before: &FeedRecord| before.feed.has_same_reach(feed) && before.copy_url == change.copy_url;
    if let Some(before) = before.filter(|before| is_unchanged(before))
        && before.feed.defined_by == DefinedBy::Operator
    {
        return Ok(DefinedBy::Operator);
    }
    check_uses(feed, change.copy_url.as_deref(), reach)?;
    Ok(feed.defined_by)
}

/// Checks everything that a project's feed uses against the lists of its project, and reports every refused use.
pub(super) fn check_uses(feed: &Feed, copy_url: Option<&str>, reach: &Reach) -> Result<(), Error> {
    match feed.defined_by {
        DefinedBy::Operator => Ok(()),
        DefinedBy::Project => {
            let uses = FeedUses::of(feed)
                .map_err(|error| Error::refused(RefusalCode::BadValue, error.to_string()))?;
            uses.check(feed, copy_url, reach).map_err(|error| Error::out_of_reach(&error))
        }
    }
}

/// Returns the name of a feed's schedule of incremental syncs.
pub fn schedule_name(feed: &str) -> String {
    format!("feed-{feed}")
}

/// Returns the name of a feed's schedule of full syncs. It differs from the schedule names of all other feeds.
pub fn full_schedule_name(feed: &str) -> String {
    format!("full-feed-{feed}")
}

impl Syncs {
    /// Opens a feed for a role. A refusal by the lists of this process is recorded on the feed.
    pub(super) async fn open_feed(&self, feed: &Feed) -> Result<Arc<dyn Source>, FeedAccessError> {
        let opened = self.feeds.open(feed);
        if let Err(error) = &opened {
            self.record_refusal(&feed.feed, error).await?;
        }
        Ok(opened?)
    }

    /// Adds or changes a feed with its schedules.
    pub async fn put_feed(&self, mut change: FeedChange) -> Result<FeedRecord, Error> {
        request::check_name("feed", &change.feed.feed)?;
        request::check_name("project", &change.feed.project_id)?;
        if let Some(text) = change.definition.take() {
            change.feed = self.with_definition(change.feed, &text).await?;
        }
        let feed = &change.feed;
        // An invalid configuration is refused here instead of failing in a worker later. The password is only
        // available to the workers, so a placeholder is used.
        let unknown = |_: &str| Some(Secret::new("unknown"));
        let tuning = self.settings.tuning.clone();
        tidemill_feeds::open(feed, &unknown, &Network::Unrestricted, tuning, &Budgets::default())
            .map_err(|error| Error::refused(RefusalCode::BadValue, error.to_string()))?;
        change
            .copy_url
            .as_deref()
            .map_or(Ok(()), super::check_copy_url)
            .map_err(|reason| Error::refused(RefusalCode::BadValue, reason))?;
        for cron in change.schedule.iter().chain(&change.full_schedule) {
            crate::schedules::parse(cron, &change.time_zone)?;
        }
        let (mut stored, reach, now) = (change.clone(), self.engine.reach().clone(), self.now());
        self.engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    let before = tx.lock_feed(&stored.feed.feed).await?;
                    stored.feed.defined_by = author(&stored, before.as_ref(), &reach)?;
                    let project = &stored.feed.project_id;
                    let created = tx.create_project(project, &[SYNC_ENV.to_owned()], now).await?;
                    let changed = tx.put_feed(&stored.feed, stored.copy_url.as_deref(), now).await?;
                    tx.create_raw_table(&stored.feed.raw_table()).await?;
                    if let Some(Ok(definition)) = stored.feed.definition() {
                        tx.claim_table(&stored.feed, &definition.into).await?;
                    }
                    if !created && !changed {
                        tx.skip_audit();
                    }
                    Ok(())
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
                missed: MissedPolicy::Once,
                overlap: OverlapPolicy::Skip,
            };
            self.engine.put_schedule(wanted).await?;
        }
        self.engine.store().feed(feed.feed.clone()).await
    }

    pub async fn start(
        &self,
        feed: &str,
        full: bool,
        idempotency_key: Option<String>,
    ) -> Result<QueueOutcome, Error> {
        let record = self.engine.store().feed(feed.to_owned()).await?;
        let run_type = full.then_some(RunType::Full);
        let mut request = request_for(feed, &record.feed.project_id, run_type);
        request.idempotency_key = idempotency_key;
        request.check()?;
        let request = request.normalized();
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
        self.wake();
        Ok(queued)
    }

    /// Sets a feed's watermark on behalf of an operator, and records the reason.
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
                    // A number has no clock.
                    if found.feed.cursor_unit() == CursorUnit::Time {
                        check_passed(&name, watermark.as_ref(), moment)?;
                    }
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

    /// Divides the rates of feeds and budgets by the number of processes that send requests: page workers, and
    /// processes that only plan or consolidate.
    pub(super) async fn share_rates(&self) {
        let Ok(workers) = self.engine.store().workers().await else { return };
        let Ok(feeds) = self.engine.store().feeds().await else { return };
        let Ok(now) = self.engine.store().now(self.now()).await else { return };
        let since = now - chrono::TimeDelta::seconds(i64::try_from(limits::DEAD_AFTER_SECS).unwrap_or(20));
        let alive =
            |worker: &&Worker| worker.ended_at.is_none() && worker.beat_at > since && !worker.draining;
        let has = |worker: &Worker, wanted: &str| worker.labels.iter().any(|label| label == wanted);
        let alive: Vec<&Worker> = workers.iter().filter(alive).collect();
        let (pagers, others): (Vec<&Worker>, Vec<&Worker>) =
            alive.into_iter().partition(|worker| has(worker, PAGES_LABEL));
        let process = |worker: &Worker| (worker.host.clone(), worker.pid);
        let paging: BTreeSet<(String, i64)> = pagers.iter().map(|worker| process(worker)).collect();
        let others: BTreeSet<(String, i64)> = others
            .into_iter()
            .filter(|worker| has(worker, SYNC_LABEL) || has(worker, CONSOLIDATOR_LABEL))
            .map(process)
            .filter(|other| !paging.contains(other))
            .collect();
        self.feeds.share(pagers.len() + others.len(), &feeds);
    }
}

/// Refuses a watermark in the future: syncs would miss all changes until then.
fn check_passed(feed: &str, watermark: Option<&Watermark>, now: Timestamp) -> Result<(), Error> {
    let Some(mark) = watermark.map(|mark| mark.last_updated_at).filter(|mark| *mark > now) else {
        return Ok(());
    };
    let time = |at: Timestamp| at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    Err(Error::Refused(Refusal {
        code: RefusalCode::BadValue,
        message: format!(
            "watermark {} of feed {feed} is in the future (now: {}), so syncs would miss all changes until then",
            time(mark),
            time(now)
        ),
        hint: Some(format!("tidemill feed watermark {feed} --set {}", time(now))),
    }))
}

/// Returns the end of a sync's time window in the source's time. It becomes the next watermark.
///
/// If the source does not report its time, its clock may be behind ours. A watermark by our clock could then skip
/// changes that the source stamps later, so the window ends as far back as a source can plausibly be behind.
pub(super) fn sealed_end(ours: Timestamp, theirs: Option<Timestamp>) -> Timestamp {
    let unknown = chrono::TimeDelta::seconds(i64::from(limits::UNKNOWN_CLOCK_SECS));
    theirs.map_or(ours - unknown, |theirs| theirs.min(ours))
}

/// Creates the request of a sync run. The concurrency key allows one sync per feed at a time.
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
