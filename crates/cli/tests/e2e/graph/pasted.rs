//! `docs/graphs.md` and the graph of the README as a reader uses them: every command is pasted, and does what is said.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

use crate::process::run;
use crate::server::server;
use crate::stage::{Kind, Stage, TIDEMILL};

/// The commands of a page from a heading on, and what it says that each prints. What a command reads from the page
/// belongs to it.
pub(crate) fn commands(page: &str, heading: &str) -> Vec<(String, Vec<String>)> {
    let (_, page) = page.split_once(heading).unwrap_or_else(|| panic!("there is no `{heading}`"));
    let page = page.split_once("\n## ").map_or(page, |(part, _)| part);
    let mut commands: Vec<(String, Vec<String>)> = Vec::new();
    let (mut inside, mut goes_on, mut reads) = (false, false, false);
    for line in page.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
            continue;
        }
        if !inside {
            continue;
        }
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) if !reads => commands.push((command.to_owned(), Vec::new())),
            (_, Some((command, _))) if goes_on || reads => {
                let _ = write!(command, "\n{line}");
            }
            (_, Some((_, shown))) => shown.push(line.to_owned()),
            (_, None) => panic!("output before a command: {line}"),
        }
        goes_on = line.ends_with('\\');
        reads = (reads || line.contains("<<'END'")) && line != "END";
    }
    commands
}

/// Pastes commands into a shell beside `tidemill up`.
fn paste(page: &str, heading: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let page = std::fs::read_to_string(path).expect("the page is there");
    let stage = Stage::bare(Kind::Sqlite);
    let (_up, _) = server(&stage, &["up"], &[]);
    let commands = commands(&page, heading);
    assert!(commands.len() >= 2, "the page has commands: {commands:?}");
    let mut script = "set -euo pipefail\n".to_owned();
    for (number, (command, _)) in commands.iter().enumerate() {
        let _ = write!(script, "echo '== {number}'\n{command}\n");
    }
    let mut bash = Command::new("bash");
    stage.adopt(&mut bash);
    let binaries = PathBuf::from(TIDEMILL).parent().expect("the binary is in a folder").to_owned();
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap_or_default());
    let ran = run(bash.args(["-c", &script]).env("PATH", path).env("TIDEMILL_DATABASE", &stage.url));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for (number, (command, shown)) in commands.iter().enumerate() {
        let said = ran.stdout.split(&format!("== {number}\n")).nth(1).unwrap_or_default();
        let said = said.split("== ").next().unwrap_or_default();
        for line in shown {
            assert!(said.contains(line.trim()), "`{command}` does not print `{line}`: {said}");
        }
    }
}

#[test]
fn the_commands_of_the_page_work_when_pasted() {
    paste("docs/graphs.md", "# Graphs\n");
}

#[test]
fn the_graph_of_the_readme_works_when_pasted() {
    paste("README.md", "## A graph of jobs\n");
}
