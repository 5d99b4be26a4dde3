//! A message for a page that needs no work: an outcome of its own, logged and counted.

use tidemill_core::message::WorkItem;
use tidemill_core::page::Guard;

/// Why a page is skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Skip {
    /// Its partition is read to the end.
    Completed,
    /// Its partition failed, or its sync has ended.
    Failed,
    /// It is stored already, or is not yet due.
    Duplicate,
    /// Its sync or its partition is gone.
    Gone,
    /// Another delivery of it was faster, or its lock went to another worker.
    Overtaken,
}

impl Skip {
    /// The decision of the guard; `None` where the page is to be fetched.
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
            Self::Completed => "the partition is read to the end",
            Self::Failed => "the partition or its sync has ended",
            Self::Duplicate => "the page is stored already, or not yet due",
            Self::Gone => "the sync is gone",
            Self::Overtaken => "another worker was faster",
        }
    }

    /// Logs and counts the skipped page.
    pub(super) fn note(self, item: &WorkItem) {
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
