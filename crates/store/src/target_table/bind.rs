//! Values of users' tables as the databases accept them.

use super::TargetColumn;
use crate::Error;
use sqlx::Sqlite;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use std::borrow::Cow;
use tidemill_core::Timestamp;
use tidemill_core::feed_definition::ColumnValue;

/// Returns the text of a value. PostgreSQL casts it to the type of the column.
pub(super) fn text(value: &ColumnValue, is_sqlite: bool) -> Option<Cow<'_, str>> {
    Some(match value {
        ColumnValue::Null => return None,
        ColumnValue::Text(text)
        | ColumnValue::Integer(text)
        | ColumnValue::Decimal(text)
        | ColumnValue::Json(text) => Cow::Borrowed(text),
        ColumnValue::Boolean(flag) if is_sqlite => Cow::Borrowed(if *flag { "1" } else { "0" }),
        ColumnValue::Boolean(flag) => Cow::Borrowed(if *flag { "true" } else { "false" }),
        ColumnValue::Timestamp(time) => Cow::Owned(time_text(*time)),
        ColumnValue::Date(date) => Cow::Owned(date.format("%Y-%m-%d").to_string()),
    })
}

/// Returns a time as a text of fixed length, so that texts sort as times.
pub(super) fn time_text(time: Timestamp) -> String {
    time.format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// A query on SQLite with its bound values.
pub(super) type SqliteQuery<'q> = Query<'q, Sqlite, SqliteArguments>;

/// Binds a value. Integers and booleans are numbers if the column holds numbers, and texts otherwise.
pub(super) fn bind_sqlite<'q>(
    query: SqliteQuery<'q>,
    column: &TargetColumn,
    value: &ColumnValue,
) -> Result<SqliteQuery<'q>, Error> {
    Ok(match value {
        ColumnValue::Integer(digits) if holds_numbers(&column.database_type) => {
            let number: i64 = digits.parse().map_err(|_| {
                let name = &column.name;
                unsuitable(format!("the column `{name}` holds 64-bit integers, and the value is {digits}"))
            })?;
            query.bind(number)
        }
        ColumnValue::Boolean(flag) if holds_numbers(&column.database_type) => query.bind(i64::from(*flag)),
        ColumnValue::Null
        | ColumnValue::Text(_)
        | ColumnValue::Integer(_)
        | ColumnValue::Decimal(_)
        | ColumnValue::Boolean(_)
        | ColumnValue::Timestamp(_)
        | ColumnValue::Date(_)
        | ColumnValue::Json(_) => query.bind(text(value, true).map(Cow::into_owned)),
    })
}

/// Returns whether SQLite converts texts of a column to numbers, by its rules of type affinity.
fn holds_numbers(declared: &str) -> bool {
    let declared = declared.to_ascii_uppercase();
    let has = |part: &str| declared.contains(part);
    has("INT") || !(declared.is_empty() || ["CHAR", "CLOB", "TEXT", "BLOB"].into_iter().any(has))
}

/// Returns an error of one row, as the database reports them.
pub(super) fn unsuitable(problem: String) -> Error {
    Error::database("write rows", sqlx::Error::Encode(problem.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn affinity_decides_whether_a_column_holds_numbers() {
        for declared in ["INTEGER", "bigint", "BOOLEAN", "decimal(10,2)", "REAL", "charint"] {
            assert!(holds_numbers(declared), "{declared}");
        }
        for declared in ["", "TEXT", "varchar(3)", "BLOB", "clob"] {
            assert!(!holds_numbers(declared), "{declared}");
        }
    }

    #[test]
    fn texts_of_times_have_a_fixed_length() {
        let time = Timestamp::from_timestamp(1_700_000_000, 0).unwrap();
        assert_eq!(time_text(time), "2023-11-14T22:13:20.000000Z");
    }
}
