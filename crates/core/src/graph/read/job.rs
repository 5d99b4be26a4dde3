//! Parses one job of a graph file.

use super::super::check::LocatedJob;
use super::super::definition::{Command, JobSpec, Limits, OnAgentLost};
use super::super::pattern::{Pattern, check_path};
use super::super::units;
use super::{NAME_HINT, check_environment, name_of, variables};
use crate::definition::error::{DefinitionErrors, Position, shown};
use crate::definition::fields::{check_keys, is_variable, text_of};
use crate::definition::yaml::{Node, Value};
use crate::limits::{
    COMMAND_BYTES_MAX, JOB_MEMORY_BYTES_MIN, JOB_PROCESSES_MAX, JOB_WEIGHT_MAX, NEEDS_MAX,
    RERUN_AFTER_SECS_MIN, RETRIES_MAX,
};
use std::collections::BTreeMap;

/// Keys of a job in the file.
pub(in super::super) const KEYS: [&str; 13] = [
    "run",
    "needs",
    "outputs",
    "env",
    "secrets",
    "timeout",
    "retries",
    "weight",
    "pool",
    "workdir",
    "labels",
    "on-agent-lost",
    "limits",
];

/// Keys of the limits of a job.
pub(in super::super) const LIMIT_KEYS: [&str; 5] = ["memory", "processes", "cpu", "cpu-time", "file-size"];

pub(super) fn read(
    name: String,
    at: Position,
    node: Node,
    shared: &BTreeMap<String, String>,
    errors: &mut DefinitionErrors,
) -> Option<LocatedJob> {
    let kind = node.kind();
    let Value::Map(entries) = node.value else {
        let message = format!("job `{}` is {kind}; it must be a mapping", shown(&name));
        errors.hint(at, message, "write `run: COMMAND` below its name");
        return None;
    };
    check_keys("a job", &entries, &KEYS, errors);
    let keys: BTreeMap<String, Node> = entries.into_iter().map(|(key, _, node)| (key, node)).collect();
    let get = |key: &str| keys.get(key);
    let Some(run) = get("run") else {
        let message = format!("job `{}` has no `run`", shown(&name));
        errors.hint(at, message, "write `run: COMMAND` below its name");
        return None;
    };
    let run = command(run, errors);
    let (needs, needs_at) = get("needs").map(|node| names("needs", node, errors)).unwrap_or_default();
    if needs.len() > NEEDS_MAX {
        let count = needs.len();
        errors.add(at, format!("job `{}` needs {count} jobs; at most {NEEDS_MAX} are allowed", shown(&name)));
    }
    let (outputs, outputs_at) = get("outputs").map(|node| outputs(node, errors)).unwrap_or_default();
    let mut env = shared.clone();
    env.extend(get("env").map(|node| variables(node, errors)).unwrap_or_default());
    check_environment(&name, at, &env, errors);
    let (labels, _) = get("labels").map(|node| names("labels", node, errors)).unwrap_or_default();
    let job = JobSpec {
        name,
        run: run?,
        needs,
        outputs,
        secrets: get("secrets").map(|node| secrets(node, &env, errors)).unwrap_or_default(),
        env,
        timeout_secs: get("timeout").and_then(|node| length("timeout", node, errors)),
        retries: get("retries").and_then(|node| number("retries", node, 0, RETRIES_MAX, errors)).unwrap_or(0),
        weight: get("weight").and_then(|node| number("weight", node, 1, JOB_WEIGHT_MAX, errors)).unwrap_or(1),
        pool: get("pool").and_then(|node| name_of("pool", node, errors)),
        workdir: get("workdir").and_then(|node| workdir(node, errors)),
        labels,
        on_agent_lost: get("on-agent-lost").map(|node| on_agent_lost(node, errors)).unwrap_or_default(),
        limits: get("limits").map(|node| limits(node, errors)).unwrap_or_default(),
    };
    Some(LocatedJob { job, at, needs_at, outputs_at })
}

fn command(node: &Node, errors: &mut DefinitionErrors) -> Option<Command> {
    let command = match &node.value {
        Value::Text(..) => Command::Shell(text_of("run", node, errors)?),
        Value::List(items) => {
            let words: Vec<String> = items.iter().filter_map(|item| text_of("run", item, errors)).collect();
            if words.len() != items.len() {
                return None;
            }
            if words.is_empty() {
                errors.hint(node.at, "`run` is an empty list", "name a program and its arguments");
                return None;
            }
            Command::Words(words)
        }
        Value::Map(_) => {
            errors.hint(node.at, "`run` is a mapping; it must be text or a list", "write `run: COMMAND`");
            return None;
        }
    };
    let length = match &command {
        Command::Shell(line) => line.len(),
        Command::Words(words) => words.iter().map(|word| word.len() + 1).sum(),
    };
    if length > COMMAND_BYTES_MAX {
        let message = format!("the command is {length} bytes long; at most {COMMAND_BYTES_MAX} are allowed");
        errors.add(node.at, message);
        return None;
    }
    Some(command)
}

/// Reads a list of names with their positions; a single name counts as a list.
fn names(what: &str, node: &Node, errors: &mut DefinitionErrors) -> (Vec<String>, Vec<Position>) {
    let items = match &node.value {
        Value::List(items) => items.iter().collect(),
        Value::Text(..) if node.is_empty() => Vec::new(),
        Value::Text(..) => vec![node],
        Value::Map(_) => {
            errors.hint(node.at, format!("`{what}` is a mapping; it must be a list"), "write `[one, two]`");
            Vec::new()
        }
    };
    let mut found = (Vec::new(), Vec::new());
    for item in items {
        if let Some(word) = name_of(what.trim_end_matches('s'), item, errors) {
            found.0.push(word);
            found.1.push(item.at);
        }
    }
    found
}

fn outputs(
    node: &Node,
    errors: &mut DefinitionErrors,
) -> (BTreeMap<String, Pattern>, BTreeMap<String, Position>) {
    let mut found = (BTreeMap::new(), BTreeMap::new());
    let Value::Map(entries) = &node.value else {
        let message = format!("`outputs` is {}; it must be a mapping", node.kind());
        errors.hint(node.at, message, "write `name: path/*.csv`");
        return found;
    };
    for (name, at, value) in entries {
        if !super::is_name(name) {
            errors.hint(*at, format!("`{}` is not a valid output name", shown(name)), NAME_HINT);
        }
        let Some(text) = text_of("output", value, errors) else { continue };
        match text.parse::<Pattern>() {
            Ok(pattern) => {
                found.0.insert(name.clone(), pattern);
                found.1.insert(name.clone(), value.at);
            }
            Err(bad) => {
                let message = format!("the pattern `{}` {}", shown(&text), bad.problem);
                errors.hint(value.at, message, bad.hint);
            }
        }
    }
    found
}

fn secrets(node: &Node, env: &BTreeMap<String, String>, errors: &mut DefinitionErrors) -> Vec<String> {
    let (names, positions) = names("secrets", node, errors);
    for (name, at) in names.iter().zip(positions) {
        if !is_variable(name) {
            errors.hint(at, format!("`{name}` is not a valid secret name"), "use letters, digits and `_`");
        } else if env.contains_key(name) {
            let message = format!("`{name}` is both a variable and a secret");
            errors.hint(at, message, "remove it from `env`");
        }
    }
    names
}

fn length(what: &str, node: &Node, errors: &mut DefinitionErrors) -> Option<u32> {
    let text = text_of(what, node, errors)?;
    match units::secs(&text) {
        Ok(0) => {
            errors.hint(node.at, format!("`{what}` is 0"), "omit it for no limit");
            None
        }
        Ok(secs) => Some(secs),
        Err(hint) => {
            errors.hint(node.at, format!("`{}` is not a duration", shown(&text)), hint);
            None
        }
    }
}

fn number(what: &str, node: &Node, min: i32, max: i32, errors: &mut DefinitionErrors) -> Option<i32> {
    let text = text_of(what, node, errors)?;
    match text.parse::<i32>() {
        Ok(number) if (min..=max).contains(&number) => Some(number),
        Ok(_) | Err(_) => {
            let shown = shown(&text);
            let message = format!("`{what}` is `{shown}`; it must be a whole number between {min} and {max}");
            errors.add(node.at, message);
            None
        }
    }
}

fn workdir(node: &Node, errors: &mut DefinitionErrors) -> Option<String> {
    let text = text_of("workdir", node, errors)?;
    match check_path(&text) {
        Ok(()) => Some(text),
        Err(bad) => {
            errors.hint(node.at, format!("the workdir `{}` {}", shown(&text), bad.problem), bad.hint);
            None
        }
    }
}

fn on_agent_lost(node: &Node, errors: &mut DefinitionErrors) -> OnAgentLost {
    let Some(text) = text_of("on-agent-lost", node, errors) else { return OnAgentLost::Wait };
    if text == "wait" {
        return OnAgentLost::Wait;
    }
    let after = text.strip_prefix("rerun after ").map(|length| units::secs(length.trim()));
    match after {
        Some(Ok(secs)) if secs >= RERUN_AFTER_SECS_MIN => OnAgentLost::RerunAfter(secs),
        Some(Ok(_)) => {
            let message = format!("`rerun after` must be at least {RERUN_AFTER_SECS_MIN} s");
            errors.hint(node.at, message, "write `rerun after 1m` or more");
            OnAgentLost::Wait
        }
        Some(Err(_)) | None => {
            let message = format!("unknown value `{}` for `on-agent-lost`", shown(&text));
            errors.hint(node.at, message, "write `wait`, or `rerun after 5m`");
            OnAgentLost::Wait
        }
    }
}

fn limits(node: &Node, errors: &mut DefinitionErrors) -> Limits {
    let mut limits = Limits::default();
    let Value::Map(entries) = &node.value else {
        let message = format!("`limits` is {}; it must be a mapping", node.kind());
        errors.hint(node.at, message, "write `memory: 2GiB`");
        return limits;
    };
    check_keys("limits", entries, &LIMIT_KEYS, errors);
    for (key, _, value) in entries {
        match key.as_str() {
            "memory" => limits.memory_bytes = memory(value, errors),
            "processes" => {
                let count = number("processes", value, 1, JOB_PROCESSES_MAX, errors);
                limits.processes = count.and_then(|count| count.try_into().ok());
            }
            "cpu" => limits.cpu_percent = share(value, errors),
            "cpu-time" => limits.cpu_secs = length("cpu-time", value, errors),
            "file-size" => limits.output_bytes = amount("file-size", value, errors),
            _ => {}
        }
    }
    limits
}

fn memory(node: &Node, errors: &mut DefinitionErrors) -> Option<u64> {
    let bytes = amount("memory", node, errors)?;
    if bytes >= JOB_MEMORY_BYTES_MIN {
        return Some(bytes);
    }
    let message = format!("`memory` is {bytes} bytes; at least {JOB_MEMORY_BYTES_MIN} are required");
    errors.hint(node.at, message, "write a number and a unit, such as 512MiB");
    None
}

fn share(node: &Node, errors: &mut DefinitionErrors) -> Option<u32> {
    let text = text_of("cpu", node, errors)?;
    match units::percent(&text) {
        Ok(0) => {
            errors.hint(node.at, "`cpu` is 0", "omit it for no limit");
            None
        }
        Ok(percent) => Some(percent),
        Err(hint) => {
            errors.hint(node.at, format!("`{}` is not a CPU share", shown(&text)), hint);
            None
        }
    }
}

fn amount(what: &str, node: &Node, errors: &mut DefinitionErrors) -> Option<u64> {
    let text = text_of(what, node, errors)?;
    match units::bytes(&text) {
        Ok(0) => {
            errors.hint(node.at, format!("`{what}` is 0"), "omit it for no limit");
            None
        }
        Ok(bytes) => Some(bytes),
        Err(hint) => {
            errors.hint(node.at, format!("`{}` is not a size", shown(&text)), hint);
            None
        }
    }
}
