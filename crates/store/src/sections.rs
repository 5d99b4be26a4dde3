//! The SQL files of the crate, read as named sections.
//!
//! A line `-- name: run_get` begins a statement, and `-- fragment: run_columns` a piece of SQL that others include as
//! `{run_columns}`. Where the databases differ, a section stands once for each, as `-- name: run_lock (postgres)` and
//! `-- name: run_lock (sqlite)`. Comments are not sent to the database.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Where a section is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Both,
    Postgres,
    Sqlite,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Statement,
    Fragment,
}

#[derive(Debug)]
struct Section {
    kind: Kind,
    name: &'static str,
    dialect: Dialect,
    text: &'static str,
}

/// The sections of one database, by name.
pub(crate) struct Sections {
    statements: HashMap<&'static str, String>,
    fragments: HashMap<&'static str, String>,
}

/// The files whose sections are for both databases, unless a section says otherwise.
const SHARED: &[&str] = &[
    include_str!("../sql/access.sql"),
    include_str!("../sql/agent.sql"),
    include_str!("../sql/alert.sql"),
    include_str!("../sql/audit.sql"),
    include_str!("../sql/diamond.sql"),
    include_str!("../sql/event.sql"),
    include_str!("../sql/feed.sql"),
    include_str!("../sql/feed_record.sql"),
    include_str!("../sql/graph.sql"),
    include_str!("../sql/job.sql"),
    include_str!("../sql/message.sql"),
    include_str!("../sql/output.sql"),
    include_str!("../sql/page.sql"),
    include_str!("../sql/partition.sql"),
    include_str!("../sql/project.sql"),
    include_str!("../sql/prune.sql"),
    include_str!("../sql/record.sql"),
    include_str!("../sql/reject.sql"),
    include_str!("../sql/rule.sql"),
    include_str!("../sql/run.sql"),
    include_str!("../sql/run_list.sql"),
    include_str!("../sql/schedule.sql"),
    include_str!("../sql/stats.sql"),
    include_str!("../sql/sync.sql"),
    include_str!("../sql/task.sql"),
    include_str!("../sql/why.sql"),
    include_str!("../sql/worker.sql"),
];

/// The fragments of the functions on PostgreSQL.
const POSTGRES: &[&str] = &[include_str!("../sql/kernel/postgres/conditions.sql")];

/// The statements of the verbs and the triggers on SQLite.
const SQLITE: &[&str] = &[
    include_str!("../sql/kernel/sqlite/append_event.sql"),
    include_str!("../sql/kernel/sqlite/cancel.sql"),
    include_str!("../sql/kernel/sqlite/claim.sql"),
    include_str!("../sql/kernel/sqlite/concurrency_keys.sql"),
    include_str!("../sql/kernel/sqlite/conditions.sql"),
    include_str!("../sql/kernel/sqlite/finish.sql"),
    include_str!("../sql/kernel/sqlite/guards.sql"),
    include_str!("../sql/kernel/sqlite/heartbeat.sql"),
    include_str!("../sql/kernel/sqlite/queue.sql"),
    include_str!("../sql/kernel/sqlite/queue_many.sql"),
    include_str!("../sql/kernel/sqlite/run_by_hand.sql"),
    include_str!("../sql/kernel/sqlite/run_events.sql"),
    include_str!("../sql/kernel/sqlite/run_lists.sql"),
    include_str!("../sql/kernel/sqlite/sweep.sql"),
    include_str!("../sql/kernel/sqlite/work_left.sql"),
];

/// The triggers of SQLite, in the order in which they are created. Their comments stay in the database.
pub(crate) const SQLITE_TRIGGERS: &[&str] = &[
    "guards_triggers",
    "run_by_hand_triggers",
    "concurrency_keys_triggers",
    "run_events_triggers",
    "run_lists_triggers",
];

static FOR_POSTGRES: LazyLock<Sections> = LazyLock::new(|| Sections::of(Dialect::Postgres));
static FOR_SQLITE: LazyLock<Sections> = LazyLock::new(|| Sections::of(Dialect::Sqlite));

impl Sections {
    pub(crate) fn postgres() -> &'static Self {
        &FOR_POSTGRES
    }

    pub(crate) fn sqlite() -> &'static Self {
        &FOR_SQLITE
    }

    /// The text of a statement. Empty if there is none of this name, which a test excludes.
    pub(crate) fn statement(&self, name: &str) -> &str {
        self.statements.get(name).map_or("", String::as_str)
    }

    pub(crate) fn fragment(&self, name: &str) -> Option<&str> {
        self.fragments.get(name).map(String::as_str)
    }

    fn of(dialect: Dialect) -> Self {
        let mut sections = Self { statements: HashMap::new(), fragments: HashMap::new() };
        for section in all().into_iter().filter(|section| [Dialect::Both, dialect].contains(&section.dialect))
        {
            let text = if SQLITE_TRIGGERS.contains(&section.name) {
                section.text.trim().to_owned()
            } else {
                without_comments(section.text)
            };
            let texts = match section.kind {
                Kind::Statement => &mut sections.statements,
                Kind::Fragment => &mut sections.fragments,
            };
            texts.insert(section.name, text);
        }
        sections
    }
}

fn all() -> Vec<Section> {
    let files = [(SHARED, Dialect::Both), (POSTGRES, Dialect::Postgres), (SQLITE, Dialect::Sqlite)];
    let files = files.into_iter().flat_map(|(files, dialect)| files.iter().map(move |text| (*text, dialect)));
    files.flat_map(|(text, dialect)| parse(text, dialect)).collect()
}

/// Splits a file at the lines that name a section. Text before the first one is a comment on the file.
fn parse(text: &'static str, dialect: Dialect) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let end = at + line.len();
        if let Some(section) = heading(line.trim_end(), dialect, &text[end..]) {
            if let Some(before) = sections.last_mut() {
                before.text = &before.text[..before.text.len() - text[at..].len()];
            }
            sections.push(section);
        }
        at = end;
    }
    sections
}

fn heading(line: &'static str, dialect: Dialect, text: &'static str) -> Option<Section> {
    let (kind, name) = match line.strip_prefix("-- name: ") {
        Some(name) => (Kind::Statement, name),
        None => (Kind::Fragment, line.strip_prefix("-- fragment: ")?),
    };
    let (name, dialect) = match name.split_once(' ') {
        Some((name, "(postgres)")) => (name, Dialect::Postgres),
        Some((name, "(sqlite)")) => (name, Dialect::Sqlite),
        _ => (name, dialect),
    };
    Some(Section { kind, name, dialect, text })
}

fn without_comments(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("--"));
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;
    use std::collections::HashSet;

    #[test]
    fn sections_are_split_and_comments_are_dropped() {
        let text = "-- A file.\n\n-- name: one\n-- Why.\nSELECT 1\n -- why\n  + 2\n\n-- name: two (sqlite)\nSELECT 2\n\
                    -- fragment: part\na, b\n";
        let sections = parse(text, Dialect::Both);
        let found: Vec<_> = sections
            .iter()
            .map(|section| (section.kind, section.name, section.dialect, without_comments(section.text)))
            .collect();
        assert_eq!(
            found,
            [
                (Kind::Statement, "one", Dialect::Both, "SELECT 1\n  + 2".to_owned()),
                (Kind::Statement, "two", Dialect::Sqlite, "SELECT 2".to_owned()),
                (Kind::Fragment, "part", Dialect::Both, "a, b".to_owned()),
            ]
        );
    }

    #[test]
    fn every_section_has_one_text_per_database() {
        let mut seen = HashSet::new();
        for section in all() {
            let databases: &[Dialect] = match section.dialect {
                Dialect::Both => &[Dialect::Postgres, Dialect::Sqlite],
                Dialect::Postgres => &[Dialect::Postgres],
                Dialect::Sqlite => &[Dialect::Sqlite],
            };
            for database in databases {
                let key = (section.kind == Kind::Fragment, section.name, format!("{database:?}"));
                assert!(seen.insert(key), "{} has two texts for {database:?}", section.name);
            }
            assert!(!without_comments(section.text).is_empty(), "{} is empty", section.name);
        }
    }

    #[test]
    fn every_statement_is_in_the_catalog_for_its_databases() {
        let mut expected: HashSet<(String, &str)> = HashSet::new();
        for (name, dialect) in catalog::NAMES {
            if *dialect != Dialect::Sqlite {
                expected.insert((name.to_lowercase(), "postgres"));
            }
            if *dialect != Dialect::Postgres {
                expected.insert((name.to_lowercase(), "sqlite"));
            }
        }
        let triggers = SQLITE_TRIGGERS.iter().map(|name| ((*name).to_owned(), "sqlite"));
        expected.extend(triggers);
        let of = |sections: &'static Sections, dialect| {
            sections.statements.keys().map(move |name| ((*name).to_owned(), dialect))
        };
        let found: HashSet<_> =
            of(Sections::postgres(), "postgres").chain(of(Sections::sqlite(), "sqlite")).collect();
        let missing: Vec<_> = expected.difference(&found).collect();
        let unused: Vec<_> = found.difference(&expected).collect();
        assert!(missing.is_empty(), "statements without a section: {missing:?}");
        assert!(unused.is_empty(), "sections without a statement: {unused:?}");
    }

    #[test]
    fn every_fragment_is_included_by_a_text_of_its_database() {
        let kernel = crate::migrate::POSTGRES_CODE.join("\n");
        for (sections, other) in [(Sections::postgres(), kernel.as_str()), (Sections::sqlite(), "")] {
            for name in sections.fragments.keys() {
                let token = format!("{{{name}}}");
                let mut texts = sections.statements.values().chain(sections.fragments.values());
                assert!(
                    other.contains(&token) || texts.any(|text| text.contains(&token)),
                    "{name} is unused"
                );
            }
        }
    }
}
