//! The endpoint of the Nivoda API.

use crate::behaviour::Target;
use crate::failure::{ApiResponse, FailureBodies, RateWindow, configured_failure, delay};
use crate::graphql::{self, Request, error_body};
use crate::state::SupplierState;
use hyper::StatusCode;

const FAILURES: FailureBodies = FailureBodies {
    error: error_body,
    broken_json: br#"{"data":{"as":{"diamonds_by_query":{"items":[{]}}}}"#,
    null_list: br#"{"data":{"as":{"diamonds_by_query":{"items":null},"diamonds_by_query_count":null}}}"#,
    token_status: StatusCode::OK,
};

/// Field that identifies a request for a count.
const COUNT_FIELD: &str = "diamonds_by_query_count";

/// Handles a request to the API.
pub(crate) async fn respond(
    state: &SupplierState,
    window: &std::sync::Mutex<RateWindow>,
    body: &[u8],
) -> ApiResponse {
    state.counters.requests.add(1);
    let is_count = body.windows(COUNT_FIELD.len()).any(|word| word == COUNT_FIELD.as_bytes());
    let _counting = is_count.then(|| state.counters.counting.enter());
    delay(state).await;
    let request = serde_json::from_slice::<Request>(body);
    let target = || target(request.as_ref().map_or("", |request| &request.query));
    if let Some(failure) = configured_failure(state, window, target, &FAILURES) {
        return failure;
    }
    match request {
        Ok(request) => ApiResponse::json(StatusCode::OK, graphql::execute(state, &request)),
        Err(error) => {
            let message = format!("the body is not a GraphQL request: {error}");
            ApiResponse::json(StatusCode::BAD_REQUEST, error_body(&message))
        }
    }
}

/// Classifies a document by the field names in its text.
fn target(document: &str) -> Target {
    if document.contains("username_and_password") {
        Target::Login
    } else if document.contains(COUNT_FIELD) {
        Target::Count
    } else {
        Target::Page
    }
}
