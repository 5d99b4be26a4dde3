//! The raw tables of feeds.

use crate::{BOTH, add_feed, as_login};
use tidemill_core::feed::{REST_KIND, RawTable};
use tidemill_testkit::interface::{Fixture, Kind, TestRoles};

async fn create(fixture: &Fixture, raw: RawTable) -> Result<(), tidemill_store::Error> {
    fixture.store.write(move |mut tx| Box::pin(async move { tx.create_raw_table(&raw).await })).await
}

#[tokio::test]
async fn each_feed_has_a_raw_table_of_its_own() {
    for kind in BOTH {
        let fixture = Fixture::open(kind).await;
        for (name, feed_kind, table) in [
            ("nivoda", "nivoda", "raw_diamonds_nivoda"),
            ("gems-two", "nivoda", "raw_diamonds_gems_two"),
            ("orders", REST_KIND, "raw_records_orders"),
        ] {
            let raw = add_feed(&fixture, name, feed_kind).await;
            assert_eq!(raw.table, table);
            create(&fixture, raw).await.unwrap();
        }
        let columns = fixture.plain.columns().await.unwrap();
        let model = &columns["raw_diamonds_nivoda"];
        assert_eq!(&columns["raw_diamonds_gems_two"], model);
        let renamed =
            |(name, kind): &(String, String)| (name.replace("supplier_stone_id", "record_id"), kind.clone());
        assert_eq!(columns["raw_records_orders"], model.iter().map(renamed).collect());
    }
}

#[tokio::test]
async fn long_names_of_feeds_give_distinct_tables() {
    for kind in BOTH {
        let fixture = Fixture::open(kind).await;
        let long = "a".repeat(127);
        for name in [format!("{long}b"), format!("{long}c")] {
            let raw = add_feed(&fixture, &name, REST_KIND).await;
            assert!(raw.table.len() <= 63, "{raw:?}");
            let table = raw.table;
            assert!(fixture.plain.columns().await.unwrap().contains_key(&table), "{table}");
        }
    }
}

#[tokio::test]
async fn table_of_another_owner_is_not_used() {
    for kind in BOTH {
        let fixture = Fixture::open(kind).await;
        fixture.plain.script("CREATE TABLE raw_records_orders (record_id text, mine text)").await.unwrap();
        let raw = RawTable::of(REST_KIND, "orders");
        let refused = create(&fixture, raw).await.unwrap_err();
        assert!(refused.to_string().contains("Tidemill did not create it"), "{refused}");
        assert!(refused.hint().is_some());
    }
}

#[tokio::test]
async fn simultaneous_creators_create_once() {
    for kind in BOTH {
        let fixture = Fixture::open(kind).await;
        let created = tidemill_testkit::conformance::at_once(8, |_| {
            let fixture = fixture.clone();
            async move { create(&fixture, RawTable::of(REST_KIND, "orders")).await }
        })
        .await;
        for done in created {
            done.unwrap();
        }
    }
}

/// The statement of the operators' page, with and without a row.
#[tokio::test]
async fn operators_can_insert_raw_records() {
    for kind in BOTH {
        let fixture = Fixture::open(kind).await;
        let (hash, now) = if kind == Kind::Sqlite { ("x'01'", "0") } else { ("'\\x01'", "now()") };
        for price in [1, 2] {
            let text = format!(
                "INSERT INTO raw_diamonds_nivoda (supplier_stone_id, offer_id, run_id, payload, payload_hash, \
                 created_at, updated_at) VALUES ('s-1', 'o-1', '0190b7a4-5a3c-7c9e-8d4f-0123456789ab', \
                 '{{\"price\": {price}}}', {hash}, {now}, {now}) \
                 ON CONFLICT (supplier_stone_id) DO UPDATE SET payload = excluded.payload"
            );
            assert_eq!(fixture.plain.execute(&text).await.unwrap(), 1);
        }
        let read = "SELECT CAST(payload AS text) FROM raw_diamonds_nivoda";
        assert_eq!(fixture.plain.texts(read).await.unwrap(), [r#"{"price": 2}"#]);
    }
}

#[tokio::test]
async fn raw_tables_have_the_grants_of_the_others() {
    let fixture = Fixture::open(Kind::Postgres).await;
    let before = add_feed(&fixture, "before", REST_KIND).await;
    let mut roles = TestRoles::new(&fixture.url);
    let names = roles.create_roles(&fixture.store).await;
    let after = add_feed(&fixture, "after", REST_KIND).await;
    for raw in [&before, &after] {
        for (role, right, expected) in
            [(&names.reader, "SELECT", 1), (&names.reader, "INSERT", 0), (&names.worker, "SELECT", 0)]
        {
            let text = format!(
                "SELECT has_table_privilege('{role}', 'public.{}', '{right}')::int::bigint",
                raw.table
            );
            assert_eq!(fixture.plain.number(&text).await.unwrap(), expected, "{text}");
        }
    }
    // The grants are repeated after a migration.
    roles.create_roles(&fixture.store).await;
}

#[tokio::test]
async fn missing_right_to_create_is_refused_with_a_hint() {
    let fixture = Fixture::open(Kind::Postgres).await;
    let mut roles = TestRoles::new(&fixture.url);
    let grants = "REVOKE CREATE ON SCHEMA public FROM PUBLIC; GRANT USAGE ON SCHEMA public TO {login}";
    let store = as_login(&fixture, &mut roles, grants).await;
    let raw = RawTable::of(REST_KIND, "orders");
    let refused = store.write(move |mut tx| Box::pin(async move { tx.create_raw_table(&raw).await })).await;
    let refused = refused.unwrap_err();
    assert!(refused.to_string().contains("lacks the privilege to create"), "{refused}");
    assert!(refused.hint().unwrap().contains("owner of the schema"));
    drop((store, fixture, roles));
}
