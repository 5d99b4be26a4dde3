//! The README as a reader uses it: every command of its first sections is pasted, and does what is said.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tidemill_core::run::{EndCause, RunState};

use crate::graph::pasted::commands;
use crate::process::run_within;
use crate::stage::{Kind, Stage, TIDEMILL};

/// What the page says of a command that does not succeed.
const REFUSES: &str = "exits with 3";

/// Pastes the commands of a section into one shell, with other words in the place of some, and ends what it left
/// running.
fn paste(stage: &Stage, heading: &str, instead: &[(&str, &str)]) {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let commands = commands(&page, heading);
    assert!(commands.len() >= 6, "the section has commands: {commands:?}");
    let mut script = "set -euo pipefail\n".to_owned();
    for (command, shown) in commands {
        assert!(shown.is_empty(), "what `{command}` prints is compared by nobody: {shown:?}");
        let is_refused = command.contains(REFUSES);
        let command = instead.iter().fold(command, |text, (old, new)| text.replace(old, new));
        if is_refused {
            let _ = write!(script, "code=0\n{{ {command}\n}} || code=$?\n[ $code = 3 ]\n");
        } else {
            let _ = writeln!(script, "{command}");
        }
    }
    script.push_str("for left in $(jobs -p); do kill $left; done\nwait\n");
    let mut bash = Command::new("bash");
    stage.adopt(&mut bash);
    let binaries = PathBuf::from(TIDEMILL).parent().expect("the binary is in a folder").to_owned();
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap_or_default());
    bash.args(["-c", &script]).env("PATH", path).env("TIDEMILL_SERVER_LISTEN", "127.0.0.1:0");
    let ran = run_within(&mut bash, Duration::from_mins(3));
    assert_eq!(ran.code, Some(0), "{script}\n{ran:?}");
}

#[test]
fn two_minutes_on_sqlite_work_when_pasted() {
    let stage = Stage::bare(Kind::Sqlite);
    // The release binary is not built by a test.
    paste(&stage, "## Two minutes on SQLite\n", &[("$PWD/target/release:", "")]);
    let runs = stage.runs();
    let states: Vec<RunState> = runs.iter().map(|run| run.status).collect();
    assert_eq!(states[..2], [RunState::Success, RunState::Cancelled]);
    assert_eq!(runs[2].retry_of.as_ref(), Some(&runs[1].run_id), "the retry is a run of its own");
    assert_eq!(runs[1].end_cause, Some(EndCause::Cancelled));
}

#[test]
fn the_same_on_postgresql_works_when_pasted() {
    let stage = Stage::bare(Kind::Postgres);
    let psql = format!("psql '{}'", stage.url);
    let instead = [
        ("createdb tidemill_try", ":"),
        ("postgres:///tidemill_try", stage.url.as_str()),
        ("psql tidemill_try", psql.as_str()),
    ];
    paste(&stage, "## The same on PostgreSQL\n", &instead);
    let states: Vec<RunState> = stage.runs().iter().map(|run| run.status).collect();
    assert_eq!(states, [RunState::Success, RunState::Claimed], "the second one is claimed in SQL");
}

#[test]
fn a_feed_in_sync_works_when_pasted() {
    let stage = Stage::new(Kind::Sqlite);
    let free = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = free.local_addr().expect("it has an address").to_string();
    drop(free);
    // Fewer stones than on the page: a test is not optimised.
    let instead = [("127.0.0.1:8700", address.as_str()), ("--stones 20000", "--stones 2000")];
    paste(&stage, "## A feed in sync\n", &instead);
    let count = stage.sql("SELECT CAST(count(*) AS TEXT) FROM diamonds").expect("the table is there");
    assert_eq!(count, ["2000"]);
}
