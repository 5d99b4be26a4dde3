//! Encoding of values in the two databases. Only this file knows how their types differ.
//!
//! | value | PostgreSQL | SQLite |
//! |---|---|---|
//! | time | `timestamptz` | microseconds since 1970, as an integer |
//! | JSON | `jsonb` | text |
//! | list of texts | `text[]` | JSON text |
//! | worker id | `uuid` | text |
//!
//! Both databases can hold values that Rust's types cannot. Reading is therefore lenient:
//! - A time outside the years 1 to 9999 is read as the nearest time in that range, except for watermarks.
//! - An unreadable JSON document is read as a placeholder (see [`tidemill_core::json`]).
//! - An integer beyond 32 bits is read as the nearest one.
//! - Text that is not UTF-8 is read with replacement characters.
//! - An id is not validated.

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgTypeInfo, PgValueFormat, PgValueRef};
use sqlx::sqlite::{SqliteArgumentsBuffer, SqliteTypeInfo, SqliteValueRef};
use sqlx::{Decode, Encode, Postgres, Sqlite, Type};
use std::str::FromStr;
use tidemill_core::project_set::ProjectSet;
use tidemill_core::{EnvId, Json, RunId, Timestamp, WorkerId, json, time};
use uuid::Uuid;

/// Microseconds from 1970 to 2000, the epoch of PostgreSQL timestamps.
const POSTGRES_EPOCH_MICROS: i64 = 946_684_800_000_000;
/// Placeholder for an unreadable list.
const UNREADABLE_TEXT: &str = json::UNREADABLE;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SqlTime(pub(crate) Timestamp);

/// A watermark that is read. Its years may be after 9999, because it may stand for a number.
struct SqlWatermark(Timestamp);

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SqlJson(pub(crate) Json);

/// The text of a JSON document whose length is checked before it is parsed.
struct JsonText<'r>(&'r [u8]);

impl JsonText<'_> {
    fn within(&self, bytes_max: usize) -> Json {
        let length = self.0.len();
        if length <= bytes_max {
            return json::read_stored(self.0);
        }
        json::unreadable(format!("is {length} bytes long; at most {bytes_max} are read"))
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SqlTextList(pub(crate) Vec<String>);

#[derive(Debug, Clone, PartialEq)]
struct Text(String);

#[derive(Debug, Clone, Copy, PartialEq)]
struct Int(i32);

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SqlWorkerId(pub(crate) WorkerId);

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SqlUuid(pub(crate) Uuid);

/// Encodes a type as one that sqlx knows, for one database.
macro_rules! encode_as {
    ($type:ty, $db:ty, $info:ty, $buffer:ty, $native:ty, $to:expr) => {
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
    };
}

/// Delegates a type to one that sqlx knows, for one database.
macro_rules! as_native {
    ($type:ty, $db:ty, $info:ty, $buffer:ty, $value:ident, $native:ty, $to:expr, $from:expr) => {
        encode_as!($type, $db, $info, $buffer, $native, $to);
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

encode_as!(SqlTime, Postgres, PgTypeInfo, PgArgumentBuffer, Timestamp, |at| Ok(at.0));
impl<'r> Decode<'r, Postgres> for SqlTime {
    /// Reads the raw microseconds, because the driver's conversion panics on `infinity` and on years that chrono does
    /// not support.
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        Ok(SqlTime(time::from_micros(postgres_micros(&value)?)))
    }
}
sqlite!(SqlTime as i64, |at| Ok(at.0.timestamp_micros()), |micros| Ok(SqlTime(time::from_micros(micros))));

encode_as!(SqlWatermark, Postgres, PgTypeInfo, PgArgumentBuffer, Timestamp, |at| Ok(at.0));
impl<'r> Decode<'r, Postgres> for SqlWatermark {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        Ok(SqlWatermark(time::watermark_from_micros(postgres_micros(&value)?)))
    }
}
sqlite!(SqlWatermark as i64, |at| Ok(at.0.timestamp_micros()), |micros| {
    Ok(SqlWatermark(time::watermark_from_micros(micros)))
});

/// Returns the microseconds since 1970 of a time.
fn postgres_micros(value: &PgValueRef<'_>) -> Result<i64, BoxDynError> {
    if value.format() == PgValueFormat::Text {
        return match value.as_str()? {
            "infinity" => Ok(i64::MAX),
            "-infinity" => Ok(i64::MIN),
            _ => Ok(<Timestamp as Decode<'_, Postgres>>::decode(value.clone())?.timestamp_micros()),
        };
    }
    let micros = i64::from_be_bytes(value.as_bytes()?.try_into()?);
    Ok(micros.saturating_add(POSTGRES_EPOCH_MICROS))
}

encode_as!(SqlJson, Postgres, PgTypeInfo, PgArgumentBuffer, sqlx::types::Json<Json>, |doc| {
    Ok(sqlx::types::Json(doc.0.clone()))
});
impl<'r> Decode<'r, Postgres> for SqlJson {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        Ok(SqlJson(json::read_stored(json_text(&value)?)))
    }
}
impl Type<Postgres> for JsonText<'_> {
    fn type_info() -> PgTypeInfo {
        <SqlJson as Type<Postgres>>::type_info()
    }
    fn compatible(info: &PgTypeInfo) -> bool {
        <SqlJson as Type<Postgres>>::compatible(info)
    }
}
impl<'r> Decode<'r, Postgres> for JsonText<'r> {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        json_text(&value).map(JsonText)
    }
}
fn json_text<'r>(value: &PgValueRef<'r>) -> Result<&'r [u8], BoxDynError> {
    let is_binary = value.format() == PgValueFormat::Binary;
    let bytes = value.as_bytes()?;
    // Binary `jsonb` is one version byte (1) followed by text. Binary `json` is text only.
    Ok(bytes.strip_prefix(&[1]).filter(|_| is_binary).unwrap_or(bytes))
}
encode_as!(SqlJson, Sqlite, SqliteTypeInfo, SqliteArgumentsBuffer, String, |doc| Ok(doc.0.to_string()));
impl<'r> Decode<'r, Sqlite> for SqlJson {
    fn decode(value: SqliteValueRef<'r>) -> Result<Self, BoxDynError> {
        Ok(SqlJson(json::read_stored(<&[u8] as Decode<'r, Sqlite>>::decode(value)?)))
    }
}
impl Type<Sqlite> for JsonText<'_> {
    fn type_info() -> SqliteTypeInfo {
        <SqlJson as Type<Sqlite>>::type_info()
    }
    fn compatible(info: &SqliteTypeInfo) -> bool {
        <SqlJson as Type<Sqlite>>::compatible(info)
    }
}
impl<'r> Decode<'r, Sqlite> for JsonText<'r> {
    fn decode(value: SqliteValueRef<'r>) -> Result<Self, BoxDynError> {
        <&[u8] as Decode<'r, Sqlite>>::decode(value).map(JsonText)
    }
}

encode_as!(SqlTextList, Postgres, PgTypeInfo, PgArgumentBuffer, Vec<String>, |words| Ok(words.0.clone()));
impl<'r> Decode<'r, Postgres> for SqlTextList {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        // The driver cannot read arrays with NULL elements or with more than one dimension.
        let words = <Vec<Option<String>> as Decode<'r, Postgres>>::decode(value);
        Ok(words
            .map_or_else(|_| unreadable_list(), |words| SqlTextList(words.into_iter().flatten().collect())))
    }
}
encode_as!(SqlTextList, Sqlite, SqliteTypeInfo, SqliteArgumentsBuffer, String, |words| {
    Ok(serde_json::to_string(&words.0)?)
});
impl<'r> Decode<'r, Sqlite> for SqlTextList {
    fn decode(value: SqliteValueRef<'r>) -> Result<Self, BoxDynError> {
        let text = <&[u8] as Decode<'r, Sqlite>>::decode(value)?;
        Ok(serde_json::from_slice(text).map_or_else(|_| unreadable_list(), SqlTextList))
    }
}

fn unreadable_list() -> SqlTextList {
    SqlTextList(vec![UNREADABLE_TEXT.to_owned()])
}

postgres!(Text as String, |text| Ok(text.0.clone()), |text| Ok(Text(text)));
encode_as!(Text, Sqlite, SqliteTypeInfo, SqliteArgumentsBuffer, String, |text| Ok(text.0.clone()));
impl<'r> Decode<'r, Sqlite> for Text {
    fn decode(value: SqliteValueRef<'r>) -> Result<Self, BoxDynError> {
        let bytes = <&[u8] as Decode<'r, Sqlite>>::decode(value)?;
        Ok(Text(String::from_utf8_lossy(bytes).into_owned()))
    }
}
postgres!(Int as i32, |int| Ok(int.0), |int| Ok(Int(int)));
sqlite!(Int as i64, |int| Ok(int.0.into()), |int| {
    Ok(Int(i32::try_from(int).unwrap_or(if int < 0 { i32::MIN } else { i32::MAX })))
});

postgres!(SqlWorkerId as Uuid, |boot| Ok(boot.0.0), |uuid| Ok(SqlWorkerId(WorkerId(uuid))));
// A value that is not a UUID is read as no worker.
sqlite!(SqlWorkerId as String, |boot| Ok(boot.0.0.to_string()), |text| {
    Ok(SqlWorkerId(WorkerId(Uuid::from_str(&text).unwrap_or_default())))
});

postgres!(SqlUuid as Uuid, |bare| Ok(bare.0), |uuid| Ok(SqlUuid(uuid)));
sqlite!(SqlUuid as String, |bare| Ok(bare.0.to_string()), |text| Ok(SqlUuid(Uuid::from_str(&text)?)));

/// A row of either database, read column by column.
pub(crate) trait Columns {
    fn text(&self, column: &str) -> sqlx::Result<String>;
    fn text_or_null(&self, column: &str) -> sqlx::Result<Option<String>>;
    fn int(&self, column: &str) -> sqlx::Result<i32>;
    fn int_or_null(&self, column: &str) -> sqlx::Result<Option<i32>>;
    fn long_or_null(&self, column: &str) -> sqlx::Result<Option<i64>>;
    fn number_or_null(&self, column: &str) -> sqlx::Result<Option<f64>>;
    fn truth(&self, column: &str) -> sqlx::Result<bool>;
    fn truth_or_null(&self, column: &str) -> sqlx::Result<Option<bool>>;
    fn bytes(&self, column: &str) -> sqlx::Result<Vec<u8>>;
    fn uuid_or_null(&self, column: &str) -> sqlx::Result<Option<Uuid>>;
    fn time_or_null(&self, column: &str) -> sqlx::Result<Option<Timestamp>>;
    /// Reads a watermark, which may stand for a number beyond the range of times.
    fn watermark_or_null(&self, column: &str) -> sqlx::Result<Option<Timestamp>>;
    fn json(&self, column: &str) -> sqlx::Result<Json>;
    /// A document of more than `bytes_max` bytes is read as unreadable.
    fn json_within(&self, column: &str, bytes_max: usize) -> sqlx::Result<Json>;
    fn json_or_null(&self, column: &str) -> sqlx::Result<Option<Json>>;
    fn words(&self, column: &str) -> sqlx::Result<Vec<String>>;
    /// Reads the projects of a token or an agent. An unreadable list contains no project.
    fn project_set(&self, column: &str) -> sqlx::Result<ProjectSet>;
    fn worker_or_null(&self, column: &str) -> sqlx::Result<Option<WorkerId>>;

    fn long(&self, column: &str) -> sqlx::Result<i64> {
        self.long_or_null(column)?.ok_or_else(|| unexpected(column, "NULL"))
    }
    fn time(&self, column: &str) -> sqlx::Result<Timestamp> {
        self.time_or_null(column)?.ok_or_else(|| unexpected(column, "NULL"))
    }
    fn uuid(&self, column: &str) -> sqlx::Result<Uuid> {
        self.uuid_or_null(column)?.ok_or_else(|| unexpected(column, "NULL"))
    }
    /// Cuts the text off after `bytes_max` bytes.
    fn text_within(&self, column: &str, bytes_max: usize) -> sqlx::Result<String> {
        self.text(column).map(|text| cut(text, bytes_max))
    }
    /// Cuts the text off after `bytes_max` bytes.
    fn text_or_null_within(&self, column: &str, bytes_max: usize) -> sqlx::Result<Option<String>> {
        Ok(self.text_or_null(column)?.map(|text| cut(text, bytes_max)))
    }
    fn run_id(&self, column: &str) -> sqlx::Result<RunId> {
        self.text(column).map(RunId::from_database)
    }
    fn run_id_or_null(&self, column: &str) -> sqlx::Result<Option<RunId>> {
        Ok(self.text_or_null(column)?.map(RunId::from_database))
    }
    fn env_id(&self, column: &str) -> sqlx::Result<EnvId> {
        self.text(column).map(EnvId::from_database)
    }
    /// Parses the text of the column.
    fn parsed<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(
        &self,
        column: &str,
    ) -> sqlx::Result<T> {
        self.text(column)?.parse().map_err(|error| decode(column, error))
    }
    /// Parses the text of the column, if it is not NULL.
    fn parsed_or_null<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(
        &self,
        column: &str,
    ) -> sqlx::Result<Option<T>> {
        self.text_or_null(column)?.map(|text| text.parse().map_err(|error| decode(column, error))).transpose()
    }
}

/// Cuts a text off after `bytes_max` bytes and appends its original length.
fn cut(mut text: String, bytes_max: usize) -> String {
    let length = text.len();
    if length <= bytes_max {
        return text;
    }
    let note = format!("… ({length} bytes)");
    text.truncate(text.floor_char_boundary(bytes_max.saturating_sub(note.len())));
    text + &note
}

/// Deserializes a column of JSON.
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
                Ok(sqlx::Row::try_get::<Text, _>(self, column)?.0)
            }
            fn text_or_null(&self, column: &str) -> sqlx::Result<Option<String>> {
                Ok(sqlx::Row::try_get::<Option<Text>, _>(self, column)?.map(|text| text.0))
            }
            fn int(&self, column: &str) -> sqlx::Result<i32> {
                Ok(sqlx::Row::try_get::<Int, _>(self, column)?.0)
            }
            fn int_or_null(&self, column: &str) -> sqlx::Result<Option<i32>> {
                Ok(sqlx::Row::try_get::<Option<Int>, _>(self, column)?.map(|int| int.0))
            }
            fn long_or_null(&self, column: &str) -> sqlx::Result<Option<i64>> {
                sqlx::Row::try_get(self, column)
            }
            fn number_or_null(&self, column: &str) -> sqlx::Result<Option<f64>> {
                // JSON has no infinite numbers.
                let number: Option<f64> = sqlx::Row::try_get(self, column)?;
                Ok(number.filter(|number| number.is_finite()))
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
                Ok(sqlx::Row::try_get::<Option<SqlUuid>, _>(self, column)?.map(|bare| bare.0))
            }
            fn time_or_null(&self, column: &str) -> sqlx::Result<Option<Timestamp>> {
                Ok(sqlx::Row::try_get::<Option<SqlTime>, _>(self, column)?.map(|at| at.0))
            }
            fn watermark_or_null(&self, column: &str) -> sqlx::Result<Option<Timestamp>> {
                Ok(sqlx::Row::try_get::<Option<SqlWatermark>, _>(self, column)?.map(|at| at.0))
            }
            fn json(&self, column: &str) -> sqlx::Result<Json> {
                Ok(sqlx::Row::try_get::<SqlJson, _>(self, column)?.0)
            }
            fn json_within(&self, column: &str, bytes_max: usize) -> sqlx::Result<Json> {
                Ok(sqlx::Row::try_get::<JsonText, _>(self, column)?.within(bytes_max))
            }
            fn json_or_null(&self, column: &str) -> sqlx::Result<Option<Json>> {
                Ok(sqlx::Row::try_get::<Option<SqlJson>, _>(self, column)?.map(|doc| doc.0))
            }
            fn words(&self, column: &str) -> sqlx::Result<Vec<String>> {
                Ok(sqlx::Row::try_get::<SqlTextList, _>(self, column)?.0)
            }
            fn project_set(&self, column: &str) -> sqlx::Result<ProjectSet> {
                let names = sqlx::Row::try_get::<Option<SqlTextList>, _>(self, column)?;
                Ok(names.map_or(ProjectSet::All, |names| ProjectSet::only(names.0)))
            }
            fn worker_or_null(&self, column: &str) -> sqlx::Result<Option<WorkerId>> {
                Ok(sqlx::Row::try_get::<Option<SqlWorkerId>, _>(self, column)?.map(|boot| boot.0))
            }
        }
    };
}
columns!(sqlx::postgres::PgRow);
columns!(sqlx::sqlite::SqliteRow);
