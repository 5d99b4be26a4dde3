//! The items of the supplier's REST API: requests to its admin endpoints, and the comparison of a table with them.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use tidemill_core::feed_definition::{JsonPath, JsonValue};

use crate::fixture::{Fixture, Kind};

/// Columns that are compared. Every table of items has them.
const COMPARED: [&str; 5] = ["id", "name", "status", "price", "quantity"];

/// Returns the URL of the REST API of a supplier.
pub(crate) fn rest_url(endpoint: &str) -> String {
    endpoint.replace("/api/diamonds", "/rest")
}

/// Sends a request to an admin endpoint of a supplier, and returns the body of the answer.
pub(crate) fn admin(endpoint: &str, method: &str, path: &str, body: &str) -> String {
    let host = endpoint.trim_start_matches("http://").split('/').next().expect("the endpoint has a host");
    let mut stream = TcpStream::connect(host).expect("the supplier answers");
    let length = body.len();
    write!(
        stream,
        "{method} /admin/{path} HTTP/1.0\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .expect("the request is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the response is read");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a body");
    assert!(head.lines().next().is_some_and(|line| line.contains(" 200 ")), "{head}: {body}");
    body.to_owned()
}

/// Changes the source: `what` is the name of a change, such as `price`.
pub(crate) fn change(endpoint: &str, what: &str, count: u32) {
    let body = serde_json::json!({"what": what, "count": count, "seed": 5}).to_string();
    admin(endpoint, "POST", "change", &body);
}

/// Returns the active items of the source by id.
fn source_rows(endpoint: &str) -> BTreeMap<String, String> {
    let paths = COMPARED.map(|path| path.parse::<JsonPath>().expect("a path"));
    let row = |line: &str| {
        let record = JsonValue::parse(line.as_bytes(), 64).expect("a line is JSON");
        let values = paths.iter().map(|path| {
            let value = path.select(&record).and_then(JsonValue::scalar);
            value.unwrap_or_else(|| panic!("{path} is missing: {line}")).to_owned()
        });
        let values: Vec<String> = values.collect();
        (values[0].clone(), values.join("|"))
    };
    admin(endpoint, "GET", "rest-truth", "").lines().map(row).collect()
}

/// Returns the rows of a table by id, each of which must have one row.
fn table_rows(fixture: &Fixture, table: &str) -> BTreeMap<String, String> {
    let table = match fixture.kind {
        Kind::Sqlite => table.rsplit('.').next().unwrap_or(table),
        Kind::Postgres => table,
    };
    let columns = COMPARED.map(|column| format!("CAST({column} AS text)")).join(" || '|' || ");
    let lines = fixture.sql(&format!("SELECT {columns} FROM {table}")).expect("the table is read");
    let count = lines.len();
    let id_of = |line: &String| line.split('|').next().unwrap_or_default().to_owned();
    let rows: BTreeMap<String, String> = lines.into_iter().map(|line| (id_of(&line), line)).collect();
    assert_eq!(rows.len(), count, "an id of {table} has several rows");
    rows
}

/// Checks that a table equals the source, row by row; returns the number of rows.
#[track_caller]
pub(crate) fn check_equal(fixture: &Fixture, table: &str, endpoint: &str) -> usize {
    let (mut found, mut expected) = (table_rows(fixture, table), source_rows(endpoint));
    let count = found.len();
    found.retain(|id, row| expected.get(id) != Some(row) || expected.remove(id).is_none());
    assert!(
        found.is_empty() && expected.is_empty(),
        "{table}: {} rows are not the source's: {:?}; {} of the source's are missing: {:?}",
        found.len(),
        found.values().take(3).collect::<Vec<_>>(),
        expected.len(),
        expected.values().take(3).collect::<Vec<_>>()
    );
    count
}
