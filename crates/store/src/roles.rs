//! PostgreSQL roles: an owner, workers that may only call the SQL functions, readers, and tests that move the clock.

use crate::tx::Conn;
use crate::{Error, RefusalCode, Schema, Store, Tx, migrate, raw_tables};
use sqlx::{AssertSqlSafe, PgConnection};

/// The functions that a worker may call.
const WORKER_VERBS: &[&str] = &[
    "queue_run",
    "queue_runs",
    "claim_next_run",
    "start_run",
    "append_event",
    "append_events",
    "heartbeat",
    "lease_guard",
    "finish_run",
    "finish_run_outcome",
    "finish_runs",
    "cancel_run",
    "retry_run",
    "fail_run",
    "add_artifact",
    "register_worker",
    "beat_worker",
    "is_draining",
    "declare_waiting",
    "retire_worker",
    "wake",
    "work_left",
];

/// Columns of tokens that a reader may select: all except the hash.
const TOKEN_COLUMNS: &str = "token_id, name, role, projects, created_at, created_by, expires_at, revoked_at, \
                             revoked_by, last_used_at";

/// Columns of agents that a reader may select: all except the hashes and the lock.
const AGENT_COLUMNS: &str = "agent_id, name, host, labels, capacity, version, projects, token_id, draining, \
                             registered_at, seen_at, left_at, forgotten_at, isolation";

/// The role whose members may pass the time to the SQL functions. Production has no member.
///
/// It has no prefix: the SQL functions of every database of the server name it.
pub(crate) const CLOCK_ROLE: &str = "tidemill_clock";

/// The names of the roles.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Roles {
    /// Owns the schema and all of its objects.
    pub owner: String,
    /// May call the SQL functions.
    pub worker: String,
    /// May read the tables.
    pub reader: String,
    /// May pass the time to the SQL functions. It has no members; tests add their own.
    pub clock: String,
}

impl Roles {
    fn named(prefix: &str) -> Self {
        Self {
            owner: format!("{prefix}_owner"),
            worker: format!("{prefix}_worker"),
            reader: format!("{prefix}_reader"),
            clock: CLOCK_ROLE.to_owned(),
        }
    }
}

impl Store {
    /// Creates the roles without login, and grants their privileges. Idempotent. The audit entry of the call is
    /// committed with the roles.
    pub async fn create_roles(&self, prefix: &str) -> Result<Roles, Error> {
        // Checked like schema names, because the prefix becomes part of SQL identifiers.
        Schema::postgres(prefix)?;
        let prefix = prefix.to_owned();
        self.write(move |mut tx| Box::pin(async move { tx.create_roles(&prefix).await })).await
    }
}

impl Tx<'_> {
    async fn create_roles(&mut self, prefix: &str) -> Result<Roles, Error> {
        let roles = Roles::named(prefix);
        let schema = &self.context.schema;
        let Conn::Postgres(conn) = &mut self.conn else {
            return Err(Error::refused(
                RefusalCode::BadValue,
                "SQLite has no roles; access is controlled by the permissions of the file",
            ));
        };
        // The shared role is last: concurrent calls with other prefixes wait for it, and its creator needs nothing of
        // them.
        for role in [&roles.owner, &roles.worker, &roles.reader, &roles.clock] {
            let text = format!(
                "DO $role$ BEGIN CREATE ROLE {role} NOLOGIN; \
                 EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $role$"
            );
            run(conn, text).await?;
        }
        let remember = schema.render(
            "INSERT INTO {ops}.tidemill_settings (setting, value) VALUES ('roles', $1) \
             ON CONFLICT (setting) DO UPDATE SET value = excluded.value",
        );
        sqlx::query(AssertSqlSafe(remember))
            .bind(prefix)
            .persistent(false)
            .execute(&mut **conn)
            .await
            .map_err(failed)?;
        grant(conn, schema, &roles).await?;
        let user = sqlx::query_scalar::<_, String>("SELECT session_user::text")
            .persistent(false)
            .fetch_one(&mut **conn)
            .await
            .map_err(failed)?;
        self.annotate_audit(|line| {
            line.set_subject(prefix).add_detail("database_user", user);
        });
        Ok(roles)
    }
}

/// Repeats the grants after a migration, if the roles exist.
pub(crate) async fn grant_again(conn: &mut PgConnection, schema: &Schema) -> Result<(), Error> {
    let text = schema.render("SELECT value FROM {ops}.tidemill_settings WHERE setting = 'roles'");
    let prefix: Option<String> = sqlx::query_scalar(AssertSqlSafe(text))
        .persistent(false)
        .fetch_optional(&mut *conn)
        .await
        .map_err(failed)?;
    match prefix {
        Some(prefix) => grant(conn, schema, &Roles::named(&prefix)).await,
        None => Ok(()),
    }
}

async fn grant(conn: &mut PgConnection, schema: &Schema, roles: &Roles) -> Result<(), Error> {
    let name = schema.name();
    let Roles { owner, worker, reader, clock: _ } = roles;
    let sync = schema.sync_name();
    let mut sync_tables: Vec<String> =
        migrate::sync_tables().map(|table| format!("{sync}.{table}")).collect();
    sync_tables.extend(raw_tables::existing(conn, schema).await?);
    let sync_tables = sync_tables.join(", ");
    // A user must be a member of a role to transfer ownership to it.
    let texts = [
        format!("GRANT {owner} TO CURRENT_USER"),
        format!("GRANT USAGE ON SCHEMA {name} TO {worker}, {reader}"),
        format!("GRANT SELECT ON ALL TABLES IN SCHEMA {name} TO {reader}"),
        // The sync schema can hold tables of other owners, so the grants name our tables one by one.
        format!("GRANT USAGE ON SCHEMA {sync} TO {reader}"),
        format!("GRANT SELECT ON {sync_tables} TO {reader}"),
        // Readers must not see hashes; sessions hold nothing else.
        format!("REVOKE SELECT ON {name}.tokens, {name}.sessions, {name}.agents FROM {reader}"),
        format!("GRANT SELECT ({TOKEN_COLUMNS}) ON {name}.tokens TO {reader}"),
        format!("GRANT SELECT ({AGENT_COLUMNS}) ON {name}.agents TO {reader}"),
        format!("GRANT SELECT ON {name}.tidemill_migrations, {name}.tidemill_settings TO {worker}"),
        // A change of the owner locks the table against everything, even if the owner stays the same.
        format!(
            "DO $own$ DECLARE o record; BEGIN \
             FOR o IN SELECT c.oid::regclass AS what FROM pg_class c \
                 WHERE c.relnamespace = '{name}'::regnamespace AND c.relkind IN ('r', 'v') \
                   AND c.relowner <> '{owner}'::regrole \
             LOOP EXECUTE format('ALTER TABLE %s OWNER TO {owner}', o.what); END LOOP; \
             FOR o IN SELECT t.oid::regtype AS what FROM pg_type t \
                 WHERE t.typnamespace = '{name}'::regnamespace AND t.typtype = 'd' \
                   AND t.typowner <> '{owner}'::regrole \
             LOOP EXECUTE format('ALTER DOMAIN %s OWNER TO {owner}', o.what); END LOOP; END $own$"
        ),
        format!("ALTER SCHEMA {name} OWNER TO {owner}"),
    ];
    for function in migrate::functions::ours(conn, schema).await? {
        let shown = &function.shown;
        run(conn, format!("ALTER FUNCTION {shown} OWNER TO {owner}")).await?;
        if WORKER_VERBS.contains(&function.name.as_str()) {
            run(conn, format!("GRANT EXECUTE ON FUNCTION {shown} TO {worker}")).await?;
        }
    }
    for text in texts {
        run(conn, text).await?;
    }
    Ok(())
}

async fn run(conn: &mut PgConnection, text: String) -> Result<(), Error> {
    sqlx::raw_sql(AssertSqlSafe(text)).execute(conn).await.map_err(failed)?;
    Ok(())
}

fn failed(source: sqlx::Error) -> Error {
    let denied = source
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code)
        .is_some_and(|code| code == "42501");
    if denied {
        return Error::Refused(crate::Refusal {
            code: RefusalCode::BadValue,
            message: "the database user lacks the privilege to create roles".to_owned(),
            hint: Some("run the command as a superuser or as a role with CREATEROLE".to_owned()),
        });
    }
    Error::database("create roles", source)
}
