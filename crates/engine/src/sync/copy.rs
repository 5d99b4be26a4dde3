//! The copy of a watermark outside the database, for whoever reads it there: in a local file, in S3 or in
//! Azure.
//!
//! The database is the truth, and a late copy is a warning. First the copy is read, then the database, and
//! the copy is replaced only while it is the one that was read: so a copy never goes back to what the
//! database said earlier, however many processes copy at once, and follows where a person moved the watermark
//! back. A newer copy that this database never had, such as one from before a restore, is left alone and
//! reported. Where a watermark was taken away altogether, the copy stays until there is one again.

mod file;
mod place;
mod remote;

pub use place::check_copy_url;

use super::Syncs;
use chrono::TimeDelta;
use place::{Place, Written};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tidemill_core::Timestamp;
use tidemill_core::feed::Watermark;
use tidemill_core::records::FeedRecord;
use tidemill_store::Error;
use tokio::task::JoinSet;

/// How often one call begins anew because somebody else wrote meanwhile.
const TRIES: u32 = 5;
/// Copies at a time.
const COPIES_MAX: usize = 8;
/// Changes of a watermark that are looked through for a copy that is newer.
const HISTORY: usize = 10_000;
/// How long a copy that failed waits for its next try, at first and at most.
const WAIT_FIRST: TimeDelta = TimeDelta::seconds(5);
const WAIT_MAX: TimeDelta = TimeDelta::minutes(5);

/// Why a copy was not made.
#[derive(Debug, thiserror::Error)]
enum Fault {
    /// The address is none.
    #[error("{0}")]
    Address(String),
    /// The copy that is there could not be read.
    #[error("could not read {url}: {reason}")]
    Read { url: String, reason: String },
    /// The copy could not be written.
    #[error("could not write {url}: {reason}")]
    Write { url: String, reason: String },
    /// Something else is there.
    #[error("{url} exists and is not a watermark; it is left alone")]
    Foreign { url: String },
    /// A copy is there that is ahead of the database.
    #[error(
        "{url} says {there}, which is newer than the watermark and never was this feed's; it is left alone"
    )]
    Newer { url: String, there: String },
    /// Somebody else always was faster.
    #[error("{url} was changed by others {TRIES} times in a row")]
    Busy { url: String },
}

/// What became of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Copied {
    /// It was written.
    Now,
    /// It was there already.
    Already,
    /// There is no watermark, or nowhere to copy it to.
    Nothing,
}

/// What is to be done about the copy that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// It says what the watermark says.
    Keep,
    /// It is to be replaced.
    Write,
    /// It is newer: only where it was this feed's watermark once may it be replaced.
    Ask,
}

/// What this process knows of the copies that it made.
#[derive(Clone, Default)]
pub(super) struct Copies(Arc<Mutex<HashMap<String, Known>>>);

/// What is known of the copy of one feed.
struct Known {
    url: String,
    last: Last,
}

/// How the last try ended.
enum Last {
    /// The copy says this.
    Copied(Watermark),
    /// It failed so many times in a row.
    Failed { times: u32, again_at: Timestamp },
}

impl Copies {
    /// Whether a feed's copy is to be looked at. Each process looks at each copy once: the address may be
    /// new, and a copy may have been lost.
    fn is_due(&self, record: &FeedRecord, now: Timestamp) -> bool {
        let (Some(url), Some(watermark)) = (&record.copy_url, &record.watermark) else { return false };
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(&record.feed.feed).filter(|known| known.url == *url).map(|known| &known.last) {
            None => true,
            Some(Last::Copied(copied)) => {
                copied != watermark || record.copied_updated_at != Some(watermark.last_updated_at)
            }
            // A clock that was set back does not hold a copy up for longer than the longest wait.
            Some(Last::Failed { again_at, .. }) => *again_at <= now || *again_at - now > WAIT_MAX,
        }
    }

    fn copied(&self, feed: &str, url: &str, watermark: Watermark) {
        self.put(feed, url, |_| Last::Copied(watermark));
    }

    fn failed(&self, feed: &str, url: &str, now: Timestamp) {
        self.put(feed, url, |last| {
            let before = match last {
                Some(Last::Failed { times, .. }) => *times,
                Some(Last::Copied(_)) | None => 0,
            };
            Last::Failed { times: before.saturating_add(1), again_at: now + wait_after(before) }
        });
    }

    fn put(&self, feed: &str, url: &str, next: impl FnOnce(Option<&Last>) -> Last) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = next(known.get(feed).filter(|known| known.url == url).map(|known| &known.last));
        known.insert(feed.to_owned(), Known { url: url.to_owned(), last });
    }
}

/// How long to wait after a failure that had so many before it.
fn wait_after(failures: u32) -> TimeDelta {
    let factor = 1_i32.checked_shl(failures.min(16)).unwrap_or(i32::MAX);
    (WAIT_FIRST * factor).min(WAIT_MAX)
}

/// What to do about what was found.
fn step(ours: &Watermark, found: Option<&Watermark>) -> Step {
    match found {
        Some(found) if found == ours => Step::Keep,
        Some(found) if found.last_updated_at > ours.last_updated_at => Step::Ask,
        Some(_) | None => Step::Write,
    }
}

impl Syncs {
    /// Copies the watermarks that have moved since their last copy; how many were written. A copy that fails
    /// is noted on its feed, and tried again by a later call; only the database can make this call fail.
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
                Some(Ok(Ok(copied))) => written += u64::from(copied == Copied::Now),
                // A feed that fails does not stop the copies of the others.
                Some(Ok(Err(error))) => {
                    failure.get_or_insert(error);
                }
                Some(Err(panicked)) => {
                    tracing::error!("the copy of a watermark broke off: {panicked}");
                }
            }
        }
    }

    /// Copies the watermark of one feed, and notes what became of it.
    async fn copy_watermark(&self, record: FeedRecord, now: Timestamp) -> Result<Copied, Error> {
        let Some(url) = record.copy_url.clone() else { return Ok(Copied::Nothing) };
        let name = record.feed.feed.clone();
        match self.try_copy(&name, &url).await? {
            Ok((copied, fresh)) => {
                let Some(watermark) = fresh.watermark.clone() else { return Ok(Copied::Nothing) };
                let until = watermark.last_updated_at;
                self.copies.copied(&name, &url, watermark);
                if fresh.copied_updated_at != Some(until) || fresh.copy_error.is_some() {
                    self.engine.store().note_copy(name.clone(), Some(until), None, self.now()).await?;
                }
                if fresh.copy_error.is_some() {
                    tracing::info!(feed = name, "the watermark of feed {name} is copied to {url} again");
                }
                Ok(copied)
            }
            Err(fault) => {
                self.copies.failed(&name, &url, now);
                let told = fault.to_string();
                if record.copy_error.as_ref() != Some(&told) {
                    tracing::warn!(feed = name, "the watermark of feed {name} is not copied: {told}");
                    self.engine.store().note_copy(name, None, Some(told), self.now()).await?;
                }
                Ok(Copied::Nothing)
            }
        }
    }

    /// Reads the copy, then the database, and replaces the copy if it is still the one that was read. Also
    /// gives the feed as the database had it then.
    async fn try_copy(&self, feed: &str, url: &str) -> Result<Result<(Copied, FeedRecord), Fault>, Error> {
        let place = match Place::open(url) {
            Ok(place) => place,
            Err(fault) => return Ok(Err(fault)),
        };
        for _ in 0..TRIES {
            let found = match place.read().await {
                Ok(found) => found,
                Err(fault) => return Ok(Err(fault)),
            };
            let record = self.engine.store().feed(feed.to_owned()).await?;
            let moved = record.copy_url.as_deref() != Some(url);
            let Some(ours) = record.watermark.as_ref().filter(|_| !moved) else {
                return Ok(Ok((Copied::Nothing, FeedRecord { watermark: None, ..record })));
            };
            match step(ours, found.watermark.as_ref()) {
                Step::Keep => return Ok(Ok((Copied::Already, record))),
                Step::Write => {}
                Step::Ask => {
                    let there = found.watermark.as_ref().map(|there| there.last_updated_at);
                    if !self.was_ours(&record, there).await? {
                        let there = there.map(|there| there.to_rfc3339()).unwrap_or_default();
                        return Ok(Err(Fault::Newer { url: url.to_owned(), there }));
                    }
                }
            }
            match place.write(found.version, ours).await {
                Ok(Written::Done) => return Ok(Ok((Copied::Now, record))),
                Ok(Written::Lost) => {}
                Err(fault) => return Ok(Err(fault)),
            }
        }
        Ok(Err(Fault::Busy { url: url.to_owned() }))
    }

    /// Whether a feed's watermark once was there. If so, a person moved it back since, and the copy follows.
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
    fn a_copy_is_kept_replaced_or_asked_about() {
        let ours = watermark(10, "b");
        assert_eq!(step(&ours, None), Step::Write);
        assert_eq!(step(&ours, Some(&watermark(9, "a"))), Step::Write);
        assert_eq!(step(&ours, Some(&watermark(10, "a"))), Step::Write);
        assert_eq!(step(&ours, Some(&ours.clone())), Step::Keep);
        assert_eq!(step(&ours, Some(&watermark(11, "b"))), Step::Ask);
    }

    #[test]
    fn the_wait_doubles_from_five_seconds_to_five_minutes() {
        let waits: Vec<i64> = (0..8).map(|n| wait_after(n).num_seconds()).collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(wait_after(u32::MAX), WAIT_MAX);
    }
}
