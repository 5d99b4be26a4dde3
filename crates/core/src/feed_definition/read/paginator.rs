//! Parses the section `paginator`.

use super::request::header_name;
use super::{param, required_param, tag, unknown_word, value_path};
use crate::definition::error::DefinitionErrors;
use crate::definition::fields::Fields;
use crate::definition::yaml::Value;
use crate::feed_definition::paging::Paginator;
use crate::feed_definition::path::JsonPath;
use crate::feed_definition::request::{ParamTarget, Resource};
use crate::limits::{FEED_PAGE_SIZE, FEED_PAGE_SIZE_MAX, GRAPH_WORD_BYTES_MAX};

pub(in super::super) const TYPES: [(&str, &[&str]); 12] = [
    ("auto", &["limit"]),
    ("single_page", &[]),
    (
        "page_number",
        &["page_param", "page_body_path", "base_page", "limit", "limit_param", "limit_body_path"],
    ),
    ("offset", &["offset_param", "offset_body_path", "limit", "limit_param", "limit_body_path"]),
    (
        "cursor",
        &["cursor_path", "cursor_param", "cursor_body_path", "limit", "limit_param", "limit_body_path"],
    ),
    ("json_link", &["next_url_path", "limit", "limit_param", "limit_body_path"]),
    (
        "header_cursor",
        &["cursor_key", "cursor_param", "cursor_body_path", "limit", "limit_param", "limit_body_path"],
    ),
    ("header_url", &["header", "limit", "limit_param", "limit_body_path"]),
    ("header_link", &["links_next_key", "limit", "limit_param", "limit_body_path"]),
    ("keyset", &["key_path", "cursor_param", "cursor_body_path", "limit", "limit_param", "limit_body_path"]),
    ("graphql_offset", &["offset_variable", "limit_variable", "limit"]),
    ("graphql_connection", &["connection_path", "cursor_variable", "limit_variable", "limit"]),
];

/// Reads the paginator of a definition: a mapping with `type`, or the type alone. Without it, the paginator is `auto`.
pub(super) fn read(
    fields: &Fields,
    resource: Option<&Resource>,
    errors: &mut DefinitionErrors,
) -> Option<Paginator> {
    let Some(node) = fields.node("paginator") else {
        return Some(Paginator::Auto { page_size: FEED_PAGE_SIZE });
    };
    if let Value::Text(word, _) = &node.value {
        let words = TYPES.map(|(word, _)| word);
        if !words.contains(&word.as_str()) {
            unknown_word("paginator", word, &words, node.at, errors);
            return None;
        }
        // The type alone is the same as a mapping without further keys.
        let mut node = node.clone();
        let key = ("type".to_owned(), node.at, node.clone());
        node.value = Value::Map(vec![key]);
        let fields = Fields::read("paginator", node, errors)?;
        return typed(&fields, resource, errors);
    }
    typed(&fields.child("paginator", errors)?, resource, errors)
}

fn typed(fields: &Fields, resource: Option<&Resource>, errors: &mut DefinitionErrors) -> Option<Paginator> {
    let word = tag(fields, "`paginator`", &TYPES, errors)?;
    let page_size = fields.number("limit", 1, FEED_PAGE_SIZE_MAX.into(), errors);
    let page_size = page_size.and_then(|size| size.try_into().ok()).unwrap_or(FEED_PAGE_SIZE);
    let limit = param(fields, "limit", errors);
    let default =
        |target: Option<ParamTarget>, name: &str| target.unwrap_or_else(|| ParamTarget::Query(name.into()));
    match word {
        "single_page" => Some(Paginator::SinglePage),
        "page_number" => page_number(fields, page_size, limit, errors),
        "offset" => {
            let offset = default(param(fields, "offset", errors), "offset");
            Some(Paginator::Offset { offset, limit: Some(default(limit, "limit")), page_size })
        }
        "cursor" => {
            fields.require("cursor_path", "write `cursor_path: meta.next`, its path in the answer", errors);
            let cursor_path = value_path(fields, "cursor_path", errors);
            let cursor = required_param(fields, "cursor", errors);
            Some(Paginator::Cursor { cursor_path: cursor_path?, cursor: cursor?, limit, page_size })
        }
        "json_link" => {
            fields.require(
                "next_url_path",
                "write `next_url_path: links.next`, its path in the answer",
                errors,
            );
            let next_url_path = value_path(fields, "next_url_path", errors)?;
            Some(Paginator::JsonLink { next_url_path, limit, page_size })
        }
        "header_cursor" => {
            fields.require("cursor_key", "write `cursor_key: X-Next-Cursor`, the name of the header", errors);
            let cursor_key = header_name(fields, "cursor_key", errors);
            let cursor = required_param(fields, "cursor", errors);
            Some(Paginator::HeaderCursor { cursor_key: cursor_key?, cursor: cursor?, limit, page_size })
        }
        "header_url" => {
            fields.require("header", "write `header: X-Next-Page`, the name of the header", errors);
            let header = header_name(fields, "header", errors)?;
            Some(Paginator::HeaderUrl { header, limit, page_size })
        }
        "header_link" => {
            let key = fields.text("links_next_key", GRAPH_WORD_BYTES_MAX, errors);
            let links_next_key = key.unwrap_or_else(|| "next".to_owned());
            Some(Paginator::HeaderLink { links_next_key, limit, page_size })
        }
        "keyset" => keyset(fields, resource, page_size, limit, errors),
        "graphql_offset" => Some(Paginator::GraphqlOffset {
            offset_variable: variable(fields, "offset_variable", "offset", errors),
            limit_variable: variable(fields, "limit_variable", "limit", errors),
            page_size,
        }),
        "graphql_connection" => {
            fields.require(
                "connection_path",
                "write `connection_path: data.items`, which has `pageInfo`",
                errors,
            );
            Some(Paginator::GraphqlConnection {
                connection_path: value_path(fields, "connection_path", errors)?,
                cursor_variable: variable(fields, "cursor_variable", "after", errors),
                limit_variable: variable(fields, "limit_variable", "first", errors),
                page_size,
            })
        }
        _ => Some(Paginator::Auto { page_size }),
    }
}

fn page_number(
    fields: &Fields,
    page_size: u32,
    size: Option<ParamTarget>,
    errors: &mut DefinitionErrors,
) -> Option<Paginator> {
    fields.require("base_page", "write `base_page: 1`, or 0 if the first page is page 0", errors);
    if size.is_none() {
        fields.require("limit", "write `limit:` with the number of records on a page of this API", errors);
    }
    let base_page = fields.number("base_page", 0, 1_000_000, errors)?;
    let page = param(fields, "page", errors).unwrap_or_else(|| ParamTarget::Query("page".to_owned()));
    Some(Paginator::PageNumber { page, base_page: base_page.try_into().ok()?, page_size, size })
}

fn keyset(
    fields: &Fields,
    resource: Option<&Resource>,
    page_size: u32,
    limit: Option<ParamTarget>,
    errors: &mut DefinitionErrors,
) -> Option<Paginator> {
    let cursor = required_param(fields, "cursor", errors);
    let key_path = if fields.has("key_path") {
        value_path(fields, "key_path", errors)
    } else {
        let keys: &[JsonPath] = resource.map(|resource| resource.primary_key.as_slice()).unwrap_or_default();
        if keys.len() > 1 {
            fields.require(
                "key_path",
                "write `key_path:` with the path of the sorted key in a record",
                errors,
            );
        }
        keys.first().cloned()
    };
    Some(Paginator::Keyset { key_path: key_path?, cursor: cursor?, limit, page_size })
}

fn variable(fields: &Fields, key: &str, default: &str, errors: &mut DefinitionErrors) -> String {
    fields.text(key, GRAPH_WORD_BYTES_MAX, errors).unwrap_or_else(|| default.to_owned())
}
