//! Pricing rules, and the rule sets that syncs are pinned to.

use crate::codec::{Columns, SqlJson, SqlTextList};
use crate::tx::{FromColumns, on};
use crate::{Error, RefusalCode, Store, Tx, catalog};
use tidemill_core::pricing::{PricingRule, StoneType};
use tidemill_core::{Json, Timestamp, digest};

impl FromColumns for PricingRule {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            rule_id: row.long("id")?,
            priority: row.int("priority")?,
            feed: row.text_or_null("feed")?,
            stone_type: row.parsed_or_null("stone_type")?,
            lab_grown: row.truth_or_null("lab_grown")?,
            shapes: row.words("shapes")?,
            points_min: row.long_or_null("points_min")?,
            points_max: row.long_or_null("points_max")?,
            price_min: row.long_or_null("price_min")?,
            price_max: row.long_or_null("price_max")?,
            markup: row.int("markup")?,
            rating: row.int_or_null("rating")?.and_then(|rating| i16::try_from(rating).ok()),
            active: row.truth("active")?,
        })
    }
}

struct RulesColumn(Json);

impl FromColumns for RulesColumn {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self(row.json("rules")?))
    }
}

impl Tx<'_> {
    /// Returns every rule, in evaluation order.
    pub async fn rules(&mut self) -> Result<Vec<PricingRule>, Error> {
        on!(self, catalog::RULE_LIST, [], fetch_all, "list rules")?.records("list rules")
    }

    /// Adds a rule; returns its id.
    pub async fn add_rule(&mut self, rule: &PricingRule) -> Result<i64, Error> {
        let added: Option<i64> = on!(
            self,
            catalog::RULE_ADD,
            [
                rule.priority,
                rule.feed.as_deref(),
                rule.stone_type.map(StoneType::as_str),
                rule.lab_grown,
                SqlTextList(rule.shapes.clone()),
                rule.points_min,
                rule.points_max,
                rule.price_min,
                rule.price_max,
                i64::from(rule.markup),
                rule.rating.map(i32::from),
                rule.active,
            ],
            fetch_optional,
            "add a rule"
        )?
        .record("add a rule")?;
        added.ok_or_else(|| Error::refused(RefusalCode::BadValue, "the rule was not added"))
    }

    /// Deletes a rule; returns whether it existed.
    pub async fn remove_rule(&mut self, rule: i64) -> Result<bool, Error> {
        let removed = on!(self, catalog::RULE_REMOVE, [rule], execute, "remove a rule")?;
        Ok(removed.count() > 0)
    }

    /// Stores the active rules as a set and returns its version. Equal sets have the same version.
    pub async fn pin_rules(&mut self, now: Option<Timestamp>) -> Result<i32, Error> {
        let mut rules = self.rules().await?;
        rules.retain(|rule| rule.active);
        let text = serde_json::to_value(&rules).unwrap_or_default();
        let digest = digest::sha256_hex(text.to_string().as_bytes());
        let now = self.time(now);
        for _ in 0..2 {
            let found: Option<i64> =
                on!(self, catalog::RULE_SET_FIND, [digest.as_str()], fetch_optional, "find the rules")?
                    .record("find the rules")?;
            if let Some(version) = found {
                return Ok(i32::try_from(version).unwrap_or(i32::MAX));
            }
            on!(
                self,
                catalog::RULE_SET_ADD,
                [digest.as_str(), SqlJson(text.clone()), now],
                execute,
                "pin the rules"
            )?;
        }
        Err(Error::refused(RefusalCode::BadValue, "the rule set could not be stored"))
    }

    /// Returns the rules of a version.
    pub async fn pinned_rules(&mut self, version: i32) -> Result<Vec<PricingRule>, Error> {
        let found: Option<RulesColumn> =
            on!(self, catalog::RULE_SET_GET, [version], fetch_optional, "read the rules")?
                .record("read the rules")?;
        let Some(RulesColumn(rules)) = found else {
            return Err(Error::refused(
                RefusalCode::BadValue,
                format!("rule set version {version} does not exist"),
            ));
        };
        serde_json::from_value(rules)
            .map_err(|source| Error::database("read the rules", sqlx::Error::Decode(Box::new(source))))
    }
}

impl Store {
    /// Returns the rules of a version.
    pub async fn pinned_rules(&self, version: i32) -> Result<Vec<PricingRule>, Error> {
        self.read(move |mut tx| Box::pin(async move { tx.pinned_rules(version).await })).await
    }

    /// Returns every rule, in evaluation order.
    pub async fn rules(&self) -> Result<Vec<PricingRule>, Error> {
        self.read(move |mut tx| Box::pin(async move { tx.rules().await })).await
    }

    /// Deletes a rule; returns whether it existed.
    pub async fn remove_rule(&self, rule: i64) -> Result<bool, Error> {
        self.write(move |mut tx| {
            Box::pin(async move {
                let removed = tx.remove_rule(rule).await?;
                if !removed {
                    tx.skip_audit();
                }
                Ok(removed)
            })
        })
        .await
    }
}
