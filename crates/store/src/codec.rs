//! How values look in the two databases. The only file where their types differ.
//!
//! | value | PostgreSQL | SQLite |
//! |---|---|---|
//! | time | `timestamptz` | microseconds since 1970, as an integer |
//! | JSON | `jsonb` | text |
//! | list of words | `text[]` | JSON text |
//! | worker id | `uuid` | text |

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgTypeInfo, PgValueRef};
use sqlx::sqlite::{SqliteArgumentsBuffer, SqliteTypeInfo, SqliteValueRef};
use sqlx::{Decode, Encode, Postgres, Sqlite, Type};
use std::str::FromStr;
use tidemill_core::{Json, Timestamp, WorkerId};
use uuid::Uuid;

/// A time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct At(pub(crate) Timestamp);

/// A JSON document.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Doc(pub(crate) Json);

/// A list of words.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Words(pub(crate) Vec<String>);

/// A worker's id.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Boot(pub(crate) WorkerId);

/// The id of a sync, a bare UUID.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bare(pub(crate) Uuid);

/// Delegates a type to one that sqlx knows, for one database.
macro_rules! as_native {
    ($type:ty, $db:ty, $info:ty, $buffer:ty, $value:ident, $native:ty, $to:expr, $from:expr) => {
        impl Type<$db> for $type {
            fn type_info() -> $info {
                <$native as Type<$db>>::type_info()
            }
            fn compatible(info: &$info) -> bool {
                <$native as Type<$db>>::compatible(info)
            }
        }
        impl Encode<'_, $db> for $type {
            fn encode_by_ref(&self, buffer: &mut $buffer) -> Result<IsNull, BoxDynError> {
                let to: fn(&$type) -> Result<$native, BoxDynError> = $to;
                <$native as Encode<'_, $db>>::encode(to(self)?, buffer)
            }
        }
        impl<'r> Decode<'r, $db> for $type {
            fn decode(value: $value<'r>) -> Result<Self, BoxDynError> {
                let from: fn($native) -> Result<$type, BoxDynError> = $from;
                from(<$native as Decode<'r, $db>>::decode(value)?)
            }
        }
    };
}

macro_rules! postgres {
    ($type:ty as $native:ty, $to:expr, $from:expr) => {
        as_native!($type, Postgres, PgTypeInfo, PgArgumentBuffer, PgValueRef, $native, $to, $from);
    };
}

macro_rules! sqlite {
    ($type:ty as $native:ty, $to:expr, $from:expr) => {
        as_native!($type, Sqlite, SqliteTypeInfo, SqliteArgumentsBuffer, SqliteValueRef, $native, $to, $from);
    };
}

postgres!(At as Timestamp, |at| Ok(at.0), |at| Ok(At(at)));
sqlite!(At as i64, |at| Ok(at.0.timestamp_micros()), |micros| {
    Timestamp::from_timestamp_micros(micros).map(At).ok_or_else(|| "a time is out of range".into())
});
postgres!(Doc as sqlx::types::Json<Json>, |doc| Ok(sqlx::types::Json(doc.0.clone())), |json| Ok(Doc(json.0)));
sqlite!(Doc as String, |doc| Ok(doc.0.to_string()), |text| Ok(Doc(serde_json::from_str(&text)?)));
postgres!(Words as Vec<String>, |words| Ok(words.0.clone()), |words| Ok(Words(words)));
sqlite!(Words as String, |words| Ok(serde_json::to_string(&words.0)?), |text| {
    Ok(Words(serde_json::from_str(&text)?))
});
postgres!(Boot as Uuid, |boot| Ok(boot.0.0), |uuid| Ok(Boot(WorkerId(uuid))));
sqlite!(Boot as String, |boot| Ok(boot.0.0.to_string()), |text| Ok(Boot(WorkerId(Uuid::from_str(&text)?))));

postgres!(Bare as Uuid, |bare| Ok(bare.0), |uuid| Ok(Bare(uuid)));
sqlite!(Bare as String, |bare| Ok(bare.0.to_string()), |text| Ok(Bare(Uuid::from_str(&text)?)));

/// A row of either database, read column by column.
pub(crate) trait Columns {
    /// A text that is not NULL.
    fn text(&self, column: &str) -> sqlx::Result<String>;
    /// A text.
    fn text_or_null(&self, column: &str) -> sqlx::Result<Option<String>>;
    /// An integer that is not NULL.
    fn int(&self, column: &str) -> sqlx::Result<i32>;
    /// An integer.
    fn int_or_null(&self, column: &str) -> sqlx::Result<Option<i32>>;
    /// A large integer.
    fn long_or_null(&self, column: &str) -> sqlx::Result<Option<i64>>;
    /// A number.
    fn number_or_null(&self, column: &str) -> sqlx::Result<Option<f64>>;
    /// A truth value.
    fn truth(&self, column: &str) -> sqlx::Result<bool>;
    /// A truth value that may be missing.
    fn truth_or_null(&self, column: &str) -> sqlx::Result<Option<bool>>;
    /// Bytes.
    fn bytes(&self, column: &str) -> sqlx::Result<Vec<u8>>;
    /// A bare UUID.
    fn uuid_or_null(&self, column: &str) -> sqlx::Result<Option<Uuid>>;
    /// A time.
    fn time_or_null(&self, column: &str) -> sqlx::Result<Option<Timestamp>>;
    /// A JSON document.
    fn json(&self, column: &str) -> sqlx::Result<Json>;
    /// A JSON document that may be missing.
    fn json_or_null(&self, column: &str) -> sqlx::Result<Option<Json>>;
    /// A list of words.
    fn words(&self, column: &str) -> sqlx::Result<Vec<String>>;
    /// A worker's id.
    fn worker_or_null(&self, column: &str) -> sqlx::Result<Option<WorkerId>>;

    /// A large integer that is not NULL.
    fn long(&self, column: &str) -> sqlx::Result<i64> {
        self.long_or_null(column)?.ok_or_else(|| unexpected(column, "NULL"))
    }
    /// A time that is not NULL.
    fn time(&self, column: &str) -> sqlx::Result<Timestamp> {
        self.time_or_null(column)?.ok_or_else(|| unexpected(column, "NULL"))
    }
    /// A bare UUID that is not NULL.
    fn uuid(&self, column: &str) -> sqlx::Result<Uuid> {
        self.uuid_or_null(column)?.ok_or_else(|| unexpected(column, "NULL"))
    }
    /// A label or id.
    fn parsed<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(
        &self,
        column: &str,
    ) -> sqlx::Result<T> {
        self.text(column)?.parse().map_err(|error| decode(column, error))
    }
    /// A label or id that may be missing.
    fn parsed_or_null<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(
        &self,
        column: &str,
    ) -> sqlx::Result<Option<T>> {
        self.text_or_null(column)?.map(|text| text.parse().map_err(|error| decode(column, error))).transpose()
    }
}

/// A value that is kept as JSON.
pub(crate) fn from_json<T: serde::de::DeserializeOwned>(column: &str, json: Json) -> sqlx::Result<T> {
    serde_json::from_value(json).map_err(|error| decode(column, error))
}

fn unexpected(column: &str, what: &str) -> sqlx::Error {
    sqlx::Error::ColumnDecode { index: column.to_owned(), source: format!("{what} where none can be").into() }
}

fn decode(column: &str, error: impl std::error::Error + Send + Sync + 'static) -> sqlx::Error {
    sqlx::Error::ColumnDecode { index: column.to_owned(), source: Box::new(error) }
}

macro_rules! columns {
    ($row:ty) => {
        impl Columns for $row {
            fn text(&self, column: &str) -> sqlx::Result<String> {
                sqlx::Row::try_get(self, column)
            }
            fn text_or_null(&self, column: &str) -> sqlx::Result<Option<String>> {
                sqlx::Row::try_get(self, column)
            }
            fn int(&self, column: &str) -> sqlx::Result<i32> {
                sqlx::Row::try_get(self, column)
            }
            fn int_or_null(&self, column: &str) -> sqlx::Result<Option<i32>> {
                sqlx::Row::try_get(self, column)
            }
            fn long_or_null(&self, column: &str) -> sqlx::Result<Option<i64>> {
                sqlx::Row::try_get(self, column)
            }
            fn number_or_null(&self, column: &str) -> sqlx::Result<Option<f64>> {
                sqlx::Row::try_get(self, column)
            }
            fn truth(&self, column: &str) -> sqlx::Result<bool> {
                sqlx::Row::try_get(self, column)
            }
            fn truth_or_null(&self, column: &str) -> sqlx::Result<Option<bool>> {
                sqlx::Row::try_get(self, column)
            }
            fn bytes(&self, column: &str) -> sqlx::Result<Vec<u8>> {
                sqlx::Row::try_get(self, column)
            }
            fn uuid_or_null(&self, column: &str) -> sqlx::Result<Option<Uuid>> {
                Ok(sqlx::Row::try_get::<Option<Bare>, _>(self, column)?.map(|bare| bare.0))
            }
            fn time_or_null(&self, column: &str) -> sqlx::Result<Option<Timestamp>> {
                Ok(sqlx::Row::try_get::<Option<At>, _>(self, column)?.map(|at| at.0))
            }
            fn json(&self, column: &str) -> sqlx::Result<Json> {
                Ok(sqlx::Row::try_get::<Doc, _>(self, column)?.0)
            }
            fn json_or_null(&self, column: &str) -> sqlx::Result<Option<Json>> {
                Ok(sqlx::Row::try_get::<Option<Doc>, _>(self, column)?.map(|doc| doc.0))
            }
            fn words(&self, column: &str) -> sqlx::Result<Vec<String>> {
                Ok(sqlx::Row::try_get::<Words, _>(self, column)?.0)
            }
            fn worker_or_null(&self, column: &str) -> sqlx::Result<Option<WorkerId>> {
                Ok(sqlx::Row::try_get::<Option<Boot>, _>(self, column)?.map(|boot| boot.0))
            }
        }
    };
}
columns!(sqlx::postgres::PgRow);
columns!(sqlx::sqlite::SqliteRow);
