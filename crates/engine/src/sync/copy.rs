//! Copies of watermarks outside the database, for other programs: in a local file, in S3 or in Azure.
//!
//! The database is authoritative, and a late copy only causes a warning. The copy is read first, then the database,
//! and the copy is replaced only if it has not changed since. So a copy never reverts to an older state of the
//! database, however many processes write it, and it follows when an operator moves the watermark back. A newer copy
//! that this database never had, for example from before a restore, is not overwritten but reported. If a watermark
//! is removed, the copy stays until there is a new one.

mod authorities;
mod file;
mod remote;
mod target;

pub use target::check_copy_url;

use super::Syncs;
use chrono::TimeDelta;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use target::{CopyTarget, ReplaceOutcome};
use tidemill_core::Timestamp;
use tidemill_core::feed::{Feed, Watermark};
use tidemill_core::reach::{DefinedBy, ReachError, Use};
use tidemill_core::records::FeedRecord;
use tidemill_store::Error;
use tokio::task::JoinSet;

/// Attempts of one call when other processes change the copy meanwhile.
const TRIES: u32 = 5;
/// Maximum number of concurrent copies.
const COPIES_MAX: usize = 8;
/// Watermark changes that are searched for a newer copy.
const HISTORY: usize = 10_000;
/// First and longest wait before a failed copy is retried.
const WAIT_FIRST: TimeDelta = TimeDelta::seconds(5);
const WAIT_MAX: TimeDelta = TimeDelta::minutes(5);

/// Why a copy was not written.
#[derive(Debug, thiserror::Error)]
enum CopyError {
    #[error("{0}")]
    Address(String),
    /// The operator's lists do not let the feed's project write there.
    #[error("{0}; {hint}", hint = .0.hint())]
    OutOfReach(ReachError),
    #[error("could not read {url}: {reason}")]
    Read { url: String, reason: String },
    #[error("could not write {url}: {reason}")]
    Write { url: String, reason: String },
    #[error("{url} exists and is not a watermark; it is not overwritten")]
    Foreign { url: String },
    /// The copy is ahead of the database.
    #[error(
        "{url} contains {there}, which is newer than the watermark and never was this feed's; it is not overwritten"
    )]
    Newer { url: String, there: String },
    /// Other processes changed the copy during each attempt.
    #[error("{url} was changed by other processes {TRIES} times in a row")]
    Busy { url: String },
}

/// Outcome of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CopyOutcome {
    Written,
    /// The copy is up to date.
    Unchanged,
    /// There is no watermark or no target.
    None,
}

/// Action on the existing copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CopyAction {
    /// It equals the watermark.
    Keep,
    /// It has to be replaced.
    Write,
    /// It is newer, and may be replaced only if it was this feed's watermark once.
    CheckHistory,
}

/// States of the copies by feed, as known to this process.
#[derive(Clone, Default)]
pub(super) struct CopyStates(Arc<Mutex<HashMap<String, CopyState>>>);

/// State of the copy of one feed.
struct CopyState {
    url: String,
    last: LastAttempt,
}

/// Result of the last attempt.
enum LastAttempt {
    /// The copy contains this watermark.
    Copied(Watermark),
    /// Number of consecutive failures.
    Failed { times: u32, again_at: Timestamp },
}

impl CopyStates {
    /// Whether a feed's copy has to be checked. Each process checks each copy at least once: the URL may be new, and
    /// a copy may have been lost.
    fn is_due(&self, record: &FeedRecord, now: Timestamp) -> bool {
        let (Some(url), Some(watermark)) = (&record.copy_url, &record.watermark) else { return false };
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(&record.feed.feed).filter(|known| known.url == *url).map(|known| &known.last) {
            None => true,
            Some(LastAttempt::Copied(copied)) => {
                copied != watermark || record.copied_updated_at != Some(watermark.last_updated_at)
            }
            // After the clock was set back, a copy does not wait longer than the longest wait.
            Some(LastAttempt::Failed { again_at, .. }) => *again_at <= now || *again_at - now > WAIT_MAX,
        }
    }

    fn copied(&self, feed: &str, url: &str, watermark: Watermark) {
        self.put(feed, url, |_| LastAttempt::Copied(watermark));
    }

    fn failed(&self, feed: &str, url: &str, now: Timestamp) {
        self.put(feed, url, |last| {
            let before = match last {
                Some(LastAttempt::Failed { times, .. }) => *times,
                Some(LastAttempt::Copied(_)) | None => 0,
            };
            LastAttempt::Failed { times: before.saturating_add(1), again_at: now + wait_after(before) }
        });
    }

    fn put(&self, feed: &str, url: &str, next: impl FnOnce(Option<&LastAttempt>) -> LastAttempt) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = next(known.get(feed).filter(|known| known.url == url).map(|known| &known.last));
        known.insert(feed.to_owned(), CopyState { url: url.to_owned(), last });
    }
}

/// Returns the wait after this many earlier failures.
fn wait_after(failures: u32) -> TimeDelta {
    let factor = 1_i32.checked_shl(failures.min(16)).unwrap_or(i32::MAX);
    (WAIT_FIRST * factor).min(WAIT_MAX)
}

/// Decides what to do about the existing copy.
fn choose_action(ours: &Watermark, found: Option<&Watermark>) -> CopyAction {
    match found {
        Some(found) if found == ours => CopyAction::Keep,
        Some(found) if found.last_updated_at > ours.last_updated_at => CopyAction::CheckHistory,
        Some(_) | None => CopyAction::Write,
    }
}

impl Syncs {
    /// Copies the watermarks that have changed since their last copy, and returns how many were written. The
    /// error of a copy is recorded on its feed, and a later call retries it; only database errors make this call fail.
    pub async fn copy_watermarks(&self) -> Result<u64, Error> {
        let feeds = self.engine.store().feeds().await?;
        if feeds.iter().all(|record| record.copy_url.is_none()) {
            return Ok(0);
        }
        let now = self.engine.store().now(self.now()).await?;
        let mut due = feeds.into_iter().filter(|record| self.copies.is_due(record, now));
        let (mut running, mut written, mut failure) = (JoinSet::new(), 0, None);
        loop {
            while running.len() < COPIES_MAX
                && let Some(record) = due.next()
            {
                let syncs = self.clone();
                running.spawn(async move { syncs.copy_watermark(record, now).await });
            }
            match running.join_next().await {
                None => return failure.map_or(Ok(written), Err),
                Some(Ok(Ok(copied))) => written += u64::from(copied == CopyOutcome::Written),
                // A feed that fails does not stop the copies of others.
                Some(Ok(Err(error))) => {
                    failure.get_or_insert(error);
                }
                Some(Err(panicked)) => {
                    tracing::error!("the task of a watermark copy broke off: {panicked}");
                }
            }
        }
    }

    /// Copies the watermark of one feed and records the result.
    async fn copy_watermark(&self, record: FeedRecord, now: Timestamp) -> Result<CopyOutcome, Error> {
        let Some(url) = record.copy_url.clone() else { return Ok(CopyOutcome::None) };
        let name = record.feed.feed.clone();
        let copied = match self.check_destination(&record.feed, &url) {
            Ok(()) => self.try_copy(&name, &url).await?,
            Err(error) => Err(error),
        };
        match copied {
            Ok((copied, fresh)) => {
                let Some(watermark) = fresh.watermark.clone() else { return Ok(CopyOutcome::None) };
                let until = watermark.last_updated_at;
                self.copies.copied(&name, &url, watermark);
                if fresh.copied_updated_at != Some(until) || fresh.copy_error.is_some() {
                    self.engine.store().record_copy(name.clone(), Some(until), None, self.now()).await?;
                }
                if fresh.copy_error.is_some() {
                    tracing::info!(feed = name, "the watermark of feed {name} is copied to {url} again");
                }
                Ok(copied)
            }
            Err(error) => {
                self.copies.failed(&name, &url, now);
                let text = error.to_string();
                if record.copy_error.as_ref() != Some(&text) {
                    tracing::warn!(feed = name, "could not copy the watermark of feed {name}: {text}");
                    self.engine.store().record_copy(name, None, Some(text), self.now()).await?;
                }
                Ok(CopyOutcome::None)
            }
        }
    }

    /// Checks the destination of a project's feed against the lists of this process.
    fn check_destination(&self, feed: &Feed, url: &str) -> Result<(), CopyError> {
        match feed.defined_by {
            DefinedBy::Operator => Ok(()),
            DefinedBy::Project => {
                let checked = self.engine.reach().check(&feed.project_id, [Use::Destination(url)]);
                checked.map_err(CopyError::OutOfReach)
            }
        }
    }

    /// Reads the copy, then the database, and replaces the copy if it has not changed since. Also returns the feed's
    /// record.
    async fn try_copy(
        &self,
        feed: &str,
        url: &str,
    ) -> Result<Result<(CopyOutcome, FeedRecord), CopyError>, Error> {
        let target = match CopyTarget::open(url) {
            Ok(target) => target,
            Err(error) => return Ok(Err(error)),
        };
        for _ in 0..TRIES {
            let found = match target.read().await {
                Ok(found) => found,
                Err(error) => return Ok(Err(error)),
            };
            let record = self.engine.store().feed(feed.to_owned()).await?;
            let moved = record.copy_url.as_deref() != Some(url);
            let Some(ours) = record.watermark.as_ref().filter(|_| !moved) else {
                return Ok(Ok((CopyOutcome::None, FeedRecord { watermark: None, ..record })));
            };
            match choose_action(ours, found.watermark.as_ref()) {
                CopyAction::Keep => return Ok(Ok((CopyOutcome::Unchanged, record))),
                CopyAction::Write => {}
                CopyAction::CheckHistory => {
                    let there = found.watermark.as_ref().map(|there| there.last_updated_at);
                    if !self.was_ours(&record, there).await? {
                        let there = there.map(|there| there.to_rfc3339()).unwrap_or_default();
                        return Ok(Err(CopyError::Newer { url: url.to_owned(), there }));
                    }
                }
            }
            match target.write(found.version, ours).await {
                Ok(ReplaceOutcome::Done) => return Ok(Ok((CopyOutcome::Written, record))),
                Ok(ReplaceOutcome::Conflict) => {}
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Err(CopyError::Busy { url: url.to_owned() }))
    }

    /// Whether the feed's watermark had this value once. Then an operator moved it back since, and the copy follows.
    async fn was_ours(&self, record: &FeedRecord, there: Option<Timestamp>) -> Result<bool, Error> {
        if there == record.copied_updated_at {
            return Ok(true);
        }
        let changes = self.engine.store().watermark_changes(record.feed.feed.clone(), HISTORY).await?;
        Ok(changes.iter().any(|change| change.after == there))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watermark(secs: i64, run: &str) -> Watermark {
        let last_updated_at = Timestamp::from_timestamp(secs, 0).unwrap();
        Watermark { last_updated_at, last_run_id: Some(run.to_owned()), last_run_completed_at: None }
    }

    #[test]
    fn existing_copy_is_kept_replaced_or_checked() {
        let ours = watermark(10, "b");
        assert_eq!(choose_action(&ours, None), CopyAction::Write);
        assert_eq!(choose_action(&ours, Some(&watermark(9, "a"))), CopyAction::Write);
        assert_eq!(choose_action(&ours, Some(&watermark(10, "a"))), CopyAction::Write);
        assert_eq!(choose_action(&ours, Some(&ours.clone())), CopyAction::Keep);
        assert_eq!(choose_action(&ours, Some(&watermark(11, "b"))), CopyAction::CheckHistory);
    }

    #[test]
    fn retry_wait_doubles_from_five_seconds_to_five_minutes() {
        let waits: Vec<i64> = (0..8).map(|n| wait_after(n).num_seconds()).collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(wait_after(u32::MAX), WAIT_MAX);
    }
}
