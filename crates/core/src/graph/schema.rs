//! The JSON Schema of graph files, for editors: what they offer while somebody types, and underline at once.
//!
//! It says less than [`parse`](super::parse) checks: whether needs exist, or paths stay where they should, takes a look
//! at the whole file.

use crate::Json;
use crate::limits::{GRAPH_NAME_CHARS_MAX, JOB_WEIGHT_MAX, RETRIES_MAX};
use serde_json::json;

/// What a name is made of.
const NAME: &str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$";
/// What a variable is called.
const VARIABLE: &str = "^[A-Za-z_][A-Za-z0-9_]*$";
/// A length of time.
const LENGTH: &str = "^[0-9]+ *[smhd]?$";
/// An amount of memory.
const AMOUNT: &str = "^[0-9]+ *(B|K|KiB|M|MiB|G|GiB)?$";

/// The schema.
pub fn schema() -> Json {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A graph of Tidemill",
        "description": "Jobs with dependencies, carried out by agents: tidemill.graph.yaml.",
        "type": "object",
        "required": ["version", "jobs"],
        "additionalProperties": false,
        "properties": {
            "version": {"const": 1, "description": "The version of this form."},
            "name": {"type": "string", "minLength": 1, "maxLength": GRAPH_NAME_CHARS_MAX,
                "description": "A name for people: runs are found by how it begins."},
            "workspace": {"type": "string", "pattern": NAME,
                "description": "Whose outputs are shared: later graphs of it may reuse what succeeded."},
            "env": {"$ref": "#/$defs/variables", "description": "Variables of every job's environment."},
            "jobs": {"type": "object", "minProperties": 1, "propertyNames": {"pattern": NAME},
                "description": "The jobs, by their names.", "additionalProperties": {"$ref": "#/$defs/job"}},
        },
        "$defs": {
            "job": job(),
            "variables": {"type": "object", "propertyNames": {"pattern": VARIABLE},
                "additionalProperties": {"type": ["string", "number", "boolean"]}},
            "names": {"oneOf": [
                {"type": "string", "pattern": NAME},
                {"type": "array", "items": {"type": "string", "pattern": NAME}},
            ]},
            "length": {"oneOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": LENGTH}]},
            "amount": {"oneOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": AMOUNT}]},
        },
    })
}

/// One job.
fn job() -> Json {
    json!({
        "type": "object",
        "required": ["run"],
        "additionalProperties": false,
        "properties": {
            "run": {"description": "What is run: a line for the shell, or a program and its arguments.", "oneOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "minItems": 1, "items": {"type": ["string", "number", "boolean"]}},
            ]},
            "needs": {"$ref": "#/$defs/names",
                "description": "The jobs that must succeed first; it gets their outputs."},
            "outputs": {"type": "object", "propertyNames": {"pattern": NAME},
                "additionalProperties": {"type": "string", "minLength": 1},
                "description": "What it leaves: a name, and a path in which `*` stands for anything but a slash."},
            "env": {"$ref": "#/$defs/variables", "description": "Variables of its environment."},
            "secrets": {"$ref": "#/$defs/names",
                "description": "Names of secrets that the agent adds to its environment. Their values stay there."},
            "timeout": {"$ref": "#/$defs/length", "description": "How long it may run, such as 90s, 10m or 2h."},
            "retries": {"type": "integer", "minimum": 0, "maximum": RETRIES_MAX, "default": 0,
                "description": "How often it is tried again after its command ended badly."},
            "weight": {"type": "integer", "minimum": 1, "maximum": JOB_WEIGHT_MAX, "default": 1,
                "description": "How much room it takes, of its agent and of its pool."},
            "pool": {"type": "string", "pattern": NAME, "description": "The pool that bounds it."},
            "workdir": {"type": "string", "minLength": 1,
                "description": "The directory, within its own, in which its command starts."},
            "labels": {"$ref": "#/$defs/names", "description": "What an agent must offer."},
            "on-agent-lost": {"type": "string", "pattern": "^(wait|rerun after [0-9]+ *[smhd]?)$", "default": "wait",
                "description": "What becomes of it when its agent falls silent: `wait`, or `rerun after 5m`."},
            "limits": {"type": "object", "additionalProperties": false, "description": "Bounds of its command.",
                "properties": {
                    "cpu": {"$ref": "#/$defs/length", "description": "Processor time."},
                    "memory": {"$ref": "#/$defs/amount", "description": "Memory of one process, such as 2GiB."},
                    "output": {"$ref": "#/$defs/amount", "description": "Size of a file that it writes."},
                }},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::super::read::{JOB_KEYS, KEYS};
    use super::*;
    use std::collections::BTreeSet;

    fn keys(schema: &Json) -> BTreeSet<&str> {
        schema["properties"].as_object().unwrap().keys().map(String::as_str).collect()
    }

    #[test]
    fn it_knows_the_keys_that_are_read_and_no_others() {
        let schema = schema();
        assert_eq!(keys(&schema), KEYS.into_iter().collect());
        assert_eq!(keys(&schema["$defs"]["job"]), JOB_KEYS.into_iter().collect());
    }
}
