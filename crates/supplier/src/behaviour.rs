//! Configured misbehaviour of the supplier, which can be set at the start and changed at runtime.

use serde::{Deserialize, Serialize};

/// Kind of failure of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailWith {
    /// Status 429, with `Retry-After`.
    #[serde(rename = "429")]
    TooManyRequests,
    /// Status 429, without `Retry-After`.
    #[serde(rename = "429-bare")]
    BareLimit,
    #[serde(rename = "500")]
    Internal,
    #[serde(rename = "502")]
    BadGateway,
    #[default]
    #[serde(rename = "503")]
    Unavailable,
    /// Status 200 with an error with the message `error_text`.
    Graphql,
    /// Status 200 with a page of HTML.
    Html,
    /// Status 200 with a body that is not valid JSON.
    BrokenJson,
    /// Status 200 with `null` instead of the list and the count.
    NullList,
    /// The error for an invalid token: status 200 with a GraphQL error, or status 401 of a REST list.
    Token,
    /// The connection is closed without a response.
    Closed,
}

/// Kind of requests that fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    #[default]
    Any,
    Login,
    Count,
    /// Pages, lookups and all other requests.
    Page,
}

/// A second listing of a stone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DuplicateListing {
    /// Position of the second listing, from 0, in the list with all second listings.
    pub at: u64,
    /// Position of the stone in the list without second listings.
    pub of: u64,
}

/// Outage of the supplier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outage {
    #[default]
    Off,
    /// Connections are closed without a response.
    Closed,
    /// Every response has status 503.
    Unavailable,
}

/// Whether responses have a `Date` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DateHeader {
    #[default]
    Sent,
    Missing,
}

/// Behaviour of the supplier. As JSON it is the body of `POST /admin/behaviour`, where all fields are optional.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct Behaviour {
    pub token_lifetime_secs: u64,
    /// Invalidates all issued tokens once; it is false again afterwards.
    pub expire_tokens: bool,
    /// Minimum duration of a response.
    pub latency_ms: u64,
    /// Maximum random addition to `latency_ms`.
    pub jitter_ms: u64,
    /// Maximum requests per second; the others get status 429.
    pub rate_limit: Option<u32>,
    /// Value of `Retry-After` of a status 429 or 503.
    pub retry_after_secs: u64,
    /// Number of the next requests that fail.
    pub fail_next: u64,
    pub fail_with: FailWith,
    pub fail_on: Target,
    /// Message of [`FailWith::Graphql`].
    pub error_text: String,
    pub outage: Outage,
    /// Every response is a page of HTML.
    pub html: bool,
    /// Number of the next pages that are shorter than requested.
    pub short_next: u64,
    /// Percentage of pages that are shorter than requested.
    pub short_percent: u8,
    /// Number of the next pages that ignore their offset.
    pub repeat_next: u64,
    /// Every page ignores its offset.
    pub repeat_always: bool,
    /// Number of the next pages whose stones have no ids.
    pub without_ids_next: u64,
    /// Number of the next pages that repeat their first stone at the end.
    pub duplicate_next: u64,
    /// Number of the next REST pages that are empty, although more items follow.
    pub empty_next: u64,
    /// Every REST page answers the cursor or URL of its own request as the next one. A keyset list ignores its key.
    pub stuck_cursor: bool,
    /// Value of the flag for more items in every REST page; `None` is the truth.
    pub has_more: Option<bool>,
    /// REST lists ignore `updated_since`.
    pub ignore_updated_since: bool,
    /// Number that is added to every count, and to the total of every REST page.
    pub count_lies_by: i64,
    /// Number of the next counts that are one too high.
    pub count_ahead_next: u64,
    /// Stones that are listed twice, except in queries by id. Counts include both.
    pub doubles: Vec<DuplicateListing>,
    /// Positions of stones without an id, except in queries by id.
    pub nameless: Vec<u64>,
    /// Positions that are counted but omitted from pages, except in queries by id.
    pub hidden: Vec<u64>,
    /// Every second stone has the id of the stone before it, with a space at the end.
    pub spaced_ids: bool,
    /// Number of bytes that are added to every item.
    pub padding_bytes: u32,
    /// Offset of the `Date` header from the supplier's time.
    pub date_skew_secs: i64,
    pub date: DateHeader,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            token_lifetime_secs: 6 * 60 * 60,
            expire_tokens: false,
            latency_ms: 0,
            jitter_ms: 0,
            rate_limit: None,
            retry_after_secs: 1,
            fail_next: 0,
            fail_with: FailWith::default(),
            fail_on: Target::default(),
            error_text: "Internal server error".to_owned(),
            outage: Outage::default(),
            html: false,
            short_next: 0,
            short_percent: 0,
            repeat_next: 0,
            repeat_always: false,
            without_ids_next: 0,
            duplicate_next: 0,
            empty_next: 0,
            stuck_cursor: false,
            has_more: None,
            ignore_updated_since: false,
            count_lies_by: 0,
            count_ahead_next: 0,
            doubles: Vec::new(),
            nameless: Vec::new(),
            hidden: Vec::new(),
            spaced_ids: false,
            padding_bytes: 0,
            date_skew_secs: 0,
            date: DateHeader::Sent,
        }
    }
}

impl Behaviour {
    /// Whether lists have no configured duplicate, nameless and hidden positions.
    pub(crate) const fn has_plain_lists(&self) -> bool {
        self.doubles.is_empty() && self.nameless.is_empty() && self.hidden.is_empty()
    }

    /// Number of second listings in a list of `length` stones.
    pub(crate) fn second_listings(&self, length: u64) -> u64 {
        self.doubles.iter().filter(|double| double.of < length).count() as u64
    }

    /// Returns a copy with the fields of `patch` replaced.
    pub fn merged(&self, patch: &serde_json::Value) -> Result<Self, String> {
        let serde_json::Value::Object(patch) = patch else {
            return Err("the behaviour must be a JSON object".to_owned());
        };
        let mut fields = serde_json::to_value(self).map_err(|error| error.to_string())?;
        if let serde_json::Value::Object(fields) = &mut fields {
            fields.extend(patch.clone());
        }
        serde_json::from_value(fields).map_err(|error| error.to_string())
    }
}

/// Decrements a counter; returns whether it was above zero.
pub(crate) const fn take(left: &mut u64) -> bool {
    let some = *left > 0;
    *left = left.saturating_sub(1);
    some
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patch_replaces_only_its_own_fields() {
        let before = Behaviour { latency_ms: 5, ..Behaviour::default() };
        let after = before.merged(&serde_json::json!({"fail_next": 3, "fail_with": "429"})).unwrap();
        let fail_with = FailWith::TooManyRequests;
        assert_eq!(after, Behaviour { latency_ms: 5, fail_next: 3, fail_with, ..Behaviour::default() });
        assert!(before.merged(&serde_json::json!({"fial_next": 3})).unwrap_err().contains("fial_next"));
        assert!(before.merged(&serde_json::json!([])).is_err());
    }
}
