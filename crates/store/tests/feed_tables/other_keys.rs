//! Keys that an earlier definition stored: they select no rows under another primary key or in another table.

use crate::{BOTH, Shop, orders, row, with};
use tidemill_core::feed_definition::target::{ColumnType, Target};

/// Rows are unique by `id` and by `amount`.
const TABLE: &str =
    "CREATE TABLE {main}.orders (id text NOT NULL PRIMARY KEY, amount bigint NOT NULL UNIQUE, note text)";

/// The definition whose key is the amount.
fn by_amount() -> Target {
    with(|into| {
        into.primary_key = vec!["amount".to_owned()];
        into.columns[1].column_type = ColumnType::Integer;
    })
}

/// Opens a table with rows whose key is the id, and then changes the key to the amount.
async fn changed(kind: tidemill_testkit::interface::Kind, id: &str) -> Shop {
    let mut shop = Shop::existing(kind, orders(), TABLE).await;
    shop.write(&[row("r-1", id, "7", "old")]).await.unwrap();
    shop.sql("INSERT INTO {main}.orders (id, amount, note) VALUES ('mine', 5, 'kept')").await;
    shop.into = by_amount();
    shop.reload().await;
    shop
}

#[tokio::test]
async fn key_of_another_type_fails_no_row() {
    for kind in BOTH {
        let shop = changed(kind, "A-1").await;
        shop.write(&[row("r-1", "A-1", "7", "new")]).await.unwrap();
        assert_eq!(shop.rows().await, ["A-1 7 new", "mine 5 kept"]);
        assert_eq!(shop.lines().await, [r#"r-1 {"public.orders":{"amount":"7"}} active"#]);
    }
}

#[tokio::test]
async fn key_of_other_columns_deletes_no_row() {
    for kind in BOTH {
        let shop = changed(kind, "5").await;
        shop.write(&[row("r-1", "5", "7", "new")]).await.unwrap();
        assert_eq!(shop.rows().await, ["5 7 new", "mine 5 kept"]);
    }
}

#[tokio::test]
async fn absent_record_with_an_older_key_deletes_no_row() {
    for kind in BOTH {
        let shop = changed(kind, "5").await;
        assert_eq!(shop.delete(&["r-1"]).await, 1);
        assert_eq!(shop.rows().await, ["5 7 old", "mine 5 kept"]);
        assert_eq!(shop.lines().await, [r#"r-1 {"public.orders":{"id":"5"}} absent"#]);
    }
}

#[tokio::test]
async fn key_of_another_table_deletes_no_row() {
    for kind in BOTH {
        let mut shop = Shop::open(kind, orders()).await;
        shop.write(&[row("r-1", "1", "1", "a")]).await.unwrap();
        shop.sql("CREATE TABLE {main}.more (id text NOT NULL PRIMARY KEY, amount numeric, note text)").await;
        shop.sql("INSERT INTO {main}.more (id, note) VALUES ('1', 'mine')").await;
        shop.into = with(|into| "more".clone_into(&mut into.table.table));
        shop.reload().await;
        shop.write(&[row("r-1", "2", "1", "a")]).await.unwrap();
        let rows = shop.read("SELECT id || ' ' || note FROM {main}.more ORDER BY 1").await;
        assert_eq!(rows, ["1 mine", "2 a"]);
    }
}

/// The order of the columns does not make another key.
#[tokio::test]
async fn reordered_key_still_moves_its_row() {
    for kind in BOTH {
        let both = |names: [&str; 2]| {
            with(|into| {
                into.primary_key = names.map(str::to_owned).to_vec();
                into.columns[2].nullable = false;
            })
        };
        let mut shop = Shop::open(kind, both(["note", "id"])).await;
        shop.write(&[row("r-1", "1", "1", "a")]).await.unwrap();
        shop.into = both(["id", "note"]);
        shop.reload().await;
        shop.write(&[row("r-1", "1", "1", "b")]).await.unwrap();
        assert_eq!(shop.rows().await, ["1 1 b"]);
    }
}
