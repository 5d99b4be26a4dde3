//! Lane 3: a feed kept in a table.
//!
//! A sync run is claimed by a scheduler, which seals the window, scans the feed and writes everything in one commit;
//! workers carry out one page per message; the last partition leads to consolidation; completion and watermark are one
//! commit. Every step can die at any place and be done again.

mod circuit;
mod consolidate;
mod consolidator;
mod copy;
mod evaluate;
mod feeds;
mod operate;
mod page;
mod pager;
mod pauses;
mod plan;
mod repair;
mod reprice;
mod scan;
mod scheduler;
mod skip;
mod slots;
mod steps;
mod vanished;
mod why;
mod width;

pub use consolidator::ConsolidatorOptions;
pub use copy::check_copy_url;
pub use feeds::{FeedChange, Feeds, full_schedule_name, schedule_name};
pub use pager::PagerOptions;
pub use plan::{PlanFault, Planned};
pub use reprice::{Replaced, RepricePlace, Repriced};
pub use scan::Scanned;
pub use steps::StepTimes;
pub use tidemill_core::records::{Consolidated, RetriedSync, SyncStatus};
pub use tidemill_core::sync::SYNC_LABEL;

use crate::{Engine, Process};
use std::sync::Arc;
use std::time::Duration;
use tidemill_core::heatmap::Goal;
use tidemill_core::limits;
use tidemill_feeds::{CircuitPolicy, Tuning};
use tokio::sync::Notify;

/// The label that says that a process carries out pages.
pub const PAGES_LABEL: &str = "tidemill.pages";
/// The label that says that a process consolidates.
pub const CONSOLIDATOR_LABEL: &str = "tidemill.consolidator";

/// How syncs are done.
#[derive(Debug, Clone)]
pub struct SyncSettings {
    /// Records per page.
    pub page_size: u32,
    /// How much of the time before the watermark is read again.
    pub overlap: Duration,
    /// Records that a partition should have.
    pub partition_target: u64,
    /// Records that a partition has at the least.
    pub partition_min: u64,
    /// Partitions of a full sync, at most.
    pub partitions_full: u32,
    /// Partitions of an incremental sync, at most.
    pub partitions_incremental: u32,
    /// Count calls of one scan, at most.
    pub count_calls_max: u32,
    /// Count calls at a time.
    pub count_concurrency: usize,
    /// Pages in a row for which a worker keeps a partition while others wait.
    pub hold_pages: u32,
    /// Time for which it does.
    pub hold_time: Duration,
    /// Faults of one page before its partition fails.
    pub page_faults_max: i64,
    /// How long an outage may last before partitions fail.
    pub give_up_after: Duration,
    /// Stones in one batch of consolidation.
    pub batch: usize,
    /// Stones in one statement of it.
    pub upsert: usize,
    /// Share of a feed's stones that one sync may delete.
    pub delete_limit: f64,
    /// How long a worker that is told to end waits for the pages that it has asked for.
    pub grace: Duration,
    /// Whether the rate limits of feeds are lifted: for the demo and benchmarks.
    pub unlimited: bool,
    /// How often a process says that it lives.
    pub beat: Duration,
    /// Whether a role ends once it was drained.
    pub process: Process,
    /// How feeds are spoken to.
    pub tuning: Tuning,
    /// When a feed counts as down.
    pub circuit: CircuitPolicy,
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
            beat: Duration::from_secs(limits::BEAT_SECS),
            process: Process::Own,
            tuning: Tuning::default(),
            circuit: CircuitPolicy::default(),
        }
    }
}

/// The use cases of syncs, on one store.
#[derive(Clone)]
pub struct Syncs {
    engine: Engine,
    settings: Arc<SyncSettings>,
    feeds: Feeds,
    /// Rung when something was sent, so that whoever waits in this process looks at once.
    bell: Arc<Notify>,
    /// How long pages take, but for the fetch.
    steps: Arc<steps::Steps>,
    /// What is known of the copies of watermarks.
    copies: copy::Copies,
}

impl Syncs {
    /// The use cases on an engine.
    pub fn new(engine: Engine, settings: SyncSettings) -> Self {
        let settings = Arc::new(settings);
        let feeds = Feeds::new(settings.clone());
        Self {
            engine,
            feeds,
            settings,
            bell: Arc::default(),
            steps: Arc::default(),
            copies: copy::Copies::default(),
        }
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// How syncs are done.
    pub fn settings(&self) -> &SyncSettings {
        &self.settings
    }

    /// How long pages took in this process, but for the fetch.
    pub fn step_times(&self) -> StepTimes {
        self.steps.times()
    }

    fn now(&self) -> Option<tidemill_core::Timestamp> {
        self.engine.clock().now()
    }

    /// Wakes whoever waits in this process.
    fn ring(&self) {
        self.bell.notify_waiters();
    }
}

/// A span of time as the database counts it.
fn delta(span: Duration) -> chrono::TimeDelta {
    chrono::TimeDelta::from_std(span).unwrap_or(chrono::TimeDelta::MAX)
}
