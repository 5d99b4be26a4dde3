//! `feed try`, `check`, `preview` and `schema`: from a URL to rows, against a real HTTP server. Also the examples of
//! `docs/feeds.md`.

use axum::Router;
use axum::extract::Query;
use axum::response::IntoResponse;
use axum::routing::get;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;

use crate::commands::text;
use crate::feed::{stop, supplier};
use crate::fixture::{Fixture, Kind};
use crate::graph::doc_commands;
use crate::process::{Output, Process, run};

pub(crate) const ORDERS: usize = 23;
const PAGE: usize = 10;

/// A good record, two without an id, and one with a character that no database stores.
const MIXED: &str = r#"[{"id":"a"},{"amount":"2"},{"amount":"3"},{"id":"b","customerName":"\u0000"}]"#;

/// Starts an API with a list of orders, and returns its address. It ends with the test process.
pub(crate) fn start_api() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let router = Router::new()
                .route("/v1/orders", get(move |query| async move { orders(address, &query) }))
                .route("/v1/mixed", get(|| async { MIXED }))
                .route("/text", get(|| async { "no JSON" }));
            axum::serve(tokio::net::TcpListener::from_std(listener).unwrap(), router).await
        })
    });
    address
}

/// One page with the total in a header and the next page in a link. One customer's name has a terminal escape.
fn orders(address: SocketAddr, Query(query): &Query<HashMap<String, String>>) -> impl IntoResponse + use<> {
    let page: usize = query.get("page").map_or(1, |page| page.parse().unwrap());
    let order = |number: usize| {
        json!({
            "id": format!("o-{number}"), "customerName": if number == 2 { "\u{1b}[31mred" } else { "Ann" },
            "amount": "12.50", "lines": [1, 2], "updated_at": "2026-03-01T10:00:00Z",
        })
    };
    let numbers = (page - 1) * PAGE + 1..=(page * PAGE).min(ORDERS);
    let body = Value::from(numbers.map(order).collect::<Vec<_>>()).to_string();
    let link = format!("<http://{address}/v1/orders?page={}>; rel=\"next\"", page + 1);
    let link = if page * PAGE < ORDERS { link } else { "<>; rel=\"self\"".to_owned() };
    (
        [
            ("content-type", "application/json".to_owned()),
            ("x-total-count", ORDERS.to_string()),
            ("link", link),
        ],
        body,
    )
}

/// Runs a command in the directory of the fixture.
pub(crate) fn tidemill(fixture: &Fixture, args: &[&str]) -> Output {
    run(fixture.command(args).current_dir(fixture.path("")))
}

/// Returns the message of a command that was refused.
#[track_caller]
pub(crate) fn refusal(output: Output) -> String {
    assert_eq!(output.code, Some(3), "{output:?}");
    output.stderr
}

#[test]
fn url_becomes_a_definition_and_its_rows_are_shown() {
    let fixture = Fixture::new(Kind::Sqlite);
    let url = format!("http://{}/v1/orders", start_api());
    let shown = tidemill(&fixture, &["feed", "try", &url]).ok();
    for expected in [
        "records    10 in the answer, at `$`",
        "id         id",
        "paginator  header_link",
        "page 2     10 other records confirm the paginator",
        "x-total-count",
        "changed    updated_at",
        "customer_name",
        "wrote orders.feed.yaml",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    assert!(!shown.contains('\u{1b}'), "{shown:?}");

    let checked = tidemill(&fixture, &["feed", "check", "orders.feed.yaml"]).ok();
    assert_eq!(
        checked.trim(),
        "orders.feed.yaml is valid: feed orders fills public.orders, 5 columns, paginator header_link"
    );
    let preview = tidemill(&fixture, &["feed", "preview", "orders.feed.yaml", "--limit", "3"]).ok();
    let lines: Vec<&str> = preview.lines().collect();
    assert_eq!(lines.len(), 4, "{preview}");
    assert!(
        lines[0].starts_with("amount  customer_name  id ")
            && lines[3].starts_with("12.50   Ann            o-3 "),
        "{preview}"
    );
    let preview = tidemill(&fixture, &["--json", "feed", "preview", "orders.feed.yaml"]).ok();
    let preview: Value = serde_json::from_str(&preview).unwrap();
    assert_eq!((preview["rows"].as_array().unwrap().len(), &preview["total"]), (PAGE, &json!(ORDERS)));
    assert_eq!(preview["rows"][1]["values"]["customer_name"], "\u{1b}[31mred");
    assert_eq!(
        (&preview["rows"][0]["values"]["lines"], &preview["is_last"]),
        (&json!([1, 2]), &json!(false))
    );

    let refused = refusal(tidemill(&fixture, &["feed", "try", &url]));
    assert!(refused.contains("orders.feed.yaml exists already") && refused.contains("--output"), "{refused}");
}

#[test]
fn record_that_does_not_fit_its_column_is_named() {
    let fixture = Fixture::new(Kind::Sqlite);
    let definition = format!(
        "version: 1\nfeed: orders\nclient: {{base_url: 'http://{}'}}\n\
         resource: {{path: /v1/orders, data_selector: $, primary_key: id}}\n\
         paginator: {{type: header_link}}\n\
         into: {{table: public.orders, primary_key: id, columns: {{id: {{path: id, type: text, nullable: false}}, \
         amount: {{path: amount, type: boolean}}}}}}\n",
        start_api()
    );
    fs::write(fixture.path("orders.yaml"), definition).unwrap();
    let output = tidemill(&fixture, &["feed", "preview", "orders.yaml", "--limit", "1"]);
    assert!(output.stderr.contains("record 1: the column `amount`: `12.50` is not a boolean"), "{output:?}");
    assert!(output.ok().contains("error"));
}

#[test]
fn faulty_definitions_and_sources_are_refused_with_advice() {
    let fixture = Fixture::new(Kind::Sqlite);
    let address = start_api();
    fs::write(fixture.path("bad.yaml"), "version: 1\nfeed: x\nclent: {}\n").unwrap();
    let refused = refusal(tidemill(&fixture, &["feed", "check", "bad.yaml"]));
    assert!(refused.contains("bad.yaml:3:1:") && refused.contains("`client`"), "{refused}");
    let errors = tidemill(&fixture, &["--json", "feed", "check", "bad.yaml"]);
    let errors: Value = serde_json::from_str(&errors.stdout).unwrap();
    assert_eq!((&errors["is_valid"], &errors["errors"][3]["line"]), (&json!(false), &json!(3)));

    let missing = tidemill(&fixture, &["feed", "check", "none.yaml"]);
    assert!(missing.stderr.contains("could not read none.yaml") && missing.stderr.contains("feed try URL"));
    let no_json = refusal(tidemill(&fixture, &["feed", "try", &format!("http://{address}/text")]));
    assert!(no_json.contains("127.0.0.1") && no_json.contains("JSON"), "{no_json}");
    let credentials =
        refusal(tidemill(&fixture, &["feed", "try", &format!("http://a:b@{address}/v1/orders")]));
    assert!(credentials.contains("without credentials") && !credentials.contains("a:b"), "{credentials}");
    let schema = tidemill(&fixture, &["feed", "schema"]).ok();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    assert!(text(&schema, "$schema").contains("json-schema"));
}

fn page() -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/feeds.md");
    fs::read_to_string(path).unwrap()
}

#[test]
fn page_commands_print_what_the_page_shows() {
    // The page shows the statements of PostgreSQL.
    let fixture = Fixture::new(Kind::Postgres);
    let mut commands = doc_commands::commands(&page(), "## From a URL to rows\n");
    let (source, _) = commands.remove(0);
    assert_eq!(source, format!("tidemill supplier --listen {SOURCE} --stones 320 &"));
    let (mut source, endpoint) = supplier(&fixture, &["--stones", "320"]);
    let address = endpoint.split('/').nth(2).unwrap().to_owned();
    run_commands(&fixture, commands, 3, &address);
    let mut up = Process::start(&fixture, "up", &mut fixture.command(&["up"]));
    let commands = doc_commands::commands(&page(), "## From rows to a table\n");
    run_commands(&fixture, commands, 3, &address);
    stop(&mut up);
    stop(&mut source);
}

/// Address of the source on the page.
const SOURCE: &str = "127.0.0.1:8700";

/// Runs commands of the page with a source at this address, and compares what they print.
fn run_commands(fixture: &Fixture, commands: Vec<(String, Vec<String>)>, count: usize, address: &str) {
    assert_eq!(commands.len(), count, "{commands:?}");
    for (command, shown) in commands {
        let command = command.replace(SOURCE, address);
        let args: Vec<&str> = command.split_whitespace().skip(1).collect();
        let printed = tidemill(fixture, &args).ok();
        for line in shown.iter().filter(|line| *line != "…") {
            let line = line.replace(SOURCE, address);
            assert!(printed.contains(&line), "`{command}` does not print `{line}`: {printed}");
        }
    }
}

#[test]
fn page_definitions_are_valid() {
    let fixture = Fixture::new(Kind::Sqlite);
    let page = page();
    let mut definitions: Vec<String> =
        page.split("```yaml\n").skip(1).map(|rest| rest.split_once("```").unwrap().0.to_owned()).collect();
    let mut paginators = Vec::new();
    for example in page.split('`').filter(|span| span.starts_with("paginator: {")) {
        let resource = if example.contains("graphql_") {
            "{path: /graphql, primary_key: id, data_selector: data.orders.nodes, graphql: {query: 'query { orders }'}}"
        } else {
            "{path: /orders, primary_key: id}"
        };
        definitions.push(format!(
            "version: 1\nfeed: orders\nclient: {{base_url: 'https://api.test'}}\nresource: {resource}\n{example}\n\
             into: {{table: public.orders}}\n"
        ));
        paginators.push(example.split([' ', ',', '}']).nth(2).unwrap());
    }
    let mut auths = Vec::new();
    for example in page.split('`').filter(|span| span.starts_with("auth: {")) {
        definitions.push(format!(
            "version: 1\nfeed: orders\nclient:\n  base_url: https://api.test\n  {example}\n\
             resource: {{path: /orders, primary_key: id}}\npaginator: offset\ninto: {{table: public.orders}}\n"
        ));
        auths.push(example.split([' ', ',', '}']).nth(2).unwrap());
    }
    assert_eq!(auths, ["none", "bearer", "http_basic", "api_key", "oauth2_client_credentials", "login"]);
    let schema: Value = serde_json::from_str(&tidemill(&fixture, &["feed", "schema"]).ok()).unwrap();
    let variants = schema["properties"]["paginator"]["oneOf"].as_array().unwrap();
    let names = variants.iter().filter_map(|variant| variant["properties"]["type"]["const"].as_str());
    for name in names {
        assert!(paginators.contains(&name), "the page has no example of `{name}`: {paginators:?}");
    }
    for definition in definitions {
        fs::write(fixture.path("example.yaml"), &definition).unwrap();
        let checked = tidemill(&fixture, &["feed", "check", "example.yaml"]);
        assert_eq!(checked.code, Some(0), "{definition}\n{checked:?}");
    }
}
