//! Checks of `deploy/compose.yaml` and of the Terraform files: their own parsers accept them, every name refers to
//! something, secrets are references, and the numbers are those of the documentation.
//!
//! The tests of the command line check their command lines and variables against the program.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value};

use crate::{out, venv, workspace};

const COMPOSE: &str = "deploy/compose.yaml";
const TERRAFORM: &str = "deploy/terraform/azure-container-apps";
const REQUIREMENTS: &str = "xtask/deploy-files/requirements.txt";
const PARSER: &str = "xtask/deploy-files/parse.py";

/// Checks the compose file.
pub(crate) fn compose() -> Result<()> {
    let file = parse(&[workspace::root().join(COMPOSE)])?;
    report(COMPOSE, &compose_findings(&file))
}

/// Checks the Terraform files.
pub(crate) fn terraform() -> Result<()> {
    let mut paths = workspace::files(&workspace::root().join(TERRAFORM))?;
    paths.retain(|path| workspace::has_extension(path, "tf"));
    let texts: Vec<String> = paths.iter().map(fs::read_to_string).collect::<Result<_, _>>()?;
    let blocks = parse(&paths)?;
    report(TERRAFORM, &[terraform_findings(&blocks), reference_findings(&blocks, &texts.concat())].concat())
}

fn report(name: &str, findings: &[String]) -> Result<()> {
    for finding in findings {
        out::line(format!("{name}: {finding}"));
    }
    ensure!(findings.is_empty(), "{name} has {} findings; fix them", findings.len());
    out::line(format!("{name} is valid"));
    Ok(())
}

/// Parses a YAML file, or the Terraform files of a folder.
fn parse(paths: &[PathBuf]) -> Result<Value> {
    let folder = workspace::target()?.join("deploy-files-venv");
    venv::install(&folder, REQUIREMENTS, "parsers of YAML and Terraform")?;
    let output = Command::new(folder.join("bin/python"))
        .arg(workspace::root().join(PARSER))
        .args(paths)
        .stdin(Stdio::null())
        .output()
        .context("could not run python")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let shown = paths.first().map_or(Path::new(""), PathBuf::as_path).display();
    ensure!(output.status.success(), "{shown} could not be parsed: {}", errors.trim());
    serde_json::from_slice(&output.stdout).context("the parser printed no JSON")
}

/// The services of the compose file.
const SERVICES: [&str; 8] =
    ["agent", "consolidator", "controller", "migrate", "postgres", "scheduler", "server", "worker"];

fn compose_findings(file: &Value) -> Vec<String> {
    let mut findings = Vec::new();
    let services = object(&file["services"]);
    let names: Vec<&str> = services.keys().map(String::as_str).collect();
    if names.iter().copied().collect::<BTreeSet<_>>() != BTreeSet::from(SERVICES) {
        findings.push(format!("the services are {names:?}, and not {SERVICES:?}"));
    }
    for (name, service) in services {
        let mut find = |finding: String| findings.push(format!("{name}: {finding}"));
        for dependency in object(&service["depends_on"]).keys().filter(|key| !services.contains_key(*key)) {
            find(format!("depends on the unknown service `{dependency}`"));
        }
        for secret in texts(&service["secrets"]) {
            let path = file["secrets"][secret]["file"].as_str().unwrap_or_default();
            if !path.starts_with("secrets/") {
                find(format!("the secret `{secret}` is not a file in secrets/"));
            }
        }
        for port in texts(&service["ports"]) {
            if name != "server" || !port.starts_with("127.0.0.1:") {
                find(format!("publishes {port}; only the server is published, on 127.0.0.1"));
            }
        }
        for (variable, value) in object(&service["environment"]) {
            let value = value.as_str().unwrap_or_default();
            let is_secret =
                ["PASSWORD", "TOKEN", "DATABASE", "SECRET"].iter().any(|part| variable.contains(part));
            if is_secret && !value.starts_with("@/run/secrets/") && !value.starts_with("/run/secrets/") {
                find(format!("`{variable}` is not read from a secret"));
            }
        }
        let probe = texts(&service["healthcheck"]["test"]);
        let is_ours = name != "postgres";
        let is_probe = !is_ours || probe.get(1..3) == Some(&["/usr/bin/tidemill", "health"]);
        // The migration ends by itself.
        if name != "migrate" && !(probe.first() == Some(&"CMD") && is_probe) {
            find("has no health check with `tidemill health`".to_owned());
        }
        let is_in_database_network = texts(&service["networks"]).contains(&"database");
        if is_in_database_network == (name == "agent") {
            find("only the agent stays out of the network `database`".to_owned());
        }
    }
    if file["networks"]["database"]["internal"] != true {
        findings.push("the network `database` is not internal".to_owned());
    }
    findings
}

/// Smallest and largest number of replicas, and messages for each replica.
const SCALING: [(&str, [Option<u64>; 3]); 3] = [
    ("worker", [Some(0), Some(30), Some(1)]),
    ("consolidator", [Some(1), Some(3), Some(1)]),
    ("server", [Some(2), Some(10), None]),
];

fn terraform_findings(blocks: &Value) -> Vec<String> {
    let mut findings = Vec::new();
    let roles = &merged(&blocks["locals"])["roles"];
    for (role, numbers) in SCALING {
        let found =
            ["replicas_min", "replicas_max", "messages_per_replica"].map(|key| roles[role][key].as_u64());
        if found != numbers {
            findings.push(format!("the replicas of {role} are {found:?}, and not {numbers:?}"));
        }
    }
    for (kind, resource) in resources(blocks) {
        let secrets = list(&resource["secret"]);
        let names: BTreeSet<&str> = secrets.iter().filter_map(|secret| secret["name"].as_str()).collect();
        for secret in secrets {
            let reference = secret["key_vault_secret_id"].as_str().unwrap_or_default();
            if !reference.starts_with("${var.") || !secret["value"].is_null() {
                findings.push(format!("{kind}: the secret {} is not a reference", secret["name"]));
            }
        }
        let mut used = Vec::new();
        collect("secret_name", resource, &mut used);
        for name in used.iter().filter(|name| !names.contains(**name)) {
            findings.push(format!("{kind}: the secret `{name}` is not declared"));
        }
        if used.is_empty() {
            findings.push(format!("{kind} uses no secret"));
        }
    }
    findings
}

/// Finds variables and locals that are used and not declared, or declared and not used.
fn reference_findings(blocks: &Value, text: &str) -> Vec<String> {
    let variables = list(&blocks["variable"]).iter().flat_map(|block| object(block).keys().cloned());
    let locals = merged(&blocks["locals"]);
    let declared: BTreeSet<String> = variables
        .map(|name| format!("var.{}", name.trim_matches('"')))
        .chain(locals.keys().map(|name| format!("local.{name}")))
        .collect();
    let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let code = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let used: BTreeSet<String> = code
        .flat_map(|line| line.split(|character| !is_name(character) && character != '.'))
        .filter(|word| word.starts_with("var.") || word.starts_with("local."))
        .map(|word| word.split('.').take(2).collect::<Vec<_>>().join("."))
        .collect();
    declared
        .symmetric_difference(&used)
        .map(|name| format!("`{name}` must be both declared and used"))
        .collect()
}

/// Each resource with its kind.
fn resources(blocks: &Value) -> Vec<(&str, &Value)> {
    let named = list(&blocks["resource"]).iter().flat_map(object);
    named
        .flat_map(|(kind, resources)| object(resources).values().map(move |one| (kind.as_str(), one)))
        .filter(|(_, resource)| resource.is_object())
        .collect()
}

/// Collects the values of a key anywhere in a document.
fn collect<'v>(key: &str, value: &'v Value, found: &mut Vec<&'v str>) {
    for (name, inner) in object(value) {
        found.extend(inner.as_str().filter(|_| name == key));
        collect(key, inner, found);
    }
    for inner in list(value) {
        collect(key, inner, found);
    }
}

/// The entries of several blocks of one kind.
fn merged(blocks: &Value) -> Map<String, Value> {
    let entries = list(blocks).iter().flat_map(object);
    entries
        .filter(|(name, _)| name.as_str() != "__is_block__")
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

fn object(value: &Value) -> &Map<String, Value> {
    static NONE: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
    value.as_object().unwrap_or(&NONE)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn texts(value: &Value) -> Vec<&str> {
    list(value).iter().filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests;
