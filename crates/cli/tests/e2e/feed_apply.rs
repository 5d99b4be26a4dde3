//! `feed apply`, `show` and `rebuild`: a definition becomes a feed that fills a table of the user.

use std::fs;

use crate::commands::text;
use crate::feed::stop;
use crate::feed_definition::{ORDERS, refusal, start_api, tidemill};
use crate::fixture::{Fixture, Kind, on_both};
use crate::process::Process;
use serde_json::{Value, json};

on_both!(
    definition_is_applied_and_fills_a_table,
    changed_definition_extends_its_table,
    summaries_count_records_that_the_reader_rejects,
    rows_kept_without_evidence_are_named
);

mod sqlite_only {
    use crate::fixture::{Fixture, Kind};

    #[test]
    fn definitions_that_cannot_be_applied_are_refused() {
        super::definitions_that_cannot_be_applied_are_refused(&Fixture::new(Kind::Sqlite));
    }

    #[test]
    fn table_that_does_not_fit_is_refused_with_its_problems() {
        super::table_that_does_not_fit_is_refused_with_its_problems(&Fixture::new(Kind::Sqlite));
    }
}

const FILE: &str = "orders.feed.yaml";

/// Writes a definition of the orders API with these columns.
fn write_definition(fixture: &Fixture, columns: &str) {
    let text = format!(
        "version: 1\nfeed: orders\nclient: {{base_url: 'http://{}'}}\n\
         resource: {{path: /v1/orders, data_selector: $, primary_key: id}}\n\
         paginator: {{type: header_link}}\n\
         into:\n  table: public.orders\n  primary_key: id\n  columns:\n\
         \x20   id: {{path: id, type: text, nullable: false}}\n\
         {columns}",
        start_api()
    );
    fs::write(fixture.path(FILE), text).unwrap();
}

const COLUMNS: &str =
    "    amount: {path: amount, type: decimal}\n    customer: {path: customerName, type: text}\n";

/// Returns the rows of the orders table with these columns, in the order of the ids.
fn rows(fixture: &Fixture, columns: &str) -> Vec<String> {
    let table = match fixture.kind {
        Kind::Sqlite => "orders",
        Kind::Postgres => "public.orders",
    };
    fixture.sql(&format!("SELECT {columns} FROM {table} ORDER BY id")).unwrap()
}

fn expected_rows() -> Vec<String> {
    let mut rows: Vec<String> = (1..=ORDERS)
        .map(|number| {
            let customer = if number == 2 { "\u{1b}[31mred" } else { "Ann" };
            format!("o-{number} 12.50 {customer}")
        })
        .collect();
    rows.sort();
    rows
}

fn sync(fixture: &Fixture) -> String {
    let mut up = Process::start(fixture, "up", &mut fixture.command(&["up"]));
    let synced = tidemill(fixture, &["feed", "sync", "orders", "--wait"]);
    stop(&mut up);
    assert_eq!(synced.code, Some(0), "{synced:?} {}", up.stderr());
    synced.stdout
}

fn definition_is_applied_and_fills_a_table(fixture: &Fixture) {
    write_definition(fixture, COLUMNS);

    // Without a confirmation the feed is not stored, and a plan only shows the statements.
    let refused = tidemill(fixture, &["feed", "apply", FILE]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stdout.contains("CREATE TABLE"), "{refused:?}");
    let warning = "warning: SQLite stores decimals as text to keep all digits (amount)";
    assert_eq!(refused.stderr.contains(warning), fixture.kind == Kind::Sqlite, "{refused:?}");
    assert!(refused.stderr.contains("hint: tidemill feed apply orders.feed.yaml --yes"), "{refused:?}");
    let planned = tidemill(fixture, &["feed", "apply", FILE, "--plan"]).ok();
    assert!(planned.contains("CREATE TABLE") && planned.contains("orders"), "{planned}");
    assert_eq!(fixture.json(&["feed", "list"]), json!([]));

    let applied = tidemill(fixture, &["feed", "apply", FILE, "--project", "shop", "--yes"]);
    assert!(applied.stderr.contains("hint: tidemill feed sync orders --wait"), "{applied:?}");
    let applied = applied.ok();
    assert!(applied.contains("CREATE TABLE") && applied.contains(" into public.orders"), "{applied}");
    let again = tidemill(fixture, &["feed", "apply", FILE]);
    assert!(!again.stderr.contains("warning: SQLite"), "only new columns are warned about: {again:?}");
    assert_eq!(again.ok().trim(), "feed orders is unchanged");
    let again = tidemill(fixture, &["--json", "feed", "apply", FILE, "--plan"]).ok();
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!((&again["changed"], &again["table"]["statements"]), (&json!(false), &json!([])));
    assert_eq!(again["table"]["exists"], true);

    let summary = sync(fixture);
    assert!(summary.contains(&format!("success: {ORDERS} records listed: {ORDERS} stored")), "{summary}");
    let columns = "id || ' ' || amount || ' ' || customer";
    assert_eq!(rows(fixture, columns), expected_rows());

    let shown = tidemill(fixture, &["feed", "show", "orders"]).ok();
    for line in
        ["feed       orders (rest, project shop)", "table      public.orders", "paginator  header_link"]
    {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert!(shown.ends_with(&fs::read_to_string(fixture.path(FILE)).unwrap()), "{shown}");
    let id = text(&fixture.json(&["sync", "list"]), "0.run_id").to_owned();
    let sync = fixture.ok(&["sync", "show", &id]);
    assert!(sync.contains("LIST") && sync.contains("whole") && !sync.contains("DOLLARS"), "{sync}");
    // Rows that were removed by hand come back.
    fixture.sql("DELETE FROM orders WHERE id <> '1'").unwrap();
    let rebuilt = tidemill(fixture, &["feed", "rebuild", "orders"]).ok();
    assert_eq!(rebuilt.trim(), format!("{ORDERS} records of orders built again; 0 rejected"));
    assert_eq!(rows(fixture, columns), expected_rows());
}

fn changed_definition_extends_its_table(fixture: &Fixture) {
    write_definition(fixture, COLUMNS);
    tidemill(fixture, &["feed", "apply", FILE, "--yes"]).ok();
    sync(fixture);
    // The address of the API is part of the definition, so the file is extended in place.
    let before = fs::read_to_string(fixture.path(FILE)).unwrap();
    fs::write(fixture.path(FILE), format!("{before}    source: {{constant: web, type: text}}\n")).unwrap();

    let refused = tidemill(fixture, &["feed", "apply", FILE]);
    assert!(refused.stdout.contains("ALTER TABLE") && refused.stdout.contains("source"), "{refused:?}");
    assert!(refusal(refused).contains("the table public.orders must be changed, which needs --yes"));
    let applied = tidemill(fixture, &["feed", "apply", FILE, "--yes"]);
    assert!(applied.stderr.contains("hint: tidemill feed rebuild orders"), "{applied:?}");
    applied.ok();
    let rebuilt = tidemill(fixture, &["feed", "rebuild", "orders", "--batch", "10"]);
    assert_eq!(rebuilt.stdout.trim(), format!("{ORDERS} records of orders built again; 0 rejected"));
    let sources = rows(fixture, "source");
    assert_eq!(sources, vec!["web".to_owned(); ORDERS]);
}

fn definitions_that_cannot_be_applied_are_refused(fixture: &Fixture) {
    write_definition(fixture, COLUMNS);
    fs::write(fixture.path("bad.yaml"), "version: 1\nfeed: x\nclent: {}\n").unwrap();
    let refused = refusal(tidemill(fixture, &["feed", "apply", "bad.yaml", "--yes"]));
    assert!(refused.contains("bad.yaml:3:1:") && refused.contains("bad.yaml has "), "{refused}");

    let valid = fs::read_to_string(fixture.path(FILE)).unwrap();
    fs::write(fixture.path("name.yaml"), valid.replace("feed: orders", "feed: my_orders")).unwrap();
    let refused = refusal(tidemill(fixture, &["feed", "apply", "name.yaml", "--yes"]));
    assert!(
        refused.contains("name.yaml:2:") && refused.contains("`my_orders` is not a valid feed name"),
        "{refused}"
    );
    let checked = refusal(tidemill(fixture, &["feed", "check", "name.yaml"]));
    assert!(checked.contains("`my_orders` is not a valid feed name"), "{checked}");

    let add = ["feed", "add", "orders", "--kind", "rest", "--endpoint", "http://127.0.0.1:9/"];
    let refused = refusal(tidemill(fixture, &add));
    assert!(refused.contains("hint: tidemill feed apply FILE"), "{refused}");
    assert_eq!(fixture.json(&["feed", "list"]), json!([]));

    // A feed with a definition has no prices.
    tidemill(fixture, &["feed", "apply", FILE, "--yes"]).ok();
    let refused = refusal(tidemill(fixture, &["rule", "apply", "orders"]));
    assert!(refused.contains("hint: tidemill feed rebuild orders"), "{refused}");
    let refused = refusal(tidemill(fixture, &["rule", "add", "--feed", "orders", "--markup", "2"]));
    assert!(refused.contains("whose records have no prices"), "{refused}");
}

fn table_that_does_not_fit_is_refused_with_its_problems(fixture: &Fixture) {
    write_definition(fixture, COLUMNS);
    fixture.sql("CREATE TABLE orders (id text, note text NOT NULL, amount text, customer text)").unwrap();
    for command in [&["feed", "apply", FILE][..], &["feed", "apply", FILE, "--yes"]] {
        let refused = refusal(tidemill(fixture, command));
        assert!(refused.contains("feed orders cannot fill the table public.orders"), "{refused}");
        assert!(refused.contains("note"), "{refused}");
    }
    assert_eq!(fixture.json(&["feed", "list"]), json!([]));
    assert_eq!(fixture.sql("SELECT count(*) || '' FROM orders").unwrap(), ["0"]);
}

fn summaries_count_records_that_the_reader_rejects(fixture: &Fixture) {
    write_definition(fixture, COLUMNS);
    let definition = fs::read_to_string(fixture.path(FILE)).unwrap();
    let definition = definition.replace("/v1/orders", "/v1/mixed").replace("header_link", "single_page");
    fs::write(fixture.path(FILE), definition).unwrap();
    tidemill(fixture, &["feed", "apply", FILE, "--yes"]).ok();

    let figures = "4 records listed: 1 stored, 3 rejected (fetch 3)";
    let printed = sync(fixture);
    assert!(printed.contains(&format!("success: {figures}")), "{printed}");
    let listed = fixture.json(&["sync", "list", "--limit", "1"]);
    let id = text(&listed, "0.run_id");
    let shown = fixture.ok(&["sync", "show", id]);
    assert!(shown.contains(&format!("records    {figures}")), "{shown}");
    let shown = fixture.json(&["sync", "show", id]);
    assert_eq!(shown["sync"]["ledger"]["rejected"], json!({"fetch": 3}));
    let run = fixture.json(&["run", "show", text(&listed, "0.ops_run_id")]);
    assert!(run.to_string().contains(figures), "{run}");
    let rejects = fixture.json(&["feed", "rejects", "orders"]);
    assert_eq!(rejects.as_array().map(Vec::len), Some(3), "{rejects}");
    assert!(fixture.ok(&["alert", "list"]).contains("records_rejected"));
}

/// The second list lacks the records of the first one. Any of its records without an id may be one of them.
fn rows_kept_without_evidence_are_named(fixture: &Fixture) {
    write_definition(fixture, COLUMNS);
    tidemill(fixture, &["feed", "apply", FILE, "--yes"]).ok();
    sync(fixture);
    let definition = fs::read_to_string(fixture.path(FILE)).unwrap();
    let definition = definition.replace("/v1/orders", "/v1/mixed").replace("header_link", "single_page");
    fs::write(fixture.path(FILE), definition).unwrap();
    tidemill(fixture, &["feed", "apply", FILE, "--yes"]).ok();

    let printed = sync(fixture);
    assert!(printed.contains("of absent records kept"), "{printed}");
    let shown = fixture.ok(&["feed", "show", "orders"]);
    for words in ["deletion ", "records were not seen", "records without an id", "`deletes.lookup`"] {
        assert!(shown.contains(words), "`{words}` is not in {shown}");
    }
    assert!(fixture.ok(&["alert", "list"]).contains("absence_unproven"));
    assert_eq!(fixture.json(&["sync", "list", "--limit", "1"])[0]["deleted"], 0);
}
