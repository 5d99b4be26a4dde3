//! Names of users' tables, and the names that no feed may write.

use crate::schema::quoted;
use crate::{Schema, migrate};
use tidemill_core::feed_definition::target::TableName;

/// Beginnings of the names of raw tables.
const RAW_PREFIXES: [&str; 2] = ["raw_diamonds_", "raw_records_"];

/// Returns the quoted name of a table with its schema.
pub(super) fn table_sql(schema: &Schema, name: &TableName) -> String {
    if schema.is_sqlite() {
        return format!("main.{}", quoted(&name.table));
    }
    format!("{}.{}", quoted(&name.schema), quoted(&name.table))
}

/// Returns the name by which the database knows a table: equal for all spellings of one table.
pub(crate) fn table_key(schema: &Schema, name: &TableName) -> String {
    if schema.is_sqlite() { name.table.to_ascii_lowercase() } else { name.to_string() }
}

/// Returns a list of quoted columns.
pub(super) fn columns_sql<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(quoted).collect::<Vec<_>>().join(", ")
}

/// Returns why no feed may write a table of this name.
pub(super) fn forbidden(schema: &Schema, name: &TableName) -> Option<String> {
    if schema.is_sqlite() { forbidden_sqlite(name) } else { forbidden_postgres(schema, name) }
}

fn forbidden_postgres(schema: &Schema, name: &TableName) -> Option<String> {
    let lower = name.schema.to_ascii_lowercase();
    if lower.starts_with("pg_") || lower == "information_schema" {
        return Some(format!(
            "the schema `{}` belongs to the database; choose a schema of yours",
            name.schema
        ));
    }
    if name.schema == schema.name() {
        return Some(format!("the schema `{}` belongs to Tidemill; choose a schema of yours", name.schema));
    }
    let is_ours = name.schema == schema.sync_name()
        && (migrate::sync_tables().any(|table| table == name.table) || is_raw(&name.table));
    is_ours.then(|| format!("the table `{name}` belongs to Tidemill; choose another name"))
}

fn forbidden_sqlite(name: &TableName) -> Option<String> {
    if !["main", "public"].iter().any(|known| name.schema.eq_ignore_ascii_case(known)) {
        let schema = &name.schema;
        return Some(format!("SQLite has no schema `{schema}`; write `main.{}`", name.table));
    }
    let table = name.table.to_ascii_lowercase();
    if table.starts_with("sqlite_") {
        return Some(format!("the table `{}` belongs to the database; choose another name", name.table));
    }
    let is_ours = migrate::sqlite_tables().any(|ours| ours == table)
        || is_raw(&table)
        || table.starts_with("tidemill_");
    is_ours.then(|| format!("the table `{}` belongs to Tidemill; choose another name", name.table))
}

fn is_raw(table: &str) -> bool {
    RAW_PREFIXES.iter().any(|prefix| table.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> TableName {
        let (schema, table) = text.split_once('.').unwrap();
        TableName { schema: schema.to_owned(), table: table.to_owned() }
    }

    #[test]
    fn own_tables_and_catalogs_are_forbidden() {
        let postgres = Schema::postgres("ops").unwrap();
        for table in [
            "ops.orders",
            "pg_catalog.pg_class",
            "PG_TEMP.x",
            "information_schema.tables",
            "public.diamonds",
            "public.run_metadata",
            "public.raw_records_orders",
        ] {
            assert!(forbidden(&postgres, &name(table)).is_some(), "{table}");
        }
        for table in ["public.orders", "shop.diamonds", "OPS.orders", "public.Diamonds"] {
            assert_eq!(forbidden(&postgres, &name(table)), None, "{table}");
        }
        let sqlite = Schema::sqlite();
        for table in [
            "shop.orders",
            "temp.x",
            "main.sqlite_master",
            "public.RUNS",
            "main.Diamonds",
            "main.raw_records_x",
            "main.tidemill_settings",
            "main.feed_records",
        ] {
            assert!(forbidden(&sqlite, &name(table)).is_some(), "{table}");
        }
        assert_eq!(forbidden(&sqlite, &name("PUBLIC.orders")), None);
    }

    #[test]
    fn names_are_quoted() {
        let table = TableName { schema: "sh\"op".to_owned(), table: "a; DROP TABLE x --".to_owned() };
        let postgres = Schema::postgres("ops").unwrap();
        assert_eq!(table_sql(&postgres, &table), "\"sh\"\"op\".\"a; DROP TABLE x --\"");
        assert_eq!(columns_sql(["a\"b", "C"]), "\"a\"\"b\", \"C\"");
    }
}
