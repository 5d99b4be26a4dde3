//! The API endpoint, with the configured failures.

use crate::behaviour::{FailWith, Outage, Target, take};
use crate::graphql::{self, Request, error_body};
use crate::lock;
use crate::state::{INVALID_TOKEN, SupplierState};
use hyper::StatusCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Response of the API.
pub(crate) enum ApiResponse {
    Json(StatusCode, Vec<u8>),
    /// An error with a `Retry-After` header in seconds.
    RetryAfter(StatusCode, u64),
    /// A page of HTML instead of JSON.
    Html,
    /// The connection is closed without a response.
    Closed,
}

/// Counts the requests of the current second.
#[derive(Debug)]
pub(crate) struct RateWindow {
    since: Instant,
    count: u32,
}

impl Default for RateWindow {
    fn default() -> Self {
        Self { since: Instant::now(), count: 0 }
    }
}

impl RateWindow {
    /// Counts a request; returns whether it is within the limit.
    fn admits(&mut self, limit: u32) -> bool {
        if self.since.elapsed() >= Duration::from_secs(1) {
            *self = Self::default();
        }
        self.count = self.count.saturating_add(1);
        self.count <= limit
    }
}

/// A body that is not valid JSON, and does not look like a truncated one.
const BROKEN_JSON: &[u8] = br#"{"data":{"as":{"diamonds_by_query":{"items":[{]}}}}"#;

/// A body with null instead of the list and the count.
const NULL_LIST: &[u8] =
    br#"{"data":{"as":{"diamonds_by_query":{"items":null},"diamonds_by_query_count":null}}}"#;

/// Field that identifies a request for a count.
const COUNT_FIELD: &[u8] = b"diamonds_by_query_count";

/// Handles a request to the API.
pub(crate) async fn respond(
    state: &Arc<SupplierState>,
    window: &std::sync::Mutex<RateWindow>,
    body: &[u8],
) -> ApiResponse {
    state.counters.requests.add(1);
    let is_count = body.windows(COUNT_FIELD.len()).any(|word| word == COUNT_FIELD);
    let _counting = is_count.then(|| state.counters.counting.enter());
    let (latency, jitter) = {
        let behaviour = lock(&state.behaviour);
        (behaviour.latency_ms, behaviour.jitter_ms)
    };
    if latency + jitter > 0 {
        let extra = state.below(jitter.saturating_add(1));
        tokio::time::sleep(Duration::from_millis(latency + extra)).await;
    }
    let request = serde_json::from_slice::<Request>(body);
    if let Some(failure) = failure(state, window, request.as_ref().map_or("", |request| &request.query)) {
        return failure;
    }
    match request {
        Ok(request) => ApiResponse::Json(StatusCode::OK, graphql::execute(state, &request)),
        Err(error) => {
            let message = format!("the body is not a GraphQL request: {error}");
            ApiResponse::Json(StatusCode::BAD_REQUEST, error_body(&message))
        }
    }
}

/// Returns the configured failure, if one applies to this request.
fn failure(
    state: &SupplierState,
    window: &std::sync::Mutex<RateWindow>,
    document: &str,
) -> Option<ApiResponse> {
    let mut behaviour = lock(&state.behaviour);
    let retry_after = behaviour.retry_after_secs;
    match behaviour.outage {
        Outage::Off => {}
        Outage::Closed => return Some(ApiResponse::Closed),
        Outage::Unavailable => {
            return Some(ApiResponse::RetryAfter(StatusCode::SERVICE_UNAVAILABLE, retry_after));
        }
    }
    if behaviour.html {
        return Some(ApiResponse::Html);
    }
    if behaviour.rate_limit.is_some_and(|limit| !lock(window).admits(limit)) {
        state.counters.limited.add(1);
        return Some(ApiResponse::RetryAfter(StatusCode::TOO_MANY_REQUESTS, retry_after));
    }
    let is_target = behaviour.fail_on == Target::Any || behaviour.fail_on == target(document);
    if !(is_target && take(&mut behaviour.fail_next)) {
        return None;
    }
    state.counters.failed.add(1);
    let failed = |status| ApiResponse::Json(status, error_body("the supplier failed"));
    Some(match behaviour.fail_with {
        FailWith::TooManyRequests => ApiResponse::RetryAfter(StatusCode::TOO_MANY_REQUESTS, retry_after),
        FailWith::BareLimit => failed(StatusCode::TOO_MANY_REQUESTS),
        FailWith::Internal => failed(StatusCode::INTERNAL_SERVER_ERROR),
        FailWith::BadGateway => failed(StatusCode::BAD_GATEWAY),
        FailWith::Unavailable => ApiResponse::RetryAfter(StatusCode::SERVICE_UNAVAILABLE, retry_after),
        FailWith::Graphql => ApiResponse::Json(StatusCode::OK, error_body(&behaviour.error_text)),
        FailWith::Html => ApiResponse::Html,
        FailWith::BrokenJson => ApiResponse::Json(StatusCode::OK, BROKEN_JSON.to_vec()),
        FailWith::NullList => ApiResponse::Json(StatusCode::OK, NULL_LIST.to_vec()),
        FailWith::Token => ApiResponse::Json(StatusCode::OK, error_body(INVALID_TOKEN)),
        FailWith::Closed => ApiResponse::Closed,
    })
}

/// Classifies a document by the field names in its text.
fn target(document: &str) -> Target {
    if document.contains("username_and_password") {
        Target::Login
    } else if document.contains("diamonds_by_query_count") {
        Target::Count
    } else {
        Target::Page
    }
}
