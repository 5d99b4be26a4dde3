//! Lane 3: syncs, which mirror a feed in a table.
//!
//! A scheduler claims a sync run, fixes its time window, scans the feed, and writes the plan in one commit. Workers
//! execute one page per message. When the last partition ends, consolidation starts. Completion and the new watermark
//! are one commit. Every step is idempotent and may be interrupted at any point.

mod build;
mod circuit;
mod consolidate;
mod consolidator;
mod copy;
mod coverage;
mod definition;
mod delete_rows;
mod evaluate;
mod evidence;
mod feeds;
mod ledger;
mod lost_columns;
mod moved_values;
mod operate;
mod page;
mod pager;
mod pauses;
mod plan;
mod repair;
mod reprice;
mod scan;
mod scheduler;
mod skip_reason;
mod slots;
mod steps;
mod vanished;
mod verify;
mod watermark;
mod why;
mod width;

pub use consolidator::ConsolidatorOptions;
pub use copy::check_copy_url;
pub use feeds::{FeedChange, Feeds, full_schedule_name, refusal_of, schedule_name};
pub use ledger::LedgerCheck;
pub use pager::PagerOptions;
pub use plan::{PlanError, PlanOutcome};
pub use reprice::{ReplaceScope, RepriceCursor, RepriceSummary};
pub use scan::ScanResult;
pub use steps::StepTimes;
pub use tidemill_core::records::{ConsolidationOrder, SyncRetry, SyncStatus};
pub use tidemill_core::sync::SYNC_LABEL;
pub use tidemill_feeds::rest::parse_definition;

use crate::{Engine, Process};
use std::sync::Arc;
use std::time::Duration;
use tidemill_core::heatmap::Goal;
use tidemill_core::limits;
use tidemill_feeds::{CircuitPolicy, Tuning};
use tidemill_store::AuditEntry;
use tokio::sync::Notify;

/// Label of processes that execute pages.
pub const PAGES_LABEL: &str = "tidemill.pages";
/// Label of processes that consolidate.
pub const CONSOLIDATOR_LABEL: &str = "tidemill.consolidator";

/// Settings of planning, paging and consolidation.
#[derive(Debug, Clone)]
pub struct SyncSettings {
    pub page_size: u32,
    /// How much time before the watermark is read again.
    pub overlap: Duration,
    /// Desired number of records per partition.
    pub partition_target: u64,
    /// Minimum number of records per partition.
    pub partition_min: u64,
    /// Maximum number of partitions of a full sync.
    pub partitions_full: u32,
    /// Maximum number of partitions of an incremental sync.
    pub partitions_incremental: u32,
    /// Maximum number of count calls per scan.
    pub count_calls_max: u32,
    /// Number of concurrent count calls.
    pub count_concurrency: usize,
    /// Number of consecutive pages for which a worker holds a partition while others wait.
    pub hold_pages: u32,
    /// Longest time for which a worker holds a partition while others wait.
    pub hold_time: Duration,
    /// Number of errors of one page after which its partition fails.
    pub page_faults_max: i64,
    /// How long an outage may last before partitions fail.
    pub give_up_after: Duration,
    /// Records per consolidation batch.
    pub batch: usize,
    /// Records per upsert statement.
    pub upsert: usize,
    /// Largest share of a feed's records that one sync may delete.
    pub delete_limit: f64,
    /// How long a worker that shuts down waits for pages in progress.
    pub grace: Duration,
    /// Ignores the rate limits of feeds, for the demo and benchmarks.
    pub unlimited: bool,
    /// Time between two heartbeats.
    pub heartbeat_every: Duration,
    /// Whether a drained role ends its process.
    pub process: Process,
    /// Timeouts and retries of the feed clients.
    pub tuning: Tuning,
    /// When a feed counts as down.
    pub circuit: CircuitPolicy,
    /// Reaction to a ledger that does not add up. Only tests change it.
    pub ledger_check: LedgerCheck,
}

impl Default for SyncSettings {
    fn default() -> Self {
        Self {
            page_size: limits::PAGE_SIZE,
            overlap: Duration::from_secs(limits::OVERLAP_SECS),
            partition_target: 5_000,
            partition_min: 1_000,
            partitions_full: 30,
            partitions_incremental: 10,
            count_calls_max: Goal::FULL.calls_max,
            count_concurrency: 3,
            hold_pages: 20,
            hold_time: Duration::from_secs(2),
            page_faults_max: 5,
            give_up_after: Duration::from_secs(limits::GIVE_UP_SECS),
            batch: 2_000,
            upsert: 500,
            delete_limit: limits::DELETE_LIMIT,
            grace: Duration::from_secs(limits::CANCEL_GRACE_SECS),
            unlimited: false,
            heartbeat_every: Duration::from_secs(limits::HEARTBEAT_SECS),
            process: Process::Own,
            tuning: Tuning::default(),
            circuit: CircuitPolicy::default(),
            ledger_check: LedgerCheck::Alerts,
        }
    }
}

/// The use cases of syncs on one store.
#[derive(Clone)]
pub struct Syncs {
    engine: Engine,
    settings: Arc<SyncSettings>,
    feeds: Feeds,
    /// Wakes waiting tasks of this process after a message was sent.
    wakeup: Arc<Notify>,
    /// Durations of pages without the fetch.
    steps: Arc<steps::StepHistogram>,
    /// State of the copies of watermarks.
    copies: copy::CopyStates,
}

impl Syncs {
    /// Creates the use cases on an engine.
    pub fn new(engine: Engine, settings: SyncSettings) -> Self {
        let settings = Arc::new(settings);
        let feeds = Feeds::new(settings.clone(), engine.reach().clone());
        Self {
            engine,
            feeds,
            settings,
            wakeup: Arc::default(),
            steps: Arc::default(),
            copies: copy::CopyStates::default(),
        }
    }

    /// Returns the use cases of one call, see [`Engine::for_call`].
    #[must_use]
    pub fn for_call(&self, entry: Arc<AuditEntry>) -> Self {
        Self { engine: self.engine.for_call(entry), ..self.clone() }
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub fn settings(&self) -> &SyncSettings {
        &self.settings
    }

    /// Returns how long pages took in this process, without the fetch.
    pub fn step_times(&self) -> StepTimes {
        self.steps.times()
    }

    fn now(&self) -> Option<tidemill_core::Timestamp> {
        self.engine.clock().now()
    }

    /// Wakes waiting tasks of this process.
    fn wake(&self) {
        self.wakeup.notify_waiters();
    }
}

/// Converts a duration for timestamp arithmetic.
fn delta(span: Duration) -> chrono::TimeDelta {
    chrono::TimeDelta::from_std(span).unwrap_or(chrono::TimeDelta::MAX)
}
