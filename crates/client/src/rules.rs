//! Pricing rules.

use crate::{Client, Error};
use http::Method;
use tidemill_core::pricing::{Priced, PricingRule};
use tidemill_wire::Page;
use tidemill_wire::rules::{ImportRules, NewRule, RulesAdded, TryStone};

impl Client {
    /// Rules in the order in which they are tried.
    pub async fn rules(&self) -> Result<Page<PricingRule>, Error> {
        self.get("/v1/rules".to_owned()).await
    }

    /// Adds a rule. The same key and the same rule give the one that exists.
    pub async fn add_rule(
        &self,
        rule: &NewRule,
        idempotency_key: Option<String>,
    ) -> Result<PricingRule, Error> {
        self.ask(Method::POST, "/v1/rules".to_owned(), Some(rule), idempotency_key).await
    }

    /// Adds rules, all or none.
    pub async fn import_rules(
        &self,
        import: &ImportRules,
        idempotency_key: Option<String>,
    ) -> Result<RulesAdded, Error> {
        self.ask(Method::POST, "/v1/rules/import".to_owned(), Some(import), idempotency_key).await
    }

    /// Removes a rule.
    pub async fn remove_rule(&self, rule: i64) -> Result<(), Error> {
        self.order(Method::DELETE, format!("/v1/rules/{rule}"), None::<&()>).await
    }

    /// Which rule would price such a stone, and how.
    pub async fn test_rules(&self, stone: &TryStone) -> Result<Priced, Error> {
        self.post("/v1/rules/test".to_owned(), stone).await
    }
}
