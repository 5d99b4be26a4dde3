//! The reason for the current state of a sync.

use crate::Timestamp;
use crate::feed::PartitionField;
use crate::records::{Partition, Sync};
use crate::sync::SyncState;
use std::collections::BTreeMap;

/// The input of [`explain_sync`].
#[derive(Debug, Clone)]
pub struct SyncFacts {
    pub feed: String,
    /// Field by which the feed is divided.
    pub field: PartitionField,
    /// The sync; `None` until it is planned.
    pub sync: Option<Sync>,
    pub partitions: Vec<Partition>,
    /// An outage of the feed: its start, and the time of the next probe.
    pub outage: Option<(Timestamp, Timestamp)>,
    /// Last error of the feed.
    pub outage_reason: Option<String>,
    /// Reason for which a process refused to reach the feed.
    pub refusal: Option<String>,
    /// `Some` if the feed is paused, with the optional note.
    pub paused: Option<Option<String>>,
    pub schedulers: ProcessCounts,
    /// Workers that fetch pages.
    pub workers: ProcessCounts,
    pub consolidators: ProcessCounts,
    /// Reason for which the copy of this sync's watermark is late.
    pub copy_error: Option<String>,
    /// Processes that hold a page, by partition.
    pub page_holders: BTreeMap<String, String>,
    /// Process that holds the consolidation.
    pub consolidation_holder: Option<String>,
    pub now: Timestamp,
}

/// Time without progress after which a held page is reported as waiting for the feed.
const SLOW_SECS: i64 = 5;

/// Numbers of live processes of one role.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessCounts {
    pub taking: i64,
    pub draining: i64,
}

impl ProcessCounts {
    /// Returns the reason for which no process takes work, or `None` if one does. `none` is the reason without any
    /// process.
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

/// The reason for the current state of a sync.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "wait", rename_all = "snake_case")]
pub enum SyncReason {
    /// No scheduler is running.
    NoScheduler,
    /// A scheduler is counting the feed's records.
    Scanning,
    /// The feed does not answer.
    FeedDown {
        /// Name of the feed.
        feed: String,
        /// Start of the outage.
        since: Timestamp,
        /// Time of the next probe.
        probe_at: Timestamp,
        /// Last error of the feed.
        reason: String,
    },
    /// The configuration of a process does not let this project's feed reach its endpoint.
    FeedRefused {
        /// Name of the feed.
        feed: String,
        /// Use that is not listed.
        reason: String,
    },
    FeedPaused {
        /// Name of the feed.
        feed: String,
        /// Reason of the pause.
        note: Option<String>,
    },
    /// No worker is running.
    NoWorkers,
    /// All processes that could continue it are draining.
    Draining {
        /// Number of draining processes.
        processes: i64,
    },
    /// Workers are fetching pages.
    Fetching {
        /// Partition with the oldest progress.
        partition: String,
        /// Range of that partition, with the name of the field: `price 100.00 to 250.00`.
        range: String,
        /// Position of that partition.
        offset: i32,
        /// Expected number of its records; 0 if the feed does not count.
        predicted: i64,
        /// Time of its last progress.
        since: Timestamp,
        /// Error of its current page.
        error: Option<String>,
        /// Number of open partitions.
        open: usize,
        /// Number of all partitions.
        of: usize,
    },
    /// A worker has requested a page, and the feed has not answered.
    SlowPage {
        /// Name of the feed.
        feed: String,
        /// Partition of the page.
        partition: String,
        /// Range of that partition, with the name of the field: `price 100.00 to 250.00`.
        range: String,
        /// Position of the page.
        offset: i32,
        /// Worker that requested it.
        worker: String,
        /// Time of the partition's last progress.
        since: Timestamp,
        /// Error of an earlier attempt.
        error: Option<String>,
    },
    /// Every record is in the table, and a consolidator requests the withdrawn records from the feed.
    Verifying {
        /// Name of the feed.
        feed: String,
        consolidator: String,
        /// Time of the sync's last progress.
        since: Timestamp,
    },
    /// No consolidator is running.
    NoConsolidators,
    /// It is completed, but the copy of its watermark is late.
    CopyLate {
        /// Name of the feed.
        feed: String,
        /// Error of the copy.
        reason: String,
    },
    /// Consolidators are writing its records to the table.
    Consolidating {
        /// Number of processed records.
        done: i64,
        /// Number of all records.
        of: i64,
    },
}

/// Returns the reason for the state of a sync; `None` if the reason of its run is sufficient.
pub fn explain_sync(facts: &SyncFacts, planning: bool) -> Option<SyncReason> {
    let refused =
        facts.refusal.clone().map(|reason| SyncReason::FeedRefused { feed: facts.feed.clone(), reason });
    let down = || {
        let down = facts.outage.map(|(since, probe_at)| SyncReason::FeedDown {
            feed: facts.feed.clone(),
            since,
            probe_at,
            reason: facts.outage_reason.clone().unwrap_or_default(),
        });
        refused.clone().or(down)
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
    // After all pages are in the table, a sync requests the withdrawn records from the feed.
    let partitions = &facts.partitions;
    let is_consolidated =
        partitions.iter().all(|partition| partition.consolidated_to >= partition.next_offset);
    if let (true, Some(down)) = (is_consolidated, down) {
        return down;
    }
    if let (true, Some(consolidator)) = (is_consolidated, &facts.consolidation_holder)
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
            range: facts.field.label(slowest.range),
            offset: slowest.next_offset,
            worker: worker.clone(),
            since: slowest.updated_at,
            error: slowest.error.clone(),
        },
        (Some(slowest), _) => SyncReason::Fetching {
            partition: slowest.partition_id.clone(),
            range: facts.field.label(slowest.range),
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
    /// Returns whether there was no progress since `since` for too long.
    fn is_slow(&self, since: Timestamp) -> bool {
        (self.now - since).num_seconds() >= SLOW_SECS
    }
}

impl SyncReason {
    /// Returns whether a pause of the lane or the project would also block this. Consolidation continues during a
    /// pause.
    pub fn is_held_by_pauses(&self) -> bool {
        match self {
            Self::NoScheduler
            | Self::Scanning
            | Self::FeedPaused { .. }
            | Self::NoWorkers
            | Self::SlowPage { .. }
            | Self::Fetching { .. } => true,
            Self::FeedDown { .. }
            | Self::FeedRefused { .. }
            | Self::Draining { .. }
            | Self::NoConsolidators
            | Self::CopyLate { .. }
            | Self::Verifying { .. }
            | Self::Consolidating { .. } => false,
        }
    }

    /// Returns the reason as a sentence.
    pub fn sentence(&self) -> String {
        match self {
            Self::NoScheduler => "It waits for a scheduler, but no scheduler is running.".to_owned(),
            Self::Scanning => "Its scheduler is counting the feed's records.".to_owned(),
            Self::FeedDown { feed, since, probe_at, reason } => format!(
                "Feed {feed} has not answered since {}; the next attempt is at {}: {reason}.",
                super::at(*since),
                super::at(*probe_at)
            ),
            Self::FeedRefused { feed, reason } => {
                format!("The configuration of a process refuses feed {feed}: {reason}.")
            }
            Self::FeedPaused { feed, note } => {
                let note = note.as_ref().map_or_else(String::new, |note| format!(" ({note})"));
                format!("Feed {feed} is paused{note}.")
            }
            Self::NoWorkers => "Its pages wait for a worker, but no worker is running.".to_owned(),
            Self::Draining { processes } => format!(
                "It waits: {} no new work.",
                super::counted(
                    *processes,
                    "process that could continue it is draining and takes",
                    "processes that could continue it are draining and take"
                )
            ),
            Self::Fetching { partition, range, offset, predicted, since, error, open, of } => {
                let error =
                    error.as_ref().map_or_else(String::new, |error| format!("; its page failed: {error}"));
                let predicted = if *predicted > 0 { format!(" of {predicted}") } else { String::new() };
                format!(
                    "{open} of {of} partitions are being read; {partition} ({range}) is at {offset}{predicted} since \
                     {}{error}.",
                    super::at(*since)
                )
            }
            Self::SlowPage { feed, partition, range, offset, worker, since, error } => {
                let error = error
                    .as_ref()
                    .map_or_else(String::new, |error| format!("; an earlier attempt failed: {error}"));
                format!(
                    "Worker {worker} waits for feed {feed} to return the page at {offset} of {partition} ({range}), \
                     which has made no progress since {}{error}.",
                    super::at(*since)
                )
            }
            Self::Verifying { feed, consolidator, since } => format!(
                "Every record is in the table; consolidator {consolidator} waits for feed {feed} to return the \
                 withdrawn records, since {}.",
                super::at(*since)
            ),
            Self::NoConsolidators => {
                "It waits for a consolidator, but no consolidator is running.".to_owned()
            }
            Self::CopyLate { feed, reason } => {
                format!("It succeeded. The copy of the watermark of feed {feed} is late: {reason}.")
            }
            Self::Consolidating { done, of } => format!("{done} of {of} records are in the table."),
        }
    }

    /// Returns a command that helps, if there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoScheduler => Some("tidemill scheduler".to_owned()),
            Self::FeedRefused { .. } => Some("tidemill doctor".to_owned()),
            Self::NoWorkers => Some("tidemill worker".to_owned()),
            Self::NoConsolidators => Some("tidemill consolidator".to_owned()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_partition_is_named_in_the_words_of_the_feed() {
        let since = Timestamp::from_timestamp(1_767_225_600, 0).unwrap();
        let fetching = |predicted| SyncReason::Fetching {
            partition: "partition-2".to_owned(),
            range: "region = eu".to_owned(),
            offset: 60,
            predicted,
            since,
            error: None,
            open: 1,
            of: 3,
        };
        let start = "1 of 3 partitions are being read; partition-2 (region = eu) is at 60";
        assert_eq!(fetching(500).sentence(), format!("{start} of 500 since {}.", crate::why::at(since)));
        assert_eq!(fetching(0).sentence(), format!("{start} since {}.", crate::why::at(since)));
    }
}
