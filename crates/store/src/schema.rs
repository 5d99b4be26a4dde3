//! The names of the database schemas, and the names and numbers that are put into SQL texts.

use crate::roles::CLOCK_ROLE;
use crate::sections::Sections;
use tidemill_core::feed::RawTable;
use tidemill_core::sync::SYNC_LABEL;
use tidemill_core::{diagram, limits};

/// The kind of pooler between Tidemill and PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pooler {
    /// No pooler, or one that keeps sessions.
    #[default]
    Session,
    /// A pooler that keeps only transactions: prepared statements have no names, and LISTEN does not work.
    Transaction,
}

/// The location of the tables: schemas of PostgreSQL, or the one file of SQLite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    name: Option<String>,
    /// The schema of the sync tables, which operators know by name.
    sync: Option<String>,
}

/// The default schema of the sync tables.
pub(crate) const SYNC_SCHEMA: &str = "public";

impl Schema {
    /// Creates the location of a PostgreSQL schema.
    ///
    /// SQL texts contain the name without quotes, so only lower-case letters, digits and underscores are accepted.
    pub fn postgres(name: &str) -> Result<Self, crate::Error> {
        check_plain(name)?;
        Ok(Self { name: Some(name.to_owned()), sync: Some(SYNC_SCHEMA.to_owned()) })
    }

    /// Puts the sync tables into another schema.
    pub fn with_sync(mut self, sync: &str) -> Result<Self, crate::Error> {
        check_plain(sync)?;
        self.sync = Some(sync.to_owned());
        Ok(self)
    }

    pub(crate) fn sqlite() -> Self {
        Self { name: None, sync: None }
    }

    pub(crate) fn is_sqlite(&self) -> bool {
        self.name.is_none()
    }

    /// The schema's name; empty on SQLite.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// The schema of the sync tables; empty on SQLite.
    pub fn sync_name(&self) -> &str {
        self.sync.as_deref().unwrap_or_default()
    }

    /// The channel on which workers listen for wake-ups.
    pub(crate) fn channel(&self) -> String {
        format!("tidemill_{}", self.name())
    }

    /// Replaces the names in braces: schemas, numbers and fragments. One pass, because every process renders some
    /// hundreds of texts when it starts.
    pub(crate) fn render(&self, text: &str) -> String {
        let mut rendered = String::with_capacity(text.len() * 2);
        self.render_into(&mut rendered, text);
        rendered
    }

    fn render_into(&self, rendered: &mut String, text: &str) {
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            rendered.push_str(&rest[..at]);
            rest = &rest[at..];
            let named = rest.find('}').and_then(|end| Some((self.value(&rest[1..end])?, end + 1)));
            let Some((value, end)) = named else {
                // A brace of SQL, as in an array or in JSON.
                rendered.push('{');
                rest = &rest[1..];
                continue;
            };
            rest = &rest[end..];
            match value {
                // The dot after a schema goes with it where there are no schemas.
                Value::Schema(name) => {
                    rest = rest.strip_prefix('.').unwrap_or(rest);
                    if let Some(name) = name {
                        rendered.push_str(name);
                        rendered.push('.');
                    }
                }
                Value::Fragment(text) => self.render_into(rendered, text),
                Value::Text(text) => rendered.push_str(&text),
            }
        }
        rendered.push_str(rest);
    }

    /// Replaces `{raw}` and `{raw_id}`, which [`Self::render`] leaves.
    pub(crate) fn render_raw(&self, text: &str, raw: &RawTable) -> String {
        text.replace("{raw}", &self.raw_name(raw)).replace("{raw_id}", &quoted(raw.id_column))
    }

    /// The quoted name of a raw table, with its schema.
    pub(crate) fn raw_name(&self, raw: &RawTable) -> String {
        match &self.sync {
            Some(sync) => format!("{sync}.{}", quoted(&raw.table)),
            None => quoted(&raw.table),
        }
    }

    /// The value of a name in braces, if it is one of ours.
    fn value(&self, name: &str) -> Option<Value<'_>> {
        let text = match name {
            "ops" => return Some(Value::Schema(self.name.as_deref())),
            "sync" => return Some(Value::Schema(self.sync.as_deref())),
            "schema" => self.name().to_owned(),
            "channel" => self.channel(),
            // Bounds that include every time that the database can store.
            "time_first" => {
                (if self.is_sqlite() { SQLITE_TIME_FIRST } else { POSTGRES_TIME_FIRST }).to_owned()
            }
            "time_last" => (if self.is_sqlite() { SQLITE_TIME_LAST } else { POSTGRES_TIME_LAST }).to_owned(),
            // The clock of SQLite has only milliseconds: there, the caller always gives the time.
            "now" => (if self.is_sqlite() { "NULL" } else { "clock_timestamp()" }).to_owned(),
            "control" => (if self.is_sqlite() { CONTROL_GLOB } else { CONTROL_REGEX }).to_owned(),
            "sync_label" => SYNC_LABEL.to_owned(),
            "clock_role" => CLOCK_ROLE.to_owned(),
            "run_pairs" => diagram::run_pairs_sql(),
            "sync_pairs" => diagram::sync_pairs_sql(),
            "partition_pairs" => diagram::partition_pairs_sql(),
            "worker_run_pairs" => diagram::worker_run_pairs_sql(),
            "job_pairs" => diagram::job_pairs_sql(),
            "job_terminal" => diagram::job_terminal_sql(),
            "run_terminal" => diagram::run_terminal_sql(),
            "end_causes" => diagram::end_causes_sql(),
            _ => match NUMBERS.iter().find(|(known, _)| *known == name) {
                Some((_, number)) => number.to_string(),
                None => return self.sections().fragment(name).map(Value::Fragment),
            },
        };
        Some(Value::Text(text))
    }

    fn sections(&self) -> &'static Sections {
        if self.is_sqlite() { Sections::sqlite() } else { Sections::postgres() }
    }
}

/// Quotes an identifier, for both databases.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The value of a name in braces.
enum Value<'a> {
    /// A schema, if the store has schemas.
    Schema(Option<&'a str>),
    /// A piece of SQL that may contain names itself.
    Fragment(&'a str),
    Text(String),
}

/// SQL texts contain these names without quotes.
fn check_plain(name: &str) -> Result<(), crate::Error> {
    let plain = matches!(name.bytes().next(), Some(b'a'..=b'z' | b'_'))
        && name.len() <= 48
        && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
    if plain {
        return Ok(());
    }
    let problem = "use lower-case letters, digits and underscores";
    let message = format!("invalid schema name `{name}`: {problem}");
    Err(crate::Error::refused(crate::RefusalCode::BadValue, message))
}

const POSTGRES_TIME_FIRST: &str = "'-infinity'::timestamptz";
const POSTGRES_TIME_LAST: &str = "'infinity'::timestamptz";
const SQLITE_TIME_FIRST: &str = "(-9223372036854775807 - 1)";
const SQLITE_TIME_LAST: &str = "9223372036854775807";

/// Patterns that match a text with a control character: `text ~ {control}` and `text GLOB {control}`.
const CONTROL_REGEX: &str = r"E'[\\u0001-\\u001f\\u007f-\\u009f]'";
const CONTROL_GLOB: &str = "'*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'";

const NUMBERS: &[(&str, u64)] = &[
    ("message_max", limits::MESSAGE_BYTES_MAX as u64),
    ("payload_max", limits::PAYLOAD_BYTES_MAX as u64),
    ("metadata_max", limits::METADATA_BYTES_MAX as u64),
    ("key_max", limits::KEY_BYTES_MAX as u64),
    ("kind_max", limits::KIND_BYTES_MAX as u64),
    ("batch_max", limits::BATCH_MAX as u64),
    ("labels_max", limits::LABELS_MAX as u64),
    ("priority_max", limits::PRIORITY_MAX as u64),
    ("attempts_max", limits::ATTEMPTS_MAX as u64),
    ("attempts_default", limits::ATTEMPTS_DEFAULT as u64),
    ("losses_default", limits::LOSSES_DEFAULT as u64),
    ("backoff_secs", limits::BACKOFF_SECS as u64),
    ("backoff_max", limits::BACKOFF_SECS_MAX as u64),
    ("lease_secs", limits::LEASE_SECS),
    ("dead_after_secs", limits::DEAD_AFTER_SECS),
    ("cancel_grace_secs", limits::CANCEL_GRACE_SECS),
    ("json_depth_max", limits::JSON_DEPTH_MAX as u64),
    ("event_repeat_secs", limits::EVENT_REPEAT_SECS),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_braces_are_rendered_and_braces_of_sql_stay() {
        let text =
            "SELECT '{a,b}', '{\"to\": 1}', {batch_max} FROM {ops}.runs r, {sync}.stones WHERE {run_filter}";
        let postgres = Schema::postgres("other").unwrap().with_sync("public").unwrap().render(text);
        let begins = format!(
            "SELECT '{{a,b}}', '{{\"to\": 1}}', {} FROM other.runs r, public.stones WHERE ",
            limits::BATCH_MAX
        );
        assert!(postgres.starts_with(&begins), "{postgres}");
        assert!(postgres.contains("FROM other.graphs c") && postgres.contains("COLLATE \"C\""), "{postgres}");
        let sqlite = Schema::sqlite().render(text);
        assert!(sqlite.contains("FROM runs r, stones WHERE") && sqlite.contains("FROM graphs c"), "{sqlite}");
        assert!(sqlite.contains("'{a,b}'") && !sqlite.contains("{ops}"), "{sqlite}");
    }
}
