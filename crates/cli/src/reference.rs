//! The reference pages of the command line and of the configuration, generated from their definitions.
//!
//! `cargo xtask generate` runs the tests with [`WRITE`] set. Then they write the pages instead of comparing them.

use crate::args::Arguments;
use crate::config::alerts::TargetKey;
use crate::config::{self, Config, Key};
use clap::CommandFactory as _;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Variable that makes the tests write the pages.
const WRITE: &str = "TIDEMILL_WRITE_REFERENCE";
/// Width of the help texts.
const WIDTH: usize = 100;

/// Compares a page with its file, or writes the file.
fn check(name: &str, page: &str) {
    // Help texts have spaces on empty lines.
    let page = page.lines().map(|line| line.trim_end().to_owned() + "\n").collect::<String>();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == page, "docs/reference/{name} is not up to date; run `cargo xtask generate`");
}

/// Hides the values of environment variables, which differ between machines.
fn without_values(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|argument| argument.hide_env_values(true)).term_width(WIDTH);
    command.mut_subcommands(without_values)
}

fn command_page() -> String {
    let mut root = without_values(Arguments::command());
    root.build();
    let mut page = String::from(
        "# Command reference\n\nThis page is generated from the command line of the program. `tidemill COMMAND --help` \
         prints the same texts.\n\n## Global options\n\nEvery command has these options.\n\n",
    );
    let help = root.render_long_help().to_string();
    let globals = help.split_once("Global options:\n").map_or("", |(_, rest)| rest);
    let _ = writeln!(page, "```text\n{}\n```", globals.trim_end());
    for command in root.get_subcommands_mut().filter(|command| command.get_name() != "help") {
        add_command(&mut page, command, "tidemill", 2);
    }
    page
}

fn add_command(page: &mut String, command: &mut clap::Command, parent: &str, level: usize) {
    let name = format!("{parent} {}", command.get_name());
    let help = command.render_long_help().to_string();
    let _ = write!(page, "\n{} {name}\n\n```text\n{}\n```\n", "#".repeat(level), without_globals(&help));
    for inner in command.get_subcommands_mut().filter(|inner| inner.get_name() != "help") {
        add_command(page, inner, &name, (level + 1).min(4));
    }
}

/// Removes the global options, which stand once at the top of the page.
fn without_globals(help: &str) -> String {
    let Some((before, rest)) = help.split_once("Global options:\n") else {
        return help.trim_end().to_owned();
    };
    // Indented lines belong to the options; the next line without indentation is a heading.
    let kept: Vec<&str> = rest.lines().skip_while(|line| line.is_empty() || line.starts_with(' ')).collect();
    format!("{before}{}", kept.join("\n")).trim_end().to_owned()
}

fn configuration_page() -> String {
    let mut page = String::from(
        "# Configuration reference\n\nThis page is generated from the configuration keys of the program. The file \
         is `tidemill.toml` in the current directory, or the file of `--config`. Command-line options override \
         environment variables, which override the file, which overrides the defaults. `tidemill config check` \
         reports every error.\n\n\
         Durations are written as `500ms`, `5s`, `10m`, `2h` or `7d`.\n",
    );
    let default = Config::default();
    let mut section = "";
    for key in config::keys() {
        let (own, _) = key.path.split_once('.').unwrap_or(("", key.path));
        if own != section {
            section = own;
            let _ = write!(page, "\n## {section}\n");
        }
        let Key { path, doc, .. } = key;
        let variable = crate::environment::variable_name(path);
        let _ = write!(page, "\n### {path}\n\n{doc}\n\n- Default: `{}`\n", (key.show)(&default));
        if let Some(bounds) = bounds(key) {
            let _ = writeln!(page, "- Allowed: {bounds}");
        }
        let _ = writeln!(page, "- Environment variable: `{variable}`");
    }
    page.push_str(
        "\n## Sections with names\n\n`[reach.project.NAME]` has the keys of `[reach]` for one project; see \
         [security](../security.md). `[[alerts.targets]]` describes a target of alerts; see [webhooks and \
         alerts](../webhooks-and-alerts.md). It can only be set in the file, and has these keys:\n\n\
         | key | of targets | default | meaning |\n|---|---|---|---|\n",
    );
    for TargetKey { name, kinds, default, doc } in config::alerts::KEYS {
        let _ = writeln!(page, "| `{name}` | {kinds} | {default} | {doc} |");
    }
    page
}

/// The allowed values of a key, as its parser describes them when it refuses a value.
fn bounds(key: &Key) -> Option<String> {
    // Invalid samples: a number and a duration out of every range, and a text that is neither.
    ["99999999999", "99999999d", "\u{1}"].iter().find_map(|value| {
        let refusal = (key.set)(&mut Config::default(), value).err()?;
        refusal.strip_prefix("it must be ").map(str::to_owned)
    })
}

#[test]
fn command_reference_is_up_to_date() {
    let page = command_page();
    for name in ["## tidemill migrate", "### tidemill run queue", "#### tidemill queue replay"] {
        assert!(page.contains(name.trim_start_matches('#')), "{name}");
    }
    assert!(page.contains("--plan") && page.contains("Exit codes: 0 success"));
    check("cli.md", &page);
}

#[test]
fn configuration_reference_is_up_to_date() {
    let page = configuration_page();
    assert!(page.contains("- Allowed: a number between 1 and 256"), "worker.slots");
    assert!(page.contains("- Allowed: between 100ms and 10s"), "worker.beat");
    assert!(page.contains("- Allowed: session or transaction"), "database.pooler");
    check("configuration.md", &page);
}

/// Pages whose commands must parse: the README and all guides.
fn guides() -> Vec<(String, String)> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths = vec![root.join("README.md")];
    let pages = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    paths.extend(pages.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    paths.sort();
    let read = |path: PathBuf| (path.display().to_string(), std::fs::read_to_string(&path).unwrap());
    paths.into_iter().map(read).collect()
}

/// The commands of this program in the console blocks of a page, without pipes, redirections and comments.
fn commands_of(page: &str) -> Vec<String> {
    let mut commands = Vec::new();
    for block in page.split("```console\n").skip(1).filter_map(|rest| rest.split("\n```").next()) {
        let block = block.replace("\\\n", " ");
        // `#` is the prompt of root.
        let prompted = |line| str::strip_prefix(line, "$ ").or_else(|| str::strip_prefix(line, "# "));
        for line in block.lines().filter_map(prompted) {
            let line = line.strip_prefix("runuser -u tidemill -- ").unwrap_or(line);
            // The name can also be an argument, as of `install`.
            let Some(at) = line.find("tidemill ").filter(|at| is_command_position(&line[..*at])) else {
                continue;
            };
            // A worker's own command follows `--`.
            let text = line[at..].split(" -- ").next().unwrap_or_default();
            // Commands with a nested command are skipped: its output is known only when the page is tested.
            if !text.contains("$(") {
                commands.push(before_operator(text).trim().to_owned());
            }
        }
    }
    commands
}

/// Whether a command follows this beginning of a shell line.
fn is_command_position(before: &str) -> bool {
    before.is_empty() || ["$(", "&& ", "; ", "| ", "{ ", "until "].iter().any(|end| before.ends_with(end))
}

/// The part of a shell line before a comment, a pipe or another operator outside of quotes.
fn before_operator(line: &str) -> &str {
    let mut quote = None;
    let mut before = ' ';
    for (at, character) in line.char_indices() {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (None, '\'' | '"') => quote = Some(character),
            (None, '|' | '&' | '>' | '<' | ')' | ';') => return &line[..at],
            (None, '#') if before == ' ' => return &line[..at],
            (Some(_) | None, _) => {}
        }
        before = character;
    }
    line
}

#[test]
fn commands_of_the_guides_parse() {
    let mut checked = 0;
    for (page, text) in guides() {
        let commands = commands_of(&text);
        // The values of variables do not matter here, but they must be there.
        let filled: std::collections::BTreeSet<String> =
            commands.iter().map(|command| command.replace("\"$run\"", "$run").replace("$run", RUN)).collect();
        for (command, words) in filled.iter().zip(crate::console_tests::shell_words(&filled)) {
            // `work` needs the command that was cut off.
            let ending: &[&str] =
                if format!("{command} ").starts_with("tidemill work ") { &["--", "true"] } else { &[] };
            let words = words.into_iter().chain(ending.iter().map(|word| (*word).to_owned()));
            if let Err(error) = <Arguments as clap::Parser>::try_parse_from(words) {
                panic!("{page}: {command}: {error}");
            }
            checked += 1;
        }
    }
    assert!(checked > 80, "only {checked} commands");
}

/// A run id for the variable `run` of the guides.
const RUN: &str = "run-018f3c5e-0000-7000-8000-000000000000";
