//! Plans the statements that make a user's table fit a definition.

use super::{TablePlan, TargetTable, names, statements, unusable};
use crate::schema::quoted;
use crate::tx::Conn;
use crate::{Error, Schema, Store};
use sqlx::AssertSqlSafe;
use std::collections::BTreeSet;
use tidemill_core::feed_definition::target::{Column, ColumnType, ContractMode, Target, WriteDisposition};

/// Longest wait for the lock of a table that is changed.
const LOCK_SECS: u32 = 5;

impl Store {
    /// Plans the statements that make the table of a definition fit. Changes nothing.
    pub async fn plan_table(&self, into: &Target) -> Result<TablePlan, Error> {
        if let Some(problem) = names::forbidden(&self.context.schema, &into.table) {
            let (table, problems) = (into.table.clone(), vec![problem]);
            return Ok(TablePlan { table, exists: false, statements: Vec::new(), problems });
        }
        let wanted = into.clone();
        let (existing, has_schema) = self
            .read(move |mut tx| {
                Box::pin(async move {
                    let has_schema = tx.schema_exists(&wanted.table.schema).await?;
                    Ok((tx.target_table(&wanted).await?, has_schema))
                })
            })
            .await?;
        Ok(plan_table(&self.context.schema, into, existing.as_ref(), has_schema))
    }

    /// Runs the statements of a plan in one transaction.
    pub async fn create_target(&self, plan: &TablePlan) -> Result<(), Error> {
        if let Some(problem) = plan.problems.first() {
            return Err(unusable(problem.clone()));
        }
        if plan.statements.is_empty() {
            return Ok(());
        }
        let plan = plan.clone();
        self.write(move |mut tx| {
            Box::pin(async move {
                tx.limit_locks(LOCK_SECS).await?;
                for text in &plan.statements {
                    let text = AssertSqlSafe(text.clone());
                    let done = match &mut tx.conn {
                        Conn::Postgres(conn) => sqlx::raw_sql(text).execute(&mut **conn).await.map(|_| ()),
                        Conn::Sqlite(conn) => sqlx::raw_sql(text).execute(&mut **conn).await.map(|_| ()),
                    };
                    done.map_err(|error| statements::creation_error(&plan.table, error))?;
                }
                Ok(())
            })
        })
        .await
    }
}

/// Plans the statements for a table, and lists why it cannot be used.
fn plan_table(schema: &Schema, into: &Target, existing: Option<&TargetTable>, has_schema: bool) -> TablePlan {
    let mut plan = TablePlan {
        table: into.table.clone(),
        exists: existing.is_some(),
        statements: Vec::new(),
        problems: Vec::new(),
    };
    if into.columns.is_empty() {
        plan.problems
            .push(format!("the definition of `{}` has no columns; list them below `columns`", into.table));
        return plan;
    }
    check_definition(into, &mut plan.problems);
    match existing {
        None => plan_creation(schema, into, has_schema, &mut plan),
        Some(table) => plan_change(schema, into, table, &mut plan),
    }
    plan
}

fn check_definition(into: &Target, problems: &mut Vec<String>) {
    for key in &into.primary_key {
        if !into.columns.iter().any(|column| column.name == *key) {
            problems.push(format!("the column `{key}` of the primary key is not among the columns"));
        }
    }
    let Some(deleted_at) = &into.deleted_at else { return };
    if into.columns.iter().any(|column| column.name == *deleted_at) {
        problems.push(format!("the column `{deleted_at}` marks deleted rows and cannot have another value"));
    }
    if into.write_disposition == WriteDisposition::Append {
        problems.push(format!("appended rows are not deleted; remove `deleted_at: {deleted_at}`"));
    }
}

fn plan_creation(schema: &Schema, into: &Target, has_schema: bool, plan: &mut TablePlan) {
    let table = &into.table;
    match into.schema_contract.tables {
        ContractMode::Evolve => {}
        ContractMode::Freeze | ContractMode::DiscardRow | ContractMode::DiscardValue => {
            plan.problems.push(format!(
                "the table `{table}` does not exist; create it, or set `schema_contract` to `evolve`"
            ));
            return;
        }
    }
    if !has_schema {
        plan.statements.push(format!("CREATE SCHEMA {}", quoted(&table.schema)));
    }
    let mut lines: Vec<String> = into
        .columns
        .iter()
        .map(|column| {
            let is_required = !column.nullable || into.primary_key.contains(&column.name);
            let not_null = if is_required { " NOT NULL" } else { "" };
            format!("{}{not_null}", column_sql(schema, column))
        })
        .collect();
    lines.extend(into.deleted_at.as_ref().map(|name| deleted_at_sql(schema, name)));
    if has_keys(into) {
        let keys = names::columns_sql(into.primary_key.iter().map(String::as_str));
        lines.push(format!("PRIMARY KEY ({keys})"));
    }
    let table = names::table_sql(schema, table);
    plan.statements.push(format!("CREATE TABLE {table} (\n    {}\n)", lines.join(",\n    ")));
}

fn plan_change(schema: &Schema, into: &Target, table: &TargetTable, plan: &mut TablePlan) {
    let missing = into.columns.iter().filter(|column| table.column(&column.name).is_none());
    let mut added: Vec<(&str, String)> =
        missing.map(|column| (column.name.as_str(), column_sql(schema, column))).collect();
    let marker = into.deleted_at.as_deref().filter(|name| table.column(name).is_none());
    added.extend(marker.map(|name| (name, deleted_at_sql(schema, name))));
    for (name, text) in added {
        match into.schema_contract.columns {
            ContractMode::Evolve => {
                let table = names::table_sql(schema, &into.table);
                plan.statements.push(format!("ALTER TABLE {table} ADD COLUMN {text}"));
            }
            // A sync leaves the values of the column out.
            ContractMode::DiscardValue if marker != Some(name) => {}
            // Each record has the column, so a sync would discard all of them.
            ContractMode::Freeze | ContractMode::DiscardRow | ContractMode::DiscardValue => {
                plan.problems.push(format!(
                    "the table `{}` has no column `{name}`; add it, or set `schema_contract` to `evolve`",
                    into.table
                ));
            }
        }
    }
    check_existing(into, table, &mut plan.problems);
}

fn check_existing(into: &Target, table: &TargetTable, problems: &mut Vec<String>) {
    let name = &into.table;
    if has_keys(into) && !has_unique_key(into, table) {
        let keys = names::columns_sql(into.primary_key.iter().map(String::as_str));
        problems.push(format!(
            "the table `{name}` has no unique index on ({keys}), the key of merged rows; create one"
        ));
    }
    for column in &table.columns {
        let is_filled = into
            .columns
            .iter()
            .any(|filled| table.column(&filled.name).is_some_and(|known| known.name == column.name));
        if is_filled && column.is_generated {
            problems.push(format!(
                "the column `{}` of `{name}` is generated by the database; remove it from the definition",
                column.name
            ));
        }
        if !is_filled && !column.nullable && !column.has_default && !column.is_generated {
            problems.push(format!(
                "the column `{}` of `{name}` is NOT NULL and has no default; add it to the definition",
                column.name
            ));
        }
    }
}

fn has_unique_key(into: &Target, table: &TargetTable) -> bool {
    let wanted: BTreeSet<&str> = into
        .primary_key
        .iter()
        .map(|key| table.column(key).map_or(key.as_str(), |column| column.name.as_str()))
        .collect();
    table.unique_keys.iter().any(|key| key.iter().map(String::as_str).collect::<BTreeSet<_>>() == wanted)
}

/// Returns whether rows are identified by the primary key.
fn has_keys(into: &Target) -> bool {
    match into.write_disposition {
        WriteDisposition::Merge | WriteDisposition::Replace => true,
        WriteDisposition::Append => false,
    }
}

fn column_sql(schema: &Schema, column: &Column) -> String {
    let kind =
        if schema.is_sqlite() { sqlite_type(column.column_type) } else { postgres_type(column.column_type) };
    format!("{} {kind}", quoted(&column.name))
}

fn deleted_at_sql(schema: &Schema, name: &str) -> String {
    let kind = if schema.is_sqlite() { "TEXT" } else { "timestamptz" };
    format!("{} {kind}", quoted(name))
}

/// Returns the type of a new column. An integer beyond 64 bits does not fit, and its record is rejected.
const fn postgres_type(column_type: ColumnType) -> &'static str {
    match column_type {
        ColumnType::Text => "text",
        ColumnType::Integer => "bigint",
        ColumnType::Decimal => "numeric",
        ColumnType::Boolean => "boolean",
        ColumnType::Timestamp => "timestamptz",
        ColumnType::Date => "date",
        ColumnType::Json => "jsonb",
    }
}

/// Returns the type of a new column. Decimal numbers are texts, because SQLite would round them.
const fn sqlite_type(column_type: ColumnType) -> &'static str {
    match column_type {
        ColumnType::Integer => "INTEGER",
        ColumnType::Boolean => "BOOLEAN",
        ColumnType::Text
        | ColumnType::Decimal
        | ColumnType::Timestamp
        | ColumnType::Date
        | ColumnType::Json => "TEXT",
    }
}
