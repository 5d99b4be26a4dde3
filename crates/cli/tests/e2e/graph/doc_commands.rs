//! Tests that the commands of `docs/graphs.md` work when pasted.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

use crate::fixture::{Fixture, Kind, TIDEMILL};
use crate::process::run;
use crate::server::server;

/// Extracts the commands of a section, their here-documents and their output.
pub(crate) fn commands(page: &str, heading: &str) -> Vec<(String, Vec<String>)> {
    let (_, page) = page.split_once(heading).unwrap_or_else(|| panic!("heading `{heading}` does not exist"));
    let page = page.split_once("\n## ").map_or(page, |(part, _)| part);
    let mut commands: Vec<(String, Vec<String>)> = Vec::new();
    let (mut inside, mut is_continued, mut is_heredoc) = (false, false, false);
    for line in page.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
            continue;
        }
        if !inside {
            continue;
        }
        // `#` is the prompt of root.
        let command = line.strip_prefix("$ ").or_else(|| line.strip_prefix("# "));
        match (command, commands.last_mut()) {
            (Some(command), _) if !is_heredoc => commands.push((command.to_owned(), Vec::new())),
            (_, Some((command, _))) if is_continued || is_heredoc => {
                let _ = write!(command, "\n{line}");
            }
            (_, Some((_, shown))) => shown.push(line.to_owned()),
            (_, None) => panic!("output before a command: {line}"),
        }
        is_continued = line.ends_with('\\');
        is_heredoc = (is_heredoc || line.contains("<<'END'")) && line != "END";
    }
    commands
}

/// Runs the commands of a section in a shell while `tidemill up` is running.
fn paste(page: &str, heading: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let page = std::fs::read_to_string(path).expect("the page exists");
    let fixture = Fixture::bare(Kind::Sqlite);
    let (_up, _) = server(&fixture, &["up"], &[]);
    let commands = commands(&page, heading);
    assert!(commands.len() >= 2, "the page has commands: {commands:?}");
    let mut script = "set -euo pipefail\n".to_owned();
    for (number, (command, _)) in commands.iter().enumerate() {
        let _ = write!(script, "echo '== {number}'\n{command}\n");
    }
    let mut bash = Command::new("bash");
    fixture.prepare(&mut bash);
    let binaries = PathBuf::from(TIDEMILL).parent().expect("the binary is in a directory").to_owned();
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap_or_default());
    let ran = run(bash.args(["-c", &script]).env("PATH", path).env("TIDEMILL_DATABASE", &fixture.url));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for (number, (command, shown)) in commands.iter().enumerate() {
        let printed = ran.stdout.split(&format!("== {number}\n")).nth(1).unwrap_or_default();
        let printed = printed.split("== ").next().unwrap_or_default();
        for line in shown {
            assert!(printed.contains(line.trim()), "`{command}` does not print `{line}`: {printed}");
        }
    }
}

#[test]
fn page_commands_work_when_pasted() {
    paste("docs/graphs.md", "# Graphs\n");
}
