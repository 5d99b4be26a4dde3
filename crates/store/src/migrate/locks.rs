//! The table locks that the statements of a migration take on PostgreSQL.
//!
//! The modes are read from the text, because running the statements would take the locks. For a statement with several
//! forms the strongest mode is assumed. Reads are left out: they conflict only with [`LockMode::AccessExclusive`].

use std::iter::Peekable;
use std::str::CharIndices;

/// A table lock of PostgreSQL, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LockMode {
    RowExclusive,
    ShareUpdateExclusive,
    Share,
    ShareRowExclusive,
    AccessExclusive,
}

impl LockMode {
    /// The name in PostgreSQL's manual.
    pub fn name(self) -> &'static str {
        match self {
            Self::RowExclusive => "ROW EXCLUSIVE",
            Self::ShareUpdateExclusive => "SHARE UPDATE EXCLUSIVE",
            Self::Share => "SHARE",
            Self::ShareRowExclusive => "SHARE ROW EXCLUSIVE",
            Self::AccessExclusive => "ACCESS EXCLUSIVE",
        }
    }

    /// The statements of others that wait for the lock.
    pub fn blocks(self) -> &'static str {
        match self {
            Self::RowExclusive => "blocks neither reads nor writes",
            Self::ShareUpdateExclusive => "blocks vacuum and changes of the table",
            Self::Share | Self::ShareRowExclusive => "blocks writes",
            Self::AccessExclusive => "blocks reads and writes",
        }
    }
}

/// The locks of one SQL text.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Locks {
    /// Names as the text writes them, with the mode. A name may be that of an index.
    pub(super) tables: Vec<(String, LockMode)>,
    /// The beginnings of statements whose locks are unknown.
    pub(super) unknown: Vec<String>,
}

/// Reads the locks of a rendered SQL text.
pub(super) fn of(text: &str) -> Locks {
    let mut locks = Locks::default();
    for statement in statements(text) {
        if let Some(tables) = of_statement(&statement) {
            locks.tables.extend(tables);
        } else {
            let words: Vec<&str> = statement.split_whitespace().take(6).collect();
            locks.unknown.push(words.join(" "));
        }
    }
    locks
}

/// The locks of one statement, or `None` if they are unknown.
fn of_statement(statement: &str) -> Option<Vec<(String, LockMode)>> {
    let is_separator = |character: char| character.is_whitespace() || matches!(character, '(' | ')' | ',');
    let words: Vec<&str> = statement.split(is_separator).filter(|word| !word.is_empty()).collect();
    let upper: Vec<String> = words.iter().take(16).map(|word| word.to_uppercase()).collect();
    let kind: Vec<&str> = upper.iter().map(String::as_str).filter(|word| !is_modifier(word)).collect();
    let after = |word: &str| names_after(&words, word);
    let with = |names: Vec<String>, mode| names.into_iter().map(|name| (name, mode)).collect::<Vec<_>>();
    Some(match kind.as_slice() {
        ["CREATE", "TABLE", ..] => with(after("REFERENCES"), LockMode::ShareRowExclusive),
        ["CREATE", "INDEX", ..] => with(first(after("ON")), LockMode::Share),
        ["CREATE", "TRIGGER", ..] => with(first(after("ON")), LockMode::ShareRowExclusive),
        ["CREATE", "VIEW", ..] => with(first(after("VIEW")), LockMode::AccessExclusive),
        ["ALTER", "TABLE", ..] => {
            let mut tables = with(first(after("TABLE")), alter_mode(&words));
            tables.extend(with(after("REFERENCES"), LockMode::ShareRowExclusive));
            tables
        }
        ["DROP", "TABLE" | "INDEX" | "VIEW", ..] => with(dropped(&words), LockMode::AccessExclusive),
        ["DROP", "TRIGGER", ..] => with(first(after("ON")), LockMode::AccessExclusive),
        ["COMMENT", "ON", "TABLE" | "COLUMN", ..] => {
            let name = words.iter().find(|word| word.contains('.'))?;
            let table: Vec<&str> = name.split('.').take(2).collect();
            with(vec![table.join(".")], LockMode::ShareUpdateExclusive)
        }
        ["INSERT" | "UPDATE" | "DELETE" | "WITH", ..] => with(written(&words), LockMode::RowExclusive),
        ["DO", ..] => of_block(statement),
        [
            "CREATE" | "ALTER" | "DROP",
            "FUNCTION" | "PROCEDURE" | "DOMAIN" | "SEQUENCE" | "TYPE" | "SCHEMA",
            ..,
        ]
        | ["SET" | "SELECT" | "GRANT" | "REVOKE", ..] => Vec::new(),
        _ => return None,
    })
}

/// Words that do not change the kind of a statement.
fn is_modifier(word: &str) -> bool {
    matches!(word, "OR" | "REPLACE" | "UNIQUE" | "CONSTRAINT" | "UNLOGGED" | "MATERIALIZED")
}

fn first(names: Vec<String>) -> Vec<String> {
    names.into_iter().take(1).collect()
}

/// The names that follow a keyword, without `ONLY` and `IF (NOT) EXISTS`.
fn names_after(words: &[&str], keyword: &str) -> Vec<String> {
    let places = words.iter().enumerate().filter(|(_, word)| word.eq_ignore_ascii_case(keyword));
    let name = |place: usize| {
        let mut rest = words[place + 1..].iter();
        let skipped = |word: &&&str| {
            ["ONLY", "IF", "NOT", "EXISTS"].iter().any(|skipped| word.eq_ignore_ascii_case(skipped))
        };
        rest.find(|word| !skipped(word)).map(|word| (*word).to_owned())
    };
    places.filter_map(|(place, _)| name(place)).collect()
}

/// The strongest mode that the actions of an `ALTER TABLE` statement need.
fn alter_mode(words: &[&str]) -> LockMode {
    let has = |word: &str| words.iter().any(|known| known.eq_ignore_ascii_case(word));
    let is_only_validation = has("VALIDATE") && !["ADD", "DROP", "SET"].iter().any(|word| has(word));
    if is_only_validation { LockMode::ShareUpdateExclusive } else { LockMode::AccessExclusive }
}

/// The names in a `DROP` statement.
fn dropped(words: &[&str]) -> Vec<String> {
    words.iter().filter(|word| word.contains('.')).map(|word| (*word).to_owned()).collect()
}

/// The tables that a statement writes to.
fn written(words: &[&str]) -> Vec<String> {
    let at =
        |place: usize, word: &str| words.get(place).is_some_and(|known| known.eq_ignore_ascii_case(word));
    let mut tables = Vec::new();
    for place in 0..words.len() {
        let target = if (at(place, "INSERT") && at(place + 1, "INTO"))
            || (at(place, "DELETE") && at(place + 1, "FROM"))
        {
            place + 2
        } else if at(place, "UPDATE") && !(place > 0 && (at(place - 1, "DO") || at(place - 1, "FOR"))) {
            place + 1
        } else {
            continue;
        };
        let target = if at(target, "ONLY") { target + 1 } else { target };
        tables.extend(words.get(target).map(|name| (*name).to_owned()));
    }
    tables
}

/// The tables that a `DO` block names in quotes. A block that only creates triggers needs no stronger mode than those.
fn of_block(statement: &str) -> Vec<(String, LockMode)> {
    let upper = statement.to_uppercase();
    let is_stronger = ["ALTER TABLE", "DROP "].iter().any(|command| upper.contains(command));
    let mode = if is_stronger { LockMode::AccessExclusive } else { LockMode::ShareRowExclusive };
    let quoted = statement.split('\'').skip(1).step_by(2);
    let is_name = |text: &&str| {
        text.split('.').count() == 2
            && text
                .chars()
                .all(|character| character.is_ascii_alphanumeric() || matches!(character, '_' | '.'))
    };
    quoted.filter(is_name).map(|name| (name.to_owned(), mode)).collect()
}

/// Splits a text into statements without comments. Semicolons in quotes and in dollar quotes do not end a statement.
fn statements(text: &str) -> Vec<String> {
    let mut statements = vec![String::new()];
    let mut rest = text.char_indices().peekable();
    while let Some((at, character)) = rest.next() {
        let end = match character {
            '-' if text[at..].starts_with("--") => {
                skip_to(&mut rest, text[at..].find('\n').map_or(text.len(), |length| at + length));
                continue;
            }
            ';' => {
                statements.push(String::new());
                continue;
            }
            '\'' | '"' => text[at + 1..].find(character).map(|length| at + length + 2),
            '$' => dollar_quote(text, at),
            _ => Some(at + character.len_utf8()),
        };
        let end = end.unwrap_or(text.len());
        skip_to(&mut rest, end);
        if let Some(statement) = statements.last_mut() {
            statement.push_str(&text[at..end]);
        }
    }
    statements.retain(|statement| !statement.trim().is_empty());
    statements
}

fn skip_to(rest: &mut Peekable<CharIndices<'_>>, end: usize) {
    while rest.next_if(|(at, _)| *at < end).is_some() {}
}

/// The end of a dollar-quoted text that begins at `at`; the end of the `$` if none begins there.
fn dollar_quote(text: &str, at: usize) -> Option<usize> {
    let tag_length =
        text[at + 1..].find(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    let Some(tag_end) = tag_length.map(|length| at + 1 + length).filter(|end| text[*end..].starts_with('$'))
    else {
        return Some(at + 1);
    };
    let tag = &text[at..=tag_end];
    text[tag_end + 1..].find(tag).map(|length| tag_end + 1 + length + tag.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_take_the_locks_of_the_manual() {
        use LockMode::{AccessExclusive, RowExclusive, Share, ShareRowExclusive, ShareUpdateExclusive};
        for (text, expected) in [
            ("CREATE TABLE ops.a (b int REFERENCES ops.runs (id))", vec![("ops.runs", ShareRowExclusive)]),
            ("CREATE UNIQUE INDEX a ON ops.runs (b)", vec![("ops.runs", Share)]),
            ("CREATE INDEX IF NOT EXISTS a ON ONLY ops.runs (b)", vec![("ops.runs", Share)]),
            ("ALTER TABLE IF EXISTS ONLY ops.runs ADD COLUMN a int", vec![("ops.runs", AccessExclusive)]),
            ("alter table ops.runs VALIDATE CONSTRAINT a", vec![("ops.runs", ShareUpdateExclusive)]),
            ("CREATE OR REPLACE TRIGGER a AFTER UPDATE ON ops.runs", vec![("ops.runs", ShareRowExclusive)]),
            ("DROP TRIGGER IF EXISTS a ON ops.runs", vec![("ops.runs", AccessExclusive)]),
            ("DROP TABLE ops.a, ops.b", vec![("ops.a", AccessExclusive), ("ops.b", AccessExclusive)]),
            ("INSERT INTO ops.a SELECT 1 ON CONFLICT DO UPDATE SET b = 1", vec![("ops.a", RowExclusive)]),
            (
                "WITH c AS (DELETE FROM ops.a RETURNING b) UPDATE ops.d SET e = 1",
                vec![("ops.a", RowExclusive), ("ops.d", RowExclusive)],
            ),
            ("COMMENT ON COLUMN ops.runs.status IS 'x'", vec![("ops.runs", ShareUpdateExclusive)]),
            (
                "CREATE FUNCTION ops.f() RETURNS int LANGUAGE sql AS $a$ SELECT 1; DROP TABLE ops.x $a$",
                vec![],
            ),
        ] {
            let expected: Vec<(String, LockMode)> =
                expected.into_iter().map(|(name, mode)| (name.to_owned(), mode)).collect();
            assert_eq!(of(text), Locks { tables: expected, unknown: Vec::new() }, "{text}");
        }
        assert_eq!(of("VACUUM FULL ops.runs").unknown, ["VACUUM FULL ops.runs"]);
    }

    #[test]
    fn text_is_split_at_semicolons_outside_quotes() {
        let text = "SELECT ';'; -- a; b\nSELECT $x$;$$;$x$, $1; SELECT \"a;b\" ;\n";
        assert_eq!(
            statements(text).iter().map(|one| one.trim()).collect::<Vec<_>>(),
            ["SELECT ';'", "SELECT $x$;$$;$x$, $1", "SELECT \"a;b\""]
        );
    }
}
