//! The GraphQL executor: compiles documents to plans, caches the plans and answers requests from them.
//!
//! It supports queries with the fields of the supplier's API, with aliases, fragments, variables and literals. Every
//! other document gets a GraphQL error. A plan holds the JSON text between the values of a response, so that a cached
//! document is answered without parsing it again.

mod arguments;
mod operation;
mod selection;

use crate::lock;
use crate::state::SupplierState;
pub(crate) use arguments::{Arguments, BoundVariables, DeclaredVariables};
use async_graphql_parser::parse_query;
use async_graphql_parser::types::ExecutableDocument;
use async_graphql_value::{Name, Variables};
use operation::Operation;
pub(crate) use selection::{Selections, check_leaf, response_key, subselection, unknown_field};
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Maximum number of cached plans.
const PLANS_MAX: usize = 256;
/// Longer documents are not cached, which bounds the memory of the cache.
const CACHED_DOCUMENT_BYTES_MAX: usize = 16 * 1024;
/// Maximum nesting of selections and fragments.
const DEPTH_MAX: usize = 16;

/// The body of a request.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request {
    #[serde(default)]
    pub(crate) query: String,
    #[serde(default)]
    operation_name: Option<String>,
    #[serde(default)]
    pub(crate) variables: Variables,
}

/// An error of the response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct GraphqlError {
    message: String,
    /// Value of `extensions.code` in the response.
    code: Option<&'static str>,
}

impl GraphqlError {
    fn unauthenticated(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: Some("UNAUTHENTICATED") }
    }

    pub(crate) fn into_json(self) -> Vec<u8> {
        let mut error = serde_json::json!({"message": self.message});
        if let Some(code) = self.code {
            error["extensions"] = serde_json::json!({"code": code});
        }
        serde_json::json!({"data": null, "errors": [error]}).to_string().into_bytes()
    }
}

/// Errors of parsing, variables and filters: the request itself is invalid, so a retry cannot succeed.
impl From<String> for GraphqlError {
    fn from(message: String) -> Self {
        Self { message, code: Some("BAD_USER_INPUT") }
    }
}

/// Returns the body of a response that only holds an error.
pub(crate) fn error_body(message: &str) -> Vec<u8> {
    GraphqlError { message: message.to_owned(), code: None }.into_json()
}

/// Executes a request; returns the body of the response, with data or with an error.
pub(crate) fn execute(state: &SupplierState, request: &Request) -> Vec<u8> {
    let plan = state.plans.get(state, &request.query, Plan::compile);
    let body = plan.and_then(|plan| plan.execute(state, request));
    body.unwrap_or_else(GraphqlError::into_json)
}

/// Cache of compiled documents.
pub(crate) struct PlanCache<P>(Mutex<HashMap<String, Arc<P>>>);

impl<P> Default for PlanCache<P> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<P> PlanCache<P> {
    /// Returns the plan of a document; compiles it unless it is cached.
    pub(crate) fn get(
        &self,
        state: &SupplierState,
        document: &str,
        compile: impl FnOnce(&str) -> Result<P, String>,
    ) -> Result<Arc<P>, GraphqlError> {
        if let Some(plan) = lock(&self.0).get(document) {
            state.counters.cached.add(1);
            return Ok(Arc::clone(plan));
        }
        state.counters.compiled.add(1);
        let plan = Arc::new(compile(document)?);
        if document.len() <= CACHED_DOCUMENT_BYTES_MAX {
            let mut plans = lock(&self.0);
            if plans.len() >= PLANS_MAX {
                plans.clear();
            }
            plans.insert(document.to_owned(), Arc::clone(&plan));
        }
        Ok(plan)
    }
}

/// A compiled document with all its operations.
pub(crate) struct Plan {
    operations: Vec<(Option<Name>, Operation)>,
}

impl Plan {
    fn compile(document: &str) -> Result<Self, String> {
        let document = parse(document)?;
        let selections = Selections::new(&document.fragments);
        let compile = |(name, operation): (Option<&Name>, &async_graphql_parser::Positioned<_>)| {
            Ok((name.cloned(), Operation::compile(&operation.node, &selections)?))
        };
        Ok(Self { operations: document.operations.iter().map(compile).collect::<Result<_, String>>()? })
    }

    fn execute(&self, state: &SupplierState, request: &Request) -> Result<Vec<u8>, GraphqlError> {
        self.operation(request.operation_name.as_deref())?.execute(state, &request.variables)
    }

    fn operation(&self, name: Option<&str>) -> Result<&Operation, String> {
        let found = match (name, &self.operations[..]) {
            (None, [(_, operation)]) => Some(operation),
            (None, _) => {
                return Err("operationName is required: the document has several operations".to_owned());
            }
            (Some(name), all) => {
                all.iter().find(|(own, _)| own.as_deref() == Some(name)).map(|(_, operation)| operation)
            }
        };
        found.ok_or_else(|| format!("unknown operation `{}`", name.unwrap_or_default()))
    }
}

/// Parses a document, unless it is nested too deeply.
pub(crate) fn parse(document: &str) -> Result<ExecutableDocument, String> {
    // The parser is recursive, so the nesting is checked before it runs.
    if is_nested_deeper_than(document, 4 * DEPTH_MAX) {
        return Err(selection::TOO_DEEP.to_owned());
    }
    parse_query(document).map_err(|error| error.to_string())
}

/// Whether the brackets of a document are nested deeper than `depth`.
fn is_nested_deeper_than(document: &str, depth: usize) -> bool {
    let mut open = 0_usize;
    document.bytes().any(|byte| {
        match byte {
            b'{' | b'[' | b'(' => open += 1,
            b'}' | b']' | b')' => open = open.saturating_sub(1),
            _ => {}
        }
        open > depth
    })
}
