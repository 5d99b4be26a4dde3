//! Answers from prepared texts, for documents whose form is known.
//!
//! A document is parsed once, and kept. If it is one query that asks `as(token)` for counts and pages with
//! plain fields, it becomes a plan. The first requests with it still go through the general executor, until
//! one of them succeeds: that validates the document against the schema. From then on an answer is the plan's
//! texts with the stones' values between them. Whatever is unusual about a request (arguments that cannot be
//! read, a token that is not valid) leads back to the general executor, which has the words for it.

use crate::desk::{Desk, PageAsk};
use crate::filter::Query;
use crate::lock;
use crate::out::Out;
use crate::template::Template;
use async_graphql::parser::parse_query;
use async_graphql::parser::types::{ExecutableDocument, Field, OperationType, Selection, SelectionSet};
use async_graphql::{Name, Request, Value, Variables};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// How many documents are kept.
const MAX_PLANS: usize = 256;
/// A longer document is not kept: it is nobody's daily question, and there must be an end to what is kept.
const MAX_DOCUMENT: usize = 16 * 1024;
/// The room that an item needs, more or less.
const ITEM_BYTES: usize = 1_700;

/// The documents seen so far.
#[derive(Default)]
pub(crate) struct Plans(Mutex<HashMap<String, Arc<Seen>>>);

/// A document that was seen.
pub(crate) struct Seen {
    plan: Option<Plan>,
    is_valid: AtomicBool,
}

/// A document of a known form.
struct Plan {
    /// The name of its operation.
    name: Option<Name>,
    /// What its variables are where a request does not say.
    defaults: HashMap<Name, Value>,
    /// The field `as`, for its argument.
    session: Field,
    asks: Vec<Ask>,
}

/// A field below `as`.
struct Ask {
    key: String,
    field: Field,
    /// The parts of a page; nothing for a count.
    parts: Option<Vec<(String, Part)>>,
}

enum Part {
    TotalCount,
    Items(Template),
}

/// A field below `as`, with its arguments read.
enum Ready {
    Count(Query),
    Page(PageAsk),
}

impl Plans {
    /// What is known of a document.
    pub(crate) fn see(&self, document: &str) -> Arc<Seen> {
        if let Some(seen) = lock(&self.0).get(document) {
            return Arc::clone(seen);
        }
        let plan = parse_query(document).ok().and_then(|document| Plan::new(&document));
        let seen = Arc::new(Seen { plan, is_valid: AtomicBool::new(false) });
        if document.len() > MAX_DOCUMENT {
            return seen;
        }
        let mut all = lock(&self.0);
        if all.len() >= MAX_PLANS {
            all.clear();
        }
        all.insert(document.to_owned(), Arc::clone(&seen));
        seen
    }

    /// Whether the document was seen before.
    pub(crate) fn knows(&self, document: &str) -> bool {
        lock(&self.0).contains_key(document)
    }
}

impl Seen {
    /// Takes note that the general executor found nothing wrong with the document.
    pub(crate) fn validated(&self) {
        self.is_valid.store(true, Ordering::Relaxed);
    }

    /// The answer, if it can be given from the plan.
    pub(crate) fn answer(&self, desk: &Desk, request: &Request) -> Option<Vec<u8>> {
        let plan = self.plan.as_ref().filter(|_| self.is_valid.load(Ordering::Relaxed))?;
        if request.operation_name.is_some() && request.operation_name.as_deref() != plan.name.as_deref() {
            return None;
        }
        let ready = plan.read(desk, &request.variables)?;
        Some(plan.write(desk, &ready))
    }
}

impl Plan {
    fn new(document: &ExecutableDocument) -> Option<Self> {
        let mut operations = document.operations.iter();
        let (Some((name, operation)), None) = (operations.next(), operations.next()) else { return None };
        let operation = &operation.node;
        let plain = operation.directives.is_empty() && document.fragments.is_empty();
        if !plain || operation.ty != OperationType::Query {
            return None;
        }
        let [session] = plain_fields(&operation.selection_set.node)?[..] else { return None };
        if session.name.node != "as" {
            return None;
        }
        let asks = plain_fields(&session.selection_set.node)?;
        let asks: Vec<Ask> = asks.into_iter().map(Ask::new).collect::<Option<_>>()?;
        let defaults = operation.variable_definitions.iter().filter_map(|one| {
            let value = one.node.default_value.as_ref()?;
            Some((one.node.name.node.clone(), value.node.clone()))
        });
        Some(Self { name: name.cloned(), defaults: defaults.collect(), session: session.clone(), asks })
    }

    /// Reads every argument before anything is answered, so that turning back leaves no trace.
    fn read(&self, desk: &Desk, variables: &Variables) -> Option<Vec<Ready>> {
        let value = |field: &Field, name: &str| self.argument(field, name, variables);
        let Value::String(token) = value(&self.session, "token") else { return None };
        if !desk.accepts(&token) {
            return None;
        }
        let seed = desk.config.seed;
        let read = |ask: &Ask| {
            let [query, offset, limit, order] =
                ["query", "offset", "limit", "order"].map(|name| value(&ask.field, name));
            if ask.parts.is_none() {
                return Query::read(&query, seed).ok().map(Ready::Count);
            }
            PageAsk::read(&query, &offset, &limit, &order, seed).ok().map(Ready::Page)
        };
        self.asks.iter().map(read).collect()
    }

    fn argument(&self, field: &Field, name: &str, variables: &Variables) -> Value {
        let Some(value) = field.get_argument(name) else { return Value::Null };
        let filled = value.node.clone().into_const_with(|name| {
            let given = variables.get(&name).or_else(|| self.defaults.get(&name));
            Ok::<_, std::convert::Infallible>(given.cloned().unwrap_or(Value::Null))
        });
        match filled {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }

    fn write(&self, desk: &Desk, ready: &[Ready]) -> Vec<u8> {
        let mut out = Out::default();
        out.raw("{\"data\":{\"").raw(self.session.response_key_text()).raw("\":{");
        for (place, (ask, ready)) in self.asks.iter().zip(ready).enumerate() {
            out.raw(if place == 0 { "\"" } else { ",\"" }).raw(&ask.key).raw("\":");
            match ready {
                Ready::Count(query) => {
                    out.int(desk.count(query));
                }
                Ready::Page(page) => ask.write(&desk.page(page), &mut out),
            }
        }
        out.raw("}}}");
        out.0
    }
}

/// The key of a field in the answer.
trait ResponseKey {
    fn response_key_text(&self) -> &str;
}

impl ResponseKey for Field {
    fn response_key_text(&self) -> &str {
        self.response_key().node.as_str()
    }
}

impl Ask {
    fn new(field: &Field) -> Option<Self> {
        let parts = match field.name.node.as_str() {
            "diamonds_by_query_count" => None,
            "diamonds_by_query" => Some(page_parts(&field.selection_set.node)?),
            _ => return None,
        };
        Some(Self { key: field.response_key_text().to_owned(), field: field.clone(), parts })
    }

    fn write(&self, stones: &[crate::stone::Stone], out: &mut Out) {
        for (place, (key, part)) in self.parts.iter().flatten().enumerate() {
            out.raw(if place == 0 { "{\"" } else { ",\"" }).raw(key).raw("\":");
            match part {
                Part::TotalCount => {
                    out.int(stones.len() as u64);
                }
                Part::Items(template) => {
                    out.0.reserve(stones.len() * ITEM_BYTES);
                    out.raw("[");
                    for (place, stone) in stones.iter().enumerate() {
                        out.raw(if place == 0 { "" } else { "," });
                        template.write(stone, out);
                    }
                    out.raw("]");
                }
            }
        }
        out.raw("}");
    }
}

fn page_parts(selection: &SelectionSet) -> Option<Vec<(String, Part)>> {
    let part = |field: &Field| {
        let part = match field.name.node.as_str() {
            "total_count" => Part::TotalCount,
            "items" => Part::Items(Template::new(&field.selection_set.node)?),
            _ => return None,
        };
        Some((field.response_key_text().to_owned(), part))
    };
    plain_fields(selection)?.into_iter().map(part).collect()
}

/// The fields of a selection, where it has no fragments, no directives, and no key twice.
fn plain_fields(selection: &SelectionSet) -> Option<Vec<&Field>> {
    let mut fields: Vec<&Field> = Vec::new();
    for one in &selection.items {
        let Selection::Field(field) = &one.node else { return None };
        let key = field.node.response_key_text();
        if !field.node.directives.is_empty() || fields.iter().any(|one| one.response_key_text() == key) {
            return None;
        }
        fields.push(&field.node);
    }
    (!fields.is_empty()).then_some(fields)
}
