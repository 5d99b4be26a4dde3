//! How values look in the two databases. The only file where their types differ.
//!
//! | value | PostgreSQL | SQLite |
//! |---|---|---|
//! | time | `timestamptz` | microseconds since 1970, as an integer |
//! | JSON | `jsonb` | text |
//! | list of words | `text[]` | JSON text |
//! | worker id | `uuid` | text |
//!
//! Both databases hold values that Rust's types do not. Reading is therefore lenient: a time outside the years 1 to
//! 9999 is read as the nearest time of these years, a JSON document that cannot be read as a placeholder (see
//! [`tidemill_core::json`]), an integer beyond 32 bits as the nearest one, text that is not UTF-8 with replacement
//! characters, and an id as it is.

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgTypeInfo, PgValueFormat, PgValueRef};
use sqlx::sqlite::{SqliteArgumentsBuffer, SqliteTypeInfo, SqliteValueRef};
use sqlx::{Decode, Encode, Postgres, Sqlite, Type};
use std::str::FromStr;
use tidemill_core::{EnvId, Json, RunId, Timestamp, WorkerId, json, time};
use uuid::Uuid;

/// Microseconds from 1970 to 2000, where PostgreSQL's times begin.
const POSTGRES_EPOCH_MICROS: i64 = 946_684_800_000_000;
/// A word that stands for a list that cannot be read.
const UNREADABLE_WORDS: &str = json::UNREADABLE;

/// A time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct At(pub(crate) Timestamp);

/// A JSON document.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Doc(pub(crate) Json);

/// The text of a JSON document that is measured before it is read.
struct Measured<'r>(&'r [u8]);

impl Measured<'_> {
    fn within(&self, bytes_max: usize) -> Json {
        let length = self.0.len();
        if length <= bytes_max {
            return json::read_stored(self.0);
        }
        json::unreadable(format!("is {length} bytes long; at most {bytes_max} are read"))
    }
}

/// A list of words.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Words(pub(crate) Vec<String>);

/// A text.
#[derive(Debug, Clone, PartialEq)]
struct Text(String);

/// An integer of 32 bits.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Int(i32);

/// A worker's id.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Boot(pub(crate) WorkerId);

/// The id of a sync, a bare UUID.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bare(pub(crate) Uuid);

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

encode_as!(At, Postgres, PgTypeInfo, PgArgumentBuffer, Timestamp, |at| Ok(at.0));
impl<'r> Decode<'r, Postgres> for At {
    /// Reads the raw microseconds: the driver's own conversion panics on `infinity` and on years that chrono lacks.
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        if value.format() == PgValueFormat::Text {
            return match value.as_str()? {
                "infinity" => Ok(At(time::from_micros(i64::MAX))),
                "-infinity" => Ok(At(time::from_micros(i64::MIN))),
                _ => <Timestamp as Decode<'r, Postgres>>::decode(value).map(At),
            };
        }
        let micros = i64::from_be_bytes(value.as_bytes()?.try_into()?);
        Ok(At(time::from_micros(micros.saturating_add(POSTGRES_EPOCH_MICROS))))
    }
}
sqlite!(At as i64, |at| Ok(at.0.timestamp_micros()), |micros| Ok(At(time::from_micros(micros))));

encode_as!(Doc, Postgres, PgTypeInfo, PgArgumentBuffer, sqlx::types::Json<Json>, |doc| {
    Ok(sqlx::types::Json(doc.0.clone()))
});
impl<'r> Decode<'r, Postgres> for Doc {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        Ok(Doc(json::read_stored(json_text(&value)?)))
    }
}
impl Type<Postgres> for Measured<'_> {
    fn type_info() -> PgTypeInfo {
        <Doc as Type<Postgres>>::type_info()
    }
    fn compatible(info: &PgTypeInfo) -> bool {
        <Doc as Type<Postgres>>::compatible(info)
    }
}
impl<'r> Decode<'r, Postgres> for Measured<'r> {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        json_text(&value).map(Measured)
    }
}
fn json_text<'r>(value: &PgValueRef<'r>) -> Result<&'r [u8], BoxDynError> {
    let is_binary = value.format() == PgValueFormat::Binary;
    let bytes = value.as_bytes()?;
    // Binary `jsonb` is text after one byte for the version, which is 1. Binary `json` is text alone.
    Ok(bytes.strip_prefix(&[1]).filter(|_| is_binary).unwrap_or(bytes))
}
encode_as!(Doc, Sqlite, SqliteTypeInfo, SqliteArgumentsBuffer, String, |doc| Ok(doc.0.to_string()));
impl<'r> Decode<'r, Sqlite> for Doc {
    fn decode(value: SqliteValueRef<'r>) -> Result<Self, BoxDynError> {
        Ok(Doc(json::read_stored(<&[u8] as Decode<'r, Sqlite>>::decode(value)?)))
    }
}
impl Type<Sqlite> for Measured<'_> {
    fn type_info() -> SqliteTypeInfo {
        <Doc as Type<Sqlite>>::type_info()
    }
    fn compatible(info: &SqliteTypeInfo) -> bool {
        <Doc as Type<Sqlite>>::compatible(info)
    }
}
impl<'r> Decode<'r, Sqlite> for Measured<'r> {
    fn decode(value: SqliteValueRef<'r>) -> Result<Self, BoxDynError> {
        <&[u8] as Decode<'r, Sqlite>>::decode(value).map(Measured)
    }
}

encode_as!(Words, Postgres, PgTypeInfo, PgArgumentBuffer, Vec<String>, |words| Ok(words.0.clone()));
impl<'r> Decode<'r, Postgres> for Words {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        // An array may hold NULL, or have more than one dimension, which the driver does not read.
        let words = <Vec<Option<String>> as Decode<'r, Postgres>>::decode(value);
        Ok(words.map_or_else(|_| unreadable_words(), |words| Words(words.into_iter().flatten().collect())))
    }
}
encode_as!(Words, Sqlite, SqliteTypeInfo, SqliteArgumentsBuffer, String, |words| {
    Ok(serde_json::to_string(&words.0)?)
});
impl<'r> Decode<'r, Sqlite> for Words {
    fn decode(value: SqliteValueRef<'r>) -> Result<Self, BoxDynError> {
        let text = <&[u8] as Decode<'r, Sqlite>>::decode(value)?;
        Ok(serde_json::from_slice(text).map_or_else(|_| unreadable_words(), Words))
    }
}

fn unreadable_words() -> Words {
    Words(vec![UNREADABLE_WORDS.to_owned()])
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

postgres!(Boot as Uuid, |boot| Ok(boot.0.0), |uuid| Ok(Boot(WorkerId(uuid))));
// An id that is no UUID belongs to no worker.
sqlite!(Boot as String, |boot| Ok(boot.0.0.to_string()), |text| {
    Ok(Boot(WorkerId(Uuid::from_str(&text).unwrap_or_default())))
});

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
    /// A JSON document of so many bytes at most. A larger one is unreadable.
    fn json_within(&self, column: &str, bytes_max: usize) -> sqlx::Result<Json>;
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
    /// A text that is not NULL, cut off after so many bytes.
    fn text_within(&self, column: &str, bytes_max: usize) -> sqlx::Result<String> {
        self.text(column).map(|text| cut(text, bytes_max))
    }
    /// A text, cut off after so many bytes.
    fn text_or_null_within(&self, column: &str, bytes_max: usize) -> sqlx::Result<Option<String>> {
        Ok(self.text_or_null(column)?.map(|text| cut(text, bytes_max)))
    }
    /// The id of a run.
    fn run_id(&self, column: &str) -> sqlx::Result<RunId> {
        self.text(column).map(RunId::from_database)
    }
    /// The id of a run that may be missing.
    fn run_id_or_null(&self, column: &str) -> sqlx::Result<Option<RunId>> {
        Ok(self.text_or_null(column)?.map(RunId::from_database))
    }
    /// The id of an environment.
    fn env_id(&self, column: &str) -> sqlx::Result<EnvId> {
        self.text(column).map(EnvId::from_database)
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

/// A text, cut off after so many bytes with a note of how long it was.
fn cut(mut text: String, bytes_max: usize) -> String {
    let length = text.len();
    if length <= bytes_max {
        return text;
    }
    let note = format!("… ({length} bytes)");
    text.truncate(text.floor_char_boundary(bytes_max.saturating_sub(note.len())));
    text + &note
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
                Ok(sqlx::Row::try_get::<Option<Bare>, _>(self, column)?.map(|bare| bare.0))
            }
            fn time_or_null(&self, column: &str) -> sqlx::Result<Option<Timestamp>> {
                Ok(sqlx::Row::try_get::<Option<At>, _>(self, column)?.map(|at| at.0))
            }
            fn json(&self, column: &str) -> sqlx::Result<Json> {
                Ok(sqlx::Row::try_get::<Doc, _>(self, column)?.0)
            }
            fn json_within(&self, column: &str, bytes_max: usize) -> sqlx::Result<Json> {
                Ok(sqlx::Row::try_get::<Measured, _>(self, column)?.within(bytes_max))
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
