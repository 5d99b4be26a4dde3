//! Rows that the user's table refuses, and tables that change under a sync.

use crate::{BOTH, Shop, as_login, column, orders, row, text, with};
use tidemill_core::feed_definition::ColumnValue;
use tidemill_core::feed_definition::target::ColumnType;
use tidemill_store::{Class, Error, TargetRow};
use tidemill_testkit::interface::{Fixture, Kind, PlainSql, TestRoles, at};

/// Asserts that the error is one of a single row, and that nothing was written.
async fn assert_refused(shop: &Shop, bad: TargetRow) {
    let good = row("r-0", "0", "0", "ok");
    let refused = shop.write(&[good, bad.clone()]).await.unwrap_err();
    assert!(refused.is_bad_value() && refused.class() == Class::Permanent, "{refused:?}: {bad:?}");
    assert_eq!(shop.rows().await, Vec::<String>::new());
    assert_eq!(shop.lines().await, Vec::<String>::new());
}

#[tokio::test]
async fn row_that_the_table_refuses_is_a_bad_value() {
    for kind in BOTH {
        let table = "CREATE TABLE {main}.people (id text PRIMARY KEY); \
                     CREATE TABLE {main}.orders (id text NOT NULL PRIMARY KEY, \
                     amount numeric CHECK (amount < 100), note text NOT NULL UNIQUE)";
        let shop = Shop::existing(kind, orders(), table).await;
        assert_refused(&shop, row("r-1", "1", "100", "a")).await;
        assert_refused(&shop, row("r-1", "1", "1", "ok")).await;
        let mut without_note = row("r-1", "1", "1", "");
        without_note.values[2].1 = ColumnValue::Null;
        assert_refused(&shop, without_note).await;
        let mut without_key = row("r-1", "1", "1", "a");
        without_key.values[0].1 = ColumnValue::Null;
        assert_refused(&shop, without_key).await;
        let mut without_key = row("r-1", "1", "1", "a");
        without_key.values.remove(0);
        assert_refused(&shop, without_key).await;
        assert_eq!(shop.write(&[row("r-1", "1", "1", "a")]).await.unwrap(), 1);
    }
}

#[tokio::test]
async fn integer_beyond_64_bits_is_a_bad_value() {
    for kind in BOTH {
        let into = with(|into| into.columns[1].column_type = ColumnType::Integer);
        let shop = Shop::open(kind, into).await;
        let mut big = row("r-1", "1", "0", "a");
        big.values[1].1 = ColumnValue::Integer("9223372036854775808".to_owned());
        assert_refused(&shop, big).await;
    }
}

#[tokio::test]
async fn too_long_text_is_refused_and_not_cut() {
    for kind in ["varchar(5)", "char(5)", "bit varying(5)"] {
        let table =
            format!("CREATE TABLE public.orders (id text PRIMARY KEY, amount numeric(4,1), note {kind})");
        let shop = Shop::existing(Kind::Postgres, orders(), &table).await;
        let (fits, long) = if kind.starts_with("bit") { ("01010", "010101") } else { ("short", "too long") };
        let refused = shop.write(&[row("r-1", "1", "1", long)]).await.unwrap_err();
        assert!(refused.is_bad_value(), "{refused:?}");
        let refused = shop.write(&[row("r-1", "1", "10000", fits)]).await.unwrap_err();
        assert!(refused.is_bad_value(), "{refused:?}");
        shop.write(&[row("r-1", "1", "1", fits)]).await.unwrap();
    }
}

/// Constraints that are checked by the commit, and exceptions of a trigger, belong to one row too.
#[tokio::test]
async fn deferred_constraint_and_trigger_refuse_their_row() {
    let table = "CREATE TABLE public.people (id text PRIMARY KEY); \
                 CREATE TABLE public.orders (id text PRIMARY KEY, amount numeric, \
                     note text REFERENCES public.people DEFERRABLE INITIALLY DEFERRED); \
                 CREATE FUNCTION public.check_order() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                     IF new.amount < 0 THEN RAISE EXCEPTION 'negative'; END IF; RETURN new; END $$; \
                 CREATE TRIGGER check_order BEFORE INSERT OR UPDATE ON public.orders \
                     FOR EACH ROW EXECUTE FUNCTION public.check_order(); \
                 INSERT INTO public.people VALUES ('ann')";
    let shop = Shop::existing(Kind::Postgres, orders(), table).await;
    for bad in [row("r-1", "1", "1", "bob"), row("r-1", "1", "-1", "ann")] {
        let tables = shop.tables.clone();
        let refused = shop
            .step(move |mut tx| {
                Box::pin(async move {
                    tx.limit_locks(5).await?;
                    tx.savepoint().await?;
                    let refused = tx.upsert_rows(&tables, &[bad], crate::BUILT, Some(at(0))).await;
                    tx.rollback_to_savepoint().await?;
                    tx.upsert_rows(&tables, &[row("r-2", "2", "2", "ann")], crate::BUILT, Some(at(0)))
                        .await?;
                    Ok(refused.unwrap_err())
                })
            })
            .await
            .unwrap();
        assert!(refused.is_bad_value(), "{refused:?}");
    }
    assert_eq!(shop.rows().await, ["2 2 ann"]);
}

#[tokio::test]
async fn sqlite_table_with_a_deferred_foreign_key_is_refused() {
    let fixture = Fixture::open(Kind::Sqlite).await;
    let sql = "CREATE TABLE people (id TEXT PRIMARY KEY); \
               CREATE TABLE orders (id TEXT PRIMARY KEY, \
               note TEXT REFERENCES people DEFERRABLE INITIALLY DEFERRED)";
    fixture.plain.script(sql).await.unwrap();
    for table in ["orders", "people"] {
        let into = with(|into| into.table.table = table.to_owned());
        let refused = fixture.store.target_table(&into).await.unwrap_err();
        assert!(refused.to_string().contains("deferred foreign key"), "{refused}");
    }
}

/// Asserts that the error names the table and a remedy, and stops this feed only.
fn assert_unusable(refused: &Error, part: &str) {
    assert!(refused.to_string().contains(part), "{refused:?}");
    assert!(refused.to_string().contains("public.orders"), "{refused:?}");
    assert_eq!(refused.class(), Class::Permanent);
    assert!(refused.hint().is_some() && !refused.is_bad_value() && !refused.is_hopeless(), "{refused:?}");
}

#[tokio::test]
async fn dropped_or_altered_table_is_a_clear_error() {
    for kind in BOTH {
        let mut shop = Shop::open(kind, orders()).await;
        shop.write(&[row("r-1", "1", "1", "a")]).await.unwrap();
        shop.sql("ALTER TABLE {main}.orders RENAME COLUMN note TO remark").await;
        let refused = shop.write(&[row("r-1", "1", "2", "b")]).await.unwrap_err();
        assert_unusable(&refused, "does not fit the definition any more");
        shop.reload().await;
        let refused = shop.write(&[row("r-1", "1", "2", "b")]).await.unwrap_err();
        assert_unusable(&refused, "has no column `note`");
        shop.sql("DROP TABLE {main}.orders").await;
        assert_eq!(shop.fixture.store.target_table(&shop.into).await.unwrap(), None);
        let mut without_note = row("r-1", "1", "2", "");
        without_note.values.pop();
        let refused = shop.write(&[without_note]).await.unwrap_err();
        assert_unusable(&refused, "does not exist any more");
        assert_eq!(shop.lines().await, [r#"r-1 {"public.orders":{"id":"1"}} active"#], "nothing is lost");
        // The table is there again: everything is built again from the stored records.
        let plan = shop.fixture.store.plan_table(&shop.into).await.unwrap();
        shop.fixture.store.create_target(&plan).await.unwrap();
        shop.reload().await;
        shop.write(&[row("r-1", "1", "2", "b")]).await.unwrap();
        assert_eq!(shop.rows().await, ["1 2 b"]);
    }
}

#[tokio::test]
async fn changed_types_and_keys_are_a_clear_error() {
    for change in [
        "ALTER TABLE public.orders ALTER note TYPE integer USING 1",
        "ALTER TABLE public.orders DROP CONSTRAINT orders_pkey",
    ] {
        let shop = Shop::open(Kind::Postgres, orders()).await;
        shop.write(&[row("r-1", "1", "1", "a")]).await.unwrap();
        shop.sql(change).await;
        let refused = shop.write(&[row("r-1", "1", "1", "b")]).await.unwrap_err();
        assert_unusable(&refused, "does not fit the definition any more");
    }
}

#[tokio::test]
async fn missing_right_is_a_clear_error() {
    let shop = Shop::open(Kind::Postgres, orders()).await;
    let mut roles = TestRoles::new(&shop.fixture.url);
    let grants =
        "GRANT USAGE ON SCHEMA ops TO {login}; GRANT ALL ON ops.feed_records, ops.feed_tables TO {login}";
    let store = as_login(&shop.fixture, &mut roles, grants).await;
    let tables = shop.tables.clone();
    let refused = store
        .write(move |mut tx| {
            Box::pin(async move {
                tx.upsert_rows(&tables, &[row("r-1", "1", "1", "a")], crate::BUILT, Some(at(0))).await
            })
        })
        .await
        .unwrap_err();
    assert_unusable(&refused, "lacks the privilege to write");
    let into = with(|into| into.columns.push(column("more", ColumnType::Text)));
    let plan = store.plan_table(&into).await.unwrap();
    let refused = store.create_target(&plan).await.unwrap_err();
    assert_unusable(&refused, "lacks the privilege to create or change");
    // The database is dropped before its roles.
    drop((store, shop, roles));
}

#[tokio::test]
async fn locked_table_is_a_transient_error() {
    let shop = Shop::open(Kind::Postgres, orders()).await;
    let PlainSql::Postgres(pool) = &shop.fixture.plain else { return };
    let mut other = pool.begin().await.unwrap();
    sqlx::raw_sql("LOCK TABLE public.orders").execute(&mut *other).await.unwrap();
    let tables = shop.tables.clone();
    let refused = shop
        .step(move |mut tx| {
            Box::pin(async move {
                tx.limit_locks(1).await?;
                tx.upsert_rows(&tables, &[row("r-1", "1", "1", "a")], crate::BUILT, Some(at(0))).await
            })
        })
        .await
        .unwrap_err();
    assert_eq!(refused.class(), Class::Transient, "{refused:?}");
    assert!(!refused.is_bad_value());
    other.rollback().await.unwrap();
    assert_eq!(shop.write(&[row("r-1", "1", "1", "a")]).await.unwrap(), 1);
}

/// A NUL cannot be stored; the reader of records rejects it before.
#[tokio::test]
async fn nul_in_a_text_is_a_bad_value() {
    let shop = Shop::open(Kind::Postgres, orders()).await;
    let mut bad = row("r-1", "1", "1", "");
    bad.values[2].1 = text("a\0b");
    assert_refused(&shop, bad).await;
}
