//! One job of a file.

use super::super::check::Placed;
use super::super::definition::{Command, JobSpec, Limits, OnAgentLost};
use super::super::fault::{At, Faults, shown};
use super::super::pattern::{Pattern, check_path};
use super::super::units;
use super::super::yaml::{Node, Value};
use super::{NAME_HINT, environment_fits, is_variable, known_keys, name_of, text_of, variables};
use crate::limits::{COMMAND_BYTES_MAX, JOB_WEIGHT_MAX, NEEDS_MAX, RERUN_AFTER_SECS_MIN, RETRIES_MAX};
use std::collections::BTreeMap;

/// Keys of a job.
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

pub(super) fn read(
    name: String,
    at: At,
    node: Node,
    shared: &BTreeMap<String, String>,
    faults: &mut Faults,
) -> Option<Placed> {
    let kind = node.kind();
    let Value::Map(entries) = node.value else {
        let words = format!("job `{}` is {kind}; it must be a mapping", shown(&name));
        faults.hint(at, words, "write `run: COMMAND` below its name");
        return None;
    };
    known_keys("a job", &entries, &KEYS, faults);
    let keys: BTreeMap<String, Node> = entries.into_iter().map(|(key, _, node)| (key, node)).collect();
    let get = |key: &str| keys.get(key);
    let Some(run) = get("run") else {
        let words = format!("job `{}` has no `run`", shown(&name));
        faults.hint(at, words, "write `run: COMMAND` below its name");
        return None;
    };
    let run = command(run, faults);
    let (needs, needs_at) = get("needs").map(|node| words("needs", node, faults)).unwrap_or_default();
    if needs.len() > NEEDS_MAX {
        let count = needs.len();
        faults.add(at, format!("job `{}` needs {count} jobs; at most {NEEDS_MAX} are allowed", shown(&name)));
    }
    let (outputs, outputs_at) = get("outputs").map(|node| outputs(node, faults)).unwrap_or_default();
    let mut env = shared.clone();
    env.extend(get("env").map(|node| variables(node, faults)).unwrap_or_default());
    environment_fits(&name, at, &env, faults);
    let (labels, _) = get("labels").map(|node| words("labels", node, faults)).unwrap_or_default();
    let job = JobSpec {
        name,
        run: run?,
        needs,
        outputs,
        secrets: get("secrets").map(|node| secrets(node, &env, faults)).unwrap_or_default(),
        env,
        timeout_secs: get("timeout").and_then(|node| length("timeout", node, faults)),
        retries: get("retries").and_then(|node| number("retries", node, 0, RETRIES_MAX, faults)).unwrap_or(0),
        weight: get("weight").and_then(|node| number("weight", node, 1, JOB_WEIGHT_MAX, faults)).unwrap_or(1),
        pool: get("pool").and_then(|node| name_of("pool", node, faults)),
        workdir: get("workdir").and_then(|node| workdir(node, faults)),
        labels,
        on_agent_lost: get("on-agent-lost").map(|node| on_agent_lost(node, faults)).unwrap_or_default(),
        limits: get("limits").map(|node| limits(node, faults)).unwrap_or_default(),
    };
    Some(Placed { job, at, needs_at, outputs_at })
}

fn command(node: &Node, faults: &mut Faults) -> Option<Command> {
    let command = match &node.value {
        Value::Text(..) => Command::Shell(text_of("run", node, faults)?),
        Value::List(items) => {
            let words: Vec<String> = items.iter().filter_map(|item| text_of("run", item, faults)).collect();
            if words.len() != items.len() {
                return None;
            }
            if words.is_empty() {
                faults.hint(node.at, "`run` is an empty list", "name a program and its arguments");
                return None;
            }
            Command::Words(words)
        }
        Value::Map(_) => {
            faults.hint(node.at, "`run` is a mapping; it must be text or a list", "write `run: COMMAND`");
            return None;
        }
    };
    let length = match &command {
        Command::Shell(line) => line.len(),
        Command::Words(words) => words.iter().map(|word| word.len() + 1).sum(),
    };
    if length > COMMAND_BYTES_MAX {
        let words = format!("the command is {length} bytes long; at most {COMMAND_BYTES_MAX} are allowed");
        faults.add(node.at, words);
        return None;
    }
    Some(command)
}

/// A list of words, each with its place; one word alone is a list as well.
fn words(what: &str, node: &Node, faults: &mut Faults) -> (Vec<String>, Vec<At>) {
    let items = match &node.value {
        Value::List(items) => items.iter().collect(),
        Value::Text(..) if node.is_empty() => Vec::new(),
        Value::Text(..) => vec![node],
        Value::Map(_) => {
            faults.hint(node.at, format!("`{what}` is a mapping; it must be a list"), "write `[one, two]`");
            Vec::new()
        }
    };
    let mut found = (Vec::new(), Vec::new());
    for item in items {
        if let Some(word) = name_of(what.trim_end_matches('s'), item, faults) {
            found.0.push(word);
            found.1.push(item.at);
        }
    }
    found
}

fn outputs(node: &Node, faults: &mut Faults) -> (BTreeMap<String, Pattern>, BTreeMap<String, At>) {
    let mut found = (BTreeMap::new(), BTreeMap::new());
    let Value::Map(entries) = &node.value else {
        let words = format!("`outputs` is {}; it must be a mapping", node.kind());
        faults.hint(node.at, words, "write `name: path/*.csv`");
        return found;
    };
    for (name, at, value) in entries {
        if !super::is_name(name) {
            faults.hint(*at, format!("`{}` is no name for an output", shown(name)), NAME_HINT);
        }
        let Some(text) = text_of("output", value, faults) else { continue };
        match text.parse::<Pattern>() {
            Ok(pattern) => {
                found.0.insert(name.clone(), pattern);
                found.1.insert(name.clone(), value.at);
            }
            Err(bad) => {
                let words = format!("the pattern `{}` {}", shown(&text), bad.problem);
                faults.hint(value.at, words, bad.hint);
            }
        }
    }
    found
}

fn secrets(node: &Node, env: &BTreeMap<String, String>, faults: &mut Faults) -> Vec<String> {
    let (names, places) = words("secrets", node, faults);
    for (name, at) in names.iter().zip(places) {
        if !is_variable(name) {
            faults.hint(at, format!("`{name}` is no name for a secret"), "use letters, digits and `_`");
        } else if env.contains_key(name) {
            let words = format!("`{name}` is a variable and a secret");
            faults.hint(at, words, "keep it a secret, and leave it out of `env`");
        }
    }
    names
}

fn length(what: &str, node: &Node, faults: &mut Faults) -> Option<u32> {
    let text = text_of(what, node, faults)?;
    match units::secs(&text) {
        Ok(0) => {
            faults.hint(node.at, format!("`{what}` is 0"), "leave it out where there is no bound");
            None
        }
        Ok(secs) => Some(secs),
        Err(hint) => {
            faults.hint(node.at, format!("`{}` is no length of time", shown(&text)), hint);
            None
        }
    }
}

fn number(what: &str, node: &Node, min: i32, max: i32, faults: &mut Faults) -> Option<i32> {
    let text = text_of(what, node, faults)?;
    match text.parse::<i32>() {
        Ok(number) if (min..=max).contains(&number) => Some(number),
        Ok(_) | Err(_) => {
            let shown = shown(&text);
            let words = format!("`{what}` is `{shown}`; it must be a whole number between {min} and {max}");
            faults.add(node.at, words);
            None
        }
    }
}

fn workdir(node: &Node, faults: &mut Faults) -> Option<String> {
    let text = text_of("workdir", node, faults)?;
    match check_path(&text) {
        Ok(()) => Some(text),
        Err(bad) => {
            faults.hint(node.at, format!("the workdir `{}` {}", shown(&text), bad.problem), bad.hint);
            None
        }
    }
}

fn on_agent_lost(node: &Node, faults: &mut Faults) -> OnAgentLost {
    let Some(text) = text_of("on-agent-lost", node, faults) else { return OnAgentLost::Wait };
    if text == "wait" {
        return OnAgentLost::Wait;
    }
    let after = text.strip_prefix("rerun after ").map(|length| units::secs(length.trim()));
    match after {
        Some(Ok(secs)) if secs >= RERUN_AFTER_SECS_MIN => OnAgentLost::RerunAfter(secs),
        Some(Ok(_)) => {
            let words = format!("an agent may be silent for less than {RERUN_AFTER_SECS_MIN} s");
            faults.hint(node.at, words, "write `rerun after 1m`, or more");
            OnAgentLost::Wait
        }
        Some(Err(_)) | None => {
            let words = format!("`{}` is not what can become of a job whose agent is lost", shown(&text));
            faults.hint(node.at, words, "write `wait`, or `rerun after 5m`");
            OnAgentLost::Wait
        }
    }
}

fn limits(node: &Node, faults: &mut Faults) -> Limits {
    let mut limits = Limits::default();
    let Value::Map(entries) = &node.value else {
        let words = format!("`limits` is {}; it must be a mapping", node.kind());
        faults.hint(node.at, words, "write `memory: 2GiB`");
        return limits;
    };
    known_keys("limits", entries, &["cpu", "memory", "output"], faults);
    for (key, _, value) in entries {
        match key.as_str() {
            "cpu" => limits.cpu_secs = length("cpu", value, faults),
            "memory" => limits.memory_bytes = amount("memory", value, faults),
            "output" => limits.output_bytes = amount("output", value, faults),
            _ => {}
        }
    }
    limits
}

fn amount(what: &str, node: &Node, faults: &mut Faults) -> Option<u64> {
    let text = text_of(what, node, faults)?;
    match units::bytes(&text) {
        Ok(0) => {
            faults.hint(node.at, format!("`{what}` is 0"), "leave it out where there is no bound");
            None
        }
        Ok(bytes) => Some(bytes),
        Err(hint) => {
            faults.hint(node.at, format!("`{}` is no amount", shown(&text)), hint);
            None
        }
    }
}
