//! Hostile rows: values that a database accepts and a careless reader does not.
//!
//! The statements are random, from a seed. As a plain user some of them are refused. With triggers and checks off all
//! of them are written, as by an older version or a restored backup. Runs with the git reference `healthy` are left
//! unchanged.

use crate::interface::PlainSql;

/// Times in the syntax of PostgreSQL and of SQLite.
const TIMES: [(&str, &str); 8] = [
    ("'infinity'", "9223372036854775807"),
    ("'-infinity'", "-9223372036854775808"),
    ("'294276-12-31 23:59:59.999999+00'", "9224318015999999999 / 2"),
    ("'4714-11-24 00:00:00+00 BC'", "-210866803200000000"),
    ("'262143-06-01 00:00:00+00'", "8210266876800000000"),
    ("'10000-01-01 00:00:00+00'", "253402300800000000"),
    ("'0001-01-01 00:00:00+00'", "-62135596800000000"),
    ("now()", "(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)"),
];

/// Suffixes of run ids. A number follows each.
const IDS: [&str; 10] = [
    "Upper_Case",
    "é",
    "日本語",
    "a/../b/",
    "%2F?x=1#y&z",
    "two words\n",
    "<script>alert(1)</script>",
    "\u{1b}[31m",
    "quote'\"`$(id)",
    "plain-",
];

/// Environments that are not of the form `project/environment`.
const ENVIRONMENTS: [&str; 5] = ["shop/staging", "noslash", "", "/", "ü/ü/ü"];

/// Generates hostile rows from a seed.
#[derive(Debug)]
pub struct Poison {
    random: fastrand::Rng,
    is_postgres: bool,
    number: u32,
}

impl Poison {
    /// Returns a generator of statements for this database.
    pub fn new(seed: u64, plain: &PlainSql) -> Self {
        let is_postgres = matches!(plain, PlainSql::Postgres(_));
        Self { random: fastrand::Rng::with_seed(seed), is_postgres, number: 0 }
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.random.usize(..choices.len())]
    }

    fn text(text: &str) -> String {
        format!("'{}'", text.replace('\'', "''"))
    }

    fn time_or_null(&mut self) -> String {
        if self.random.bool() { "NULL".to_owned() } else { self.time() }
    }

    fn time(&mut self) -> String {
        let (postgres, sqlite) = self.one_of(&TIMES);
        if self.is_postgres { format!("CAST({postgres} AS timestamptz)") } else { sqlite.to_owned() }
    }

    /// Returns a past time, by which a run becomes due.
    fn past(&self) -> &'static str {
        if self.is_postgres { "now() - interval '1 hour'" } else { "1000000" }
    }

    fn run_id(&mut self) -> String {
        self.number += 1;
        let mut id = format!("run-{}{}", self.one_of(&IDS), self.number);
        if self.random.u8(..20) == 0 {
            id.push_str(&"x".repeat(2_000));
        }
        Self::text(&id)
    }

    /// Returns a document that is not JSON, which only SQLite accepts, or any other.
    fn broken(&mut self) -> String {
        if self.is_postgres || self.random.bool() {
            return self.json();
        }
        self.one_of(&["'{broken'", "''", "'{\"a\": nul}'"]).to_owned()
    }

    fn json(&mut self) -> String {
        let depth = self.one_of(&[63, 100, 101, 125, 127, 128, 200, 900]);
        let mut documents = vec![
            r#"{"a": 1e400}"#.to_owned(),
            r#"{"a": [-1e400, 1e-400]}"#.to_owned(),
            r#"{"a": 123456789012345678901}"#.to_owned(),
            r#"{"name": "\u00e9", "a": 18446744073709551616}"#.to_owned(),
            format!(r#"{{"a": {}{}}}"#, "[".repeat(depth), "]".repeat(depth)),
            format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth)),
            r#"{"tidemill.unreadable": {"no": "text"}}"#.to_owned(),
            "[1, 2]".to_owned(),
            "null".to_owned(),
            r#""text""#.to_owned(),
            format!(r#"{{"big": "{}"}}"#, "x".repeat(300_000)),
            r#"{"fine": true}"#.to_owned(),
        ];
        let chosen = self.random.usize(..documents.len());
        let text = Self::text(&documents.swap_remove(chosen));
        if self.is_postgres { format!("CAST({text} AS jsonb)") } else { text }
    }

    /// Returns a text of random length.
    fn long_text(&mut self) -> String {
        let length = self.one_of(&[0, 10, 2_000, 5_000_000]);
        if self.is_postgres {
            format!("repeat('x', {length})")
        } else {
            format!("hex(zeroblob({}))", length / 2)
        }
    }

    /// Returns a function call or a plain statement of a plain user. Some are refused.
    pub fn attempt(&mut self) -> String {
        let (id, json, time, text) = (self.run_id(), self.json(), self.time_or_null(), self.long_text());
        let some = "(SELECT run_id FROM {ops}.runs WHERE coalesce(git_ref, '') <> 'healthy' ORDER BY random() LIMIT 1)";
        if !self.is_postgres {
            return match self.random.u8(..3) {
                0 => format!(
                    "INSERT INTO {{ops}}.runs (run_id, project_id, env_id, metadata, expires_at) \
                     VALUES ({id}, 'shop', 'shop/staging', {json}, {time})"
                ),
                1 => format!("UPDATE {{ops}}.runs SET metadata = {json} WHERE run_id = {some}"),
                _ => format!("UPDATE {{ops}}.runs SET available_at = {time} WHERE run_id = {some}"),
            };
        }
        match self.random.u8(..9) {
            0 => format!(
                "SELECT ops.queue_run('shop', 'staging', {text}, NULL, p_metadata => {json}, p_run_id => {id})"
            ),
            1 => format!("SELECT ops.queue_run('shop', 'staging', NULL, NULL, p_expires_at => {time})"),
            2 => format!("SELECT ops.queue_run('shop', 'staging', NULL, NULL, p_available_at => {time})"),
            3 => {
                let labels = "(SELECT array_agg(repeat('l', 2000) || n) FROM generate_series(1, 100) n)";
                format!("SELECT ops.queue_run('shop', 'staging', NULL, NULL, p_labels => {labels})")
            }
            4 => format!("SELECT ops.append_event({some}, 'info', {text}, {json})"),
            5 => format!("SELECT ops.cancel_run({some}, 'ann', {text})"),
            6 => format!("SELECT ops.finish_run({some}, 'failed', {json})"),
            7 => format!(
                "INSERT INTO ops.runs (run_id, project_id, env_id, metadata, expires_at) \
                 VALUES ({id}, 'shop', 'shop/staging', {json}, {time})"
            ),
            _ => format!("UPDATE ops.runs SET metadata = {json}, expires_at = {time} WHERE run_id = {some}"),
        }
    }

    /// Returns an insert of a hostile run. Needs triggers and checks to be off.
    pub fn run(&mut self) -> String {
        let mut row = self.lifecycle();
        for column in ["expires_at", "lease_until", "deadline_at", "cancel_requested_at", "started_at"] {
            row.push((column, self.time_or_null()));
        }
        for column in ["queued_at", "created_at", "updated_at", "ready_at"] {
            row.push((column, self.time()));
        }
        for column in ["cancel_reason", "cancel_requested_by"] {
            row.push((column, self.long_text()));
        }
        // A retry copies the commit into an index, which holds no longer values.
        let git_ref = "x".repeat(self.random.usize(..2_000));
        row.extend([("git_sha", "'Ünsinn'".to_owned()), ("git_ref", Self::text(&git_ref))]);
        row.push(("run_id", self.run_id()));
        row.push(("project_id", "'shop'".to_owned()));
        row.push(("env_id", Self::text(self.one_of(&ENVIRONMENTS))));
        row.push(("label_set_id", "(SELECT min(label_set_id) FROM {ops}.label_sets)".to_owned()));
        row.push(("priority", self.one_of(&[i32::MIN, 0, i32::MAX]).to_string()));
        row.push(("timeout_secs", self.one_of(&["NULL", "-5", "2147483647"]).to_owned()));
        if self.is_postgres {
            row.push(("attention_at", self.past().to_owned()));
        } else {
            // PostgreSQL enforces domains even without triggers.
            row.push(("lane", self.one_of(&["'ops'", "'ops'", "'weird'"]).to_owned()));
        }
        let (columns, values): (Vec<&str>, Vec<String>) = row.into_iter().unzip();
        format!("INSERT INTO {{ops}}.runs ({}) VALUES ({})", columns.join(", "), values.join(", "))
    }

    /// Returns the lifecycle columns of a run. The constraints of the table relate them to each other.
    fn lifecycle(&mut self) -> Vec<(&'static str, String)> {
        let state = self.one_of(&["queued", "due", "claimed", "running", "success", "failed", "cancelled"]);
        let (gate, claimed_by) = match state {
            "queued" => ("'open'", "NULL"),
            "due" => ("'time'", "NULL"),
            _ => ("NULL", "'ghost'"),
        };
        let has_ended = matches!(state, "success" | "failed" | "cancelled");
        let status = if state == "due" { "queued" } else { state };
        let finished_at = if has_ended { self.time() } else { "NULL".to_owned() };
        let available_at = if state == "due" { self.past().to_owned() } else { self.time_or_null() };
        let end_cause = if has_ended { self.one_of(&["NULL", "'reported'", "'weird'"]) } else { "NULL" };
        let mut row = vec![
            ("status", format!("'{status}'")),
            ("gate", gate.to_owned()),
            ("claimed_by", claimed_by.to_owned()),
            ("finished_at", finished_at),
            ("available_at", available_at),
            ("end_cause", end_cause.to_owned()),
        ];
        for column in ["metadata", "input"] {
            // The checks apply again when a run is updated, so only ended runs are broken.
            row.push((column, if has_ended { self.broken() } else { self.json() }));
        }
        row
    }

    /// Returns an insert of a hostile event of a run, or of no run. Needs triggers and checks to be off.
    pub fn event(&mut self) -> String {
        self.number += 1;
        let number = self.number;
        let stray = self.run_id();
        let some = "(SELECT max(run_id) FROM {ops}.runs WHERE coalesce(git_ref, '') <> 'healthy')".to_owned();
        let run = if self.random.bool() { some } else { stray };
        let (json, text, time) = (self.broken(), self.long_text(), self.time());
        let (seq, column, value) = (100_000 + number, "event_id", format!("'evt-odd-{number}'"));
        if self.is_postgres {
            format!(
                "INSERT INTO ops.run_log (run_id, seq, {column}, level, message, payload, created_at) \
                 VALUES ({run}, {seq}, {value}, 'info', {text}, {json}, {time})"
            )
        } else {
            format!(
                "INSERT INTO run_events (run_id, seq, kind, level, message, payload, created_at) \
                 VALUES ({run}, {seq}, 'strange', 'loud', {text}, {json}, {time})"
            )
        }
    }

    /// Returns a notice for each hostile run, a schedule with an unreadable request, and an artifact.
    pub fn others(&mut self) -> Vec<String> {
        let (json, time) = (self.broken(), self.time());
        self.number += 1;
        let number = self.number;
        vec![
            "INSERT INTO {ops}.run_notices (run_id) SELECT run_id FROM {ops}.runs WHERE finished_at IS NOT NULL \
             ON CONFLICT DO NOTHING"
                .to_owned(),
            format!(
                "INSERT INTO {{ops}}.schedules (schedule_id, project_id, cron, time_zone, request, missed, overlap, \
                 next_fire_at, created_at) \
                 VALUES ('odd-{number}', 'shop', '* * * * *', 'UTC', {json}, 'skip', 'skip', {}, {time})",
                self.past()
            ),
            format!(
                "INSERT INTO {{ops}}.artifacts (artifact_id, run_id, artifact_type, url, metadata, created_at) \
                 SELECT 'art-odd-{number}', max(run_id), 'odd', 'x', {json}, {time} FROM {{ops}}.runs"
            ),
        ]
    }
}

/// Runs statements with triggers and checks off, and restores them.
pub async fn force(plain: &PlainSql, statements: &[String]) -> Result<(), sqlx::Error> {
    match plain {
        PlainSql::Postgres(pool) => {
            let mut session = pool.begin().await?;
            let off = "SET LOCAL session_replication_role = replica";
            sqlx::raw_sql(off).execute(&mut *session).await?;
            for statement in statements {
                let text = sqlx::AssertSqlSafe(statement.replace("{ops}.", "ops."));
                sqlx::raw_sql(text).execute(&mut *session).await?;
            }
            session.commit().await
        }
        PlainSql::Sqlite(pool) => {
            let mut session = pool.acquire().await?;
            sqlx::raw_sql("PRAGMA ignore_check_constraints = 1").execute(&mut *session).await?;
            sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut *session).await?;
            let find = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'";
            let triggers: Vec<(String, String)> = sqlx::query_as(find).fetch_all(&mut *session).await?;
            let off = triggers.iter().map(|(name, _)| format!("DROP TRIGGER \"{name}\""));
            let on = triggers.iter().map(|(_, text)| text.clone());
            let written = statements.iter().map(|statement| statement.replace("{ops}.", ""));
            for text in off.chain(written).chain(on) {
                sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(&mut *session).await?;
            }
            sqlx::raw_sql("COMMIT").execute(&mut *session).await?;
            sqlx::raw_sql("PRAGMA ignore_check_constraints = 0").execute(&mut *session).await?;
            Ok(())
        }
    }
}
