//! Feed definitions of real servers: every record is read once, counts are right, and changes are found.
#![expect(clippy::expect_used, reason = "a failed step must end the test")]

use std::path::Path;

use chrono::Duration;
use tidemill_core::Timestamp;
use tidemill_core::feed_definition::paging::CursorKind;
use tidemill_core::feed_definition::{
    ColumnValue, CursorValue, FeedDefinition, Partition, Place, QueryRange, RecordQuery,
};
use tidemill_feeds::rest::{RestItem, RestSource, explore, parse_definition};
use tidemill_feeds::{Network, Tuning};
use tidemill_testkit::interface::at;
use tidemill_testkit::real_servers::{
    DEFINITIONS, Installation, Order, RealServer, ServerDefinition, ServerKind, sample_orders,
};

const ORDERS: u32 = 430;
/// Pages of one list; more of them are a loop.
const PAGES_MAX: usize = 40;

#[tokio::test(flavor = "multi_thread")]
async fn json_server_is_read_completely() {
    check(ServerKind::JsonServer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn datasette_is_read_completely() {
    check(ServerKind::Datasette).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgraphile_is_read_completely() {
    check(ServerKind::PostGraphile).await;
}

/// Reads a server with the definition that one answer reveals.
#[tokio::test(flavor = "multi_thread")]
async fn recognised_servers_are_read_completely() {
    let Some(installation) = Installation::ensure(Path::new(env!("CARGO_TARGET_TMPDIR"))) else { return };
    let orders = sample_orders(60);
    for (kind, path, paginator) in [
        (ServerKind::JsonServer, "/orders?_page=1&_limit=25", "header_link"),
        (ServerKind::JsonServer, "/orders?_start=0&_limit=25", "offset"),
        (ServerKind::Datasette, "/shop/orders.json?_shape=objects&_size=25", "header_link"),
    ] {
        let server = RealServer::start(&installation, kind, &orders).await.expect("the server starts");
        let url = format!("{}{path}", server.url());
        let found = explore(&url, &Network::Unrestricted, Tuning::default()).await;
        let text = found.expect("the server answers").to_yaml("orders", "public.orders");
        let parsed = parse_definition(&text).unwrap_or_else(|errors| panic!("{text}\n{errors:#?}"));
        assert_eq!(parsed.paginator.word(), paginator, "{text}");
        assert!(parsed.trust.total.is_some(), "{text}");
        let source = RestSource::new(parsed, &|_| None, &Network::Unrestricted, Tuning::default());
        let source = source.expect("the definition has a client");
        let items = read_items(path, &source, &RecordQuery::default()).await;
        let ids: Vec<String> = items.into_iter().map(|item| item.record_id).collect();
        let expected: Vec<String> = orders.iter().map(|order| order.id.to_string()).collect();
        assert_eq!(ids, expected, "{text}");
    }
}

/// Reads a server with each of its definitions, before and after changes.
async fn check(kind: ServerKind) {
    let Some(installation) = Installation::ensure(Path::new(env!("CARGO_TARGET_TMPDIR"))) else { return };
    let orders = sample_orders(ORDERS);
    let server = RealServer::start(&installation, kind, &orders).await.expect("the server starts");
    assert_eq!(server.orders().await.expect("the storage is read"), orders);
    let definitions = || DEFINITIONS.iter().filter(|definition| definition.server == kind);
    for definition in definitions() {
        check_complete(definition, &server).await;
    }
    let (last_revision, changed_from) = change(&server, &orders).await;
    for definition in definitions() {
        check_complete(definition, &server).await;
        check_changes(definition, &server, last_revision, changed_from).await;
        check_lookup(definition, &server).await;
    }
}

/// Changes, adds and deletes orders. Returns the last revision before, and the time of the changes.
async fn change(server: &RealServer, orders: &[Order]) -> (i64, Timestamp) {
    let latest = orders.iter().map(|order| order.updated_at).max().expect("there are orders");
    let time = latest + Duration::days(1);
    let last = orders.iter().map(|order| order.revision).max().unwrap_or_default();
    let existing = orders.iter().step_by(50).take(8).zip(1..).map(|(order, number)| {
        let amount_cents = 100_000 - order.amount_cents;
        Order { amount_cents, revision: last + number, updated_at: time, ..order.clone() }
    });
    let added = (1..=5).map(|number| Order {
        id: i64::from(ORDERS) + number,
        revision: last + 100 + number,
        updated_at: time + Duration::seconds(number),
        ..orders[0].clone()
    });
    let changes: Vec<Order> = existing.chain(added).collect();
    server.put(&changes).await.expect("orders are changed");
    server.delete(&[3, 77, 430]).await.expect("orders are deleted");
    (last, time)
}

fn parse(definition: &ServerDefinition, server: &RealServer) -> (FeedDefinition, RestSource) {
    let parsed = parse_definition(&definition.text(&server.url()));
    let parsed = parsed.unwrap_or_else(|errors| panic!("{}: {errors:#?}", definition.name));
    let source = RestSource::new(parsed.clone(), &|_| None, &Network::Unrestricted, Tuning::default());
    (parsed, source.expect("the definition has a client"))
}

/// Reads all partitions, counts them, and compares the orders with the server's storage.
async fn check_complete(definition: &ServerDefinition, server: &RealServer) {
    let (parsed, source) = parse(definition, server);
    let name = definition.name;
    let mut read = Vec::new();
    for query in queries(&parsed) {
        let orders = read_all(name, &source, &query).await;
        let counted = source.count(&query).await.expect("the source counts");
        let has_count = parsed.trust.total.is_some() || matches!(parsed.partition, Partition::Heatmap { .. });
        assert_eq!(counted.is_some(), has_count, "{name}");
        if let Some(counted) = counted {
            assert_eq!(counted.count, orders.len() as u64, "{name}: {query:?}");
        }
        read.extend(orders);
    }
    read.sort_by_key(|order| order.id);
    assert_eq!(read, server.orders().await.expect("the storage is read"), "{name}");
}

/// Returns the queries of all partitions; a heatmap gets uneven ranges.
fn queries(definition: &FeedDefinition) -> Vec<RecordQuery> {
    match &definition.partition {
        Partition::Heatmap { range, .. } => {
            let max = range.max.expect("an amount has a highest value");
            let length = max - range.min;
            let bounds = [range.min, range.min + length / 50, range.min + length / 3, max];
            let range = |pair: &[i64]| Some(QueryRange { from: pair[0], to: pair[1] });
            bounds
                .windows(2)
                .map(|pair| RecordQuery { range: range(pair), ..RecordQuery::default() })
                .collect()
        }
        Partition::None | Partition::TimeWindows { .. } | Partition::Values { .. } => {
            definition.partition.fixed_queries(at(0)).expect("the partitions are known without counts")
        }
    }
}

async fn read_all(name: &str, source: &RestSource, query: &RecordQuery) -> Vec<Order> {
    read_items(name, source, query).await.iter().map(|item| order(source, item)).collect()
}

async fn read_items(name: &str, source: &RestSource, query: &RecordQuery) -> Vec<RestItem> {
    let (mut place, mut items) = (Place::default(), Vec::new());
    for _ in 0..PAGES_MAX {
        let page = source.page(query, &place, source.page_limit()).await;
        let page = page.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(page.rejected, [], "{name}");
        items.extend(page.items);
        match page.next {
            Some(next) => place = next,
            None => return items,
        }
    }
    panic!("{name}: the list does not end");
}

/// Maps a record to columns, and the columns to an order.
fn order(source: &RestSource, item: &RestItem) -> Order {
    let row = source.map(&item.payload).expect("the record is mapped");
    assert_eq!(row.errors, []);
    let value = |column: &str| {
        let found = row.values.iter().find(|(name, _)| name == column);
        &found.expect("the definition has the column").1
    };
    let number = |column: &str| {
        let ColumnValue::Integer(digits) = value(column) else { panic!("{column} is not an integer") };
        digits.parse::<i64>().expect("an integer has digits")
    };
    let text = |column: &str| {
        if value(column) == &ColumnValue::Null {
            return None;
        }
        let ColumnValue::Text(text) = value(column) else { panic!("{column} is not a text") };
        Some(text.clone())
    };
    let ColumnValue::Timestamp(updated_at) = value("updated_at") else { panic!("the time is missing") };
    assert_eq!(item.record_id, number("id").to_string());
    Order {
        id: number("id"),
        customer: text("customer").expect("an order has a customer"),
        city: text("city").expect("an order has a city"),
        amount_cents: number("amount_cents"),
        note: text("note"),
        revision: number("revision"),
        updated_at: *updated_at,
    }
}

/// Reads only what was changed after a revision or since a time.
async fn check_changes(
    definition: &ServerDefinition,
    server: &RealServer,
    last_revision: i64,
    changed_from: Timestamp,
) {
    let (parsed, source) = parse(definition, server);
    let incremental = parsed.incremental.as_ref().expect("every definition is incremental");
    let from = match incremental.kind {
        CursorKind::Time { .. } => CursorValue::Time(changed_from),
        CursorKind::Number { .. } => CursorValue::Number(last_revision + 1),
    };
    let mut read = Vec::new();
    for query in queries(&parsed) {
        let query = RecordQuery { updated_from: Some(from), ..query };
        read.extend(read_all(definition.name, &source, &query).await);
    }
    read.sort_by_key(|order| order.id);
    let stored = server.orders().await.expect("the storage is read");
    let expected: Vec<Order> = stored.into_iter().filter(|order| order.revision > last_revision).collect();
    assert_eq!(expected.len(), 13);
    assert_eq!(read, expected, "{}", definition.name);
}

/// Looks up orders that exist, were deleted, and never existed.
async fn check_lookup(definition: &ServerDefinition, server: &RealServer) {
    let (parsed, source) = parse(definition, server);
    let ids = ["1", "3", "4", "77", "430", "431", "999999"].map(str::to_owned);
    let found = source.lookup(&ids).await.expect("ids are looked up");
    assert_eq!(found.is_some(), parsed.deletes.lookup.is_some(), "{}", definition.name);
    if let Some(mut found) = found {
        found.sort_unstable();
        assert_eq!(found, ["1", "4", "431"], "{}", definition.name);
    }
}
