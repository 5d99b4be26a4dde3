//! New rules for stones that are there: priced again, without fetching anything.

use super::Syncs;
use super::consolidate::Bench;
use std::sync::Arc;
use tidemill_core::pricing::PricingRule;
use tidemill_store::{Asked, Built, Error, RefusalCode, RequestKey};
use uuid::Uuid;

pub use tidemill_core::pricing::Repriced;

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

    /// Prices the stones of a feed by the rules as they stand now. Calls `progress` after each batch.
    pub async fn apply_rules(
        &self,
        feed: &str,
        mut progress: impl FnMut(&Repriced) + Send,
    ) -> Result<Repriced, Error> {
        let record = self.engine.store().feed(feed.to_owned()).await?;
        let source = self
            .feeds
            .open(&record.feed)
            .map_err(|error| Error::refused(RefusalCode::BadValue, error.to_string()))?;
        let now = self.now();
        let version =
            self.engine.store().write(move |mut tx| Box::pin(async move { tx.pin_rules(now).await })).await?;
        let bench = Bench {
            sync: Uuid::nil(),
            trace: String::new(),
            feed: feed.to_owned(),
            built: Built { mapper_version: source.mapper_version(), rules_version: version },
            source,
            rules: Arc::new(self.pinned(version).await?),
        };
        let mut done = Repriced { rules_version: version, ..Repriced::default() };
        let mut after = String::new();
        loop {
            let (here, bench, settings) = (after.clone(), bench.clone(), self.settings.clone());
            let batch = self
                .engine
                .store()
                .write(move |mut tx| {
                    Box::pin(async move {
                        let stones =
                            tx.stale_stones(&bench.feed, &here, bench.built, settings.batch.min(500)).await?;
                        let (count, last) = (stones.len(), stones.last().cloned());
                        let rejected = bench.write_open(&mut tx, stones, settings.upsert, now).await?;
                        Ok(last.map(|last| (last, count, rejected)))
                    })
                })
                .await?;
            let Some((last, count, rejected)) = batch else { return Ok(done) };
            after = last;
            done.stones += (count - rejected.min(count)) as u64;
            done.rejected += rejected as u64;
            progress(&done);
        }
    }
}
