//! From text to a graph, with every fault at once.

mod job;

#[cfg(test)]
pub(super) use job::KEYS as JOB_KEYS;

use super::check::{self, Placed};
use super::definition::Graph;
use super::fault::{At, Faults, GraphFault, nearest, shown};
use super::yaml::{self, Node, Value};
use crate::limits::{
    ENVIRONMENT_BYTES_MAX, GRAPH_BYTES_MAX, GRAPH_JOBS_MAX, GRAPH_NAME_CHARS_MAX, GRAPH_WORD_BYTES_MAX,
    VARIABLE_BYTES_MAX, VARIABLE_NAME_BYTES_MAX,
};
use std::collections::BTreeMap;

/// Keys of the file itself.
pub(super) const KEYS: [&str; 5] = ["version", "name", "workspace", "env", "jobs"];

/// Reads a graph. Everything that is wrong with it is said at once, in the order of the file.
pub fn parse(text: &str) -> Result<Graph, Vec<GraphFault>> {
    let mut faults = Faults::default();
    let graph = read(text, &mut faults);
    match graph {
        Some(graph) if faults.0.is_empty() => Ok(graph),
        Some(_) | None => {
            if faults.0.is_empty() {
                faults.add(At { line: 1, column: 1 }, "the file holds no graph");
            }
            faults.0.sort_by_key(|fault| (fault.line, fault.column));
            Err(faults.0)
        }
    }
}

fn read(text: &str, faults: &mut Faults) -> Option<Graph> {
    let start = At { line: 1, column: 1 };
    if text.len() > GRAPH_BYTES_MAX {
        let length = text.len();
        faults.add(start, format!("the file is {length} bytes long; at most {GRAPH_BYTES_MAX} are allowed"));
        return None;
    }
    if text.trim().is_empty() {
        faults.hint(start, "the file is empty", "begin with `version: 1` and `jobs:`");
        return None;
    }
    let root = yaml::read(text, faults)?;
    let at = root.at;
    let Value::Map(entries) = root.value else {
        faults.hint(at, "a graph is a mapping", "begin with `version: 1` and `jobs:`");
        return None;
    };
    known_keys("a graph", &entries, &KEYS, faults);
    let mut by_key: BTreeMap<String, Node> = entries.into_iter().map(|(key, _, node)| (key, node)).collect();
    version(at, by_key.remove("version"), faults);
    let name = by_key.remove("name").and_then(|node| title(&node, faults));
    let workspace = by_key.remove("workspace").and_then(|node| name_of("workspace", &node, faults));
    let shared = by_key.remove("env").map(|node| variables(&node, faults)).unwrap_or_default();
    let jobs = jobs(at, by_key.remove("jobs"), &shared, faults)?;
    check::check(name, workspace, jobs, faults)
}

fn version(at: At, node: Option<Node>, faults: &mut Faults) {
    match node {
        None => faults.hint(at, "`version` is missing", "write `version: 1` at the top"),
        Some(Node { value: Value::Text(text, false), .. }) if text == "1" => {}
        Some(node) => faults.hint(node.at, "this version is not known", "write `version: 1`"),
    }
}

fn jobs(
    at: At,
    node: Option<Node>,
    shared: &BTreeMap<String, String>,
    faults: &mut Faults,
) -> Option<Vec<Placed>> {
    let Some(node) = node else {
        faults.hint(at, "`jobs` is missing", "write `jobs:` and below it a job, such as `build:`");
        return None;
    };
    let (at, kind) = (node.at, node.kind());
    let Value::Map(entries) = node.value else {
        faults.hint(at, format!("`jobs` is {kind}; it must be a mapping"), "write `name:` for each job");
        return None;
    };
    if entries.is_empty() {
        faults.hint(at, "there is no job", "write `name:` for each job");
    }
    if entries.len() > GRAPH_JOBS_MAX {
        faults.add(at, format!("there are {} jobs; at most {GRAPH_JOBS_MAX} are allowed", entries.len()));
        return None;
    }
    let mut placed = Vec::with_capacity(entries.len());
    for (name, at, node) in entries {
        if !is_name(&name) {
            let words = format!("`{}` is no name for a job", shown(&name));
            faults.hint(at, words, NAME_HINT);
        }
        placed.extend(job::read(name, at, node, shared, faults));
    }
    Some(placed)
}

const NAME_HINT: &str = "use letters, digits, `-`, `_` and `.`, at most 64, beginning with a letter or digit";

/// Whether a word can be a name: it becomes part of paths, commands and addresses.
fn is_name(text: &str) -> bool {
    let fits = |symbol: char| symbol.is_ascii_alphanumeric() || matches!(symbol, '-' | '_' | '.');
    !text.is_empty()
        && text.len() <= GRAPH_WORD_BYTES_MAX
        && text.starts_with(|symbol: char| symbol.is_ascii_alphanumeric())
        && text.chars().all(fits)
}

/// Says which keys nobody knows.
fn known_keys(what: &str, entries: &[(String, At, Node)], known: &[&str], faults: &mut Faults) {
    for (key, at, _) in entries {
        if !known.contains(&key.as_str()) {
            let words = format!("`{}` is no key of {what}", shown(key));
            match nearest(key, known.iter().copied()) {
                Some(meant) => faults.hint(*at, words, format!("is `{meant}` meant?")),
                None => faults.hint(*at, words, format!("it has {}", known.join(", "))),
            }
        }
    }
}

/// A text that is not empty.
fn text_of(what: &str, node: &Node, faults: &mut Faults) -> Option<String> {
    match &node.value {
        Value::Text(text, _) if !node.is_empty() && !text.is_empty() => {
            if text.contains('\0') {
                faults.add(node.at, format!("`{what}` contains a NUL character"));
                return None;
            }
            Some(text.clone())
        }
        Value::Text(..) => {
            faults.add(node.at, format!("`{what}` is empty"));
            None
        }
        Value::List(_) | Value::Map(_) => {
            faults.add(node.at, format!("`{what}` is {}; it must be text", node.kind()));
            None
        }
    }
}

/// What a graph is called. It has a bound because runs are found by it, and what they are found by is in an index.
fn title(node: &Node, faults: &mut Faults) -> Option<String> {
    let text = text_of("name", node, faults)?;
    let count = text.chars().count();
    if count <= GRAPH_NAME_CHARS_MAX {
        return Some(text);
    }
    let words = format!("`name` has {count} characters; at most {GRAPH_NAME_CHARS_MAX} are allowed");
    faults.add(node.at, words);
    None
}

/// A text that can be a name.
fn name_of(what: &str, node: &Node, faults: &mut Faults) -> Option<String> {
    let text = text_of(what, node, faults)?;
    if is_name(&text) {
        return Some(text);
    }
    faults.hint(node.at, format!("`{}` is no name for a {what}", shown(&text)), NAME_HINT);
    None
}

/// Variables of an environment.
fn variables(node: &Node, faults: &mut Faults) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    let Value::Map(entries) = &node.value else {
        faults.hint(
            node.at,
            format!("`env` is {}; it must be a mapping", node.kind()),
            "write `NAME: value`",
        );
        return variables;
    };
    for (name, at, value) in entries {
        if !is_variable(name) {
            let words = format!("`{}` is no name for a variable", shown(name));
            faults.hint(*at, words, "use letters, digits and `_`, not beginning with a digit");
        } else if name.starts_with("TIDEMILL_") {
            faults.hint(*at, format!("`{name}` is set by Tidemill"), "choose another name");
        }
        match &value.value {
            Value::Text(text, _) if text.contains('\0') => {
                faults.add(value.at, format!("the value of `{}` contains a NUL character", shown(name)));
            }
            Value::Text(text, _) => {
                let text = if value.is_empty() { String::new() } else { text.clone() };
                let length = variable_bytes(name, &text);
                if length > VARIABLE_BYTES_MAX {
                    let bound = format!("{length} bytes long; at most {VARIABLE_BYTES_MAX} are allowed");
                    let words = format!("the variable `{}` is {bound}", shown(name));
                    let hint = "write the value to a file, and name the file in the variable";
                    faults.hint(value.at, words, hint);
                }
                variables.insert(name.clone(), text);
            }
            Value::List(_) | Value::Map(_) => {
                faults.add(value.at, format!("the value of `{}` must be text", shown(name)));
            }
        }
    }
    variables
}

/// Bytes of a variable as the system counts them: with `=`, and with the NUL at its end.
fn variable_bytes(name: &str, value: &str) -> usize {
    name.len() + value.len() + 2
}

/// Checks that a command with this environment can be executed.
fn environment_fits(job: &str, at: At, env: &BTreeMap<String, String>, faults: &mut Faults) {
    let length: usize = env.iter().map(|(name, value)| variable_bytes(name, value)).sum();
    // One variable that is too long is a fault of its own.
    let is_known = env.iter().any(|(name, value)| variable_bytes(name, value) > VARIABLE_BYTES_MAX);
    if length > ENVIRONMENT_BYTES_MAX && !is_known {
        let bound = format!("{length} bytes long; at most {ENVIRONMENT_BYTES_MAX} are allowed");
        let words = format!("the environment of job `{}` is {bound}", shown(job));
        faults.hint(at, words, "write large values to files, and name the files in variables");
    }
}

fn is_variable(name: &str) -> bool {
    let fits = |symbol: char| symbol.is_ascii_alphanumeric() || symbol == '_';
    !name.is_empty()
        && name.len() <= VARIABLE_NAME_BYTES_MAX
        && !name.starts_with(|symbol: char| symbol.is_ascii_digit())
        && name.chars().all(fits)
}

#[cfg(test)]
mod tests;
