//! The parser of feed definitions. It reports all errors at once.

mod auth;
mod paginator;
mod partition;
mod request;
mod rules;
mod target;
#[cfg(test)]
mod tests;

pub(super) use {
    auth::TYPES as AUTH_TYPES, paginator::TYPES as PAGINATOR_TYPES, partition::COUNT_KEYS,
    partition::TYPES as PARTITION_TYPES, request::CLIENT_KEYS, request::GRAPHQL_KEYS, request::RESOURCE_KEYS,
    rules::DELETE_KEYS, rules::FLAG_KEYS, rules::INCREMENTAL_KEYS, rules::LOOKUP_KEYS, rules::TRUST_KEYS,
    target::COLUMN_KEYS, target::CONTRACT_KEYS, target::KEYS as TARGET_KEYS,
};

use super::path::JsonPath;
use super::request::{ParamTarget, SecretName};
use super::{FeedDefinition, check};
use crate::Json;
use crate::definition::DefinitionError;
use crate::definition::error::{DefinitionErrors, Position, nearest, shown};
use crate::definition::fields::{Fields, is_variable};
use crate::definition::yaml::{self, Node, Value};
use crate::ids::is_name;
use crate::limits::{FEED_DEFINITION_BYTES_MAX, FEED_NAME_BYTES_MAX, FEED_PARAM_BYTES_MAX};

/// Top-level keys of the file.
pub(super) const KEYS: [&str; 10] = [
    "version",
    "feed",
    "client",
    "resource",
    "paginator",
    "incremental",
    "partition",
    "trust",
    "deletes",
    "into",
];

/// Checks the syntax of a CEL expression. The error is the rest of a sentence that begins with the expression.
pub type ExpressionCheck<'a> = &'a dyn Fn(&str) -> Result<(), String>;

/// Parses a feed definition. Returns all errors, in the order of the file. CEL expressions are not compiled.
pub fn parse(text: &str) -> Result<FeedDefinition, Vec<DefinitionError>> {
    parse_with(text, &|_| Ok(()))
}

/// Parses a feed definition and checks its CEL expressions with `check`.
pub fn parse_with(text: &str, check: ExpressionCheck<'_>) -> Result<FeedDefinition, Vec<DefinitionError>> {
    let mut errors = DefinitionErrors::default();
    let definition = read(text, check, &mut errors);
    match definition {
        Some(definition) if errors.0.is_empty() => Ok(definition),
        Some(_) | None => {
            if errors.0.is_empty() {
                errors.add(Position { line: 1, column: 1 }, "the file contains no feed");
            }
            errors.0.sort_by_key(|error| (error.line, error.column));
            Err(errors.0)
        }
    }
}

const START_HINT: &str = "begin with `version: 1`, `feed: NAME` and `client:`";

fn read(text: &str, check: ExpressionCheck<'_>, errors: &mut DefinitionErrors) -> Option<FeedDefinition> {
    let start = Position { line: 1, column: 1 };
    if text.len() > FEED_DEFINITION_BYTES_MAX {
        let length = text.len();
        errors.add(
            start,
            format!("the file is {length} bytes long; at most {FEED_DEFINITION_BYTES_MAX} are allowed"),
        );
        return None;
    }
    if text.trim().is_empty() {
        errors.hint(start, "the file is empty", START_HINT);
        return None;
    }
    let root = yaml::read(text, "feed", errors)?;
    if !matches!(root.value, Value::Map(_)) {
        errors.hint(root.at, "a feed definition must be a mapping", START_HINT);
        return None;
    }
    let fields = Fields::read("feed definition", root, errors)?;
    fields.check(&KEYS, errors);
    version(&fields, errors);
    fields.require("feed", "write `feed: NAME`", errors);
    fields.require("client", "write `client:` and below it `base_url: https://HOST`", errors);
    fields.require("resource", "write `resource:` and below it `path: /ITEMS` and `primary_key: id`", errors);
    fields.require("into", "write `into:` and below it `table: SCHEMA.TABLE`", errors);
    let feed = feed_name(&fields, errors);
    let client = fields.child("client", errors).and_then(|fields| request::client(&fields, errors));
    let resource = fields.child("resource", errors).and_then(|fields| request::resource(&fields, errors));
    let paginator = paginator::read(&fields, resource.as_ref(), errors);
    let incremental =
        fields.child("incremental", errors).and_then(|fields| rules::incremental(&fields, errors));
    let partition = partition::read(&fields, errors);
    let trust = rules::trust(&fields, paginator.as_ref(), errors);
    let deletes = rules::deletes(&fields, errors);
    let keys = resource.as_ref().map(|resource| resource.primary_key.as_slice()).unwrap_or_default();
    let into = fields.child("into", errors).and_then(|fields| target::read(&fields, keys, check, errors));
    let definition = FeedDefinition {
        feed: feed?,
        client: client?,
        resource: resource?,
        paginator: paginator?,
        incremental,
        partition: partition?,
        trust: trust?,
        deletes: deletes?,
        into: into?,
    };
    check::check(&definition, &fields, errors);
    Some(definition)
}

fn version(fields: &Fields, errors: &mut DefinitionErrors) {
    match fields.node("version") {
        None => errors.hint(fields.at, "`version` is missing", "write `version: 1` at the top"),
        Some(Node { value: Value::Text(text, false), .. }) if text == "1" => {}
        Some(node) => errors.hint(node.at, "unsupported version", "write `version: 1`"),
    }
}

/// Returns the name of the feed, which is part of addresses and of the names of tables.
fn feed_name(fields: &Fields, errors: &mut DefinitionErrors) -> Option<String> {
    let text = fields.text("feed", FEED_NAME_BYTES_MAX, errors)?;
    if is_name(&text) {
        return Some(text);
    }
    let message = format!("`{}` is not a valid feed name", shown(&text));
    errors.hint(
        fields.at("feed"),
        message,
        "use lower-case letters, digits and `-`, beginning with a letter or digit",
    );
    None
}

/// Returns a name of letters, digits, `-`, `_` and `.`.
fn name(fields: &Fields, key: &str, errors: &mut DefinitionErrors) -> Option<String> {
    let text = fields.text(key, FEED_NAME_BYTES_MAX, errors)?;
    let fits = |symbol: char| symbol.is_ascii_alphanumeric() || matches!(symbol, '-' | '_' | '.');
    if text.starts_with(|symbol: char| symbol.is_ascii_alphanumeric()) && text.chars().all(fits) {
        return Some(text);
    }
    let message = format!("`{}` is not a valid name", shown(&text));
    errors.hint(
        fields.at(key),
        message,
        "use letters, digits, `-`, `_` and `.`, beginning with a letter or digit",
    );
    None
}

/// Returns a path in a JSON value.
fn path(fields: &Fields, key: &str, errors: &mut DefinitionErrors) -> Option<JsonPath> {
    let text = fields.text(key, usize::MAX, errors)?;
    match text.parse::<JsonPath>() {
        Ok(path) => Some(path),
        Err(error) => {
            let message = format!("the path `{}` {error}", shown(&text));
            errors.hint(fields.at(key), message, "write keys and indexes, such as `data.items[0].id`");
            None
        }
    }
}

/// Returns the path of one value: a path without `[*]`.
fn value_path(fields: &Fields, key: &str, errors: &mut DefinitionErrors) -> Option<JsonPath> {
    let path = path(fields, key, errors)?;
    if path.has_each() || path.is_root() {
        let message = format!("`{key}` must select one value");
        errors.hint(fields.at(key), message, "write a path without `[*]`, such as `meta.next`");
        return None;
    }
    Some(path)
}

/// Returns the place of a parameter: `NAME_param` or `NAME_body_path`.
fn param(fields: &Fields, prefix: &str, errors: &mut DefinitionErrors) -> Option<ParamTarget> {
    let (query, body) = param_keys(prefix);
    if fields.has(&query) && fields.has(&body) {
        let message = format!("`{query}` and `{body}` exclude each other");
        errors.hint(fields.at(&body), message, "remove one of them");
        return None;
    }
    if fields.has(&body) {
        let path = path(fields, &body, errors)?;
        if !path.is_keys() {
            errors.hint(
                fields.at(&body),
                format!("`{body}` must consist of keys"),
                "write it as `filter.from`",
            );
            return None;
        }
        return Some(ParamTarget::Body(path));
    }
    fields.text(&query, FEED_PARAM_BYTES_MAX, errors).map(ParamTarget::Query)
}

/// Returns a parameter that must be given.
fn required_param(fields: &Fields, prefix: &str, errors: &mut DefinitionErrors) -> Option<ParamTarget> {
    let (query, body) = param_keys(prefix);
    if !fields.has(&query) && !fields.has(&body) {
        fields.require(&query, &format!("write `{query}: NAME`, or `{body}: PATH` for a body"), errors);
        return None;
    }
    param(fields, prefix, errors)
}

fn param_keys(prefix: &str) -> (String, String) {
    if prefix.is_empty() {
        ("param".to_owned(), "body_path".to_owned())
    } else {
        (format!("{prefix}_param"), format!("{prefix}_body_path"))
    }
}

/// Returns the name of a secret: `{env: NAME}`. A literal secret is an error.
fn secret(fields: &Fields, key: &str, errors: &mut DefinitionErrors) -> Option<SecretName> {
    let node = fields.node(key)?;
    let hint =
        format!("write `{key}: {{env: VARIABLE}}`, and set the variable for the server and the workers");
    if matches!(node.value, Value::Text(..)) {
        errors.hint(node.at, format!("`{key}` must not be written into the definition"), hint);
        return None;
    }
    let inner = fields.child(key, errors)?;
    inner.check(&["env"], errors);
    inner.require("env", &hint, errors);
    let name = inner.text("env", FEED_PARAM_BYTES_MAX, errors)?;
    check_variable(&name, inner.at("env"), errors).then_some(SecretName { env: name })
}

fn check_variable(name: &str, at: Position, errors: &mut DefinitionErrors) -> bool {
    if is_variable(name) {
        return true;
    }
    let message = format!("`{}` is not a valid variable name", shown(name));
    errors.hint(at, message, "use letters, digits and `_`, not beginning with a digit");
    false
}

/// Returns the type of a tagged mapping and checks its keys.
fn tag(
    fields: &Fields,
    what: &str,
    types: &[(&'static str, &[&str])],
    errors: &mut DefinitionErrors,
) -> Option<&'static str> {
    let words: Vec<(&str, &'static str)> = types.iter().map(|(word, _)| (*word, *word)).collect();
    let list: Vec<&str> = types.iter().map(|(word, _)| *word).collect();
    fields.require("type", &format!("write `type:` with one of {}", list.join(", ")), errors);
    let word = fields.word("type", &words, errors)?;
    let keys = types.iter().find(|(other, _)| *other == word).map(|(_, keys)| *keys)?;
    let mut known = vec!["type"];
    known.extend(keys);
    fields.check_named(&format!("{what} of type {word}"), &known, errors);
    Some(word)
}

/// Converts a node to JSON. Plain `true`, `null` and numbers have their JSON type; quoted ones are texts.
fn json_of(node: &Node) -> Json {
    match &node.value {
        Value::Text(text, true) => Json::String(text.clone()),
        Value::Text(_, false) if node.is_empty() => Json::Null,
        Value::Text(text, false) => match text.as_str() {
            "true" => Json::Bool(true),
            "false" => Json::Bool(false),
            text => match serde_json::from_str::<serde_json::Number>(text) {
                Ok(number) => Json::Number(number),
                Err(_) => Json::String(text.to_owned()),
            },
        },
        Value::List(items) => Json::Array(items.iter().map(json_of).collect()),
        Value::Map(entries) => {
            Json::Object(entries.iter().map(|(key, _, node)| (key.clone(), json_of(node))).collect())
        }
    }
}

/// Returns the text of a scalar parameter.
fn param_text(name: &str, node: &Node, errors: &mut DefinitionErrors) -> Option<String> {
    let Value::Text(text, _) = &node.value else {
        errors.add(node.at, format!("the value of `{}` is {}; it must be text", shown(name), node.kind()));
        return None;
    };
    if text.len() > FEED_PARAM_BYTES_MAX || text.contains('\0') {
        let message = format!(
            "the value of `{}` is longer than {FEED_PARAM_BYTES_MAX} bytes or contains NUL",
            shown(name)
        );
        errors.add(node.at, message);
        return None;
    }
    Some(if node.is_empty() { String::new() } else { text.clone() })
}

/// Adds an error for an unknown word, with the nearest known one.
fn unknown_word(what: &str, word: &str, known: &[&str], at: Position, errors: &mut DefinitionErrors) {
    let message = format!("unknown {what} `{}`", shown(word));
    match nearest(word, known.iter().copied()) {
        Some(meant) => errors.hint(at, message, format!("did you mean `{meant}`?")),
        None => errors.hint(at, message, format!("use one of {}", known.join(", "))),
    }
}
