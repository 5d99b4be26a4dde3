//! API calls that manage pricing rules.

use crate::{Client, Error};
use http::Method;
use tidemill_core::pricing::{PriceQuote, PricingRule};
use tidemill_wire::Page;
use tidemill_wire::rules::{AddRulesResponse, ImportRules, NewRule, SampleStone};

impl Client {
    /// Lists rules in order of evaluation.
    pub async fn rules(&self) -> Result<Page<PricingRule>, Error> {
        self.get("/v1/rules".to_owned()).await
    }

    /// Adds a rule. A repeated request with the same key returns the existing rule.
    pub async fn add_rule(
        &self,
        rule: &NewRule,
        idempotency_key: Option<String>,
    ) -> Result<PricingRule, Error> {
        self.request(Method::POST, "/v1/rules".to_owned(), Some(rule), idempotency_key).await
    }

    /// Adds rules: all of them or, on an error, none.
    pub async fn import_rules(
        &self,
        import: &ImportRules,
        idempotency_key: Option<String>,
    ) -> Result<AddRulesResponse, Error> {
        self.request(Method::POST, "/v1/rules/import".to_owned(), Some(import), idempotency_key).await
    }

    /// Removes a rule by its number.
    pub async fn remove_rule(&self, rule: i64) -> Result<(), Error> {
        self.request_no_content(Method::DELETE, format!("/v1/rules/{rule}"), None::<&()>).await
    }

    /// Returns the rule that would price a stone, and the price.
    pub async fn test_rules(&self, stone: &SampleStone) -> Result<PriceQuote, Error> {
        self.post("/v1/rules/test".to_owned(), stone).await
    }
}
