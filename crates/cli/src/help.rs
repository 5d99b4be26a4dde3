//! The parser with the top-level help, which lists the commands in groups.
//!
//! clap has no groups of subcommands, so the list is part of the help template.

use crate::args::Arguments;
use clap::{CommandFactory as _, FromArgMatches as _};
use std::fmt::Write as _;

/// Headings of the top-level help, and the commands below each.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Getting started", &["demo", "up", "console", "migrate", "doctor"]),
    ("Runs", &["project", "run", "work", "schedule", "hook"]),
    ("Graphs", &["graph", "job", "agent", "controller", "pool", "flag", "prepare-for-reboot"]),
    ("Syncs", &["feed", "sync", "rule", "queue", "scheduler", "worker", "consolidator", "supplier"]),
    ("Server", &["server", "token", "audit", "alert"]),
    ("Operation", &["stats", "sweep", "backup", "roles", "health", "config", "completions", "man"]),
];

/// Parses the command line of this process.
pub(crate) fn parse() -> Result<Arguments, clap::Error> {
    let mut command = command();
    let mut matches = command.try_get_matches_from_mut(std::env::args_os())?;
    Arguments::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// Builds the parser with the grouped help.
fn command() -> clap::Command {
    let command = Arguments::command();
    let template = template(&command);
    command.help_template(template)
}

fn template(command: &clap::Command) -> String {
    let styles = clap::builder::Styles::styled();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let width = GROUPS.iter().flat_map(|(_, names)| *names).map(|name| name.len()).max().unwrap_or(0);
    let mut text = String::from("{about}\n\n{usage-heading} {usage}\n");
    for (group, names) in GROUPS {
        let _ = writeln!(text, "\n{header}{group}:{header:#}");
        for name in names {
            let about = command.find_subcommand(name).and_then(|command| command.get_about());
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {literal}{name:<width$}{literal:#}  {about}");
        }
    }
    let _ = write!(text, "\n{header}Global options:{header:#}\n{{options}}{{after-help}}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console_tests::shell_words;
    use clap::Parser as _;
    use std::collections::BTreeSet;

    /// Collects each command that can be executed without a subcommand.
    fn leaves(command: &clap::Command, path: &[String], found: &mut Vec<(Vec<String>, clap::Command)>) {
        for inner in command.get_subcommands() {
            let path = [path, &[inner.get_name().to_owned()]].concat();
            leaves(inner, &path, found);
            if !inner.has_subcommands() || !inner.is_subcommand_required_set() {
                found.push((path, inner.clone()));
            }
        }
    }

    fn examples(command: &clap::Command) -> Vec<String> {
        let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines = text.lines().filter_map(|line| line.strip_prefix("  "));
        lines.filter(|line| line.starts_with("tidemill ")).map(str::to_owned).collect()
    }

    #[test]
    fn every_command_stands_in_exactly_one_group() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        grouped.sort_unstable();
        let command = Arguments::command();
        let mut names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        names.sort_unstable();
        assert_eq!(grouped, names);
    }

    #[test]
    fn top_level_help_lists_groups_before_global_options() {
        let help = command().render_help().to_string();
        let mut last = 0;
        let headings = GROUPS.iter().map(|(group, _)| *group).chain(["Global options", "Exit codes"]);
        for heading in headings {
            let at = help.find(&format!("\n{heading}:")).unwrap_or_else(|| panic!("{heading}: {help}"));
            assert!(at > last, "{heading}: {help}");
            last = at;
        }
        assert_eq!(help.matches("--database").count(), 1, "{help}");
    }

    #[test]
    fn command_help_shows_global_options_last() {
        let help = Arguments::try_parse_from(["tidemill", "run", "cancel", "--help"]);
        let help = help.expect_err("help is printed").to_string();
        let (own, global) = help.split_once("Global options:").expect("the heading is there");
        assert!(own.contains("--reason") && own.contains("--help"), "{help}");
        let (global, _examples) = global.split_once("Example").expect("the example comes last");
        assert!(global.contains("--database") && !global.contains("--reason"), "{help}");
    }

    #[test]
    fn every_command_has_an_example_that_parses() {
        let mut found = Vec::new();
        leaves(&Arguments::command(), &[], &mut found);
        assert!(found.len() > 70, "{}", found.len());
        let mut lines = BTreeSet::new();
        for (path, command) in &found {
            let examples = examples(command);
            let start = format!("tidemill {}", path.join(" "));
            assert!((1..=2).contains(&examples.len()), "{start}: {examples:?}");
            // A redirection belongs to the shell.
            let commands = examples.iter().filter_map(|line| line.split(" > ").next());
            for example in commands.map(str::to_owned) {
                let is_own = example == start || example.starts_with(&format!("{start} "));
                assert!(is_own, "{start}: {example}");
                assert!(example.len() <= 98, "a help page would wrap it: {example}");
                lines.insert(example);
            }
        }
        for (example, words) in lines.iter().zip(shell_words(&lines)) {
            if let Err(error) = Arguments::try_parse_from(&words) {
                panic!("{example}: {error}");
            }
        }
    }
}
