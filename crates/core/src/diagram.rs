//! Pictures and guards that are made from the lifecycles, so that they cannot disagree with them.

use crate::run::{self, RunEvent, RunState};
use std::fmt::Write as _;

/// The files that are made from code: path from the root of the repository, and contents.
pub fn generated() -> Vec<(&'static str, String)> {
    vec![("docs/states/run.md", run_states())]
}

/// The lifecycle of a run as Mermaid, with a table of what happens.
fn run_states() -> String {
    let mut text = String::from(
        "# The life of a run\n\nMade by `cargo xtask generate` from `crates/core/src/run.rs`. Do not edit.\n\n\
         ```mermaid\nstateDiagram-v2\n    [*] --> queued\n",
    );
    for &from in RunState::ALL {
        for &to in RunState::ALL {
            let events: Vec<_> = RunEvent::ALL
                .iter()
                .filter(|&&event| run::next(from, event) == Some(to))
                .map(|event| event.as_str())
                .collect();
            if !events.is_empty() {
                let _ = writeln!(text, "    {from} --> {to}: {}", events.join(" / "));
            }
        }
    }
    for &state in RunState::ALL {
        if state.is_terminal() {
            let _ = writeln!(text, "    {state} --> [*]");
        }
    }
    text.push_str("```\n\n| from | event | to |\n|---|---|---|\n");
    for &from in RunState::ALL {
        for &event in RunEvent::ALL {
            if let Some(to) = run::next(from, event) {
                let _ = writeln!(text, "| {from} | {event} | {to} |");
            }
        }
    }
    text
}

/// The legal changes of a run's state as a list of SQL row values: `('queued', 'claimed'), …`.
pub fn run_pairs_sql() -> String {
    let pairs = run::pairs();
    pairs.iter().map(|(from, to)| format!("('{from}', '{to}')")).collect::<Vec<_>>().join(", ")
}

/// The states that nothing leaves as a list of SQL literals: `'success', …`.
pub fn run_terminal_sql() -> String {
    let terminal = RunState::ALL.iter().filter(|state| state.is_terminal());
    terminal.map(|state| format!("'{state}'")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guards_name_every_arrow_once() {
        assert_eq!(
            run_pairs_sql(),
            "('queued', 'claimed'), ('queued', 'cancelled'), ('claimed', 'running'), ('claimed', 'cancelled'), \
             ('running', 'success'), ('running', 'failed'), ('running', 'cancelled')"
        );
        assert_eq!(run_terminal_sql(), "'success', 'failed', 'cancelled'");
    }
}
