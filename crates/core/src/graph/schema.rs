//! The JSON Schema of graph files, for completion and checks in editors.
//!
//! It checks less than [`parse`](super::parse): a schema cannot express that needs exist or that paths stay within the
//! job's directory.

use crate::Json;
use crate::limits::{
    GRAPH_NAME_CHARS_MAX, JOB_CPU_PERCENT_MAX, JOB_PROCESSES_MAX, JOB_WEIGHT_MAX, RETRIES_MAX,
};
use serde_json::json;

/// Pattern of a name.
const NAME: &str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$";
/// Pattern of a variable name.
const VARIABLE: &str = "^[A-Za-z_][A-Za-z0-9_]*$";
/// Pattern of a duration.
const LENGTH: &str = "^[0-9]+ *[smhd]?$";
/// Pattern of a size.
const AMOUNT: &str = "^[0-9]+ *(B|K|KiB|M|MiB|G|GiB)?$";

/// Pattern of a CPU share.
const SHARE: &str = "^([0-9]+ *%|[0-9]+(\\.[0-9]{1,2})?)$";

/// Returns the schema of a graph file.
pub fn schema() -> Json {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Tidemill graph",
        "description": "Jobs with dependencies, executed by agents: tidemill.graph.yaml.",
        "type": "object",
        "required": ["version", "jobs"],
        "additionalProperties": false,
        "properties": {
            "version": {"const": 1, "description": "Version of the file format."},
            "name": {"type": "string", "minLength": 1, "maxLength": GRAPH_NAME_CHARS_MAX,
                "description": "Display name; runs can be searched by its prefix."},
            "workspace": {"type": "string", "pattern": NAME,
                "description": "Workspace: its graphs share outputs and may reuse jobs that succeeded."},
            "env": {"$ref": "#/$defs/variables", "description": "Environment variables of every job."},
            "jobs": {"type": "object", "minProperties": 1, "propertyNames": {"pattern": NAME},
                "description": "Jobs by name.", "additionalProperties": {"$ref": "#/$defs/job"}},
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

fn job() -> Json {
    json!({
        "type": "object",
        "required": ["run"],
        "additionalProperties": false,
        "properties": {
            "run": {"description": "Command: a line for the shell, or a program and its arguments.", "oneOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "minItems": 1, "items": {"type": ["string", "number", "boolean"]}},
            ]},
            "needs": {"$ref": "#/$defs/names",
                "description": "Jobs that must succeed first; their outputs become inputs of this job."},
            "outputs": {"type": "object", "propertyNames": {"pattern": NAME},
                "additionalProperties": {"type": "string", "minLength": 1},
                "description": "Outputs: a name and a path each; `*` matches any characters except a slash."},
            "env": {"$ref": "#/$defs/variables", "description": "Environment variables of the job."},
            "secrets": {"$ref": "#/$defs/names",
                "description": "Names of secrets that the agent adds to the environment. Their values stay there."},
            "timeout": {"$ref": "#/$defs/length", "description": "Time limit, such as 90s, 10m or 2h."},
            "retries": {"type": "integer", "minimum": 0, "maximum": RETRIES_MAX, "default": 0,
                "description": "Number of retries after the command failed."},
            "weight": {"type": "integer", "minimum": 1, "maximum": JOB_WEIGHT_MAX, "default": 1,
                "description": "Share of the agent's capacity and of the pool that the job takes."},
            "pool": {"type": "string", "pattern": NAME,
                "description": "Pool that limits how many such jobs run at the same time."},
            "workdir": {"type": "string", "minLength": 1,
                "description": "Working directory, relative to the job's directory."},
            "labels": {"$ref": "#/$defs/names", "description": "Labels that the agent must have."},
            "on-agent-lost": {"type": "string", "pattern": "^(wait|rerun after [0-9]+ *[smhd]?)$", "default": "wait",
                "description": "Policy if the agent stops sending heartbeats: `wait`, or `rerun after 5m`."},
            "limits": {"type": "object", "additionalProperties": false,
                "description": "Resource limits of the command.",
                "properties": {
                    "memory": {"$ref": "#/$defs/amount", "description": "Memory, such as 2GiB."},
                    "processes": {"type": "integer", "minimum": 1, "maximum": JOB_PROCESSES_MAX,
                        "description": "Number of processes and threads at the same time."},
                    "cpu": {"description": "CPU share: 150% of one processor, or a number of processors such as 1.5.",
                        "oneOf": [{"type": "number", "minimum": 0.01, "maximum": JOB_CPU_PERCENT_MAX / 100},
                            {"type": "string", "pattern": SHARE}]},
                    "cpu-time": {"$ref": "#/$defs/length", "description": "CPU time of each process, such as 10m."},
                    "file-size": {"$ref": "#/$defs/amount", "description": "Size of each file that it writes."},
                }},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::super::read::{JOB_KEYS, KEYS, LIMIT_KEYS};
    use super::*;
    use std::collections::BTreeSet;

    fn keys(schema: &Json) -> BTreeSet<&str> {
        schema["properties"].as_object().unwrap().keys().map(String::as_str).collect()
    }

    #[test]
    fn schema_has_exactly_the_keys_of_the_parser() {
        let schema = schema();
        assert_eq!(keys(&schema), KEYS.into_iter().collect());
        let job = &schema["$defs"]["job"];
        assert_eq!(keys(job), JOB_KEYS.into_iter().collect());
        assert_eq!(keys(&job["properties"]["limits"]), LIMIT_KEYS.into_iter().collect());
    }
}
