//! The parser of graph files. It reports all errors at once.

mod job;

#[cfg(test)]
pub(super) use job::{KEYS as JOB_KEYS, LIMIT_KEYS};

use super::check::{self, LocatedJob};
use super::definition::Graph;
use crate::definition::error::{DefinitionError, DefinitionErrors, Position, shown};
use crate::definition::fields::{check_keys, is_variable, text_of};
use crate::definition::yaml::{self, Node, Value};
use crate::limits::{
    ENVIRONMENT_BYTES_MAX, GRAPH_BYTES_MAX, GRAPH_JOBS_MAX, GRAPH_NAME_CHARS_MAX, GRAPH_WORD_BYTES_MAX,
    VARIABLE_BYTES_MAX,
};
use crate::text::first_control;
use std::collections::BTreeMap;

/// Top-level keys of the file.
pub(super) const KEYS: [&str; 5] = ["version", "name", "workspace", "env", "jobs"];

/// Parses a graph. Returns all errors, in the order of the file.
pub fn parse(text: &str) -> Result<Graph, Vec<DefinitionError>> {
    let mut errors = DefinitionErrors::default();
    let graph = read(text, &mut errors);
    match graph {
        Some(graph) if errors.0.is_empty() => Ok(graph),
        Some(_) | None => {
            if errors.0.is_empty() {
                errors.add(Position { line: 1, column: 1 }, "the file contains no graph");
            }
            errors.0.sort_by_key(|error| (error.line, error.column));
            Err(errors.0)
        }
    }
}

fn read(text: &str, errors: &mut DefinitionErrors) -> Option<Graph> {
    let start = Position { line: 1, column: 1 };
    if text.len() > GRAPH_BYTES_MAX {
        let length = text.len();
        errors.add(start, format!("the file is {length} bytes long; at most {GRAPH_BYTES_MAX} are allowed"));
        return None;
    }
    if text.trim().is_empty() {
        errors.hint(start, "the file is empty", "begin with `version: 1` and `jobs:`");
        return None;
    }
    let root = yaml::read(text, "graph", errors)?;
    let at = root.at;
    let Value::Map(entries) = root.value else {
        errors.hint(at, "a graph must be a mapping", "begin with `version: 1` and `jobs:`");
        return None;
    };
    check_keys("a graph", &entries, &KEYS, errors);
    let mut by_key: BTreeMap<String, Node> = entries.into_iter().map(|(key, _, node)| (key, node)).collect();
    version(at, by_key.remove("version"), errors);
    let name = by_key.remove("name").and_then(|node| title(&node, errors));
    let workspace = by_key.remove("workspace").and_then(|node| name_of("workspace", &node, errors));
    let shared = by_key.remove("env").map(|node| variables(&node, errors)).unwrap_or_default();
    let jobs = jobs(at, by_key.remove("jobs"), &shared, errors)?;
    check::check(name, workspace, jobs, errors)
}

fn version(at: Position, node: Option<Node>, errors: &mut DefinitionErrors) {
    match node {
        None => errors.hint(at, "`version` is missing", "write `version: 1` at the top"),
        Some(Node { value: Value::Text(text, false), .. }) if text == "1" => {}
        Some(node) => errors.hint(node.at, "unsupported version", "write `version: 1`"),
    }
}

fn jobs(
    at: Position,
    node: Option<Node>,
    shared: &BTreeMap<String, String>,
    errors: &mut DefinitionErrors,
) -> Option<Vec<LocatedJob>> {
    let Some(node) = node else {
        errors.hint(at, "`jobs` is missing", "write `jobs:` and below it a job, such as `build:`");
        return None;
    };
    let (at, kind) = (node.at, node.kind());
    let Value::Map(entries) = node.value else {
        errors.hint(at, format!("`jobs` is {kind}; it must be a mapping"), "write `name:` for each job");
        return None;
    };
    if entries.is_empty() {
        errors.hint(at, "`jobs` is empty", "write `name:` for each job");
    }
    if entries.len() > GRAPH_JOBS_MAX {
        errors.add(at, format!("there are {} jobs; at most {GRAPH_JOBS_MAX} are allowed", entries.len()));
        return None;
    }
    let mut located = Vec::with_capacity(entries.len());
    for (name, at, node) in entries {
        if !is_name(&name) {
            let message = format!("`{}` is not a valid job name", shown(&name));
            errors.hint(at, message, NAME_HINT);
        }
        located.extend(job::read(name, at, node, shared, errors));
    }
    Some(located)
}

const NAME_HINT: &str = "use letters, digits, `-`, `_` and `.`, at most 64, beginning with a letter or digit";

/// Returns whether a text is a valid name. Names become parts of paths, commands and URLs.
fn is_name(text: &str) -> bool {
    let fits = |symbol: char| symbol.is_ascii_alphanumeric() || matches!(symbol, '-' | '_' | '.');
    !text.is_empty()
        && text.len() <= GRAPH_WORD_BYTES_MAX
        && text.starts_with(|symbol: char| symbol.is_ascii_alphanumeric())
        && text.chars().all(fits)
}

/// Returns the name of a graph. Its length is limited because an index on runs contains it.
fn title(node: &Node, errors: &mut DefinitionErrors) -> Option<String> {
    let text = text_of("name", node, errors)?;
    if let Some(symbol) = first_control(&text) {
        let code = u32::from(symbol);
        errors.hint(node.at, format!("`name` contains the control character U+{code:04X}"), "remove it");
        return None;
    }
    let count = text.chars().count();
    if count <= GRAPH_NAME_CHARS_MAX {
        return Some(text);
    }
    let message = format!("`name` has {count} characters; at most {GRAPH_NAME_CHARS_MAX} are allowed");
    errors.add(node.at, message);
    None
}

/// Returns the text of a node if it is a valid name.
fn name_of(what: &str, node: &Node, errors: &mut DefinitionErrors) -> Option<String> {
    let text = text_of(what, node, errors)?;
    if is_name(&text) {
        return Some(text);
    }
    errors.hint(node.at, format!("`{}` is not a valid {what} name", shown(&text)), NAME_HINT);
    None
}

fn variables(node: &Node, errors: &mut DefinitionErrors) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    let Value::Map(entries) = &node.value else {
        errors.hint(
            node.at,
            format!("`env` is {}; it must be a mapping", node.kind()),
            "write `NAME: value`",
        );
        return variables;
    };
    for (name, at, value) in entries {
        if !is_variable(name) {
            let message = format!("`{}` is not a valid variable name", shown(name));
            errors.hint(*at, message, "use letters, digits and `_`, not beginning with a digit");
        } else if name.starts_with("TIDEMILL_") {
            errors.hint(*at, format!("`{name}` is set by Tidemill"), "choose another name");
        }
        match &value.value {
            Value::Text(text, _) if text.contains('\0') => {
                errors.add(value.at, format!("the value of `{}` contains a NUL character", shown(name)));
            }
            Value::Text(text, _) => {
                let text = if value.is_empty() { String::new() } else { text.clone() };
                let length = variable_bytes(name, &text);
                if length > VARIABLE_BYTES_MAX {
                    let bound = format!("{length} bytes long; at most {VARIABLE_BYTES_MAX} are allowed");
                    let message = format!("the variable `{}` is {bound}", shown(name));
                    let hint = "write the value to a file, and name the file in the variable";
                    errors.hint(value.at, message, hint);
                }
                variables.insert(name.clone(), text);
            }
            Value::List(_) | Value::Map(_) => {
                errors.add(value.at, format!("the value of `{}` must be text", shown(name)));
            }
        }
    }
    variables
}

/// Returns the size of a variable as the kernel counts it: with `=` and the final NUL.
fn variable_bytes(name: &str, value: &str) -> usize {
    name.len() + value.len() + 2
}

/// Checks that the environment is small enough for `execve`.
fn check_environment(job: &str, at: Position, env: &BTreeMap<String, String>, errors: &mut DefinitionErrors) {
    let length: usize = env.iter().map(|(name, value)| variable_bytes(name, value)).sum();
    // A variable that is too long was reported already.
    let is_reported = env.iter().any(|(name, value)| variable_bytes(name, value) > VARIABLE_BYTES_MAX);
    if length > ENVIRONMENT_BYTES_MAX && !is_reported {
        let bound = format!("{length} bytes long; at most {ENVIRONMENT_BYTES_MAX} are allowed");
        let message = format!("the environment of job `{}` is {bound}", shown(job));
        errors.hint(at, message, "write large values to files, and name the files in variables");
    }
}

#[cfg(test)]
mod tests;
