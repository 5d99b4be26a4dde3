//! Plans for users' tables: created, extended, or refused with the reason.

use crate::{BOTH, Shop, column, in_dialect, orders, with};
use tidemill_core::feed_definition::target::{
    Column, ColumnType, ContractMode, SchemaContract, TableName, Target, WriteDisposition,
};
use tidemill_store::TablePlan;
use tidemill_testkit::interface::{Fixture, Kind};

async fn plan(fixture: &Fixture, into: &Target) -> TablePlan {
    fixture.store.plan_table(into).await.unwrap()
}

/// Returns the problems of a definition with a table that this SQL creates.
async fn problems(kind: Kind, sql: &str, into: &Target) -> Vec<String> {
    let fixture = Fixture::open(kind).await;
    fixture.plain.script(&in_dialect(kind, sql)).await.unwrap();
    plan(&fixture, into).await.problems
}

const CREATED_POSTGRES: &str = r#"CREATE TABLE "public"."orders" (
    "id" text NOT NULL,
    "amount" numeric,
    "note" text,
    PRIMARY KEY ("id")
)"#;
const CREATED_SQLITE: &str = r#"CREATE TABLE main."orders" (
    "id" TEXT NOT NULL,
    "amount" TEXT,
    "note" TEXT,
    PRIMARY KEY ("id")
)"#;

#[tokio::test]
async fn missing_table_is_planned_and_created() {
    for (kind, created) in [(Kind::Postgres, CREATED_POSTGRES), (Kind::Sqlite, CREATED_SQLITE)] {
        let fixture = Fixture::open(kind).await;
        assert_eq!(fixture.store.target_table(&orders()).await.unwrap(), None);
        let planned = plan(&fixture, &orders()).await;
        assert_eq!((planned.exists, planned.problems.len()), (false, 0));
        assert_eq!(planned.statements, [created]);
        fixture.store.create_target(&planned).await.unwrap();
        let again = plan(&fixture, &orders()).await;
        assert_eq!((again.exists, again.statements, again.problems), (true, vec![], vec![]));
        let table = fixture.store.target_table(&orders()).await.unwrap().unwrap();
        assert_eq!(table.unique_keys, [["id"]]);
        assert!(!table.column("id").unwrap().nullable);
        // The plan is not run twice.
        fixture.store.create_target(&planned).await.unwrap_err();
    }
}

#[tokio::test]
async fn missing_column_is_added_where_the_contract_allows() {
    for kind in BOTH {
        let shop = Shop::open(kind, orders()).await;
        let wider = with(|into| into.columns.push(column("paid", ColumnType::Boolean)));
        let frozen = Target {
            schema_contract: SchemaContract { columns: ContractMode::Freeze, ..SchemaContract::default() },
            ..wider.clone()
        };
        let problems = plan(&shop.fixture, &frozen).await.problems;
        assert_eq!(
            problems,
            ["the table `public.orders` has no column `paid`; add it, or set `schema_contract` to `evolve`"]
        );
        let discarding = Target {
            schema_contract: SchemaContract {
                columns: ContractMode::DiscardValue,
                ..SchemaContract::default()
            },
            ..wider.clone()
        };
        let kept = plan(&shop.fixture, &discarding).await;
        assert_eq!((kept.statements.len(), kept.problems.len()), (0, 0));
        let rejecting = Target {
            schema_contract: SchemaContract {
                columns: ContractMode::DiscardRow,
                ..SchemaContract::default()
            },
            ..wider.clone()
        };
        assert_eq!(plan(&shop.fixture, &rejecting).await.problems, problems, "it would reject each record");
        let planned = plan(&shop.fixture, &wider).await;
        assert!(
            planned.statements[0].ends_with("ADD COLUMN \"paid\" boolean".to_owned().as_str())
                || planned.statements[0].ends_with("ADD COLUMN \"paid\" BOOLEAN")
        );
        shop.fixture.store.create_target(&planned).await.unwrap();
        assert_eq!(plan(&shop.fixture, &wider).await.statements, Vec::<String>::new());
    }
}

#[tokio::test]
async fn frozen_tables_are_not_created() {
    for kind in BOTH {
        let fixture = Fixture::open(kind).await;
        let frozen = with(|into| into.schema_contract.tables = ContractMode::Freeze);
        let planned = plan(&fixture, &frozen).await;
        assert_eq!(planned.statements, Vec::<String>::new());
        assert!(planned.problems[0].contains("does not exist"), "{planned:?}");
        let refused = fixture.store.create_target(&planned).await.unwrap_err();
        assert!(refused.to_string().contains("does not exist"), "{refused}");
    }
}

#[tokio::test]
async fn table_without_a_unique_key_cannot_be_merged() {
    for kind in BOTH {
        let table = "CREATE TABLE {main}.orders (id text NOT NULL, shop text, amount numeric, note text)";
        let found = problems(kind, table, &orders()).await;
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("has no unique index on (\"id\")"), "{found:?}");
        let appended = with(|into| into.write_disposition = WriteDisposition::Append);
        assert_eq!(problems(kind, table, &appended).await, Vec::<String>::new());
        for index in ["(shop, id)", "(id) WHERE amount > 0", "(lower(id))"] {
            let sql = if kind == Kind::Sqlite {
                format!("{table}; CREATE UNIQUE INDEX main.one ON orders {index}")
            } else {
                format!("{table}; CREATE UNIQUE INDEX one ON public.orders {index}")
            };
            assert_eq!(problems(kind, &sql, &orders()).await.len(), 1, "{index}");
        }
    }
    let deferred = "CREATE TABLE public.orders (id text UNIQUE DEFERRABLE, amount numeric, note text)";
    assert_eq!(problems(Kind::Postgres, deferred, &orders()).await.len(), 1);
}

#[tokio::test]
async fn columns_that_a_row_cannot_fill_are_problems() {
    for kind in BOTH {
        let table = "CREATE TABLE {main}.orders (id text NOT NULL PRIMARY KEY, amount numeric, note text, \
                     a integer NOT NULL, b integer NOT NULL DEFAULT 1, \
                     c integer GENERATED ALWAYS AS (1 + 1) STORED)";
        let found = problems(kind, table, &orders()).await;
        assert_eq!(
            found,
            ["the column `a` of `public.orders` is NOT NULL and has no default; \
                            add it to the definition"]
        );
        let filled = with(|into| {
            into.columns.extend(["a", "c"].map(|name| column(name, ColumnType::Integer)));
        });
        let found = problems(kind, table, &filled).await;
        assert_eq!(
            found,
            ["the column `c` of `public.orders` is generated by the database; \
                            remove it from the definition"]
        );
    }
}

#[tokio::test]
async fn views_are_refused() {
    for kind in BOTH {
        let fixture = Fixture::open(kind).await;
        fixture
            .plain
            .script(&in_dialect(kind, "CREATE VIEW {main}.orders AS SELECT 'x' AS id"))
            .await
            .unwrap();
        let refused = fixture.store.plan_table(&orders()).await.unwrap_err();
        assert!(refused.to_string().contains("is not a table"), "{refused}");
    }
}

#[tokio::test]
async fn own_tables_are_never_written() {
    let of = |name: &str| {
        let (schema, table) = name.split_once('.').unwrap();
        with(|into| into.table = TableName { schema: schema.to_owned(), table: table.to_owned() })
    };
    for (kind, names) in [
        (Kind::Postgres, ["ops.runs", "ops.new", "public.diamonds", "public.raw_records_x", "pg_catalog.x"]),
        (Kind::Sqlite, ["main.runs", "shop.orders", "main.DIAMONDS", "main.raw_records_x", "main.sqlite_x"]),
    ] {
        let fixture = Fixture::open(kind).await;
        for name in names {
            let planned = plan(&fixture, &of(name)).await;
            assert_eq!((planned.statements.len(), planned.problems.len()), (0, 1), "{name}");
            fixture.store.target_table(&of(name)).await.unwrap_err();
            fixture.store.create_target(&planned).await.unwrap_err();
        }
    }
    // Every table of the file, also those that another process created.
    let fixture = Fixture::open(Kind::Sqlite).await;
    let tables = fixture.plain.texts("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')").await;
    for table in tables.unwrap() {
        assert_eq!(plan(&fixture, &of(&format!("main.{table}"))).await.problems.len(), 1, "{table}");
    }
}

#[tokio::test]
async fn names_with_quotes_and_mixed_case_are_kept() {
    for kind in BOTH {
        let hostile = "Am\"ount\"; DROP TABLE runs; --";
        let into = Target {
            table: TableName { schema: "public".to_owned(), table: "Or\"ders; --".to_owned() },
            primary_key: vec!["Id".to_owned()],
            columns: vec![
                Column { nullable: false, ..column("Id", ColumnType::Text) },
                column(hostile, ColumnType::Text),
            ],
            ..orders()
        };
        let shop = Shop::open(kind, into.clone()).await;
        assert_eq!(plan(&shop.fixture, &into).await.statements, Vec::<String>::new());
        let target = crate::TargetRow {
            values: vec![("Id".to_owned(), crate::text("1")), (hostile.to_owned(), crate::text("x"))],
            ..crate::row("r-1", "1", "1", "")
        };
        assert_eq!(shop.write(std::slice::from_ref(&target)).await.unwrap(), 1);
        let again = crate::TargetRow { payload_hash: vec![1], ..target };
        assert_eq!(shop.write(&[again]).await.unwrap(), 1);
        assert_eq!(shop.read("SELECT \"Id\" FROM {main}.\"Or\"\"ders; --\"").await, ["1"]);
        assert_eq!(shop.delete(&["r-1"]).await, 1);
        assert_eq!(shop.read("SELECT \"Id\" FROM {main}.\"Or\"\"ders; --\"").await, Vec::<String>::new());
        assert!(shop.fixture.plain.number("SELECT count(*) FROM {ops}.runs").await.is_ok());
    }
}

#[tokio::test]
async fn missing_schema_is_created() {
    let fixture = Fixture::open(Kind::Postgres).await;
    let into = with(|into| into.table.schema = "Shop".to_owned());
    let planned = plan(&fixture, &into).await;
    assert_eq!(planned.statements[0], "CREATE SCHEMA \"Shop\"");
    fixture.store.create_target(&planned).await.unwrap();
    assert!(plan(&fixture, &into).await.exists);
}

#[tokio::test]
async fn marker_of_deleted_rows_is_a_column_of_its_own() {
    for kind in BOTH {
        let marked = with(|into| into.deleted_at = Some("gone_at".to_owned()));
        let shop = Shop::open(kind, orders()).await;
        let planned = plan(&shop.fixture, &marked).await;
        assert!(planned.statements[0].contains("ADD COLUMN \"gone_at\""), "{planned:?}");
        let discarding = Target {
            schema_contract: SchemaContract {
                columns: ContractMode::DiscardValue,
                ..SchemaContract::default()
            },
            ..marked
        };
        assert_eq!(plan(&shop.fixture, &discarding).await.problems.len(), 1);
        for bad in [
            with(|into| into.deleted_at = Some("note".to_owned())),
            with(|into| {
                into.deleted_at = Some("gone_at".to_owned());
                into.write_disposition = WriteDisposition::Append;
            }),
        ] {
            assert_eq!(plan(&shop.fixture, &bad).await.problems.len(), 1, "{bad:?}");
        }
    }
}
