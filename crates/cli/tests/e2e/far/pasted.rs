//! Pages about HTTP as a reader uses them: every command is pasted, and does what the page says.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

use crate::process::run;
use crate::stage::{Kind, Stage, TIDEMILL};

use super::server::Server;

/// Where the page has its server.
const ADDRESS: &str = "http://127.0.0.1:7171";

/// The commands of the page, and what it says that each prints.
fn commands(page: &str) -> Vec<(String, Vec<String>)> {
    let mut commands: Vec<(String, Vec<String>)> = Vec::new();
    let (mut inside, mut goes_on) = (false, false);
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
            (None, Some((command, _))) if goes_on => {
                command.push('\n');
                command.push_str(line);
            }
            (None, Some((_, shown))) => shown.push(line.to_owned()),
            (None, None) => panic!("output before a command: {line}"),
        }
        goes_on = line.ends_with('\\');
    }
    commands
}

/// The text of a page.
fn page(name: &str) -> String {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    std::fs::read_to_string(page).expect("the page is there")
}

/// Pastes the commands, one after the other, into one shell; each must do what the page says.
fn pasted(stage: &Stage, server: &Server, commands: &[(String, Vec<String>)], environment: &[(&str, &str)]) {
    let mut script = "set -euo pipefail\n".to_owned();
    for (number, (command, _)) in commands.iter().enumerate() {
        let _ = write!(script, "echo '== {number}'\n{}\n", command.replace(ADDRESS, &server.url()));
    }
    let mut bash = Command::new("bash");
    stage.adopt(&mut bash);
    let binaries = PathBuf::from(TIDEMILL).parent().expect("the binary is in a folder").to_owned();
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap_or_default());
    bash.args(["-c", &script]).env("PATH", path).env("TIDEMILL_DATABASE", &stage.url);
    let ran = run(bash.envs(environment.iter().copied()));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for (number, (command, shown)) in commands.iter().enumerate() {
        let begin = format!("== {number}\n");
        let said = ran.stdout.split(&begin).nth(1).unwrap_or_default();
        let said = said.split("== ").next().unwrap_or_default();
        for line in shown {
            assert!(said.contains(line.trim()), "`{command}` does not print `{line}`: {said}");
        }
    }
}

#[test]
fn the_commands_of_the_page_work_when_pasted() {
    let stage = Stage::bare(Kind::Sqlite);
    stage.ok(&["migrate"]);
    let server = Server::start(&stage);
    let commands = commands(&page("http.md"));
    assert!(commands.len() >= 8, "the page has commands: {commands:?}");
    pasted(&stage, &server, &commands, &[]);
}

/// Messages to mail servers and chats of others are not sent from here: `tidemill alert test` has tests of its own.
#[test]
fn the_commands_of_the_page_about_webhooks_work_when_pasted() {
    let stage = Stage::bare(Kind::Sqlite);
    stage.ok(&["migrate"]);
    let secret = [("SHOP_HOOK_SECRET", "open sesame")];
    let server = Server::start_with(&stage, &secret);
    let mut commands = commands(&page("webhooks-and-alerts.md"));
    let all = commands.len();
    commands.retain(|(command, _)| !command.starts_with("tidemill alert test"));
    assert_eq!((all - commands.len(), commands.len() >= 9), (2, true), "{commands:?}");
    pasted(&stage, &server, &commands, &secret);
    let runs = stage.runs();
    assert_eq!(runs.len(), 1, "the signed delivery queued its run: {runs:?}");
    assert_eq!(runs[0].env_id.as_str(), "shop/staging");
}
