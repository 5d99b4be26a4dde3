//! Names and numbers that are rendered into the SQL when a store is opened.

use tidemill_core::broken::Break;
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

    /// Puts the names and numbers into a text.
    pub(crate) fn render(&self, text: &str) -> String {
        let place = self.name.as_ref().map(|name| format!("{name}.")).unwrap_or_default();
        let sync = self.sync.as_ref().map(|name| format!("{name}.")).unwrap_or_default();
        // SQLite has no clock that is fit for this: there a time is always given.
        let now = if self.name.is_some() { "clock_timestamp()" } else { "NULL" };
        let fence = if Break::NoFence.is_on() { "false" } else { FENCE };
        let finish = if Break::NoFence.is_on() { "r.status IS NOT NULL" } else { FINISH_ALLOWED };
        #[cfg(feature = "broken")]
        let text = &crate::broken::without_follow(text);
        let mut text = text
            .replace("{run_columns}", RUN_COLUMNS)
            .replace("{run_filter}", RUN_FILTER)
            .replace("{binary}", if self.name.is_some() { "COLLATE \"C\"" } else { "COLLATE BINARY" })
            .replace("{in}", if self.name.is_some() { "= ANY (" } else { "IN (SELECT value FROM json_each(" })
            .replace("{ni}", if self.name.is_some() { ")" } else { "))" })
            .replace("{each}", if self.name.is_some() { "unnest(" } else { "json_each(" })
            .replace("{as_u}", if self.name.is_some() { "::text[]) AS u (value)" } else { ") AS u" })
            .replace("{ops}.", &place)
            .replace("{sync}.", &sync)
            .replace("{now}", now)
            .replace("{schema}", self.name())
            .replace("{channel}", &self.channel())
            .replace("{run_pairs}", &diagram::run_pairs_sql())
            .replace("{sync_pairs}", &diagram::sync_pairs_sql())
            .replace("{partition_pairs}", &diagram::partition_pairs_sql())
            .replace("{worker_run_pairs}", &diagram::worker_run_pairs_sql())
            .replace("{job_pairs}", &diagram::job_pairs_sql())
            .replace("{job_terminal}", &diagram::job_terminal_sql())
            .replace("{run_terminal}", &diagram::run_terminal_sql())
            .replace("{verb}", VERB)
            .replace("{finish_allowed_one}", &of_one(finish))
            .replace("{finish_allowed}", finish)
            .replace("{fence}", fence);
        for (name, number) in NUMBERS {
            if text.contains(name) {
                text = text.replace(name, &number.to_string());
            }
        }
        text
    }
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
    r.cancel_requested_by, r.cancel_reason, r.end_cause, r.queued_at, r.started_at, r.finished_at, \
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

const NUMBERS: &[(&str, u64)] = &[
    ("{message_max}", limits::MESSAGE_BYTES_MAX as u64),
    ("{payload_max}", limits::PAYLOAD_BYTES_MAX as u64),
    ("{metadata_max}", limits::METADATA_BYTES_MAX as u64),
    ("{key_max}", limits::KEY_BYTES_MAX as u64),
    ("{batch_max}", limits::BATCH_MAX as u64),
    ("{labels_max}", limits::LABELS_MAX as u64),
    ("{priority_max}", limits::PRIORITY_MAX as u64),
    ("{attempts_max}", limits::ATTEMPTS_MAX as u64),
    ("{attempts_default}", limits::ATTEMPTS_DEFAULT as u64),
    ("{losses_default}", limits::LOSSES_DEFAULT as u64),
    ("{backoff_secs}", limits::BACKOFF_SECS as u64),
    ("{backoff_max}", limits::BACKOFF_SECS_MAX as u64),
    ("{lease_secs}", limits::LEASE_SECS),
    ("{dead_after_secs}", limits::DEAD_AFTER_SECS),
    ("{cancel_grace_secs}", limits::CANCEL_GRACE_SECS),
    ("{event_repeat_secs}", limits::EVENT_REPEAT_SECS),
];
