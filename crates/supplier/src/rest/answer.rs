//! The bodies and headers of lists.

use super::RestKind;
use super::item::BYTES;
use super::list::Page;
use super::request::{Cursor, ListRequest};
use crate::failure::ApiResponse;
use crate::json_writer::JsonWriter;
use crate::state::SupplierState;
use crate::stone::Stone;
use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderName, HeaderValue, LINK};

const TOTAL: HeaderName = HeaderName::from_static("x-total-count");
const NEXT_CURSOR: HeaderName = HeaderName::from_static("x-next-cursor");
const NEXT_PAGE: HeaderName = HeaderName::from_static("x-next-page");

/// Writes the answer to a count.
pub(super) fn count(count: u64) -> ApiResponse {
    ApiResponse::json(StatusCode::OK, format!("{{\"total\":{count}}}").into_bytes())
}

/// Writes the answer to a list. `host` is the value of the request's header `Host`.
pub(super) fn list(
    state: &SupplierState,
    request: &ListRequest<'_>,
    page: &Page,
    host: Option<&str>,
) -> ApiResponse {
    let mut out = JsonWriter::with_capacity(page.stones.len() * BYTES + 256);
    if request.kind.has_envelope() {
        out.raw("{\"data\":");
        items(state, &page.stones, &mut out);
        out.raw(",\"meta\":{\"total\":").int(page.total).raw(",\"has_more\":").boolean(page.has_more);
        if request.kind == RestKind::Cursor {
            out.raw(",\"next_cursor\":");
            cursor(page.next.as_ref(), &mut out);
        }
        out.raw("}");
        if request.kind == RestKind::JsonLink {
            out.raw(",\"links\":{\"next\":");
            match page.next.as_ref() {
                Some(next) => out.text(&next_path(request, next)),
                None => out.null(),
            }
            out.raw("}");
        }
        out.raw("}");
    } else {
        items(state, &page.stones, &mut out);
    }
    ApiResponse::Json { status: StatusCode::OK, headers: headers(request, page, host), body: out.0 }
}

fn headers(request: &ListRequest<'_>, page: &Page, host: Option<&str>) -> HeaderMap {
    let mut headers = HeaderMap::from_iter([(TOTAL, HeaderValue::from(page.total))]);
    let Some(next) = &page.next else { return headers };
    let url = || {
        let path = next_path(request, next);
        host.map_or_else(|| path.clone(), |host| format!("http://{host}{path}"))
    };
    let header = match request.kind {
        RestKind::HeaderCursor => Some((NEXT_CURSOR, next.to_string())),
        RestKind::HeaderUrl => Some((NEXT_PAGE, url())),
        RestKind::HeaderLink => Some((LINK, format!("<{}>; rel=\"next\"", url()))),
        RestKind::SinglePage
        | RestKind::PageNumber
        | RestKind::Offset
        | RestKind::Cursor
        | RestKind::JsonLink
        | RestKind::Keyset
        | RestKind::GraphqlOffset
        | RestKind::GraphqlConnection => None,
    };
    if let Some((name, value)) = header
        && let Ok(value) = HeaderValue::try_from(value)
    {
        headers.insert(name, value);
    }
    headers
}

/// Returns path and query of the next page.
fn next_path(request: &ListRequest<'_>, next: &Cursor) -> String {
    let mut query = form_urlencoded::Serializer::new(format!("/rest/{}/items?", request.kind));
    query.extend_pairs(&request.repeated);
    query.append_pair("cursor", &next.to_string());
    query.finish()
}

/// Writes a list of items.
fn items(state: &SupplierState, stones: &[Stone], out: &mut JsonWriter) {
    out.raw("[");
    for (index, stone) in stones.iter().enumerate() {
        out.raw(if index == 0 { "" } else { "," });
        state.rest_item.write(stone, out);
    }
    out.raw("]");
}

/// Writes a cursor or null.
pub(super) fn cursor(cursor: Option<&Cursor>, out: &mut JsonWriter) {
    match cursor {
        Some(cursor) => out.text(&cursor.to_string()),
        None => out.null(),
    }
}
