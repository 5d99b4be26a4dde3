//! How the supplier misbehaves: every knob, as it can be set at the start and changed while it serves.

use serde::{Deserialize, Serialize};

/// What fails where requests are told to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailWith {
    /// Status 429, with `Retry-After`.
    #[serde(rename = "429")]
    TooManyRequests,
    /// Status 429, without `Retry-After`.
    #[serde(rename = "429-bare")]
    BareLimit,
    /// Status 500.
    #[serde(rename = "500")]
    Internal,
    /// Status 502.
    #[serde(rename = "502")]
    BadGateway,
    /// Status 503.
    #[default]
    #[serde(rename = "503")]
    Unavailable,
    /// Status 200 with an error in the GraphQL answer, in the words of `error_text`.
    Graphql,
    /// Status 200 with a page of HTML.
    Html,
    /// Status 200 with a body that is no JSON.
    BrokenJson,
    /// Status 200 with `null` in the place of the list and of the count.
    NullList,
    /// The same, and the error says that the token is not valid.
    Token,
    /// The connection is closed without an answer.
    Closed,
}

/// Which requests an order to fail is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// All of them.
    #[default]
    Any,
    /// Logins.
    Login,
    /// Counts.
    Count,
    /// Pages, lookups and everything else.
    Page,
}

/// A stone that is listed a second time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Double {
    /// The place of the second listing, from 0, in the list with all second listings.
    pub at: u64,
    /// The place of the stone in the list without them.
    pub of: u64,
}

/// Whether the supplier is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outage {
    /// It is up.
    #[default]
    Off,
    /// Connections are closed without an answer.
    Closed,
    /// Every answer is a 503.
    Unavailable,
}

/// Whether answers have a `Date` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DateHeader {
    /// They have.
    #[default]
    Sent,
    /// They have none.
    Missing,
}

/// How the supplier behaves. As JSON it is the body of `POST /admin/behaviour`, where fields can be left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own, by its name")]
pub struct Behaviour {
    /// How long a token is valid, in seconds.
    pub token_lifetime_secs: u64,
    /// Makes every token given so far invalid, once; it is false again afterwards.
    pub expire_tokens: bool,
    /// How long an answer takes at least, in milliseconds.
    pub latency_ms: u64,
    /// How much longer it may take, at random.
    pub jitter_ms: u64,
    /// How many requests are answered per second; the others get status 429.
    pub rate_limit: Option<u32>,
    /// What `Retry-After` says beside a status 429 or 503, in seconds.
    pub retry_after_secs: u64,
    /// How many of the next requests fail.
    pub fail_next: u64,
    /// How they fail.
    pub fail_with: FailWith,
    /// Which requests these are.
    pub fail_on: Target,
    /// The message of a GraphQL error.
    pub error_text: String,
    /// Whether the supplier is down.
    pub outage: Outage,
    /// Every answer is a page of HTML.
    pub html: bool,
    /// How many of the next pages are shorter than asked for.
    pub short_next: u64,
    /// How many pages of a hundred are shorter than asked for.
    pub short_percent: u8,
    /// How many of the next pages ignore their offset.
    pub repeat_next: u64,
    /// Every page ignores its offset.
    pub repeat_always: bool,
    /// How many of the next pages have stones without ids.
    pub without_ids_next: u64,
    /// How many of the next pages have their first stone a second time, at the end.
    pub duplicate_next: u64,
    /// What is added to every count.
    pub count_lies_by: i64,
    /// How many of the next counts are one too high.
    pub count_ahead_next: u64,
    /// Stones that every list by price has twice. Counts include both.
    pub doubles: Vec<Double>,
    /// Places of every list by price whose stone has no id.
    pub nameless: Vec<u64>,
    /// Places of every list by price that are counted, and left out of every page.
    pub hidden: Vec<u64>,
    /// Every second stone has the id of the stone before it, with a space at the end.
    pub spaced_ids: bool,
    /// Bytes that are added to every item.
    pub padding_bytes: u32,
    /// How far the `Date` header is from the supplier's time, in seconds.
    pub date_skew_secs: i64,
    /// Whether answers tell the supplier's time.
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
    /// The same, with the fields that `patch` names set anew.
    pub fn merged(&self, patch: &serde_json::Value) -> Result<Self, String> {
        let serde_json::Value::Object(patch) = patch else {
            return Err("a behaviour is a JSON object".to_owned());
        };
        let mut whole = serde_json::to_value(self).map_err(|error| error.to_string())?;
        if let serde_json::Value::Object(whole) = &mut whole {
            whole.extend(patch.clone());
        }
        serde_json::from_value(whole).map_err(|error| error.to_string())
    }
}

/// Takes one from a number of things to come; says whether there was one.
pub(crate) const fn take(left: &mut u64) -> bool {
    let some = *left > 0;
    *left = left.saturating_sub(1);
    some
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_changes_what_it_names_and_nothing_else() {
        let before = Behaviour { latency_ms: 5, ..Behaviour::default() };
        let after = before.merged(&serde_json::json!({"fail_next": 3, "fail_with": "429"})).unwrap();
        let fail_with = FailWith::TooManyRequests;
        assert_eq!(after, Behaviour { latency_ms: 5, fail_next: 3, fail_with, ..Behaviour::default() });
        assert!(before.merged(&serde_json::json!({"fial_next": 3})).unwrap_err().contains("fial_next"));
        assert!(before.merged(&serde_json::json!([])).is_err());
    }
}
