//! Tests that the commands of the README and of the guides work when pasted.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tidemill_core::run::{EndCause, RunState};
use tidemill_testkit::cluster::{Database, server_url};

use crate::fixture::{Fixture, Kind, TIDEMILL};
use crate::graph::doc_commands::commands;
use crate::process::run_within;

const START: &str = "docs/getting-started.md";

const README_SECTIONS: [&str; 3] =
    ["## Run work\n", "## Sync a feed into a table\n", "## Run a graph of jobs\n"];

/// Text of a page for a command that is refused.
const REFUSES: &str = "exits with 3";

/// Runs the commands of some sections of a page in one shell, with replacements, and stops its background processes.
fn paste(fixture: &Fixture, page: &str, headings: &[&str], replacements: &[(&str, &str)]) {
    run_script(fixture, &script(page, headings, replacements), "127.0.0.1:0");
}

/// Returns the commands of some sections of a page as a script, with replacements.
pub(super) fn script(page: &str, headings: &[&str], replacements: &[(&str, &str)]) -> String {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let page = std::fs::read_to_string(page).expect("the page exists");
    let commands: Vec<_> = headings.iter().flat_map(|heading| commands(&page, heading)).collect();
    assert!(commands.len() >= 5, "the sections have commands: {commands:?}");
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
    script
}

/// Runs a script, which must succeed, with a server at this address, and stops its background processes.
pub(super) fn run_script(fixture: &Fixture, script: &str, listen: &str) {
    let script = format!("{script}for left in $(jobs -p); do kill $left || true; done\nwait\n");
    let mut bash = Command::new("bash");
    fixture.prepare(&mut bash);
    let binaries = PathBuf::from(TIDEMILL).parent().expect("the binary is in a directory").to_owned();
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap_or_default());
    bash.args(["-c", &script]).env("PATH", path).env("TIDEMILL_SERVER_LISTEN", listen);
    let ran = run_within(&mut bash, Duration::from_mins(3));
    assert_eq!(ran.code, Some(0), "{script}\n{ran:?}");
}

/// Returns an address on this machine that nothing listens on.
pub(super) fn free_address() -> String {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    free.local_addr().expect("it has an address").to_string()
}

#[test]
fn getting_started_on_sqlite_works_when_pasted() {
    let fixture = Fixture::bare(Kind::Sqlite);
    paste(&fixture, START, &["## On SQLite\n"], &[]);
    let runs = fixture.runs();
    let states: Vec<RunState> = runs.iter().map(|run| run.status).collect();
    assert_eq!(states[..2], [RunState::Success, RunState::Cancelled]);
    assert_eq!(runs[2].retry_of.as_ref(), Some(&runs[1].run_id), "the retry is a run of its own");
    assert_eq!(runs[1].end_cause, Some(EndCause::Cancelled));
}

#[test]
fn getting_started_with_a_graph_and_a_feed_works_when_pasted() {
    let fixture = Fixture::bare(Kind::Sqlite);
    let address = free_address();
    let headings = ["## On SQLite\n", "## A graph and a feed\n"];
    paste(&fixture, START, &headings, &[("127.0.0.1:8700", &address)]);
    assert_eq!(fixture.sql("SELECT CAST(count(*) AS TEXT) FROM items").expect("the table exists"), ["320"]);
    let ended = fixture.runs().iter().filter(|run| run.status == RunState::Success).count();
    assert_eq!(ended, 3, "one run, the graph and the sync succeeded");
}

#[test]
fn getting_started_on_postgresql_works_when_pasted() {
    let fixture = Fixture::bare(Kind::Postgres);
    let psql = format!("psql '{}'", fixture.url);
    let replacements = [
        ("createdb tidemill_try", ":"),
        ("postgres:///tidemill_try", fixture.url.as_str()),
        ("psql tidemill_try", psql.as_str()),
    ];
    paste(&fixture, START, &["## On PostgreSQL\n"], &replacements);
    let states: Vec<RunState> = fixture.runs().iter().map(|run| run.status).collect();
    assert_eq!(states, [RunState::Success, RunState::Claimed], "the second one is claimed in SQL");
}

/// The sections follow each other in one empty folder, as a reader pastes them.
#[test]
fn readme_works_when_pasted_from_top_to_bottom() {
    let fixture = Fixture::bare(Kind::Sqlite);
    let address = free_address();
    // Fewer stones than in the README, because the test binary is not optimised.
    let replacements = [("127.0.0.1:8700", address.as_str()), ("--stones 20000", "--stones 2000")];
    paste(&fixture, "README.md", &README_SECTIONS, &replacements);
    for table in ["diamonds", "items"] {
        let text = format!("SELECT CAST(count(*) AS TEXT) FROM {table}");
        assert_eq!(fixture.sql(&text).expect("the table exists"), ["2000"], "{table}");
    }
    let states: Vec<RunState> = fixture.runs().iter().map(|run| run.status).collect();
    assert_eq!(states, [RunState::Success; 4], "one run, two syncs and one graph");
}

/// The list of pasted sections has the order of the README, and names each section with commands but the installation.
#[test]
fn readme_sections_are_all_pasted_in_their_order() {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let page = std::fs::read_to_string(page).expect("the README exists");
    let with_commands = page.split("\n## ").skip(1).filter(|section| section.contains("```console\n"));
    let headings: Vec<String> = with_commands
        .filter_map(|section| section.lines().next())
        .filter(|heading| *heading != "Install")
        .map(|heading| format!("## {heading}\n"))
        .collect();
    assert_eq!(headings, README_SECTIONS);
}

#[test]
fn guide_of_runs_works_when_pasted() {
    let fixture = Fixture::bare(Kind::Sqlite);
    let headings = ["## Queue\n", "## Work\n", "## Ask why\n", "## Schedules and pauses\n"];
    paste(&fixture, "docs/runs.md", &headings, &[]);
    let states: Vec<RunState> = fixture.runs().iter().map(|run| run.status).collect();
    assert_eq!(states, [RunState::Success, RunState::Cancelled], "the repeated key queued nothing");
}

#[test]
fn operations_on_sqlite_work_when_pasted() {
    let fixture = Fixture::bare(Kind::Sqlite);
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md");
    let page = std::fs::read_to_string(page).expect("the page exists");
    // The copy of PostgreSQL needs PostgreSQL; another test pastes it.
    let (before, rest) = page.split_once("PostgreSQL: use the backups").expect("the part exists");
    let (_, after) = rest.split_once("`public` is the schema").expect("the part exists");
    let shortened = fixture.write("operations.md", &format!("{before}\n{after}"));
    paste(&fixture, &shortened.display().to_string(), &["## Backup and restore\n"], &[]);
    let plan = commands(&page, "## Upgrade and rollback\n");
    assert_eq!(plan.len(), 1, "{plan:?}");
    assert!(fixture.ok(&["migrate", "--plan"]).contains("migrate changes nothing"));
}

/// The dump restores a schema with a run, and the restored copy is a working database.
#[test]
fn dump_of_postgresql_restores_when_pasted() {
    let fixture = Fixture::new(Kind::Postgres);
    let run = fixture.queue(&[]);
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md");
    let page = std::fs::read_to_string(page).expect("the page exists");
    let dump: Vec<String> =
        commands(&page, "For a copy of Tidemill alone:").into_iter().map(|one| one.0).collect();
    let copy = Database::create(&server_url().expect("there is a server")).expect("a database is created");
    let script = format!("set -eu\n{}", dump[..3].join("\n"))
        .replace("createdb tidemill_restored", ":")
        .replace("--dbname tidemill_restored", &format!("--dbname '{}'", copy.url));
    let mut bash = Command::new("bash");
    fixture.prepare(&mut bash);
    let ran =
        run_within(bash.args(["-c", &script]).env("TIDEMILL_DATABASE", &fixture.url), Duration::from_mins(2));
    assert_eq!(ran.code, Some(0), "{script}\n{ran:?}");
    let restored = fixture.ok(&["--database", &copy.url, "run", "show", run.as_str()]);
    assert!(restored.contains("queued"), "{restored}");
    fixture.ok(&["--database", &copy.url, "work", "--drain", "--", "true"]);
    assert!(fixture.ok(&["--database", &copy.url, "migrate", "--plan"]).contains("changes nothing"));
}
