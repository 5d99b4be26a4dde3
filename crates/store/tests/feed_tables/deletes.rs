//! Records that disappear: rows deleted or marked, and records that a sync has not seen.

use crate::{BOTH, BUILT, Shop, gone, orders, row, text, texts, with};
use tidemill_core::feed::Item;
use tidemill_store::{BuildVersions, TargetRow, UnseenCounts};
use tidemill_testkit::interface::{Kind, at};
use uuid::Uuid;

fn item(id: &str, payload: &str) -> Item {
    Item::new(id, None, format!("{{\"v\":\"{payload}\"}}"))
}

/// The row that the record of [`item`] becomes.
fn built(id: &str, payload: &str) -> TargetRow {
    TargetRow { payload_hash: item(id, payload).payload_hash.to_vec(), ..row(id, id, "1", payload) }
}

#[tokio::test]
async fn absent_record_deletes_its_row_until_it_is_listed() {
    for kind in BOTH {
        let shop = Shop::open(kind, orders()).await;
        assert_eq!(shop.store(vec![item("a", "1"), item("b", "1")]).await, 2);
        assert_eq!(shop.store(vec![item("a", "1"), item("b", "1")]).await, 0);
        assert_eq!(shop.open_records(&["a", "b", "c"]).await, ["a", "b"]);
        shop.write(&[built("a", "1"), built("b", "1")]).await.unwrap();
        assert_eq!(shop.open_records(&["a", "b"]).await, Vec::<String>::new());
        assert_eq!(shop.delete(&["a", "unknown"]).await, 1);
        assert_eq!(shop.delete(&["a"]).await, 0, "it is absent already");
        assert_eq!(shop.rows().await, ["b 1 1"]);
        // The source lists the unchanged record again.
        assert_eq!(shop.open_records(&["a", "b"]).await, ["a"]);
        shop.write(&[built("a", "1")]).await.unwrap();
        assert_eq!(shop.rows().await, ["a 1 1", "b 1 1"]);
    }
}

#[tokio::test]
async fn record_that_says_it_is_deleted_deletes_its_row() {
    for kind in BOTH {
        let shop = Shop::open(kind, orders()).await;
        shop.write(&[row("r-1", "1", "1", "a"), row("r-2", "2", "2", "b")]).await.unwrap();
        assert_eq!(shop.write(&[gone("r-1"), gone("r-3")]).await.unwrap(), 1);
        assert_eq!(shop.rows().await, ["2 2 b"]);
        let lines = shop.lines().await;
        assert_eq!(
            lines,
            [
                r#"r-1 {"public.orders":{"id":"1"}} deleted"#,
                r#"r-2 {"public.orders":{"id":"2"}} active"#,
                "r-3 - deleted"
            ]
        );
        // A deleted record that still has its values, of a row that was there before the feed.
        shop.sql("INSERT INTO {main}.orders (id) VALUES ('9')").await;
        let values = vec![("id".to_owned(), text("9"))];
        assert_eq!(shop.write(&[TargetRow { values, ..gone("r-9") }]).await.unwrap(), 1);
        assert_eq!(shop.rows().await, ["2 2 b"]);
        assert_eq!(shop.write(&[row("r-1", "1", "1", "a")]).await.unwrap(), 1, "it is back");
        assert_eq!(shop.rows().await, ["1 1 a", "2 2 b"]);
    }
}

#[tokio::test]
async fn row_of_a_live_record_survives_a_deleted_one() {
    for kind in BOTH {
        let shop = Shop::open(kind, orders()).await;
        shop.write(&[row("r-1", "1", "1", "a")]).await.unwrap();
        shop.write(&[gone("r-1"), row("r-2", "1", "2", "b")]).await.unwrap();
        assert_eq!(shop.rows().await, ["1 2 b"]);
    }
}

#[tokio::test]
async fn deleted_rows_are_marked_where_the_definition_says_so() {
    for kind in BOTH {
        let shop = Shop::open(kind, with(|into| into.deleted_at = Some("gone_at".to_owned()))).await;
        let marked = async || shop.read("SELECT id FROM {main}.orders WHERE gone_at IS NOT NULL").await;
        shop.write(&[row("r-1", "1", "1", "a"), row("r-2", "2", "2", "b")]).await.unwrap();
        assert_eq!(marked().await, Vec::<String>::new());
        assert_eq!(shop.write(&[gone("r-1")]).await.unwrap(), 1);
        assert_eq!(marked().await, ["1"]);
        assert_eq!(shop.delete(&["r-2"]).await, 1);
        assert_eq!(shop.rows().await.len(), 2);
        assert_eq!(marked().await.len(), 2);
        shop.write(&[row("r-2", "2", "2", "again")]).await.unwrap();
        assert_eq!(marked().await, ["1"]);
        if kind == Kind::Sqlite {
            let time = shop.read("SELECT gone_at FROM {main}.orders WHERE id = '1'").await;
            assert_eq!(time, ["2026-02-14T10:31:00.000000Z"]);
        }
    }
}

#[tokio::test]
async fn active_records_that_a_sync_has_not_seen_are_found() {
    for kind in BOTH {
        let shop = Shop::open(kind, orders()).await;
        let rows: Vec<TargetRow> = ["a", "b", "c", "d"].map(|id| built(id, "1")).into();
        shop.write(&rows).await.unwrap();
        shop.delete(&["d"]).await;
        let sync = Uuid::from_u128(7);
        let (hash, ids, now) = if kind == Kind::Sqlite {
            ("x''", "'[\"b\"]'", "0")
        } else {
            ("''", "'{b}'", "clock_timestamp()")
        };
        shop.sql(&format!(
            "INSERT INTO {{ops}}.pages (run_id, partition_id, page_offset, pass, fetched, stored, changed, \
             page_hash, record_ids, stored_at) VALUES ('{sync}', 'p', 0, 1, 1, 1, 1, {hash}, {ids}, {now})"
        ))
        .await;
        let store = &shop.fixture.store;
        let counts = store.count_unseen(&shop.tables, sync).await.unwrap();
        assert_eq!(counts, UnseenCounts { active: 3, unseen: 2 });
        let unseen = async |after: &str, limit| {
            store.unseen_after(&shop.tables, sync, after.to_owned(), limit).await.unwrap()
        };
        assert_eq!(unseen("", 10).await, ["a", "c"]);
        assert_eq!(unseen("", 1).await, ["a"]);
        assert_eq!(unseen("a", 10).await, ["c"]);
        let active = store.active_records(&shop.tables, texts(&["a", "d", "x"])).await.unwrap();
        assert_eq!(active, ["a"]);
        assert_eq!(store.count_active(&shop.tables).await.unwrap(), 3);
    }
}

#[tokio::test]
async fn stale_records_are_those_to_build_again() {
    for kind in BOTH {
        let shop = Shop::open(kind, orders()).await;
        shop.store(["absent", "built", "changed", "never"].map(|id| item(id, "1")).into()).await;
        shop.write(&[built("absent", "1"), built("built", "1"), built("changed", "1")]).await.unwrap();
        shop.delete(&["absent"]).await;
        shop.store(vec![item("changed", "2")]).await;
        let stale = async |after: &str, built: BuildVersions| {
            let (tables, after) = (shop.tables.clone(), after.to_owned());
            shop.step(move |mut tx| {
                Box::pin(async move { tx.stale_records(&tables, &after, built, 10).await })
            })
            .await
            .unwrap()
        };
        assert_eq!(stale("", BUILT).await, ["changed", "never"]);
        assert_eq!(stale("changed", BUILT).await, ["never"]);
        let later = BuildVersions { mapper_version: 2, ..BUILT };
        assert_eq!(stale("", later).await, ["built", "changed", "never"]);
    }
}

/// Diamonds and rows of definitions go through the same calls.
#[tokio::test]
async fn diamonds_are_counted_without_a_definition() {
    for kind in BOTH {
        let mut shop = Shop::open(kind, orders()).await;
        shop.tables.raw = crate::add_feed(&shop.fixture, "gems", "nivoda").await;
        shop.tables.feed = "gems".to_owned();
        shop.tables.target = None;
        assert_eq!(shop.store(vec![item("s-1", "1")]).await, 1);
        assert_eq!(shop.open_records(&["s-1"]).await, ["s-1"]);
        assert_eq!(shop.fixture.store.count_active(&shop.tables).await.unwrap(), 0);
        assert_eq!(shop.delete(&["s-1"]).await, 0);
        let tables = shop.tables.clone();
        let refused = shop
            .step(move |mut tx| {
                Box::pin(async move { tx.upsert_rows(&tables, &[gone("x")], BUILT, Some(at(0))).await })
            })
            .await;
        assert!(refused.unwrap_err().to_string().contains("has no table"), "diamonds are not rows");
    }
}
