//! Replaces the functions that Tidemill created, and only those. Other functions of the schema belong to the user.
//!
//! PostgreSQL allows many functions with one name, so a name does not tell who created a function. `migrate` keeps a
//! list of the signatures that it created in the table of settings. There it survives a dump and cannot be changed by
//! accident, unlike a comment on the function. A user's function with exactly the signature of one of ours is refused,
//! and nothing is changed.

use super::bookkeeping::Bookkeeping as _;
use super::failed;
use crate::{Error, Schema};
use sqlx::{AssertSqlSafe, PgConnection};
use std::collections::HashSet;

/// All functions of the schema. Signatures do not depend on `search_path`; the schema itself is written as `@`.
const FUNCTIONS: &str = "
SELECT p.oid::bigint AS oid, p.oid::regprocedure::text AS shown, p.proname::text AS name,
       p.proname || '(' || coalesce((
           SELECT string_agg(CASE WHEN t.typnamespace = p.pronamespace THEN '@' ELSE quote_ident(n.nspname) END
                             || '.' || quote_ident(t.typname), ',' ORDER BY a.place)
             FROM unnest(p.proargtypes) WITH ORDINALITY a (type, place)
             JOIN pg_type t ON t.oid = a.type JOIN pg_namespace n ON n.oid = t.typnamespace), '') || ')' AS signature,
       p.prorettype = 'trigger'::regtype
           OR EXISTS (SELECT FROM pg_depend d
                       WHERE d.refclassid = 'pg_proc'::regclass AND d.refobjid = p.oid) AS is_used,
       p.xmin = pg_current_xact_id()::xid AS is_new
  FROM pg_proc p WHERE p.pronamespace = $1::regnamespace ORDER BY p.oid";

/// Rights to call functions, other than those of their owners.
const GRANTS: &str = "
SELECT p.proname::text AS name,
       CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS grantee,
       a.is_grantable
  FROM pg_proc p, aclexplode(p.proacl) a
 WHERE p.oid::bigint = ANY ($1) AND a.grantee <> p.proowner";

/// A function of the schema.
#[derive(Debug)]
pub(crate) struct Function {
    oid: i64,
    /// The signature as PostgreSQL writes it, for use in a statement.
    pub(crate) shown: String,
    pub(crate) name: String,
    signature: String,
    /// Whether another object depends on it.
    is_used: bool,
    /// Whether this transaction has created or replaced it.
    is_new: bool,
}

#[derive(Debug)]
struct Grant {
    name: String,
    grantee: String,
    is_grantable: bool,
}

/// The functions of the schema that Tidemill created.
pub(crate) async fn ours(conn: &mut PgConnection, schema: &Schema) -> Result<Vec<Function>, Error> {
    let list = conn.setting(schema, "functions").await?.unwrap_or_default();
    let signatures: HashSet<&str> = list.lines().collect();
    let mut functions = all(conn, schema).await?;
    functions.retain(|function| signatures.contains(function.signature.as_str()));
    Ok(functions)
}

async fn all(conn: &mut PgConnection, schema: &Schema) -> Result<Vec<Function>, Error> {
    let rows: Vec<(i64, String, String, String, bool, bool)> = sqlx::query_as(FUNCTIONS)
        .bind(schema.name())
        .persistent(false)
        .fetch_all(conn)
        .await
        .map_err(failed)?;
    let functions = rows.into_iter().map(|(oid, shown, name, signature, is_used, is_new)| Function {
        oid,
        shown,
        name,
        signature,
        is_used,
        is_new,
    });
    Ok(functions.collect())
}

/// Reads the rights to call these functions.
async fn grants(conn: &mut PgConnection, oids: &[i64]) -> Result<Vec<Grant>, Error> {
    let rows: Vec<(String, String, bool)> =
        sqlx::query_as(GRANTS).bind(oids).persistent(false).fetch_all(conn).await.map_err(failed)?;
    let grants = rows.into_iter().map(|(name, grantee, is_grantable)| Grant { name, grantee, is_grantable });
    Ok(grants.collect())
}

/// Replaces the functions and triggers. Exactly one of each remains, and granted rights stay.
///
/// `code` is the rendered form of `templates`. `before` are the functions that Tidemill created earlier.
pub(super) async fn renew(
    conn: &mut PgConnection,
    schema: &Schema,
    templates: &[&str],
    code: String,
    before: Vec<Function>,
) -> Result<(), Error> {
    let oids: Vec<i64> = before.iter().map(|function| function.oid).collect();
    let grants = grants(conn, &oids).await?;
    let foreign: HashSet<i64> = all(conn, schema)
        .await?
        .into_iter()
        .map(|function| function.oid)
        .filter(|oid| !oids.contains(oid))
        .collect();
    drop_functions(conn, templates, &before).await?;
    sqlx::raw_sql(AssertSqlSafe(code)).execute(&mut *conn).await.map_err(|error| collision(schema, error))?;
    let mut made = all(conn, schema).await?;
    made.retain(|function| function.is_new);
    if let Some(function) = made.iter().find(|function| foreign.contains(&function.oid)) {
        return Err(refused(schema, &format!("function `{}`", function.shown)));
    }
    let list: Vec<&str> = made.iter().map(|function| function.signature.as_str()).collect();
    conn.set(schema, "functions", &list.join("\n")).await?;
    give_rights(conn, &made, &grants).await
}

/// Drops the functions that the code creates again, and those that it no longer creates and no object uses.
async fn drop_functions(
    conn: &mut PgConnection,
    templates: &[&str],
    before: &[Function],
) -> Result<(), Error> {
    let (made, replaced) =
        (names(templates, "CREATE FUNCTION"), names(templates, "CREATE OR REPLACE FUNCTION"));
    let is_dropped = |function: &&Function| {
        let name = function.name.as_str();
        made.contains(name) || (!replaced.contains(name) && !function.is_used)
    };
    let dropped: Vec<&str> =
        before.iter().filter(is_dropped).map(|function| function.shown.as_str()).collect();
    if dropped.is_empty() {
        return Ok(());
    }
    conn.script(format!("DROP FUNCTION {}", dropped.join(", "))).await
}

/// The names of the functions that the code creates with this command.
fn names<'t>(templates: &[&'t str], command: &str) -> HashSet<&'t str> {
    let lines = templates.iter().flat_map(|text| text.lines());
    let names = lines.filter_map(|line| {
        let (name, _) = line.strip_prefix(command)?.strip_prefix(" {ops}.")?.split_once('(')?;
        Some(name)
    });
    names.collect()
}

/// Revokes the right to call our functions from PUBLIC, and grants the earlier rights again.
async fn give_rights(conn: &mut PgConnection, made: &[Function], grants: &[Grant]) -> Result<(), Error> {
    let shown: Vec<&str> = made.iter().map(|function| function.shown.as_str()).collect();
    conn.script(format!("REVOKE ALL ON FUNCTION {} FROM PUBLIC", shown.join(", "))).await?;
    for Grant { name, grantee, is_grantable } in grants {
        let option = if *is_grantable { " WITH GRANT OPTION" } else { "" };
        for function in made.iter().filter(|function| function.name == *name) {
            let text = format!("GRANT EXECUTE ON FUNCTION {} TO {grantee}{option}", function.shown);
            conn.script(text).await?;
        }
    }
    Ok(())
}

/// The error for a user's function that has the signature of one of ours.
fn collision(schema: &Schema, error: sqlx::Error) -> Error {
    let database = error.as_database_error();
    match database.filter(|error| error.code().as_deref() == Some("42723")) {
        Some(database) => refused(schema, &format!("a function ({})", database.message())),
        None => failed(error),
    }
}

fn refused(schema: &Schema, what: &str) -> Error {
    Error::Schema {
        what: format!(
            "schema `{}` holds {what} that Tidemill did not create, with the name and parameters of one of its own",
            schema.name()
        ),
        hint: "rename that function, or give Tidemill a schema of its own: --schema NAME".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_the_code_are_found_by_name() {
        let made = names(super::super::code::POSTGRES_CODE, "CREATE FUNCTION");
        for name in ["queue_run", "claim_next_run", "append_event", "finish_run", "sweep", "lease_guard"] {
            assert!(made.contains(name), "{name}");
        }
        assert!(
            names(super::super::code::POSTGRES_CODE, "CREATE OR REPLACE FUNCTION").contains("guard_step")
        );
    }
}
