//! Messages for pages that need no work. They are logged and counted.

use tidemill_core::message::WorkItem;
use tidemill_core::page::Guard;

/// Why a page is skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SkipReason {
    Completed,
    /// The partition failed, or its sync has ended.
    Failed,
    /// The page is already stored, or not yet due.
    Duplicate,
    /// The sync or the partition was removed.
    Gone,
    /// Another delivery was faster, or the lock went to another worker.
    Overtaken,
}

impl SkipReason {
    /// Converts the guard's decision. Returns `None` if the page is to be fetched.
    pub(super) const fn of(guard: Guard) -> Option<Self> {
        match guard {
            Guard::Proceed => None,
            Guard::SkipCompleted => Some(Self::Completed),
            Guard::SkipFailed => Some(Self::Failed),
            Guard::SkipDuplicate => Some(Self::Duplicate),
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Duplicate => "duplicate",
            Self::Gone => "gone",
            Self::Overtaken => "overtaken",
        }
    }

    const fn sentence(self) -> &'static str {
        match self {
            Self::Completed => "the partition is completed",
            Self::Failed => "the partition or its sync has ended",
            Self::Duplicate => "the page is already stored, or not yet due",
            Self::Gone => "the sync was removed",
            Self::Overtaken => "another worker was faster",
        }
    }

    /// Logs and counts the skipped page.
    pub(super) fn record(self, item: &WorkItem) {
        tracing::info!(
            sync.id = %item.run_id,
            partition = item.partition_id,
            "skipped the page at offset {} of partition {}: {}",
            item.offset,
            item.partition_id,
            self.sentence()
        );
        let labels = [("feed", item.feed.clone()), ("reason", self.as_str().to_owned())];
        metrics::counter!("tidemill_pages_skipped_total", &labels).increment(1);
    }
}
