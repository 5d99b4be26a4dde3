//! Why a sync is where it is: which partition, which wait, since when, and what would change it.

use crate::Timestamp;
use crate::records::{Partition, Sync};
use crate::sync::SyncState;
use std::collections::BTreeMap;

/// What was read of a sync besides its run.
#[derive(Debug, Clone)]
pub struct SyncFacts {
    /// The feed.
    pub feed: String,
    /// The sync, once it is planned.
    pub sync: Option<Sync>,
    /// Its partitions.
    pub partitions: Vec<Partition>,
    /// An outage of the feed: since when, and when it is asked again.
    pub outage: Option<(Timestamp, Timestamp)>,
    /// What the feed said last.
    pub outage_reason: Option<String>,
    /// Whether the feed is paused, and the note.
    pub paused: Option<Option<String>>,
    /// Live schedulers.
    pub schedulers: Hands,
    /// Live workers of pages.
    pub workers: Hands,
    /// Live consolidators.
    pub consolidators: Hands,
    /// The copy of the watermark that this sync left is late, and why.
    pub copy_error: Option<String>,
    /// The processes that have a partition's page in hand, by partition.
    pub page_holders: BTreeMap<String, String>,
    /// The process that has the consolidation in hand.
    pub consolidation_holder: Option<String>,
    /// The time now.
    pub now: Timestamp,
}

/// Time without progress after which a page in hand is said to wait for the feed.
const SLOW_SECS: i64 = 5;

/// The live processes of one role.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hands {
    /// Those that take work.
    pub taking: i64,
    /// Those that were asked to drain.
    pub draining: i64,
}

impl Hands {
    /// Why nothing is taken, where it is not: `none` where nobody is there at all.
    fn missing(self, none: SyncReason) -> Option<SyncReason> {
        if self.taking > 0 {
            None
        } else if self.draining > 0 {
            Some(SyncReason::Draining { processes: self.draining })
        } else {
            Some(none)
        }
    }
}

/// The one reason.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "wait", rename_all = "snake_case")]
pub enum SyncReason {
    /// Nobody plans.
    NoScheduler,
    /// The feed is being scanned.
    Scanning,
    /// The feed answers nobody.
    FeedDown {
        /// The feed.
        feed: String,
        /// Since when.
        since: Timestamp,
        /// When it is asked again.
        probe_at: Timestamp,
        /// What it said last.
        reason: String,
    },
    /// A person holds the feed.
    FeedPaused {
        /// The feed.
        feed: String,
        /// Why.
        note: Option<String>,
    },
    /// Nobody carries out pages.
    NoWorkers,
    /// Whoever could go on with it was asked to drain.
    Draining {
        /// How many there are.
        processes: i64,
    },
    /// Pages are carried out.
    Fetching {
        /// The partition that moved least lately.
        partition: String,
        /// How far it is.
        offset: i32,
        /// How far it should come.
        predicted: i64,
        /// When it last moved.
        since: Timestamp,
        /// What went wrong with its page, where something did.
        error: Option<String>,
        /// Partitions that are open.
        open: usize,
        /// Partitions in all.
        of: usize,
    },
    /// A worker has asked the feed for a page, and the feed has not answered yet.
    SlowPage {
        /// The feed.
        feed: String,
        /// The partition.
        partition: String,
        /// The place of the page.
        offset: i32,
        /// The worker that asked.
        worker: String,
        /// When the partition last moved.
        since: Timestamp,
        /// What went wrong with the page before, where something did.
        error: Option<String>,
    },
    /// Every record is in the table, and the feed is asked which records it no longer offers.
    Verifying {
        /// The feed.
        feed: String,
        /// The consolidator that asks.
        consolidator: String,
        /// When the sync last moved.
        since: Timestamp,
    },
    /// Nobody consolidates.
    NoConsolidators,
    /// It is done, and the copy of its watermark is late.
    CopyLate {
        /// The feed.
        feed: String,
        /// Why.
        reason: String,
    },
    /// What was fetched is being brought into the table.
    Consolidating {
        /// Stones looked at.
        done: i64,
        /// Stones in all.
        of: i64,
    },
}

/// Decides what a sync waits for. `None`: the run's own reason says it all.
pub fn explain_sync(facts: &SyncFacts, planning: bool) -> Option<SyncReason> {
    let down = || {
        facts.outage.map(|(since, probe_at)| SyncReason::FeedDown {
            feed: facts.feed.clone(),
            since,
            probe_at,
            reason: facts.outage_reason.clone().unwrap_or_default(),
        })
    };
    let Some(sync) = &facts.sync else {
        if let Some(note) = &facts.paused {
            return Some(SyncReason::FeedPaused { feed: facts.feed.clone(), note: note.clone() });
        }
        if planning {
            return down().or(Some(SyncReason::Scanning));
        }
        return facts.schedulers.missing(SyncReason::NoScheduler);
    };
    match sync.state {
        SyncState::Created | SyncState::WorkersRunning => Some(fetching(facts, down())),
        SyncState::ConsolidationTriggered | SyncState::Consolidating => {
            let missing = facts.consolidators.missing(SyncReason::NoConsolidators);
            missing.or_else(|| Some(consolidating(facts, sync, down())))
        }
        SyncState::Completed => {
            facts.copy_error.clone().map(|reason| SyncReason::CopyLate { feed: facts.feed.clone(), reason })
        }
        SyncState::Failed => None,
    }
}

fn consolidating(facts: &SyncFacts, sync: &Sync, down: Option<SyncReason>) -> SyncReason {
    // Once every page is in the table, a sync asks the feed for the records that are gone.
    let partitions = &facts.partitions;
    let is_in = partitions.iter().all(|partition| partition.consolidated_to >= partition.next_offset);
    if let (true, Some(down)) = (is_in, down) {
        return down;
    }
    if let (true, Some(consolidator)) = (is_in, &facts.consolidation_holder)
        && facts.is_slow(sync.updated_at)
    {
        let (feed, consolidator) = (facts.feed.clone(), consolidator.clone());
        return SyncReason::Verifying { feed, consolidator, since: sync.updated_at };
    }
    SyncReason::Consolidating {
        done: partitions.iter().map(|partition| partition.consolidated).sum(),
        of: partitions.iter().map(|partition| partition.stored).sum(),
    }
}

fn fetching(facts: &SyncFacts, down: Option<SyncReason>) -> SyncReason {
    if let Some(down) = down {
        return down;
    }
    if let Some(note) = &facts.paused {
        return SyncReason::FeedPaused { feed: facts.feed.clone(), note: note.clone() };
    }
    if let Some(missing) = facts.workers.missing(SyncReason::NoWorkers) {
        return missing;
    }
    let open = facts.partitions.iter().filter(|partition| partition.state.is_open());
    let count = open.clone().count();
    let slowest = open.min_by_key(|partition| partition.updated_at);
    let holder = slowest.and_then(|slowest| facts.page_holders.get(&slowest.partition_id));
    match (slowest, holder) {
        (Some(slowest), Some(worker)) if facts.is_slow(slowest.updated_at) => SyncReason::SlowPage {
            feed: facts.feed.clone(),
            partition: slowest.partition_id.clone(),
            offset: slowest.next_offset,
            worker: worker.clone(),
            since: slowest.updated_at,
            error: slowest.error.clone(),
        },
        (Some(slowest), _) => SyncReason::Fetching {
            partition: slowest.partition_id.clone(),
            offset: slowest.next_offset,
            predicted: slowest.predicted,
            since: slowest.updated_at,
            error: slowest.error.clone(),
            open: count,
            of: facts.partitions.len(),
        },
        (None, _) => SyncReason::NoConsolidators,
    }
}

impl SyncFacts {
    /// Whether a place that last moved at `since` has not moved for too long.
    fn is_slow(&self, since: Timestamp) -> bool {
        (self.now - since).num_seconds() >= SLOW_SECS
    }
}

impl SyncReason {
    /// Whether a pause of the lane or the project holds what this waits for. Consolidation goes on in spite of it.
    pub fn is_held_by_pauses(&self) -> bool {
        match self {
            Self::NoScheduler
            | Self::Scanning
            | Self::FeedPaused { .. }
            | Self::NoWorkers
            | Self::SlowPage { .. }
            | Self::Fetching { .. } => true,
            Self::FeedDown { .. }
            | Self::Draining { .. }
            | Self::NoConsolidators
            | Self::CopyLate { .. }
            | Self::Verifying { .. }
            | Self::Consolidating { .. } => false,
        }
    }

    /// The sentence for people.
    pub fn sentence(&self) -> String {
        match self {
            Self::NoScheduler => "It waits for a scheduler, and none is alive.".to_owned(),
            Self::Scanning => "Its scheduler counts the feed.".to_owned(),
            Self::FeedDown { feed, since, probe_at, reason } => format!(
                "Feed {feed} has not answered since {}, and is asked again at {}: {reason}.",
                super::at(*since),
                super::at(*probe_at)
            ),
            Self::FeedPaused { feed, note } => {
                let note = note.as_ref().map_or_else(String::new, |note| format!(" ({note})"));
                format!("Feed {feed} is paused{note}.")
            }
            Self::NoWorkers => "Its pages wait for a worker, and none is alive.".to_owned(),
            Self::Draining { processes } => format!(
                "It waits: {} nothing new.",
                super::counted(
                    *processes,
                    "process that could go on with it drains, and takes",
                    "processes that could go on with it drain, and take"
                )
            ),
            Self::Fetching { partition, offset, predicted, since, error, open, of } => {
                let error =
                    error.as_ref().map_or_else(String::new, |error| format!("; its page failed: {error}"));
                format!(
                    "{open} of {of} partitions are being read; {partition} is at {offset} of {predicted} since \
                     {}{error}.",
                    super::at(*since)
                )
            }
            Self::SlowPage { feed, partition, offset, worker, since, error } => {
                let error = error
                    .as_ref()
                    .map_or_else(String::new, |error| format!("; an earlier try failed: {error}"));
                format!(
                    "Worker {worker} waits for feed {feed} to answer the page at {offset} of {partition}, which has \
                     not moved since {}{error}.",
                    super::at(*since)
                )
            }
            Self::Verifying { feed, consolidator, since } => format!(
                "Every record is in the table; consolidator {consolidator} waits for feed {feed} to say which records \
                 it no longer offers, since {}.",
                super::at(*since)
            ),
            Self::NoConsolidators => "It waits for a consolidator, and none is alive.".to_owned(),
            Self::CopyLate { feed, reason } => {
                format!("It succeeded. The copy of the watermark of feed {feed} is late: {reason}.")
            }
            Self::Consolidating { done, of } => format!("{done} of {of} stones are in the table."),
        }
    }

    /// What a person can do about it, where there is one thing to do.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoScheduler => Some("tidemill up, or tidemill scheduler".to_owned()),
            Self::NoWorkers => Some("tidemill up, or tidemill worker".to_owned()),
            Self::NoConsolidators => Some("tidemill up, or tidemill consolidator".to_owned()),
            Self::Draining { .. } => Some("tidemill worker list".to_owned()),
            Self::FeedPaused { feed, .. } => Some(format!("tidemill feed resume {feed}")),
            Self::CopyLate { feed, .. } => Some(format!("tidemill feed show {feed}")),
            Self::SlowPage { feed, .. } | Self::Verifying { feed, .. } => {
                Some(format!("tidemill feed show {feed}"))
            }
            Self::Scanning | Self::FeedDown { .. } | Self::Fetching { .. } | Self::Consolidating { .. } => {
                None
            }
        }
    }
}
