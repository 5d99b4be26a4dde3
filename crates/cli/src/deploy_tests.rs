//! Tests that the program accepts the command lines and the environment variables of the files in `deploy/`.

use crate::args::Arguments;
use crate::{config, environment};
use clap::{CommandFactory as _, Parser as _};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Starts of a list of arguments in YAML, in Terraform and in a Containerfile.
const COMMANDS: [&str; 4] = ["command: [", "args: [", "args = [", "CMD ["];
/// Start of a probe in a compose file.
const PROBE: &str = "test: [\"CMD\", \"/usr/bin/tidemill\", ";

/// Folders of Kubernetes and Helm, whose files `manifest_tests` reads.
const MANIFESTS: [&str; 2] = ["kustomize", "helm"];

/// Every file below `deploy/` but those folders, with its text.
fn files() -> Vec<(String, String)> {
    fn add(folder: &Path, found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if MANIFESTS.iter().any(|name| path.ends_with(name)) {
                continue;
            }
            if path.is_dir() {
                add(&path, found);
            } else if let Ok(text) = fs::read_to_string(&path) {
                found.push((path.display().to_string(), text));
            }
        }
    }
    let mut found = Vec::new();
    add(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy"), &mut found);
    found.sort();
    found
}

/// The lists of arguments of a file. Lists of texts are the same in YAML, in Terraform and in JSON.
fn command_lines(text: &str) -> Vec<Vec<String>> {
    // Names and lists are aligned with spaces, or start on the line after the name.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let lists = |start: &str| -> Vec<Vec<String>> {
        let rests = text.split(start).skip(1);
        rests
            .map(|rest| {
                let list = format!("[{}]", rest.split(']').next().unwrap());
                serde_json::from_str(&list).unwrap_or_else(|error| panic!("{list}: {error}"))
            })
            .collect()
    };
    COMMANDS.iter().chain([&PROBE]).flat_map(|start| lists(start)).collect()
}

fn check(file: &str, words: &[String]) {
    let words = [&["tidemill".to_owned()], words].concat();
    if let Err(error) = Arguments::try_parse_from(&words) {
        panic!("{file}: {words:?}: {error}");
    }
}

#[test]
fn command_lines_of_deploy_files_parse() {
    let mut counts = [0, 0, 0, 0];
    for (file, text) in files() {
        let kinds = ["compose.yaml", ".tf", ".Containerfile", ".service"];
        let Some(kind) = kinds.iter().position(|ending| file.ends_with(ending)) else { continue };
        let lines = if kind == 3 {
            let started = text.lines().filter_map(|line| line.strip_prefix("ExecStart=/usr/bin/tidemill "));
            started.map(|line| line.split(' ').map(str::to_owned).collect()).collect()
        } else {
            command_lines(&text)
        };
        for words in &lines {
            check(&file, words);
            counts[kind] += 1;
        }
    }
    // Compose: 7 services, 1 common probe and that of the server. Terraform: 5 roles and the migration.
    assert_eq!(counts, [9, 6, 2, 9], "compose, Terraform, images, units");
}

#[test]
fn variables_of_deploy_files_exist() {
    let mut known: BTreeSet<String> =
        config::keys().map(|key| environment::variable_name(key.path)).collect();
    let command = Arguments::command();
    known.extend(
        command.get_arguments().filter_map(|argument| Some(argument.get_env()?.to_str()?.to_owned())),
    );
    assert!(known.contains("TIDEMILL_DATABASE") && known.contains("TIDEMILL_REACH_HOSTS"), "{known:?}");
    let is_name = |character: char| character.is_ascii_uppercase() || character == '_';
    let mut used = 0;
    for (file, text) in files() {
        let words = text.split(|character| !is_name(character));
        // `TIDEMILL_REACH_…` stands for several.
        for name in words.filter(|word| word.starts_with("TIDEMILL_") && !word.ends_with('_')) {
            assert!(known.contains(name), "{file}: no variable `{name}` exists");
            used += 1;
        }
    }
    assert!(used > 10, "only {used} variables were found");
}

/// A test of this file that finds nothing would not fail.
#[test]
fn command_lines_are_found_in_each_notation() {
    let text = "command:\n      [\"agent\",\n \"run\"]\nargs   = [\"migrate\"]\nCMD [\"server\"]\n\
                test: [\"CMD\", \"/usr/bin/tidemill\", \"health\"]";
    let found = command_lines(text);
    assert_eq!(found, [&["agent", "run"][..], &["migrate"], &["server"], &["health"]]);
}
