//! The GraphQL API: `items` with positions, `itemsConnection` with cursors, and `itemsCount`.
//!
//! All three have the arguments `priceFrom`, `priceTo`, `updatedSince` and `ids`. Documents are compiled and cached, as
//! those of the Nivoda API are.

use super::RestKind;
use super::answer::cursor;
use super::item::{BYTES, ITEM};
use super::list::{self, Page};
use super::request::{Cursor, Filters, ListRequest, REST_LIMIT_MAX, Start, check_limit, micros, numbers};
use crate::failure::ApiResponse;
use crate::filter::word;
use crate::graphql::{
    Arguments, BoundVariables, DeclaredVariables, Request, Selections, check_leaf, error_body, parse,
    response_key, subselection, unknown_field,
};
use crate::json_writer::JsonWriter;
use crate::state::SupplierState;
use crate::stone::Stone;
use crate::template::Template;
use async_graphql_parser::types::{Field, SelectionSet};
use async_graphql_value::ConstValue;
use hyper::StatusCode;

const QUERY: &str = "Query";
const FILTERS: [&str; 4] = ["priceFrom", "priceTo", "updatedSince", "ids"];
/// Field that identifies a request for a count.
const COUNT_FIELD: &[u8] = b"itemsCount";

/// Whether the body of a request asks for a count.
pub(super) fn is_count(body: &[u8]) -> bool {
    body.windows(COUNT_FIELD.len()).any(|word| word == COUNT_FIELD)
}

/// Handles the body of a request.
pub(super) fn respond(state: &SupplierState, body: &[u8]) -> ApiResponse {
    let request: Request = match serde_json::from_slice(body) {
        Ok(request) => request,
        Err(error) => {
            let message = format!("the body is not a GraphQL request: {error}");
            return ApiResponse::json(StatusCode::BAD_REQUEST, error_body(&message));
        }
    };
    let plan = state.rest_plans.get(state, &request.query, Plan::compile);
    let answered = plan.and_then(|plan| Ok(plan.execute(state, &request)?));
    ApiResponse::json(StatusCode::OK, answered.unwrap_or_else(crate::graphql::GraphqlError::into_json))
}

/// A compiled document with one operation.
pub(crate) struct Plan {
    variables: DeclaredVariables,
    fields: Vec<RootField>,
}

struct RootField {
    key: String,
    arguments: Arguments,
    kind: RootKind,
}

enum RootKind {
    Count,
    /// A list, with the selected parts of its pages.
    List(RestKind, Vec<Part>),
}

/// A part of a page with its key in the response.
type Part = (String, PartKind);

enum PartKind {
    Nodes(Template),
    Edges(Vec<(String, EdgePart)>),
    Total,
    HasMore,
    EndCursor,
    PageInfo(Vec<Part>),
}

enum EdgePart {
    Cursor,
    Node(Template),
}

impl Plan {
    fn compile(document: &str) -> Result<Self, String> {
        let document = parse(document)?;
        let selections = Selections::new(&document.fragments);
        let mut operations = document.operations.iter();
        let (Some((_, operation)), None) = (operations.next(), operations.next()) else {
            return Err("the document must contain one operation".to_owned());
        };
        let variables = DeclaredVariables::compile(&operation.node)?;
        let fields = selections.fields(&operation.node.selection_set.node, QUERY, 1)?;
        let fields = fields.into_iter().map(|field| RootField::compile(field, &selections));
        Ok(Self { variables, fields: fields.collect::<Result<_, _>>()? })
    }

    fn execute(&self, state: &SupplierState, request: &Request) -> Result<Vec<u8>, String> {
        let variables = self.variables.bind(&request.variables)?;
        let mut out = JsonWriter::default();
        out.raw("{\"data\":{");
        for (index, field) in self.fields.iter().enumerate() {
            out.key(index, &field.key);
            field.write(state, &variables, &mut out)?;
        }
        out.raw("}}");
        Ok(out.0)
    }
}

impl RootField {
    fn compile<'a>(field: &'a Field, selections: &Selections<'a>) -> Result<Self, String> {
        let (page_arguments, kind): (&[&str], _) = match field.name.node.as_str() {
            "itemsCount" => {
                check_leaf(field, QUERY)?;
                (&[], RootKind::Count)
            }
            "items" => {
                let parts = parts(subselection(field, QUERY)?, "ItemPage", 2, selections)?;
                (&["offset", "limit"], RootKind::List(RestKind::GraphqlOffset, parts))
            }
            "itemsConnection" => {
                let parts = parts(subselection(field, QUERY)?, "ItemConnection", 2, selections)?;
                (&["after", "first"], RootKind::List(RestKind::GraphqlConnection, parts))
            }
            _ => return Err(unknown_field(field, QUERY)),
        };
        let allowed: Vec<&str> = FILTERS.iter().chain(page_arguments).copied().collect();
        Ok(Self {
            key: response_key(field).to_owned(),
            arguments: Arguments::compile(field, &allowed)?,
            kind,
        })
    }

    fn write(
        &self,
        state: &SupplierState,
        variables: &BoundVariables,
        out: &mut JsonWriter,
    ) -> Result<(), String> {
        let filters = filters(&self.arguments, variables)?;
        match &self.kind {
            RootKind::Count => {
                out.int(list::count(state, &filters));
            }
            RootKind::List(kind, parts) => {
                let request = list_request(*kind, filters, &self.arguments, variables)?;
                let page = list::page(state, &request);
                out.0.reserve(page.stones.len() * BYTES);
                write_parts(parts, &page, out);
            }
        }
        Ok(())
    }
}

/// Compiles the selected parts of a page of type `type_name`.
fn parts<'a>(
    selection: &'a SelectionSet,
    type_name: &str,
    depth: usize,
    selections: &Selections<'a>,
) -> Result<Vec<Part>, String> {
    let part = |field: &'a Field| {
        Arguments::compile(field, &[])?;
        let leaf = |part| check_leaf(field, type_name).map(|()| part);
        let inner = || subselection(field, type_name);
        let part = match (type_name, field.name.node.as_str()) {
            ("ItemPage" | "ItemConnection", "nodes") => {
                PartKind::Nodes(Template::compile(inner()?, &ITEM, selections, depth + 1)?)
            }
            ("ItemConnection", "edges") => PartKind::Edges(edge_parts(inner()?, depth + 1, selections)?),
            ("ItemConnection", "pageInfo") => {
                PartKind::PageInfo(parts(inner()?, "PageInfo", depth + 1, selections)?)
            }
            ("ItemPage" | "ItemConnection", "totalCount") => leaf(PartKind::Total)?,
            ("ItemPage", "hasMore") | ("PageInfo", "hasNextPage") => leaf(PartKind::HasMore)?,
            ("PageInfo", "endCursor") => leaf(PartKind::EndCursor)?,
            _ => return Err(unknown_field(field, type_name)),
        };
        Ok((response_key(field).to_owned(), part))
    };
    selections.fields(selection, type_name, depth)?.into_iter().map(part).collect()
}

fn edge_parts<'a>(
    selection: &'a SelectionSet,
    depth: usize,
    selections: &Selections<'a>,
) -> Result<Vec<(String, EdgePart)>, String> {
    let part = |field: &'a Field| {
        Arguments::compile(field, &[])?;
        let part = match field.name.node.as_str() {
            "cursor" => check_leaf(field, "ItemEdge").map(|()| EdgePart::Cursor)?,
            "node" => {
                let inner = subselection(field, "ItemEdge")?;
                EdgePart::Node(Template::compile(inner, &ITEM, selections, depth + 1)?)
            }
            _ => return Err(unknown_field(field, "ItemEdge")),
        };
        Ok((response_key(field).to_owned(), part))
    };
    selections.fields(selection, "ItemEdge", depth)?.into_iter().map(part).collect()
}

fn write_parts(parts: &[Part], page: &Page, out: &mut JsonWriter) {
    out.raw("{");
    for (index, (key, part)) in parts.iter().enumerate() {
        out.key(index, key);
        match part {
            PartKind::Nodes(template) => {
                write_list(&page.stones, out, |stone, out| template.write(stone, out));
            }
            PartKind::Edges(parts) => {
                write_list(&page.stones, out, |stone, out| write_edge(parts, stone, out));
            }
            PartKind::Total => {
                out.int(page.total);
            }
            PartKind::HasMore => out.boolean(page.has_more),
            PartKind::EndCursor => {
                let last = page.stones.last().map(cursor_after);
                cursor(page.next.or(last).as_ref(), out);
            }
            PartKind::PageInfo(parts) => write_parts(parts, page, out),
        }
    }
    out.raw("}");
}

fn write_list(stones: &[Stone], out: &mut JsonWriter, mut write: impl FnMut(&Stone, &mut JsonWriter)) {
    out.raw("[");
    for (index, stone) in stones.iter().enumerate() {
        out.raw(if index == 0 { "" } else { "," });
        write(stone, out);
    }
    out.raw("]");
}

fn write_edge(parts: &[(String, EdgePart)], stone: &Stone, out: &mut JsonWriter) {
    out.raw("{");
    for (index, (key, part)) in parts.iter().enumerate() {
        out.key(index, key);
        match part {
            EdgePart::Cursor => cursor(Some(&cursor_after(stone)), out),
            EdgePart::Node(template) => template.write(stone, out),
        }
    }
    out.raw("}");
}

const fn cursor_after(stone: &Stone) -> Cursor {
    Cursor { start: Start::After(stone.number), empty_pages: 0 }
}

fn filters(arguments: &Arguments, variables: &BoundVariables) -> Result<Filters, String> {
    let value = |name| {
        let value = arguments.value(name, variables);
        value.map(|value| Some(value).filter(|value| *value != ConstValue::Null))
    };
    let money = |name| value(name)?.map(|value| cents(name, &value)).transpose();
    let updated_since = value("updatedSince")?.map(|value| {
        let text = word(&value).ok_or_else(|| format!("updatedSince must be a string, not {value}"))?;
        micros("updatedSince", text)
    });
    let ids = value("ids")?.map(|value| {
        let ConstValue::List(ids) = &value else { return Err(format!("ids must be a list, not {value}")) };
        numbers(ids.iter().filter_map(word))
    });
    Ok(Filters {
        price_from: money("priceFrom")?,
        price_to: money("priceTo")?,
        updated_since: updated_since.transpose()?,
        ids: ids.transpose()?,
    })
}

/// Returns an amount in cents, rounded.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the range")]
fn cents(name: &str, value: &ConstValue) -> Result<u32, String> {
    let number = if let ConstValue::Number(number) = value { number.as_f64() } else { None };
    let number = number.filter(|number| *number >= 0.0);
    let number = number.ok_or_else(|| format!("{name} must be a non-negative number, not {value}"))?;
    Ok((number * 100.0).round().min(f64::from(u32::MAX)) as u32)
}

fn list_request(
    kind: RestKind,
    filters: Filters,
    arguments: &Arguments,
    variables: &BoundVariables,
) -> Result<ListRequest<'static>, String> {
    let number = |name: &str, missing: u64| {
        let value = arguments.value(name, variables)?;
        if value == ConstValue::Null {
            return Ok(missing);
        }
        let number = if let ConstValue::Number(number) = &value { number.as_u64() } else { None };
        number.ok_or_else(|| format!("{name} must be a non-negative integer, not {value}"))
    };
    let (cursor, limit) = if kind == RestKind::GraphqlConnection {
        let after = arguments.value("after", variables)?;
        let cursor = if after == ConstValue::Null {
            Cursor::FIRST
        } else {
            Cursor::parse(word(&after).ok_or_else(|| format!("after must be a string, not {after}"))?)?
        };
        (cursor, check_limit("first", number("first", REST_LIMIT_MAX as u64)?)?)
    } else {
        let start = Start::Position(number("offset", 0)?);
        let limit = check_limit("limit", number("limit", REST_LIMIT_MAX as u64)?)?;
        (Cursor { start, empty_pages: 0 }, limit)
    };
    Ok(ListRequest { kind, filters, cursor, limit: Some(limit), repeated: Vec::new() })
}
