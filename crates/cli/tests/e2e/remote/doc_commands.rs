//! Tests that the commands of the documents about HTTP and webhooks work when pasted.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

use crate::fixture::{Fixture, Kind, TIDEMILL, token_dir};
use crate::process::run;

use super::server::Server;

/// Address of the server in the documents.
const ADDRESS: &str = "http://127.0.0.1:7171";

/// Extracts the commands of a document, and their output.
fn commands(page: &str) -> Vec<(String, Vec<String>)> {
    let mut commands: Vec<(String, Vec<String>)> = Vec::new();
    let (mut inside, mut is_continued) = (false, false);
    for line in page.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
            continue;
        }
        if !inside {
            continue;
        }
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push((command.to_owned(), Vec::new())),
            (None, Some((command, _))) if is_continued => {
                command.push('\n');
                command.push_str(line);
            }
            (None, Some((_, shown))) => shown.push(line.to_owned()),
            (None, None) => panic!("output before a command: {line}"),
        }
        is_continued = line.ends_with('\\');
    }
    commands
}

fn page(name: &str) -> String {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    std::fs::read_to_string(page).expect("the page exists")
}

/// Runs the commands in one shell. Each must succeed and print the output of the document.
fn paste(
    fixture: &Fixture,
    server: &Server,
    commands: &[(String, Vec<String>)],
    environment: &[(&str, &str)],
) {
    let mut script = "set -euo pipefail\n".to_owned();
    let file = format!("127.0.0.1-{}.token", server.address().port());
    for (number, (command, _)) in commands.iter().enumerate() {
        let command = command.replace(ADDRESS, &server.url()).replace("127.0.0.1-7171.token", &file);
        let _ = write!(script, "echo '== {number}'\n{command}\n");
    }
    let mut bash = Command::new("bash");
    fixture.prepare(&mut bash);
    let binaries = PathBuf::from(TIDEMILL).parent().expect("the binary is in a directory").to_owned();
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap_or_default());
    bash.args(["-c", &script]).env("PATH", path).env("TIDEMILL_DATABASE", &fixture.url);
    // The default directory, in which the commands of the page look for the token.
    let state = fixture.path(".local/state/tidemill");
    std::fs::create_dir_all(&state).expect("the directory is created");
    std::fs::copy(token_dir().join(&file), state.join(&file)).expect("the token is copied");
    let ran = run(bash.envs(environment.iter().copied()));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for (number, (command, shown)) in commands.iter().enumerate() {
        let begin = format!("== {number}\n");
        let printed = ran.stdout.split(&begin).nth(1).unwrap_or_default();
        let printed = printed.split("== ").next().unwrap_or_default();
        for line in shown {
            assert!(printed.contains(line.trim()), "`{command}` does not print `{line}`: {printed}");
        }
    }
}

#[test]
fn page_commands_work_when_pasted() {
    let fixture = Fixture::bare(Kind::Sqlite);
    fixture.ok(&["migrate"]);
    let server = Server::start(&fixture);
    let commands = commands(&page("http.md"));
    assert!(commands.len() >= 8, "the page has commands: {commands:?}");
    paste(&fixture, &server, &commands, &[]);
}

/// Skips `tidemill alert test`, which would send messages to real servers.
#[test]
fn webhook_page_commands_work_when_pasted() {
    let fixture = Fixture::bare(Kind::Sqlite);
    fixture.ok(&["migrate"]);
    let secret = [("SHOP_HOOK_SECRET", "open sesame")];
    let server = Server::start_with(&fixture, &secret);
    let mut commands = commands(&page("webhooks-and-alerts.md"));
    let all = commands.len();
    commands.retain(|(command, _)| !command.starts_with("tidemill alert test"));
    assert_eq!((all - commands.len(), commands.len() >= 9), (2, true), "{commands:?}");
    paste(&fixture, &server, &commands, &secret);
    let runs = fixture.runs();
    assert_eq!(runs.len(), 1, "the signed delivery queued its run: {runs:?}");
    assert_eq!(runs[0].env_id.as_str(), "shop/staging");
}
