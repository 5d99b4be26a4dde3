//! The privileges of every role on every schema, table, sequence and function, as stated in `matrix.tsv`.
//!
//! The objects come from the catalogs of PostgreSQL, so an object without a row fails the test. The letters are those
//! of PostgreSQL's access lists: `a` INSERT, `r` SELECT, `w` UPDATE, `d` DELETE, `D` TRUNCATE, `x` REFERENCES, `t`
//! TRIGGER, `X` EXECUTE, `U` USAGE, `C` CREATE. `r(-hash)` is SELECT on every column except `hash`.

use crate::{Access, Session};
use std::collections::{BTreeMap, BTreeSet};

const TABLE: &str = include_str!("matrix.tsv");
const FILE: &str = "crates/store/tests/sql_access/matrix.tsv";

/// Columns whose names sound like a secret and that readers may see: digests of public content, names of environment
/// variables, ids, and tokens of pages, from which credentials are removed.
const PUBLIC_COLUMNS: [&str; 13] = [
    "agents.token_id",
    "audit.token_id",
    "audit_seals.hash",
    "diamonds.payload_hash",
    "feed_records.built_hash",
    "feeds.password_env",
    "hook_deliveries.body_hash",
    "hooks.secret_env",
    "pages.page_hash",
    "partition_progress.next_token",
    "raw_diamonds_nivoda.payload_hash",
    "request_keys.body_hash",
    "tokens.token_id",
];

/// Privileges of one object by role: owner, worker, reader, and a login without a role.
type Cells = [String; 4];

fn stated() -> BTreeMap<String, Cells> {
    let mut rows = BTreeMap::new();
    for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let parts: Vec<&str> = line.split('\t').collect();
        let [kind, name, owner, worker, reader, public] = parts[..] else {
            panic!("{FILE}: `{line}` has {} columns; it needs kind, name and four roles", parts.len())
        };
        let cells = [owner, worker, reader, public].map(str::to_owned);
        assert!(rows.insert(format!("{kind}\t{name}"), cells).is_none(), "{FILE}: {name} has two rows");
    }
    rows
}

/// Returns the privileges of one login on every object.
async fn privileges(session: &mut Session, login: &str) -> BTreeMap<String, String> {
    let letters = "('a', 'INSERT'), ('r', 'SELECT'), ('w', 'UPDATE'), ('d', 'DELETE'), ('D', 'TRUNCATE'), \
                   ('x', 'REFERENCES'), ('t', 'TRIGGER')";
    let text = format!(
        "SELECT 'schema' || E'\\t' || n.nspname || E'\\t' || coalesce( \
                (SELECT string_agg(l.letter, '' ORDER BY l.letter DESC) \
                   FROM (VALUES ('U', 'USAGE'), ('C', 'CREATE')) l (letter, name) \
                  WHERE has_schema_privilege('{login}', n.oid, l.name)), '-') \
           FROM pg_namespace n WHERE n.nspname = 'ops' \
         UNION ALL \
         SELECT CASE c.relkind WHEN 'S' THEN 'sequence' WHEN 'v' THEN 'view' ELSE 'table' END \
                || E'\\t' || c.relname || E'\\t' || coalesce( \
                (SELECT string_agg(l.letter, '' ORDER BY l.place) \
                   FROM (SELECT v.letter, v.name, row_number() OVER () AS place \
                           FROM (VALUES {letters}) v (letter, name)) l \
                  WHERE has_table_privilege('{login}', c.oid, l.name)), \
                (SELECT 'r(-' || string_agg(a.attname, ',' ORDER BY a.attname) || ')' FROM pg_attribute a \
                  WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND c.relkind <> 'S' \
                    AND has_any_column_privilege('{login}', c.oid, 'SELECT') \
                    AND NOT has_column_privilege('{login}', c.oid, a.attnum, 'SELECT')), '-') \
           FROM pg_class c WHERE c.relnamespace IN ('ops'::regnamespace, 'public'::regnamespace) \
            AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') \
         UNION ALL \
         SELECT 'function' || E'\\t' || p.proname || E'\\t' \
                || CASE WHEN has_function_privilege('{login}', p.oid, 'EXECUTE') THEN 'X' ELSE '-' END \
           FROM pg_proc p WHERE p.pronamespace IN ('ops'::regnamespace, 'public'::regnamespace)"
    );
    let lines = session.texts(&text).await;
    let split = |line: &String| line.rsplit_once('\t').map(|(name, cell)| (name.to_owned(), cell.to_owned()));
    lines.iter().filter_map(split).collect()
}

#[tokio::test]
async fn every_object_grants_each_role_what_the_table_states() {
    let mut access = Access::open().await;
    let roles = [&access.names.owner, &access.names.worker, &access.names.reader].map(Clone::clone);
    let mut logins = Vec::new();
    for (role, name) in roles.iter().zip(["o", "w", "r"]) {
        logins.push(access.login(name, &[role]).await.login);
    }
    logins.push(access.login("stranger", &[]).await.login);
    let mut superuser = access.superuser().await;
    let mut found: BTreeMap<String, Cells> = BTreeMap::new();
    for (place, login) in logins.iter().enumerate() {
        for (name, cell) in privileges(&mut superuser, login).await {
            found.entry(name).or_default()[place] = cell;
        }
    }
    let mut stated = stated();
    let mut problems = Vec::new();
    for (name, cells) in &found {
        let row = format!("{name}\t{}", cells.join("\t"));
        match stated.remove(name) {
            None => problems.push(format!("{FILE} has no row for an object; decide, and add: {row}")),
            Some(row_cells) if row_cells != *cells => {
                problems.push(format!("the database grants `{row}`, and {FILE} says {row_cells:?}"));
            }
            Some(_) => {}
        }
    }
    problems.extend(stated.keys().map(|name| format!("{FILE} has a row for {name}, which does not exist")));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    // Tables in the schema of syncs can have other owners, so the worker role must see neither them nor ours.
    let worker_tables: BTreeSet<&String> = found
        .iter()
        .filter(|(name, cells)| name.starts_with("table\t") && cells[1] != "-")
        .map(|row| row.0)
        .collect();
    let bookkeeping = ["table\ttidemill_migrations", "table\ttidemill_settings"].map(str::to_owned);
    assert_eq!(worker_tables, bookkeeping.iter().collect());
}

#[tokio::test]
async fn readers_see_no_column_that_holds_a_secret() {
    let mut access = Access::open().await;
    let reader_role = access.names.reader.clone();
    let mut reader = access.login("reader_login", &[&reader_role]).await;
    let mut superuser = access.superuser().await;
    let visible = superuser
        .texts(&format!(
            "SELECT c.relname || '.' || a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid \
              WHERE c.relnamespace IN ('ops'::regnamespace, 'public'::regnamespace) \
                AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND a.attnum > 0 AND NOT a.attisdropped \
                AND a.attname ~ 'hash|secret|password|token|csrf' \
                AND has_column_privilege('{}', c.oid, a.attnum, 'SELECT') ORDER BY 1",
            reader.login
        ))
        .await;
    assert_eq!(visible, PUBLIC_COLUMNS, "revoke a new column from readers, or list it here if it is public");
    for column in ["tokens.hash", "sessions.hash", "agents.secret_hash"] {
        let (table, column) = column.split_once('.').unwrap();
        let (state, message) = reader.refusal(&format!("SELECT {column} FROM ops.{table}")).await;
        assert_eq!(state, "42501", "{message}");
    }
    reader.rows("SELECT token_id, name, role FROM ops.tokens").await;
}
