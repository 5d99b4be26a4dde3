//! A REST API and a GraphQL API that present the stones as items of a general shop.
//!
//! Each [`RestKind`] is a way of pagination with a path of its own. `GET /rest/{kind}/items` lists items,
//! `/items/count` counts them, and `/items/{id}` returns one. `/rest/items` is the same as `/rest/offset/items`.
//! `POST /rest/graphql` answers the two GraphQL kinds (`graphql.rs`).
//!
//! - Items are listed in the order of their creation, which is also the order of their ids.
//! - A list contains active items. With `updated_since` or `ids` it also contains sold items, whose `status` says so. A
//!   stone on hold is a sold item. A removed item is in no list.
//! - `price_from` and `price_to` are money with at most two decimals. `price_to` is exclusive, and `updated_since` is
//!   inclusive.
//! - The status of a single item is 410 if it is sold, and 404 if it does not exist.
//! - The cursors are keys, so that removed items do not shift the pages after them.

mod answer;
mod definition;
mod graphql;
mod item;
mod kind;
mod list;
mod request;

pub use definition::{RestDefinition, rest_definition};
pub(crate) use graphql::Plan;
pub(crate) use item::{ITEM, id_text, number_of, shown_id};
pub use kind::RestKind;
pub use request::REST_LIMIT_MAX;

use crate::behaviour::Target;
use crate::failure::{ApiResponse, FailureBodies, RateWindow, configured_failure, delay};
use crate::graphql::error_body;
use crate::json_writer::JsonWriter;
use crate::lock;
use crate::state::SupplierState;
use crate::stone::Availability;
use hyper::header::{ALLOW, HOST, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use request::ListRequest;
use std::sync::Mutex;

/// Failures of lists with an envelope.
const OBJECT_FAILURES: FailureBodies = FailureBodies {
    error: error_json,
    broken_json: br#"{"data":[{]}}"#,
    null_list: br#"{"data":null,"meta":null,"links":null}"#,
    token_status: StatusCode::UNAUTHORIZED,
};
/// Failures of lists without an envelope.
const ARRAY_FAILURES: FailureBodies =
    FailureBodies { broken_json: b"[{]}]", null_list: b"null", ..OBJECT_FAILURES };
const GRAPHQL_FAILURES: FailureBodies = FailureBodies {
    error: error_body,
    broken_json: br#"{"data":{"items":{"nodes":[{]}}}}"#,
    null_list: br#"{"data":{"items":null,"itemsConnection":null,"itemsCount":null}}"#,
    token_status: StatusCode::OK,
};

/// The resource that a path names.
enum Resource<'a> {
    List(RestKind),
    Count(RestKind),
    Item(&'a str),
    Graphql,
}

impl<'a> Resource<'a> {
    /// Parses a path below `/rest/`.
    fn parse(path: &'a str) -> Option<Self> {
        if path == "graphql" {
            return Some(Self::Graphql);
        }
        let (kind, rest) = if let Some(rest) = path.strip_prefix("items") {
            (RestKind::Offset, rest)
        } else {
            let (kind, rest) = path.split_once("/items")?;
            (kind.parse().ok().filter(|kind: &RestKind| !kind.is_graphql())?, rest)
        };
        match rest {
            "" => Some(Self::List(kind)),
            "/count" => Some(Self::Count(kind)),
            _ => Some(Self::Item(rest.strip_prefix('/')?)),
        }
    }

    fn failures(&self) -> &'static FailureBodies {
        match self {
            Self::Graphql => &GRAPHQL_FAILURES,
            Self::List(kind) if !kind.has_envelope() => &ARRAY_FAILURES,
            Self::List(_) | Self::Count(_) | Self::Item(_) => &OBJECT_FAILURES,
        }
    }

    const fn method(&self) -> Method {
        match self {
            Self::Graphql => Method::POST,
            Self::List(_) | Self::Count(_) | Self::Item(_) => Method::GET,
        }
    }
}

/// Handles a request to a path below `/rest/`.
pub(crate) async fn respond(
    state: &SupplierState,
    window: &Mutex<RateWindow>,
    head: &Parts,
    body: &[u8],
) -> ApiResponse {
    let path = head.uri.path().strip_prefix("/rest/").unwrap_or_default();
    let Some(resource) = Resource::parse(path) else {
        let text = "the lists are at /rest/KIND/items and /rest/graphql";
        return failure(StatusCode::NOT_FOUND, text);
    };
    if head.method != resource.method() {
        let headers = HeaderMap::from_iter([(ALLOW, method_name(&resource.method()))]);
        let body = error_json("the resource does not support this method");
        return ApiResponse::Json { status: StatusCode::METHOD_NOT_ALLOWED, headers, body };
    }
    state.counters.requests.add(1);
    let is_count = match &resource {
        Resource::Count(_) => true,
        Resource::Graphql => graphql::is_count(body),
        Resource::List(_) | Resource::Item(_) => false,
    };
    let _counting = is_count.then(|| state.counters.counting.enter());
    delay(state).await;
    let target = || if is_count { Target::Count } else { Target::Page };
    if let Some(failure) = configured_failure(state, window, target, resource.failures()) {
        return failure;
    }
    let query = head.uri.query().unwrap_or_default();
    let answered = match resource {
        Resource::List(kind) => ListRequest::parse(kind, query).map(|request| {
            let page = list::page(state, &request);
            let host = head.headers.get(HOST).and_then(|host| host.to_str().ok());
            answer::list(state, &request, &page, host)
        }),
        Resource::Count(kind) => {
            ListRequest::parse_count(kind, query).map(|filters| answer::count(list::count(state, &filters)))
        }
        Resource::Item(id) => Ok(item(state, id)),
        Resource::Graphql => Ok(graphql::respond(state, body)),
    };
    answered.unwrap_or_else(|error| failure(StatusCode::BAD_REQUEST, &error))
}

fn method_name(method: &Method) -> HeaderValue {
    HeaderValue::from_str(method.as_str()).unwrap_or_else(|_| HeaderValue::from_static("GET"))
}

/// Answers the request for one item.
fn item(state: &SupplierState, id: &str) -> ApiResponse {
    state.counters.lookups.add(1);
    // The configured ids with spaces are the only ones that a client must encode.
    let number = number_of(&id.replace("%20", " "));
    let stone = number.and_then(|number| lock(&state.catalogue).stone(number));
    match stone.map(|stone| (stone, stone.state.availability)) {
        Some((mut stone, Availability::Available)) => {
            {
                let behaviour = lock(&state.behaviour);
                (stone.is_spaced, stone.padding) = (behaviour.spaced_ids, behaviour.padding_bytes);
            }
            let mut out = JsonWriter::with_capacity(item::BYTES);
            state.rest_item.write(&stone, &mut out);
            ApiResponse::json(StatusCode::OK, out.0)
        }
        Some((_, Availability::OnHold | Availability::Sold)) => failure(StatusCode::GONE, "the item is sold"),
        Some((_, Availability::Gone)) | None => failure(StatusCode::NOT_FOUND, "the item does not exist"),
    }
}

fn failure(status: StatusCode, message: &str) -> ApiResponse {
    ApiResponse::json(status, error_json(message))
}

fn error_json(message: &str) -> Vec<u8> {
    serde_json::json!({ "error": message }).to_string().into_bytes()
}
