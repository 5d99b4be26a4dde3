//! Names and numbers that are rendered into the SQL when a store is opened.

use tidemill_core::broken::Break;
use tidemill_core::sync::SYNC_LABEL;
use tidemill_core::{diagram, limits};

/// What stands between us and PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pooler {
    /// Nothing, or a pooler that keeps a session together.
    #[default]
    Session,
    /// A pooler that keeps only transactions together: no named statements, no LISTEN.
    Transaction,
}

/// Where the tables are: a schema of PostgreSQL, or the one file of SQLite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    name: Option<String>,
    /// Where the tables of syncs are that operators know by name.
    sync: Option<String>,
}

/// The schema of the tables of syncs, unless somebody says otherwise.
pub(crate) const SYNC_SCHEMA: &str = "public";

impl Schema {
    /// A schema of PostgreSQL.
    ///
    /// The name is used in SQL as it stands, so only plain lower-case names are taken.
    pub fn postgres(name: &str) -> Result<Self, crate::Error> {
        check_plain(name)?;
        Ok(Self { name: Some(name.to_owned()), sync: Some(SYNC_SCHEMA.to_owned()) })
    }

    /// The same, with the tables of syncs in another schema.
    pub fn with_sync(mut self, sync: &str) -> Result<Self, crate::Error> {
        check_plain(sync)?;
        self.sync = Some(sync.to_owned());
        Ok(self)
    }

    /// The one file of SQLite.
    pub(crate) fn sqlite() -> Self {
        Self { name: None, sync: None }
    }

    /// The schema's name; empty on SQLite.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// The schema of the tables of syncs; empty on SQLite.
    pub fn sync_name(&self) -> &str {
        self.sync.as_deref().unwrap_or_default()
    }

    /// The channel on which workers listen for wake-ups.
    pub(crate) fn channel(&self) -> String {
        format!("tidemill_{}", self.name())
    }

    /// Puts the names and numbers into a text, in one pass: every process renders some hundreds of texts when it
    /// starts, and few of them name what is long to make.
    pub(crate) fn render(&self, text: &str) -> String {
        #[cfg(feature = "broken")]
        let text = &crate::broken::without_follow(text);
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
                // A brace of SQL's own, as in an array or in JSON.
                rendered.push('{');
                rest = &rest[1..];
                continue;
            };
            rest = &rest[end..];
            match value {
                // A place brings its own dot, or none where there are no schemas.
                Value::Place(name) => {
                    rest = rest.strip_prefix('.').unwrap_or(rest);
                    if let Some(name) = name {
                        rendered.push_str(name);
                        rendered.push('.');
                    }
                }
                Value::Text(text) => self.render_into(rendered, text),
                Value::Made(text) => rendered.push_str(&text),
            }
        }
        rendered.push_str(rest);
    }

    /// What stands for a name in braces, if it is one of ours.
    fn value(&self, name: &str) -> Option<Value<'_>> {
        let by_store = |postgres, sqlite| Value::Text(if self.name.is_some() { postgres } else { sqlite });
        let finish = || if Break::NoFence.is_on() { "r.status IS NOT NULL" } else { FINISH_ALLOWED };
        Some(match name {
            "ops" => Value::Place(self.name.as_deref()),
            "sync" => Value::Place(self.sync.as_deref()),
            "run_columns" => Value::Text(RUN_COLUMNS),
            "run_filter" => Value::Text(RUN_FILTER),
            "waiting" => Value::Text(WAITING),
            "binary" => by_store("COLLATE \"C\"", "COLLATE BINARY"),
            "in" => by_store("= ANY (", "IN (SELECT value FROM json_each("),
            "ni" => by_store(")", "))"),
            "each" => by_store("unnest(", "json_each("),
            "as_u" => by_store("::text[]) AS u (value)", ") AS u"),
            // SQLite has no clock that is fit for this: there a time is always given.
            "now" => by_store("clock_timestamp()", "NULL"),
            "schema" => Value::Text(self.name()),
            "channel" => Value::Made(self.channel()),
            "verb" => Value::Text(VERB),
            "sync_label" => Value::Text(SYNC_LABEL),
            "finish_allowed" => Value::Text(finish()),
            "finish_allowed_one" => Value::Made(of_one(finish())),
            "fence" => Value::Text(if Break::NoFence.is_on() { "false" } else { FENCE }),
            "run_pairs" => Value::Made(diagram::run_pairs_sql()),
            "sync_pairs" => Value::Made(diagram::sync_pairs_sql()),
            "partition_pairs" => Value::Made(diagram::partition_pairs_sql()),
            "worker_run_pairs" => Value::Made(diagram::worker_run_pairs_sql()),
            "job_pairs" => Value::Made(diagram::job_pairs_sql()),
            "job_terminal" => Value::Made(diagram::job_terminal_sql()),
            "run_terminal" => Value::Made(diagram::run_terminal_sql()),
            "end_causes" => Value::Made(diagram::end_causes_sql()),
            "time_min" => Value::Text(TIME_MIN),
            "time_max" => Value::Text(TIME_MAX),
            _ => Value::Made(NUMBERS.iter().find(|(known, _)| *known == name)?.1.to_string()),
        })
    }
}

/// What stands for a name.
enum Value<'a> {
    /// A schema, if the store has any.
    Place(Option<&'a str>),
    /// May hold names itself.
    Text(&'a str),
    Made(String),
}

/// Names are used in SQL as they stand: only plain lower-case ones are taken.
fn check_plain(name: &str) -> Result<(), crate::Error> {
    let plain = matches!(name.bytes().next(), Some(b'a'..=b'z' | b'_'))
        && name.len() <= 48
        && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
    if plain {
        return Ok(());
    }
    let problem = "use lower-case letters, digits and underscores";
    let message = format!("`{name}` cannot be the name of the schema: {problem}");
    Err(crate::Error::refused(crate::RefusalCode::BadValue, message))
}

/// What every statement that reads whole runs reads: `r` is the run, `s` its shelf.
const RUN_COLUMNS: &str = "\
    r.run_id, r.project_id, r.env_id, r.lane, r.status, r.gate, r.git_sha, r.git_ref, r.metadata, \
    r.idempotency_key, r.priority, s.labels, r.concurrency_key, r.available_at, r.expires_at, \
    r.timeout_secs, r.attempt, r.failures, r.losses, r.max_attempts, r.max_losses, r.backoff_secs, \
    r.retry_of, r.claimed_by, r.worker_id, r.epoch, r.lease_until, r.deadline_at, r.cancel_requested_at, \
    r.cancel_requested_by, r.cancel_reason, r.stalled_at, r.end_cause, r.queued_at, r.started_at, r.finished_at, \
    r.created_at, r.updated_at";

/// What every list of runs asks of a run besides the one thing that its index is about. Times and prefixes of ids
/// are the two bounds of the id; the parameters are the same in every such statement.
const RUN_FILTER: &str = "r.run_id >= $1 AND r.run_id < $2 AND ($4 IS NULL OR r.project_id = $4) \
    AND ($5 IS NULL OR r.env_id = r.project_id || '/' || $5) AND ($6 IS NULL OR r.status = $6) \
    AND ($7 IS NULL OR r.lane = $7) AND ($8 IS NULL OR (r.concurrency_key = $8 AND r.lane = 'sync')) \
    AND ($9 IS NULL OR (r.git_sha >= $9 {binary} AND r.git_sha < $10 {binary})) \
    AND ($11 IS NULL OR (r.git_ref >= $11 {binary} AND r.git_ref < $12 {binary})) \
    AND ($13 IS NULL OR CASE r.lane \
         WHEN 'graph' THEN (SELECT c.name >= $13 {binary} AND c.name < $14 {binary} \
                              FROM {ops}.graphs c WHERE c.run_id = r.run_id) \
         WHEN 'sync' THEN r.concurrency_key >= 'feed:' || $13 AND r.concurrency_key < 'feed:' || $14 END)";

/// Every run that waits, whatever it waits for: one look into each of the indexes of what waits.
const WAITING: &str = "SELECT o.run_id FROM {ops}.runs o WHERE o.gate = 'open' \
    UNION ALL SELECT k.run_id FROM {ops}.runs k WHERE k.gate = 'key' \
    UNION ALL SELECT t.run_id FROM {ops}.runs t WHERE t.gate = 'time'";

/// Whether a caller no longer holds the run: NULL beliefs are not held against it.
const FENCE: &str = "coalesce(v_run.status NOT IN ('claimed', 'running') OR v_run.epoch <> p_epoch \
                     OR v_run.claimed_by <> p_worker_id, false)";

/// Whether a finish is taken: from its holder while it is held, or as a cancel from anybody while it lives.
const FINISH_ALLOWED: &str = "coalesce(CASE WHEN a.asked = 'cancelled' \
                              THEN r.status IN ('queued', 'claimed', 'running') \
                              ELSE r.status IN ('claimed', 'running') AND coalesce(r.epoch = a.epoch, true) \
                              AND coalesce(r.claimed_by = p_worker_id, true) END, false)";

/// The same question for one run, in the words of a function that finishes one.
fn of_one(finish: &str) -> String {
    finish.replace("r.", "v_run.").replace("a.asked", "p_status").replace("a.epoch", "p_epoch")
}

/// How a verb runs: with its owner's rights, names from nowhere but the catalog, and plans made once per session.
const VERB: &str =
    "SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan";

/// The bounds of a time that Rust can read and RFC 3339 can write.
const TIME_MIN: &str = "'0001-01-01 00:00:00+00'::pg_catalog.timestamptz";
const TIME_MAX: &str = "'9999-12-31 00:00:00+00'::pg_catalog.timestamptz";

const NUMBERS: &[(&str, u64)] = &[
    ("message_max", limits::MESSAGE_BYTES_MAX as u64),
    ("payload_max", limits::PAYLOAD_BYTES_MAX as u64),
    ("metadata_max", limits::METADATA_BYTES_MAX as u64),
    ("key_max", limits::KEY_BYTES_MAX as u64),
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
    fn names_are_rendered_also_within_each_other_and_braces_of_sql_stay() {
        let text =
            "SELECT '{a,b}', '{\"to\": 1}', {batch_max} FROM {ops}.runs r, {sync}.stones WHERE {run_filter}";
        let postgres = Schema::postgres("mill").unwrap().with_sync("public").unwrap().render(text);
        let begins = format!(
            "SELECT '{{a,b}}', '{{\"to\": 1}}', {} FROM mill.runs r, public.stones WHERE ",
            limits::BATCH_MAX
        );
        assert!(postgres.starts_with(&begins), "{postgres}");
        assert!(postgres.contains("FROM mill.graphs c") && postgres.contains("COLLATE \"C\""), "{postgres}");
        let sqlite = Schema::sqlite().render(text);
        assert!(sqlite.contains("FROM runs r, stones WHERE") && sqlite.contains("FROM graphs c"), "{sqlite}");
        assert!(sqlite.contains("'{a,b}'") && !sqlite.contains("{ops}"), "{sqlite}");
    }
}
