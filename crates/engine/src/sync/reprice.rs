//! Repricing: applies changed rules to stored stones, without fetching anything.

use super::Syncs;
use super::consolidate::{ConsolidationContext, IDLE_SECS, LOCK_WAIT_SECS, WriteCounts};
use tidemill_core::Timestamp;
use tidemill_core::batch_size::BatchSize;
use tidemill_core::feed_definition::target::WriteDisposition;
use tidemill_core::limits::READ_BYTES_MAX;
use tidemill_core::pricing::PricingRule;
use tidemill_store::{Error, KeyClaim, RefusalCode, RequestKey};

pub use tidemill_core::pricing::RepriceSummary;

/// Most stones that are priced in one transaction.
const BATCH_STONES_MAX: usize = 500;

/// Most live syncs that are read. A feed has at most one.
const LIVE_MAX: usize = 1_000;

/// Position of a repricing: the rules that it applies, and the last stone that it processed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepriceCursor {
    pub rules_version: i32,
    /// Id of the last processed stone.
    pub after: String,
}

/// Outcome of one batch.
enum RepriceBatch {
    Priced {
        last: String,
        count: usize,
        written: WriteCounts,
    },
    /// No stone was left.
    Empty,
    /// The rules have changed since the repricing started.
    Outdated,
}

/// Which existing rules are removed when new ones are added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplaceScope {
    Nothing,
    All,
    /// Rules that name one of these feeds.
    OfFeeds(Vec<String>),
}

impl ReplaceScope {
    /// Whether a rule is removed.
    fn names(&self, rule: &PricingRule) -> bool {
        match self {
            Self::Nothing => false,
            Self::All => true,
            Self::OfFeeds(feeds) => rule.feed.as_ref().is_some_and(|feed| feeds.contains(feed)),
        }
    }
}

impl Syncs {
    /// Adds rules in one transaction and returns their ids. Removes existing rules first if requested. A repeated
    /// request with the same key returns the same ids.
    pub async fn add_rules(
        &self,
        rules: Vec<PricingRule>,
        replace: ReplaceScope,
        key: Option<RequestKey>,
    ) -> Result<Vec<i64>, Error> {
        for rule in &rules {
            rule.check()?;
        }
        let now = self.now();
        self.engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    if let Some(key) = &key
                        && let KeyClaim::Answered(answer) = tx.claim_key(key, now).await?
                    {
                        tx.skip_audit();
                        let numbers = answer.as_array().into_iter().flatten();
                        return Ok(numbers.filter_map(tidemill_core::Json::as_i64).collect());
                    }
                    let before =
                        if replace == ReplaceScope::Nothing { Vec::new() } else { tx.rules().await? };
                    for rule in before.iter().filter(|rule| replace.names(rule)) {
                        tx.remove_rule(rule.rule_id).await?;
                    }
                    let mut added = Vec::with_capacity(rules.len());
                    for rule in &rules {
                        added.push(tx.add_rule(rule).await?);
                    }
                    if let Some(key) = &key {
                        tx.save_answer(key, added.as_slice().into()).await?;
                    }
                    let numbers: Vec<String> = added.iter().map(i64::to_string).collect();
                    tx.annotate_audit(|line| {
                        line.set_subject(&numbers.join(","));
                    });
                    Ok(added)
                })
            })
            .await
    }

    /// Reprices the stones of a feed with the current rules. Calls `progress` after each batch. If the rules change
    /// meanwhile, all stones end up priced by the new ones.
    pub async fn apply_rules(
        &self,
        feed: &str,
        mut progress: impl FnMut(&RepriceSummary) + Send,
    ) -> Result<RepriceSummary, Error> {
        let mut all = RepriceSummary::default();
        let mut from = None;
        loop {
            let (done, next) = self.apply_some_rules(feed, from, self.settings.batch).await?;
            all.rules_version = done.rules_version;
            all.stones += done.stones;
            all.rejected += done.rejected;
            if done.stones + done.rejected > 0 {
                progress(&all);
            }
            let Some(next) = next else { return Ok(all) };
            from = Some(next);
        }
    }

    /// Reprices at most `stones_max` stones of a feed, from the beginning or from a position. Returns the next
    /// position unless all stones are done. If the rules have changed since the position was created, the next
    /// position is the beginning, so that two concurrent repricings do not mix their rules. Idempotent: stones with
    /// current prices are skipped.
    pub async fn apply_some_rules(
        &self,
        feed: &str,
        from: Option<RepriceCursor>,
        stones_max: usize,
    ) -> Result<(RepriceSummary, Option<RepriceCursor>), Error> {
        let record = self.engine.store().feed(feed.to_owned()).await?;
        let source = self.feeds.open(&record.feed).map_err(|error| {
            let is_out = error.refusal().is_some();
            let code = if is_out { RefusalCode::OutOfReach } else { RefusalCode::BadValue };
            Error::refused(code, error.to_string())
        })?;
        let now = self.now();
        let rebuilds = source
            .definition()
            .is_some_and(|definition| definition.into.write_disposition != WriteDisposition::Append);
        if from.is_none() {
            self.claim_table(&record.feed).await?;
        }
        if from.is_none() && rebuilds {
            // Rows may have been changed or removed by hand.
            self.forget_rows(feed).await?;
        }
        let (version, mut after) = match from {
            Some(cursor) => (cursor.rules_version, cursor.after),
            None => (self.pin_now(feed, now).await?, String::new()),
        };
        let context = self.context_of(&record.feed, source, version).await?;
        let mut done = RepriceSummary { rules_version: version, ..RepriceSummary::default() };
        let mut batch_size = BatchSize::default();
        loop {
            let processed = usize::try_from(done.stones + done.rejected).unwrap_or(usize::MAX);
            let limit = self.settings.batch.min(BATCH_STONES_MAX).min(batch_size.next(READ_BYTES_MAX).max(1));
            let limit = limit.min(stones_max.saturating_sub(processed));
            if limit == 0 {
                return Ok((done, Some(RepriceCursor { rules_version: version, after })));
            }
            let batch = self.reprice_batch(context.clone(), after.clone(), limit).await?;
            let (count, rejected) = match batch {
                RepriceBatch::Priced { last, count, written: WriteCounts { rejected, moved, bytes, .. } } => {
                    after = last;
                    batch_size.record(count, bytes);
                    // Rows that a unique key refused are counted at the end.
                    (count.saturating_sub(moved), rejected.saturating_sub(moved))
                }
                RepriceBatch::Empty => {
                    let moved = self.write_moved(&context).await?;
                    done.stones += moved.written;
                    done.rejected += moved.left;
                    return Ok((done, None));
                }
                RepriceBatch::Outdated => {
                    done.rules_version = self.pin_now(feed, now).await?;
                    let begin = RepriceCursor { rules_version: done.rules_version, after: String::new() };
                    return Ok((done, Some(begin)));
                }
            };
            done.stones += (count - rejected.min(count)) as u64;
            done.rejected += rejected as u64;
        }
    }

    /// Reprices up to `limit` stones after a stone, in one transaction.
    async fn reprice_batch(
        &self,
        context: ConsolidationContext,
        after: String,
        limit: usize,
    ) -> Result<RepriceBatch, Error> {
        let (settings, now) = (self.settings.clone(), self.now());
        self.engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    tx.limit_idle(IDLE_SECS).await?;
                    tx.limit_locks(LOCK_WAIT_SECS).await?;
                    // A repricing with other rules waits for this lock, and then processes these stones again.
                    tx.lock_feed(&context.tables.feed).await?;
                    if tx.pin_rules(now).await? != context.built.rules_version {
                        tx.skip_audit();
                        return Ok(RepriceBatch::Outdated);
                    }
                    let stones = tx.stale_records(&context.tables, &after, context.built, limit).await?;
                    if stones.is_empty() {
                        tx.skip_audit();
                    }
                    let Some(last) = stones.last().cloned() else { return Ok(RepriceBatch::Empty) };
                    let count = stones.len();
                    let written = context.write_open(&mut tx, stones, None, settings.upsert, now).await?;
                    Ok(RepriceBatch::Priced { last, count, written })
                })
            })
            .await
    }

    /// Pins the current rules and returns their version. A consolidation of the feed in progress continues with them
    /// too: otherwise it would overwrite the new prices.
    async fn pin_now(&self, feed: &str, now: Option<Timestamp>) -> Result<i32, Error> {
        let feed = feed.to_owned();
        let pin = self.engine.store().write(move |mut tx| {
            Box::pin(async move {
                // The audit entry is written with the first changed price.
                tx.skip_audit();
                let mut consolidating = Vec::new();
                for live in tx.live_syncs(LIVE_MAX).await?.into_iter().filter(|sync| sync.feed == feed) {
                    // Locked before the rules are pinned: a concurrent trigger has committed already, or pins later.
                    consolidating.extend(tx.lock_sync(live.run_id).await?);
                }
                let version = tx.pin_rules(now).await?;
                for sync in consolidating.iter().filter(|sync| sync.rules_version.is_some()) {
                    if sync.rules_version != Some(version) {
                        tx.repin_sync(sync.run_id, version, now).await?;
                    }
                }
                Ok(version)
            })
        });
        pin.await
    }
}
