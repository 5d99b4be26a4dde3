//! Tests that the commands of the README work when pasted.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tidemill_core::run::{EndCause, RunState};

use crate::fixture::{Fixture, Kind, TIDEMILL};
use crate::graph::doc_commands::commands;
use crate::process::run_within;

/// Text of the README for a command that is refused.
const REFUSES: &str = "exits with 3";

/// Runs the commands of a section in one shell, with replacements, and stops its background processes.
fn paste(fixture: &Fixture, heading: &str, replacements: &[(&str, &str)]) {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let page = std::fs::read_to_string(page).expect("the page exists");
    let commands = commands(&page, heading);
    assert!(commands.len() >= 6, "the section has commands: {commands:?}");
    let mut script = "set -euo pipefail\n".to_owned();
    for (command, shown) in commands {
        assert!(shown.is_empty(), "the output of `{command}` is not compared: {shown:?}");
        let is_refused = command.contains(REFUSES);
        let command = replacements.iter().fold(command, |text, (old, new)| text.replace(old, new));
        if is_refused {
            let _ = write!(script, "code=0\n{{ {command}\n}} || code=$?\n[ $code = 3 ]\n");
        } else {
            let _ = writeln!(script, "{command}");
        }
    }
    script.push_str("for left in $(jobs -p); do kill $left; done\nwait\n");
    let mut bash = Command::new("bash");
    fixture.prepare(&mut bash);
    let binaries = PathBuf::from(TIDEMILL).parent().expect("the binary is in a directory").to_owned();
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap_or_default());
    bash.args(["-c", &script]).env("PATH", path).env("TIDEMILL_SERVER_LISTEN", "127.0.0.1:0");
    let ran = run_within(&mut bash, Duration::from_mins(3));
    assert_eq!(ran.code, Some(0), "{script}\n{ran:?}");
}

#[test]
fn readme_sqlite_section_works_when_pasted() {
    let fixture = Fixture::bare(Kind::Sqlite);
    // A test does not build the release binary.
    paste(&fixture, "## Two minutes on SQLite\n", &[("$PWD/target/release:", "")]);
    let runs = fixture.runs();
    let states: Vec<RunState> = runs.iter().map(|run| run.status).collect();
    assert_eq!(states[..2], [RunState::Success, RunState::Cancelled]);
    assert_eq!(runs[2].retry_of.as_ref(), Some(&runs[1].run_id), "the retry is a run of its own");
    assert_eq!(runs[1].end_cause, Some(EndCause::Cancelled));
}

#[test]
fn readme_postgresql_section_works_when_pasted() {
    let fixture = Fixture::bare(Kind::Postgres);
    let psql = format!("psql '{}'", fixture.url);
    let replacements = [
        ("createdb tidemill_try", ":"),
        ("postgres:///tidemill_try", fixture.url.as_str()),
        ("psql tidemill_try", psql.as_str()),
    ];
    paste(&fixture, "## The same on PostgreSQL\n", &replacements);
    let states: Vec<RunState> = fixture.runs().iter().map(|run| run.status).collect();
    assert_eq!(states, [RunState::Success, RunState::Claimed], "the second one is claimed in SQL");
}

#[test]
fn readme_feed_section_works_when_pasted() {
    let fixture = Fixture::new(Kind::Sqlite);
    let free = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = free.local_addr().expect("it has an address").to_string();
    drop(free);
    // Fewer stones than in the README, because the test binary is not optimised.
    let replacements = [("127.0.0.1:8700", address.as_str()), ("--stones 20000", "--stones 2000")];
    paste(&fixture, "## Sync a feed into a table\n", &replacements);
    for table in ["diamonds", "items"] {
        let text = format!("SELECT CAST(count(*) AS TEXT) FROM {table}");
        assert_eq!(fixture.sql(&text).expect("the table exists"), ["2000"], "{table}");
    }
}
