//! New rules for stones that are there: priced again, without fetching anything.

use super::Syncs;
use super::consolidate::{Bench, Written};
use std::sync::Arc;
use tidemill_core::Timestamp;
use tidemill_core::limits::READ_BYTES_MAX;
use tidemill_core::portion::Portion;
use tidemill_core::pricing::PricingRule;
use tidemill_store::{Asked, Built, Error, RefusalCode, RequestKey};
use uuid::Uuid;

pub use tidemill_core::pricing::Repriced;

/// Stones that are priced in one step.
const BATCH_STONES_MAX: usize = 500;

/// Live syncs that are looked at. A feed has one at the most.
const LIVE_MAX: usize = 1_000;

/// Where a pricing goes on: the rules that it goes by, and the last stone that it looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepricePlace {
    /// The version of the rules.
    pub rules_version: i32,
    /// The stone.
    pub after: String,
}

/// What came of some stones.
enum Batch {
    /// They are priced.
    Priced {
        /// The last one.
        last: String,
        /// How many there were.
        count: usize,
        /// How many of them could not be.
        rejected: usize,
        /// Bytes of their records.
        bytes: usize,
    },
    /// There were none.
    Over,
    /// The rules are others by now.
    Outdated,
}

/// Which rules go when others come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replaced {
    /// None.
    Nothing,
    /// All.
    All,
    /// Those that name one of these feeds.
    OfFeeds(Vec<String>),
}

impl Replaced {
    /// Whether a rule goes.
    fn names(&self, rule: &PricingRule) -> bool {
        match self {
            Self::Nothing => false,
            Self::All => true,
            Self::OfFeeds(feeds) => rule.feed.as_ref().is_some_and(|feed| feeds.contains(feed)),
        }
    }
}

impl Syncs {
    /// Adds rules, all or none; their numbers. Those that are there go first, where asked. Under a key, asked twice is
    /// asked once.
    pub async fn add_rules(
        &self,
        rules: Vec<PricingRule>,
        goes: Replaced,
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
                        && let Asked::Answered(answer) = tx.take_key(key, now).await?
                    {
                        tx.unchanged();
                        let numbers = answer.as_array().into_iter().flatten();
                        return Ok(numbers.filter_map(tidemill_core::Json::as_i64).collect());
                    }
                    let before = if goes == Replaced::Nothing { Vec::new() } else { tx.rules().await? };
                    for rule in before.iter().filter(|rule| goes.names(rule)) {
                        tx.remove_rule(rule.rule_id).await?;
                    }
                    let mut added = Vec::with_capacity(rules.len());
                    for rule in &rules {
                        added.push(tx.add_rule(rule).await?);
                    }
                    if let Some(key) = &key {
                        tx.keep_answer(key, added.as_slice().into()).await?;
                    }
                    let numbers: Vec<String> = added.iter().map(i64::to_string).collect();
                    tx.note(|line| {
                        line.names(&numbers.join(","));
                    });
                    Ok(added)
                })
            })
            .await
    }

    /// Prices the stones of a feed by the rules as they stand now. Calls `progress` after each part. Rules that change
    /// meanwhile are those by which it ends, for every stone.
    pub async fn apply_rules(
        &self,
        feed: &str,
        mut progress: impl FnMut(&Repriced) + Send,
    ) -> Result<Repriced, Error> {
        let mut all = Repriced::default();
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

    /// Prices some stones of a feed, at most so many: from the beginning, or from a place on, by the rules as they
    /// stand now. Where it goes on, unless that was all: at the beginning, where the rules are others than those of
    /// whoever began, so that two who price at once mix nothing. Asked twice, it is done once: stones that have these
    /// prices are passed over.
    pub async fn apply_some_rules(
        &self,
        feed: &str,
        from: Option<RepricePlace>,
        stones_max: usize,
    ) -> Result<(Repriced, Option<RepricePlace>), Error> {
        let record = self.engine.store().feed(feed.to_owned()).await?;
        let source = self
            .feeds
            .open(&record.feed)
            .map_err(|error| Error::refused(RefusalCode::BadValue, error.to_string()))?;
        let now = self.now();
        let (version, mut after) = match from {
            Some(place) => (place.rules_version, place.after),
            None => (self.pin_now(feed, now).await?, String::new()),
        };
        let bench = Bench {
            sync: Uuid::nil(),
            trace: String::new(),
            feed: feed.to_owned(),
            built: Built { mapper_version: source.mapper_version(), rules_version: version },
            source,
            rules: Arc::new(self.pinned(version).await?),
            wait: Arc::default(),
        };
        let mut done = Repriced { rules_version: version, ..Repriced::default() };
        let mut portion = Portion::default();
        loop {
            let looked = usize::try_from(done.stones + done.rejected).unwrap_or(usize::MAX);
            let limit = self.settings.batch.min(BATCH_STONES_MAX).min(portion.records(READ_BYTES_MAX).max(1));
            let limit = limit.min(stones_max.saturating_sub(looked));
            if limit == 0 {
                return Ok((done, Some(RepricePlace { rules_version: version, after })));
            }
            let (here, bench, settings) = (after.clone(), bench.clone(), self.settings.clone());
            let batch = self
                .engine
                .store()
                .write(move |mut tx| {
                    Box::pin(async move {
                        // Whoever prices the feed by other rules waits until this is done, and goes over it again.
                        tx.lock_feed(&bench.feed).await?;
                        if tx.pin_rules(now).await? != bench.built.rules_version {
                            tx.unchanged();
                            return Ok(Batch::Outdated);
                        }
                        let stones = tx.stale_stones(&bench.feed, &here, bench.built, limit).await?;
                        if stones.is_empty() {
                            tx.unchanged();
                        }
                        let Some(last) = stones.last().cloned() else { return Ok(Batch::Over) };
                        let count = stones.len();
                        let Written { rejected, bytes } =
                            bench.write_open(&mut tx, stones, settings.upsert, now).await?;
                        Ok(Batch::Priced { last, count, rejected, bytes })
                    })
                })
                .await?;
            let (count, rejected) = match batch {
                Batch::Priced { last, count, rejected, bytes } => {
                    after = last;
                    portion.learn(count, bytes);
                    (count, rejected)
                }
                Batch::Over => return Ok((done, None)),
                Batch::Outdated => {
                    done.rules_version = self.pin_now(feed, now).await?;
                    let begin = RepricePlace { rules_version: done.rules_version, after: String::new() };
                    return Ok((done, Some(begin)));
                }
            };
            done.stones += (count - rejected.min(count)) as u64;
            done.rejected += rejected as u64;
        }
    }

    /// The version of the rules as they stand now. A consolidation of the feed that is under way goes on by them too:
    /// it would take back what is applied.
    async fn pin_now(&self, feed: &str, now: Option<Timestamp>) -> Result<i32, Error> {
        let feed = feed.to_owned();
        let pin = self.engine.store().write(move |mut tx| {
            Box::pin(async move {
                // What goes on record is the first price that changes.
                tx.unchanged();
                let mut consolidating = Vec::new();
                for live in tx.live_syncs(LIVE_MAX).await?.into_iter().filter(|sync| sync.feed == feed) {
                    // Locked before the rules are pinned: whoever is handing the sync over has done so, or pins later.
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
