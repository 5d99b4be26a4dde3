//! One case for each definition.

use chrono::{DateTime, Duration};
use tidemill_core::feed::RunType;
use tidemill_engine::clock::host_now;
use tidemill_testkit::interface::Kind;
use tidemill_testkit::real_servers::Order;

use super::fixture::ServerFixture;
use super::roles::{Role, RoleSet};

const ORDERS: u32 = 360;
/// Ids that are deleted: the first, some in the middle, and the last.
const DELETED: [i64; 5] = [1, 40, 41, 200, 360];

pub(crate) async fn json_server_by_page_number_equals_the_table(kind: Kind) {
    follow(kind, "json_server_page_number").await;
}

pub(crate) async fn json_server_by_position_equals_the_table(kind: Kind) {
    follow(kind, "json_server_offset").await;
}

pub(crate) async fn json_server_by_link_header_equals_the_table(kind: Kind) {
    follow(kind, "json_server_header_link").await;
}

pub(crate) async fn datasette_by_cursor_equals_the_table(kind: Kind) {
    follow(kind, "datasette_cursor").await;
}

pub(crate) async fn datasette_by_next_url_equals_the_table(kind: Kind) {
    follow(kind, "datasette_json_link").await;
}

pub(crate) async fn datasette_by_key_equals_the_table(kind: Kind) {
    follow(kind, "datasette_keyset").await;
}

pub(crate) async fn postgraphile_by_connection_equals_the_table(kind: Kind) {
    follow(kind, "postgraphile_connection").await;
}

pub(crate) async fn postgraphile_by_position_equals_the_table(kind: Kind) {
    follow(kind, "postgraphile_offset").await;
}

/// A full sync, an incremental one after changes, and full ones after deletions, each with killed roles.
async fn follow(kind: Kind, definition: &str) {
    let Some(fixture) = ServerFixture::open(kind, definition, ORDERS).await else { return };
    let mut roles = RoleSet::full(&fixture.syncs);
    let full = fixture.queue(false).await;
    fixture.stored(&full, 80).await;
    roles.kill_all();
    let full = fixture.succeeded(&full).await;
    assert_eq!(full.run_type, RunType::Full);
    fixture.check_equal(&[]).await;

    if !fixture.has_watermark().await {
        // A watermark that is a number follows one sync behind.
        let second = fixture.queue(false).await;
        assert_eq!(fixture.succeeded(&second).await.run_type, RunType::Full);
    }

    let before = fixture.server.orders().await.expect("the storage is read");
    let deleted: Vec<Order> = before.iter().filter(|order| DELETED.contains(&order.id)).cloned().collect();
    fixture.server.put(&changes(&before)).await.expect("orders are changed and added");
    fixture.server.delete(&DELETED).await.expect("orders are deleted");
    let incremental = fixture.queue(false).await;
    fixture.stored(&incremental, 1).await;
    roles.kill_one(Role::Worker);
    roles.kill_one(Role::Consolidator);
    let incremental = fixture.succeeded(&incremental).await;
    assert_eq!(incremental.run_type, RunType::Incremental);
    // Only a full sync detects that an order is gone.
    fixture.check_equal(&deleted).await;

    // Without a lookup, a record must be missing in two full syncs.
    for records in [150, 20] {
        let full = fixture.queue(true).await;
        fixture.stored(&full, records).await;
        roles.kill_one(Role::Worker);
        roles.kill_one(Role::Scheduler);
        fixture.succeeded(&full).await;
    }
    fixture.check_equal(&[]).await;
    roles.stop().await;
}

/// Returns changes of every seventh order, and new orders.
fn changes(orders: &[Order]) -> Vec<Order> {
    let now = DateTime::from_timestamp(host_now().timestamp(), 0).expect("the time is valid");
    let last = orders.iter().map(|order| order.revision).max().expect("there are orders");
    let existing = orders.iter().filter(|order| !DELETED.contains(&order.id)).step_by(7);
    let existing = existing.zip(1..).map(|(order, number)| Order {
        amount_cents: 99_999 - order.amount_cents,
        note: Some(format!("changed {number}")),
        revision: last + number,
        updated_at: now,
        ..order.clone()
    });
    let added = (1..=30).map(|number| Order {
        id: 10_000 + number,
        customer: format!("New {number}"),
        amount_cents: number * 3_333,
        revision: last + 1_000 + number,
        updated_at: now - Duration::seconds(number % 3),
        ..orders[0].clone()
    });
    existing.chain(added).collect()
}
