//! Texts with terminal codes and bidirectional controls: commands show them as escapes.

use std::process::Command;

use super::fixture::{Fixture, Kind, TIDEMILL, on_both};
use crate::graph::fixture::GraphFixture;
use crate::process::run;
use tidemill_core::run::{QueueRun, RunState};

on_both!(texts_of_feeds_and_runs_cannot_control_the_terminal);

/// Clears the screen, reverses the writing direction, and adds a line.
const HOSTILE: &str = "a\u{1b}[2J\u{9b}31m\u{202e}b\u{2066}c\u{200f}\r\nd\u{2028}\u{7}";
const ESCAPED: &str = r"a\u{1b}[2J\u{9b}31m\u{202e}b\u{2066}c\u{200f}\r\nd\u{2028}\u{7}";

fn assert_clean(page: &str) {
    let is_bad = |symbol: char| symbol != '\n' && tidemill_core::text::is_hidden(symbol);
    assert!(!page.contains(is_bad), "{page:?}");
}

fn texts_of_feeds_and_runs_cannot_control_the_terminal(fixture: &Fixture) {
    let account = ["--endpoint", "http://127.0.0.1:9/", "--username", HOSTILE, "--password-env", "USER"];
    let added = fixture.tidemill(&[&["feed", "add", "stones"], &account[..]].concat());
    assert_eq!(added.code, Some(0), "{added:?}");
    fixture.ok(&["feed", "pause", "stones", "--note", HOSTILE]);
    let metadata = serde_json::json!({"note": HOSTILE});
    let run = fixture.request(QueueRun { metadata, ..QueueRun::new("shop", "staging") });
    let script = format!("printf '%s' '{}'; exit 3", HOSTILE.replace('\n', " "));
    fixture.ok(&["work", "--drain", "--", "sh", "-c", &script]);
    assert_eq!(fixture.wait_for_end(&run).status, RunState::Failed);
    let cancelled = fixture.queue(&[]);
    fixture.ok(&["run", "cancel", cancelled.as_str(), "--reason", HOSTILE]);
    let mut pages = Vec::new();
    for words in [
        &["feed", "show", "stones"][..],
        &["feed", "list"],
        &["flag", "list"],
        &["run", "list"],
        &["run", "show", run.as_str()],
        &["run", "events", run.as_str()],
        &["run", "why", run.as_str()],
        &["run", "watch", run.as_str()],
        &["run", "show", cancelled.as_str()],
        &["run", "events", cancelled.as_str()],
        &["run", "why", cancelled.as_str()],
    ] {
        let page = fixture.tidemill(words);
        assert_clean(&page.stdout);
        assert_clean(&page.stderr);
        pages.push(page.stdout);
    }
    assert!(pages[0].contains(ESCAPED), "{}", pages[0]);
    assert!(pages[5].contains(r"a\u{1b}[2J\u{9b}31m\u{202e}b"), "{}", pages[5]);
    // JSON is exact.
    let feed = fixture.json(&["feed", "show", "stones"]);
    assert_eq!(feed["feed"]["username"], HOSTILE);
    // Names and git refs cannot contain control characters at all.
    let refused =
        fixture.tidemill(&["run", "queue", "--project", "shop", "--env", "staging", "--git-ref", "a\nb"]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(
        refused.stderr.contains("git ref contains the control character U+000A; remove it"),
        "{refused:?}"
    );
}

#[test]
fn graph_logs_are_escaped_on_a_terminal_only() {
    let fixture = Fixture::new(Kind::Sqlite);
    let graphs = GraphFixture::start(&fixture);
    let _agent = graphs.agent("ann", &[]);
    let text = r#"{"version": 1, "jobs": {"only": {"run": "printf 'red \\033[31m text\\n'"}}}"#;
    let id = graphs.submit(text);
    assert_eq!(graphs.wait_for_end(&id), RunState::Success);
    let piped = fixture.ok(&["graph", "logs", id.as_str(), "only"]);
    assert_eq!(piped, "red \u{1b}[31m text\n");
    let mut command = Command::new("script");
    fixture.prepare(&mut command);
    let words = format!("'{TIDEMILL}' graph logs {id}");
    command.args(["--quiet", "--return", "--command", &words, "/dev/null"]);
    let command = command.env("TIDEMILL_DATABASE", &fixture.url).env("TERM", "xterm").env("NO_COLOR", "1");
    let shown = run(command).ok();
    assert_eq!(shown.trim(), r"only | red \u{1b}[31m text");
}
