//! Raw tables: the last version of each record, one table per feed.

use crate::tx::{Conn, Tx, on};
use crate::{Error, Refusal, RefusalCode, Schema, catalog};
use sqlx::{AssertSqlSafe, PgConnection};
use tidemill_core::feed::RawTable;

/// The table whose owner and grants a new raw table gets.
const MODEL: &str = "raw_diamonds_nivoda";

/// Gives a table the owner and the grants of another one, so that backups, readers and later migrations treat both the
/// same.
const LIKE_MODEL: &str = "
DO $like$
DECLARE
    v_model oid := to_regclass('{model}');
    v_owner oid;
    v_grant record;
BEGIN
    SELECT c.relowner INTO v_owner FROM pg_class c WHERE c.oid = v_model;
    IF v_owner IS NULL THEN
        RETURN;
    END IF;
    FOR v_grant IN
        SELECT a.privilege_type,
               CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS grantee
          FROM pg_class c, aclexplode(c.relacl) a WHERE c.oid = v_model AND a.grantee <> c.relowner
    LOOP
        EXECUTE format('GRANT %s ON {table} TO %s', v_grant.privilege_type, v_grant.grantee);
    END LOOP;
    IF v_owner <> current_user::regrole THEN
        EXECUTE format('ALTER TABLE {table} OWNER TO %s', v_owner::regrole);
    END IF;
END
$like$";

impl Tx<'_> {
    /// Creates the raw table of a feed, unless it exists.
    pub async fn create_raw_table(&mut self, raw: &RawTable) -> Result<(), Error> {
        let name = self.context.schema.raw_name(raw);
        if let Conn::Postgres(conn) = &mut self.conn {
            // Of two processes that add the feed, the second waits here and finds the table.
            lock(conn, &name).await?;
        }
        if self.has_raw_table(raw).await? {
            return Ok(());
        }
        let sql = self.sql(catalog::RAW_CREATE.of(raw));
        let denied = |source| denied(&name, source);
        match &mut self.conn {
            Conn::Postgres(conn) => {
                sqlx::query(sql).persistent(false).execute(&mut **conn).await.map_err(denied)?;
                let model = RawTable { table: MODEL.to_owned(), id_column: raw.id_column };
                let text = LIKE_MODEL
                    .replace("{model}", &self.context.schema.raw_name(&model))
                    .replace("{table}", &name);
                sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut **conn).await.map_err(denied)?;
            }
            Conn::Sqlite(conn) => {
                sqlx::query(sql).execute(&mut **conn).await.map_err(denied)?;
            }
        }
        Ok(())
    }

    /// Returns whether the raw table exists. A table with other columns belongs to another owner, and is refused.
    async fn has_raw_table(&mut self, raw: &RawTable) -> Result<bool, Error> {
        let name = match &self.conn {
            Conn::Postgres(_) => self.context.schema.raw_name(raw),
            Conn::Sqlite(_) => raw.table.clone(),
        };
        let columns: Vec<String> =
            on!(self, catalog::RAW_COLUMNS, [name.as_str()], fetch_all, "read a raw table")?
                .records("read a raw table")?;
        if columns.is_empty() {
            return Ok(false);
        }
        let text = self.sql(catalog::RAW_CREATE.of(raw));
        let wanted = columns_of(&text.0);
        if columns.iter().map(|column| column.to_lowercase()).eq(wanted) {
            return Ok(true);
        }
        let message = format!("the table `{}` exists, and Tidemill did not create it", raw.table);
        Err(refused(message, "rename the table, or choose another name for the feed"))
    }
}

/// Returns the columns of a CREATE TABLE statement with their types, sorted.
fn columns_of(text: &str) -> Vec<String> {
    let lines = text.lines().skip(1);
    let mut columns: Vec<String> = lines
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let name = words.next()?.trim_matches('"');
            let kind = words.next()?.trim_end_matches(',');
            let kind = if kind == "timestamptz" { "timestamp with time zone" } else { kind };
            (name != ")").then(|| format!("{name} {kind}").to_lowercase())
        })
        .collect();
    columns.sort();
    columns
}

/// Returns the names of the raw tables of all feeds on PostgreSQL.
pub(crate) async fn existing(conn: &mut PgConnection, schema: &Schema) -> Result<Vec<String>, Error> {
    let failed = |source| Error::database("list raw tables", source);
    let text = schema.render("SELECT kind, feed FROM {ops}.feeds");
    let feeds: Vec<(String, String)> =
        sqlx::query_as(AssertSqlSafe(text)).persistent(false).fetch_all(&mut *conn).await.map_err(failed)?;
    let names: Vec<String> =
        feeds.iter().map(|(kind, feed)| schema.raw_name(&RawTable::of(kind, feed))).collect();
    sqlx::query_scalar("SELECT n.name FROM unnest($1::text[]) n (name) WHERE to_regclass(n.name) IS NOT NULL")
        .bind(names)
        .persistent(false)
        .fetch_all(conn)
        .await
        .map_err(failed)
}

async fn lock(conn: &mut PgConnection, name: &str) -> Result<(), Error> {
    sqlx::query("SELECT pg_advisory_xact_lock(hashtext('tidemill raw table ' || $1))")
        .bind(name)
        .persistent(false)
        .execute(conn)
        .await
        .map_err(|source| Error::database("lock a raw table", source))?;
    Ok(())
}

fn denied(name: &str, source: sqlx::Error) -> Error {
    let code = source.as_database_error().and_then(sqlx::error::DatabaseError::code);
    if code.as_deref() == Some("42501") {
        let message = format!("the database user lacks the privilege to create the table {name} of the feed");
        return refused(message, "add the feed as the owner of the schema, or grant CREATE on it");
    }
    Error::database("create the raw table of a feed", source)
}

fn refused(message: String, hint: &str) -> Error {
    Error::Refused(Refusal { code: RefusalCode::BadValue, message, hint: Some(hint.to_owned()) })
}
