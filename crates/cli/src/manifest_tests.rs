//! Tests that this binary accepts the command lines, variables and settings of the Kubernetes files, and that their
//! grace periods are longer than those of the processes.
//!
//! The files write command lines as JSON arrays and variables as one-line maps, so no YAML parser is needed here.

use crate::args::{Arguments, Command, Global};
use crate::commands::agent::args::AgentCommand;
use crate::config::{self, Config};
use crate::environment;
use clap::{CommandFactory as _, Parser as _};
use std::path::PathBuf;
use std::time::Duration;

/// Path of the binary in the images.
const BINARY: &str = "/usr/bin/tidemill";

fn read(name: &str) -> String {
    let base = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kustomize/base");
    std::fs::read_to_string(base.join(name)).unwrap()
}

/// Returns the names of the files that define a pod.
fn pods() -> Vec<String> {
    let base = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kustomize/base");
    let names =
        std::fs::read_dir(base).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| read(name).contains("\n      containers:\n")).collect();
    names.sort();
    names
}

/// Returns the JSON arrays after a key such as `args:`.
fn arrays(text: &str, key: &str) -> Vec<Vec<String>> {
    let starts = text.match_indices(key).map(|(at, _)| at + key.len());
    let parse = |start: usize| {
        let rest = &text[start..];
        let end = rest.find(']').unwrap() + 1;
        serde_json::from_str(&rest[..end]).unwrap_or_else(|error| panic!("{}: {error}", &rest[..end]))
    };
    starts.map(parse).collect()
}

fn parse(words: &[String]) -> Arguments {
    let line = std::iter::once("tidemill").chain(words.iter().map(String::as_str));
    Arguments::try_parse_from(line).unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

/// Returns the command line of the only container of a file.
fn command_line(name: &str) -> Arguments {
    let found = arrays(&read(name), "          args: ");
    assert_eq!(found.len(), 1, "{name}");
    parse(&found[0])
}

/// Returns the names and values of the variables of a file.
fn variables(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("- {name: ")?.strip_suffix('}'));
    let pairs = lines.filter_map(|line| line.split_once(", value: "));
    pairs.map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned())).collect()
}

#[test]
fn command_lines_and_probes_of_manifests_parse() {
    let pods = pods();
    assert_eq!(pods.len(), 9, "{pods:?}");
    for name in &pods {
        command_line(name);
        for probe in arrays(&read(name), "command: ") {
            assert_eq!(probe[0], BINARY, "{name}");
            parse(&probe[1..]);
        }
    }
}

#[test]
fn variables_of_manifests_are_known() {
    let mut command = Arguments::command();
    command.build();
    let of_options: Vec<String> = command
        .get_arguments()
        .filter_map(|argument| argument.get_env()?.to_str().map(str::to_owned))
        .collect();
    let mut checked = 0;
    for name in pods() {
        for (variable, value) in variables(&read(&name)) {
            checked += 1;
            if of_options.contains(&variable) {
                continue;
            }
            let key = config::keys().find(|key| environment::variable_name(key.path) == variable);
            let key = key.unwrap_or_else(|| panic!("{name}: {variable} is not a variable of Tidemill"));
            (key.set)(&mut Config::default(), &value).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
    assert!(checked > 20, "only {checked} variables");
    assert!(of_options.iter().any(|variable| variable == environment::LOG_FORMAT));
}

#[test]
fn settings_of_the_config_map_are_valid() {
    let text = read("config.yaml");
    let (_, block) = text.split_once("tidemill.toml: |").unwrap();
    let lines = block.lines().skip(1).map(|line| line.strip_prefix("    ").unwrap_or(line));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidemill.toml");
    std::fs::write(&path, lines.collect::<Vec<_>>().join("\n")).unwrap();
    let line = ["tidemill", "--config", path.to_str().unwrap(), "stats"];
    let global: Global = Arguments::try_parse_from(line).unwrap().global;
    config::load(&global).map_err(|failure| failure.message).unwrap();
}

/// Seconds between SIGTERM, or the pause before it, and SIGKILL.
fn termination_secs(name: &str) -> u64 {
    let text = read(name);
    let (_, rest) = text.split_once("terminationGracePeriodSeconds: ").unwrap();
    rest.lines().next().unwrap().parse().unwrap()
}

#[test]
fn pods_get_more_time_to_end_than_their_processes() {
    let config = Config::default();
    let Command::Work(work) = command_line("work.yaml").command else { panic!("work.yaml runs no worker") };
    let Command::Agent { command: AgentCommand::Run(agent) } = command_line("agent.yaml").command else {
        panic!("agent.yaml runs no agent")
    };
    // Time in which the worker or agent reports the ends of its commands.
    let reports = Duration::from_secs(20);
    for (name, needed) in [
        ("server.yaml", config.server.grace + Duration::from_secs(5)),
        ("worker.yaml", config.grace),
        ("consolidator.yaml", config.grace),
        ("work.yaml", work.grace.unwrap() + reports),
        ("agent.yaml", agent.grace.unwrap() + reports),
    ] {
        assert!(Duration::from_secs(termination_secs(name)) > needed, "{name}: {needed:?}");
    }
}
