//! One compiled query: the fields of the API, and how they are answered.

use super::GraphqlError;
use super::arguments::{Arguments, BoundVariables, DeclaredVariables};
use super::selection::{Selections, check_leaf, response_key, subselection, unknown_field};
use crate::filter::Query;
use crate::item::{DIAMOND, ITEM};
use crate::json_writer::JsonWriter;
use crate::state::{INVALID_TOKEN, PageRequest, SupplierState};
use crate::stone::Stone;
use crate::template::Template;
use async_graphql_parser::types::{Field, OperationDefinition};
use async_graphql_value::Variables;

/// Approximate size of an item as JSON.
const ITEM_BYTES: usize = 1_700;

const QUERY: &str = "Query";
const AUTHENTICATE: &str = "Authenticate";
const TOKEN: &str = "Token";
const SESSION: &str = "Session";
const PAGE: &str = "DiamondPage";

/// A compiled query with its declared variables.
pub(super) struct Operation {
    variables: DeclaredVariables,
    fields: Vec<(String, RootField)>,
}

enum RootField {
    Authenticate(Vec<Login>),
    Session { arguments: Arguments, fields: Vec<SessionField> },
}

/// The compiled field `username_and_password`, which signs in.
struct Login {
    key: String,
    arguments: Arguments,
    /// Response keys of `token`.
    token_keys: Vec<String>,
}

/// A field of the type `Session`.
struct SessionField {
    key: String,
    arguments: Arguments,
    kind: SessionFieldKind,
}

enum SessionFieldKind {
    Count,
    Page(Vec<(String, PagePart)>),
    Lookup(Template),
}

enum PagePart {
    TotalCount,
    Items(Template),
}

/// A field with its evaluated arguments.
enum ReadyField {
    Token(String),
    Count(Query),
    Page(PageRequest),
    Lookup(String),
}

impl Operation {
    pub(super) fn compile<'a>(
        operation: &'a OperationDefinition,
        selections: &Selections<'a>,
    ) -> Result<Self, String> {
        let variables = DeclaredVariables::compile(operation)?;
        let mut fields = Vec::new();
        for field in selections.fields(&operation.selection_set.node, QUERY, 1)? {
            fields.push((response_key(field).to_owned(), RootField::compile(field, selections)?));
        }
        Ok(Self { variables, fields })
    }

    pub(super) fn execute(&self, state: &SupplierState, given: &Variables) -> Result<Vec<u8>, GraphqlError> {
        let variables = self.variables.bind(given)?;
        // All arguments are evaluated before the first field is answered, so that an error has no side effects.
        let mut ready = Vec::new();
        for (_, field) in &self.fields {
            field.prepare(state, &variables, &mut ready)?;
        }
        let mut ready = ready.into_iter();
        let mut out = JsonWriter::default();
        out.raw("{\"data\":{");
        for (index, (key, field)) in self.fields.iter().enumerate() {
            out.key(index, key);
            field.write(state, &mut ready, &mut out);
        }
        out.raw("}}");
        Ok(out.0)
    }
}

impl RootField {
    fn compile<'a>(field: &'a Field, selections: &Selections<'a>) -> Result<Self, String> {
        match field.name.node.as_str() {
            "authenticate" => {
                Arguments::compile(field, &[])?;
                let logins = selections.fields(subselection(field, QUERY)?, AUTHENTICATE, 2)?;
                let logins = logins.into_iter().map(|login| Login::compile(login, selections));
                Ok(Self::Authenticate(logins.collect::<Result<_, _>>()?))
            }
            "as" => {
                let arguments = Arguments::compile(field, &["token"])?;
                let fields = selections.fields(subselection(field, QUERY)?, SESSION, 2)?;
                let fields = fields.into_iter().map(|field| SessionField::compile(field, selections));
                Ok(Self::Session { arguments, fields: fields.collect::<Result<_, _>>()? })
            }
            _ => Err(unknown_field(field, QUERY)),
        }
    }

    fn prepare(
        &self,
        state: &SupplierState,
        variables: &BoundVariables,
        ready: &mut Vec<ReadyField>,
    ) -> Result<(), GraphqlError> {
        match self {
            Self::Authenticate(logins) => {
                for login in logins {
                    let username = login.arguments.text("username", variables)?;
                    let password = login.arguments.text("password", variables)?;
                    let token = state.login(&username, &password).map_err(GraphqlError::unauthenticated)?;
                    ready.push(ReadyField::Token(token));
                }
            }
            Self::Session { arguments, fields } => {
                if !state.accepts(&arguments.text("token", variables)?) {
                    return Err(GraphqlError::unauthenticated(INVALID_TOKEN));
                }
                for field in fields {
                    ready.push(field.prepare(state.config.seed, variables)?);
                }
            }
        }
        Ok(())
    }

    fn write(
        &self,
        state: &SupplierState,
        ready: &mut impl Iterator<Item = ReadyField>,
        out: &mut JsonWriter,
    ) {
        out.raw("{");
        match self {
            Self::Authenticate(logins) => {
                for (index, (login, ready)) in logins.iter().zip(ready).enumerate() {
                    out.key(index, &login.key);
                    login.write(&ready, out);
                }
            }
            Self::Session { fields, .. } => {
                for (index, (field, ready)) in fields.iter().zip(ready).enumerate() {
                    out.key(index, &field.key);
                    field.write(state, &ready, out);
                }
            }
        }
        out.raw("}");
    }
}

impl Login {
    fn compile<'a>(field: &'a Field, selections: &Selections<'a>) -> Result<Self, String> {
        if field.name.node != "username_and_password" {
            return Err(unknown_field(field, AUTHENTICATE));
        }
        let arguments = Arguments::compile(field, &["username", "password"])?;
        let mut token_keys = Vec::new();
        for token in selections.fields(subselection(field, AUTHENTICATE)?, TOKEN, 3)? {
            if token.name.node != "token" {
                return Err(unknown_field(token, TOKEN));
            }
            check_leaf(token, TOKEN)?;
            token_keys.push(response_key(token).to_owned());
        }
        Ok(Self { key: response_key(field).to_owned(), arguments, token_keys })
    }

    fn write(&self, ready: &ReadyField, out: &mut JsonWriter) {
        let ReadyField::Token(token) = ready else { return out.null() };
        out.raw("{");
        for (index, key) in self.token_keys.iter().enumerate() {
            out.key(index, key).text(token);
        }
        out.raw("}");
    }
}

impl SessionField {
    fn compile<'a>(field: &'a Field, selections: &Selections<'a>) -> Result<Self, String> {
        let (allowed, kind): (&[&str], _) = match field.name.node.as_str() {
            "diamonds_by_query_count" => {
                check_leaf(field, SESSION)?;
                (&["query"], SessionFieldKind::Count)
            }
            "diamonds_by_query" => (
                &["query", "offset", "limit", "order"],
                SessionFieldKind::Page(page_parts(field, selections)?),
            ),
            "get_diamond_by_id" => {
                let template = Template::compile(subselection(field, SESSION)?, &DIAMOND, selections, 3)?;
                (&["diamond_id"], SessionFieldKind::Lookup(template))
            }
            _ => return Err(unknown_field(field, SESSION)),
        };
        let arguments = Arguments::compile(field, allowed)?;
        Ok(Self { key: response_key(field).to_owned(), arguments, kind })
    }

    fn prepare(&self, seed: u64, variables: &BoundVariables) -> Result<ReadyField, String> {
        let value = |name| self.arguments.value(name, variables);
        match &self.kind {
            SessionFieldKind::Count => Ok(ReadyField::Count(Query::read(&value("query")?, seed)?)),
            SessionFieldKind::Page(_) => {
                let [query, offset, limit, order] = ["query", "offset", "limit", "order"].map(value);
                let page = PageRequest::read(&query?, &offset?, &limit?, &order?, seed)?;
                Ok(ReadyField::Page(page))
            }
            SessionFieldKind::Lookup(_) => {
                Ok(ReadyField::Lookup(self.arguments.text("diamond_id", variables)?))
            }
        }
    }

    fn write(&self, state: &SupplierState, ready: &ReadyField, out: &mut JsonWriter) {
        match (&self.kind, ready) {
            (SessionFieldKind::Count, ReadyField::Count(query)) => {
                out.int(state.count(query));
            }
            (SessionFieldKind::Page(parts), ReadyField::Page(page)) => {
                write_page(parts, &state.page(page), out);
            }
            (SessionFieldKind::Lookup(template), ReadyField::Lookup(id)) => match state.lookup(id) {
                Some(stone) => template.write(&stone, out),
                None => out.null(),
            },
            (SessionFieldKind::Count | SessionFieldKind::Page(_) | SessionFieldKind::Lookup(_), _) => {
                out.null();
            }
        }
    }
}

fn page_parts<'a>(field: &'a Field, selections: &Selections<'a>) -> Result<Vec<(String, PagePart)>, String> {
    let part = |field: &'a Field| {
        Arguments::compile(field, &[])?;
        let part = match field.name.node.as_str() {
            "total_count" => {
                check_leaf(field, PAGE)?;
                PagePart::TotalCount
            }
            "items" => PagePart::Items(Template::compile(subselection(field, PAGE)?, &ITEM, selections, 4)?),
            _ => return Err(unknown_field(field, PAGE)),
        };
        Ok((response_key(field).to_owned(), part))
    };
    selections.fields(subselection(field, SESSION)?, PAGE, 3)?.into_iter().map(part).collect()
}

fn write_page(parts: &[(String, PagePart)], stones: &[Stone], out: &mut JsonWriter) {
    out.raw("{");
    for (index, (key, part)) in parts.iter().enumerate() {
        out.key(index, key);
        match part {
            // As in the real API, this is the length of the page and not of the list.
            PagePart::TotalCount => {
                out.int(stones.len() as u64);
            }
            PagePart::Items(template) => {
                out.0.reserve(stones.len() * ITEM_BYTES);
                out.raw("[");
                for (index, stone) in stones.iter().enumerate() {
                    out.raw(if index == 0 { "" } else { "," });
                    template.write(stone, out);
                }
                out.raw("]");
            }
        }
    }
    out.raw("}");
}
