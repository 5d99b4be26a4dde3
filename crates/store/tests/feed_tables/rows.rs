//! Rows of a definition in the user's table: merged, appended, moved with their keys.

use crate::{BOTH, BUILT, Shop, column, orders, row, text, time, with};
use tidemill_core::feed_definition::ColumnValue;
use tidemill_core::feed_definition::target::{Column, ColumnType, Target, WriteDisposition};
use tidemill_store::{BuildVersions, TargetRow};
use tidemill_testkit::interface::Kind;

#[tokio::test]
async fn merged_rows_are_inserted_and_updated() {
    for kind in BOTH {
        let shop = Shop::open(kind, orders()).await;
        let first = [row("r-1", "1", "1.10", "a"), row("r-2", "2", "2.00", "b")];
        assert_eq!(shop.write(&first).await.unwrap(), 2);
        assert_eq!(shop.write(&[row("r-2", "2", "2.50", "c")]).await.unwrap(), 1);
        assert_eq!(shop.rows().await, ["1 1.10 a", "2 2.50 c"]);
        assert_eq!(
            shop.lines().await,
            [r#"r-1 {"public.orders":{"id":"1"}} active"#, r#"r-2 {"public.orders":{"id":"2"}} active"#]
        );
    }
}

#[tokio::test]
async fn columns_of_the_user_keep_their_values() {
    for kind in BOTH {
        let table = "CREATE TABLE {main}.orders (id text NOT NULL PRIMARY KEY, rank integer DEFAULT 7, \
                     amount numeric, note text); \
                     INSERT INTO {main}.orders (id, rank, note) VALUES ('1', 3, 'mine')";
        let shop = Shop::existing(kind, orders(), table).await;
        shop.write(&[row("r-1", "1", "4", "theirs"), row("r-2", "2", "5", "new")]).await.unwrap();
        let ranks = shop.read("SELECT id || ' ' || rank || ' ' || note FROM {main}.orders ORDER BY 1").await;
        assert_eq!(ranks, ["1 3 theirs", "2 7 new"]);
    }
}

#[tokio::test]
async fn row_without_a_value_leaves_the_column() {
    for kind in BOTH {
        let shop = Shop::open(kind, orders()).await;
        shop.write(&[row("r-1", "1", "1", "kept"), row("r-2", "2", "2", "x")]).await.unwrap();
        let mut short = row("r-1", "1", "9", "");
        short.values.pop();
        assert_eq!(shop.write(&[short, row("r-2", "2", "8", "y")]).await.unwrap(), 2);
        assert_eq!(shop.rows().await, ["1 9 kept", "2 8 y"]);
    }
}

#[tokio::test]
async fn appended_versions_are_all_kept_once() {
    for kind in BOTH {
        let into = with(|into| into.write_disposition = WriteDisposition::Append);
        let shop = Shop::open(kind, into).await;
        assert_eq!(shop.write(&[row("r-1", "1", "1", "a"), row("r-2", "2", "2", "b")]).await.unwrap(), 2);
        assert_eq!(shop.write(&[row("r-1", "1", "1", "c")]).await.unwrap(), 1);
        // Another mapper builds the same version again.
        let later = BuildVersions { mapper_version: 2, ..BUILT };
        assert_eq!(shop.write_as(&[row("r-1", "1", "1", "c")], later).await.unwrap(), 0);
        assert_eq!(shop.rows().await, ["1 1 a", "1 1 c", "2 2 b"]);
        assert_eq!(shop.delete(&["r-1"]).await, 1);
        assert_eq!(shop.rows().await.len(), 3, "what was appended stays");
        assert_eq!(shop.lines().await, ["r-1 - absent", "r-2 - active"]);
    }
}

#[tokio::test]
async fn forgotten_rows_are_written_into_a_new_table() {
    for kind in BOTH {
        for write in [WriteDisposition::Merge, WriteDisposition::Append] {
            let shop = Shop::open(kind, with(|into| into.write_disposition = write)).await;
            shop.write(&[row("r-1", "1", "1", "a"), row("r-2", "2", "2", "b")]).await.unwrap();
            shop.delete(&["r-2"]).await;
            shop.sql("DELETE FROM {main}.orders").await;
            let forgotten =
                shop.step(|mut tx| Box::pin(async move { tx.forget_rows(crate::FEED).await })).await;
            assert_eq!(forgotten.unwrap(), 1, "absent records stay absent");
            assert_eq!(shop.write(&[row("r-1", "1", "1", "a")]).await.unwrap(), 1);
            assert_eq!(shop.rows().await, ["1 1 a"]);
        }
    }
}

#[tokio::test]
async fn changed_key_moves_the_row() {
    for kind in BOTH {
        let shop = Shop::open(kind, orders()).await;
        shop.write(&[row("r-1", "1", "1", "a")]).await.unwrap();
        assert_eq!(shop.write(&[row("r-1", "5", "1", "a")]).await.unwrap(), 2);
        assert_eq!(shop.rows().await, ["5 1 a"]);
    }
}

/// The rows swap their keys, in one chunk and in two.
#[tokio::test]
async fn swapped_keys_leave_both_rows() {
    for kind in BOTH {
        let shop = Shop::open(kind, orders()).await;
        shop.write(&[row("r-1", "1", "1", "a"), row("r-2", "2", "2", "b")]).await.unwrap();
        shop.write(&[row("r-1", "2", "1", "a"), row("r-2", "1", "2", "b")]).await.unwrap();
        assert_eq!(shop.rows().await, ["1 2 b", "2 1 a"]);
        shop.write(&[row("r-1", "1", "1", "a")]).await.unwrap();
        shop.write(&[row("r-2", "2", "2", "b")]).await.unwrap();
        assert_eq!(shop.rows().await, ["1 1 a", "2 2 b"]);
    }
}

#[tokio::test]
async fn last_of_two_records_with_one_key_is_written() {
    for kind in BOTH {
        let shop = Shop::open(kind, orders()).await;
        let rows = [row("r-1", "1", "1", "first"), row("r-2", "1", "2", "last"), row("r-3", "3", "3", "c")];
        shop.write(&rows).await.unwrap();
        assert_eq!(shop.rows().await, ["1 2 last", "3 3 c"]);
        // The row belongs to the other record as well, so it stays.
        assert_eq!(shop.delete(&["r-1"]).await, 1);
        assert_eq!(shop.rows().await, ["1 2 last", "3 3 c"]);
        assert_eq!(shop.delete(&["r-2"]).await, 1);
        assert_eq!(shop.rows().await, ["3 3 c"]);
    }
}

/// PostgreSQL compares keys by their type: `1.0` and `1` are one number.
#[tokio::test]
async fn equal_keys_with_other_digits_are_one_row() {
    for kind in BOTH {
        let table = "CREATE TABLE {main}.orders (id numeric NOT NULL PRIMARY KEY, mine text, amount numeric, \
                     note text)";
        let into = with(|into| into.columns[0].column_type = ColumnType::Decimal);
        let shop = Shop::existing(kind, into, table).await;
        shop.write(&[row("r-1", "1.0", "1", "a")]).await.unwrap();
        shop.sql("UPDATE {main}.orders SET mine = 'kept'").await;
        shop.write(&[row("r-1", "1", "2", "b")]).await.unwrap();
        assert_eq!(shop.read("SELECT mine || ' ' || note FROM {main}.orders").await, ["kept b"]);
    }
}

#[tokio::test]
async fn composite_keys_identify_rows() {
    for kind in BOTH {
        let into = with(|into| {
            into.primary_key = vec!["note".to_owned(), "id".to_owned()];
            into.columns[2].nullable = false;
        });
        let shop = Shop::open(kind, into).await;
        shop.write(&[row("r-1", "1", "1", "a"), row("r-2", "1", "2", "b")]).await.unwrap();
        shop.write(&[row("r-2", "1", "3", "c")]).await.unwrap();
        assert_eq!(shop.rows().await, ["1 1 a", "1 3 c"]);
        let key = |note: &str| format!(r#"{{"public.orders":{{"id":"1","note":"{note}"}}}}"#);
        let lines = [format!("r-1 {} active", key("a")), format!("r-2 {} active", key("c"))];
        assert_eq!(shop.lines().await, lines);
    }
}

fn types() -> Target {
    let all = ColumnType::ALL.map(|(name, column_type)| column(&format!("c_{name}"), column_type));
    with(|into| {
        into.columns = vec![Column { nullable: false, ..column("id", ColumnType::Text) }];
        into.columns.extend(all);
    })
}

#[tokio::test]
async fn values_of_each_type_are_stored() {
    let digits = "12345678901234567890123456789.000000000000000000001";
    for kind in BOTH {
        let shop = Shop::open(kind, types()).await;
        let value = |column_type| match column_type {
            ColumnType::Text => text("it's \"quoted\" \\ é"),
            ColumnType::Integer => ColumnValue::Integer("-9223372036854775808".to_owned()),
            ColumnType::Decimal => ColumnValue::Decimal(digits.to_owned()),
            ColumnType::Boolean => ColumnValue::Boolean(true),
            ColumnType::Timestamp => ColumnValue::Timestamp(time("2026-01-31T12:00:00.25+02:00")),
            ColumnType::Date => ColumnValue::Date(time("0001-01-01").date_naive()),
            ColumnType::Json => ColumnValue::Json(r#"{"a":[1,null]}"#.to_owned()),
        };
        let named = |id: &str, value: &dyn Fn(ColumnType) -> ColumnValue| TargetRow {
            values: std::iter::once(("id".to_owned(), text(id)))
                .chain(ColumnType::ALL.map(|(name, column_type)| (format!("c_{name}"), value(column_type))))
                .collect(),
            ..row(id, id, "0", "")
        };
        shop.write(&[named("full", &value), named("null", &|_| ColumnValue::Null)]).await.unwrap();
        let (time, json, yes) = if kind == Kind::Sqlite {
            ("c_timestamp", "json_extract(c_json, '$.a[0]')", "1")
        } else {
            (
                "to_char(c_timestamp AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')",
                "(c_json->'a'->>0)",
                "true",
            )
        };
        let read = shop
            .read(&format!(
                "SELECT c_text || '|' || c_integer || '|' || c_decimal || '|' || c_boolean || '|' || {time} \
                 || '|' || c_date || '|' || {json} FROM {{main}}.orders WHERE id = 'full'"
            ))
            .await;
        let expected = format!(
            "it's \"quoted\" \\ é|-9223372036854775808|{digits}|{yes}|2026-01-31T10:00:00.250000Z|0001-01-01|1"
        );
        assert_eq!(read, [expected]);
        let nulls: Vec<String> =
            ColumnType::ALL.iter().map(|(name, _)| format!("c_{name} IS NULL")).collect();
        let sql = format!("SELECT id FROM {{main}}.orders WHERE {}", nulls.join(" AND "));
        assert_eq!(shop.read(&sql).await, ["null"]);
    }
}

#[tokio::test]
async fn types_of_the_user_are_filled() {
    let table = "CREATE TYPE public.\"Mood\" AS ENUM ('calm', 'wild'); CREATE SCHEMA other; \
                 CREATE DOMAIN other.short AS varchar(5) CHECK (value <> 'bad'); \
                 CREATE TABLE public.orders (id uuid PRIMARY KEY, c_text public.\"Mood\", c_integer numeric(30), \
                 c_decimal double precision, c_boolean text, c_timestamp timestamp, c_date timestamptz, \
                 c_json other.short)";
    let shop = Shop::existing(Kind::Postgres, types(), table).await;
    let id = "0190b7a4-5a3c-7c9e-8d4f-0123456789ab";
    let values = [
        ("id", text(id)),
        ("c_text", text("wild")),
        ("c_integer", ColumnValue::Integer("123456789012345678901234567890".to_owned())),
        ("c_decimal", ColumnValue::Decimal("0.5".to_owned())),
        ("c_boolean", ColumnValue::Boolean(false)),
        ("c_timestamp", ColumnValue::Timestamp(time("2026-01-31T12:00:00Z"))),
        ("c_date", ColumnValue::Date(time("2026-01-31").date_naive())),
        ("c_json", ColumnValue::Json("[1]".to_owned())),
    ];
    let values: Vec<_> = values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let full = TargetRow { values: values.clone(), ..row("r-1", "", "0", "") };
    shop.write(std::slice::from_ref(&full)).await.unwrap();
    let read = shop.read(
        "SELECT concat_ws('|', c_text, c_integer, c_decimal, c_boolean, c_timestamp, c_json) \
                          FROM public.orders",
    );
    assert_eq!(read.await, ["wild|123456789012345678901234567890|0.5|false|2026-01-31 12:00:00|[1]"]);
    for (index, value) in [(1, text("angry")), (7, text("too long")), (7, text("bad")), (0, text("x"))] {
        let mut values = values.clone();
        values[index].1 = value;
        let refused = shop.write(&[TargetRow { values, ..full.clone() }]).await.unwrap_err();
        assert!(refused.is_bad_value(), "{refused:?}");
    }
    assert_eq!(shop.delete(&["r-1"]).await, 1);
    assert_eq!(shop.read("SELECT id::text FROM public.orders").await, Vec::<String>::new());
}

#[tokio::test]
async fn empty_chunk_writes_nothing() {
    for kind in BOTH {
        let shop = Shop::open(kind, orders()).await;
        assert_eq!(shop.write(&[]).await.unwrap(), 0);
    }
}
