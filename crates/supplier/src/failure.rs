//! The configured latency and failures of requests. Each API has its own bodies for the same failures.

use crate::behaviour::{FailWith, Outage, Target, take};
use crate::lock;
use crate::state::{INVALID_TOKEN, SupplierState};
use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Response of an API.
pub(crate) enum ApiResponse {
    Json {
        status: StatusCode,
        headers: HeaderMap,
        body: Vec<u8>,
    },
    /// A page of HTML instead of JSON.
    Html,
    /// The connection is closed without a response.
    Closed,
}

impl ApiResponse {
    /// A response without headers of its own.
    pub(crate) fn json(status: StatusCode, body: Vec<u8>) -> Self {
        Self::Json { status, headers: HeaderMap::new(), body }
    }
}

/// The bodies of failed responses of one API.
pub(crate) struct FailureBodies {
    /// Returns a body with an error message.
    pub(crate) error: fn(&str) -> Vec<u8>,
    /// A body that is not valid JSON, and does not look like a truncated one.
    pub(crate) broken_json: &'static [u8],
    /// A body with null instead of the list and the count.
    pub(crate) null_list: &'static [u8],
    /// Status of the response to an invalid token.
    pub(crate) token_status: StatusCode,
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

/// Waits for the configured latency.
pub(crate) async fn delay(state: &SupplierState) {
    let (latency, jitter) = {
        let behaviour = lock(&state.behaviour);
        (behaviour.latency_ms, behaviour.jitter_ms)
    };
    if latency + jitter > 0 {
        let extra = state.below(jitter.saturating_add(1));
        tokio::time::sleep(Duration::from_millis(latency + extra)).await;
    }
}

/// Returns the configured failure, if one applies to this request.
pub(crate) fn configured_failure(
    state: &SupplierState,
    window: &Mutex<RateWindow>,
    target: impl FnOnce() -> Target,
    bodies: &FailureBodies,
) -> Option<ApiResponse> {
    let mut behaviour = lock(&state.behaviour);
    let wait_secs = behaviour.retry_after_secs;
    let later = |status| {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from(wait_secs))]);
        ApiResponse::Json { status, headers, body: (bodies.error)("try again later") }
    };
    match behaviour.outage {
        Outage::Off => {}
        Outage::Closed => return Some(ApiResponse::Closed),
        Outage::Unavailable => return Some(later(StatusCode::SERVICE_UNAVAILABLE)),
    }
    if behaviour.html {
        return Some(ApiResponse::Html);
    }
    if behaviour.rate_limit.is_some_and(|limit| !lock(window).admits(limit)) {
        state.counters.limited.add(1);
        return Some(later(StatusCode::TOO_MANY_REQUESTS));
    }
    let is_target = behaviour.fail_on == Target::Any || behaviour.fail_on == target();
    if !(is_target && take(&mut behaviour.fail_next)) {
        return None;
    }
    state.counters.failed.add(1);
    let failed = |status| ApiResponse::json(status, (bodies.error)("the supplier failed"));
    Some(match behaviour.fail_with {
        FailWith::TooManyRequests => later(StatusCode::TOO_MANY_REQUESTS),
        FailWith::BareLimit => failed(StatusCode::TOO_MANY_REQUESTS),
        FailWith::Internal => failed(StatusCode::INTERNAL_SERVER_ERROR),
        FailWith::BadGateway => failed(StatusCode::BAD_GATEWAY),
        FailWith::Unavailable => later(StatusCode::SERVICE_UNAVAILABLE),
        FailWith::Graphql => ApiResponse::json(StatusCode::OK, (bodies.error)(&behaviour.error_text)),
        FailWith::Html => ApiResponse::Html,
        FailWith::BrokenJson => ApiResponse::json(StatusCode::OK, bodies.broken_json.to_vec()),
        FailWith::NullList => ApiResponse::json(StatusCode::OK, bodies.null_list.to_vec()),
        FailWith::Token => ApiResponse::json(bodies.token_status, (bodies.error)(INVALID_TOKEN)),
        FailWith::Closed => ApiResponse::Closed,
    })
}
