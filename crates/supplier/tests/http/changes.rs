//! Changes of stones, and their effect on a client that is paging.

use crate::fixture::{SupplierFixture, default_query, ids};
use serde_json::{Value, json};
use std::collections::HashSet;
use tidemill_supplier::{Change, ChangeKind, ChangeMix, Churn, Config};

fn since(time: chrono::DateTime<chrono::Utc>) -> Value {
    let mut query = default_query();
    query["updated"] = json!({"from": time.to_rfc3339()});
    query
}

#[tokio::test]
async fn changes_are_found_by_their_update_time() {
    let fixture = SupplierFixture::stones(500).await;
    let start = fixture.supplier.handle.now();
    assert_eq!(fixture.count(&since(start)).await, 0);
    let changed = fixture.admin("change", json!({"what": "payload", "count": 7, "seed": 1})).await;
    let priced = fixture.admin("change", json!({"what": "price", "count": 5, "seed": 2})).await;
    let media = fixture.admin("change", json!({"what": "media", "count": 4, "seed": 3})).await;
    let added = fixture.admin("change", json!({"what": "add", "count": 3})).await;
    let mut expected = HashSet::new();
    for response in [&changed, &priced, &media, &added] {
        expected.extend(response["ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()));
    }
    let found = ids(&fixture.all(&since(start)).await);
    assert_eq!(found.len(), expected.len());
    assert_eq!(found.into_iter().collect::<HashSet<_>>(), expected);
    assert_eq!(fixture.count(&since(start)).await, expected.len() as u64);
    let mut before = default_query();
    before["updated"] = json!({"to": start.to_rfc3339()});
    assert_eq!(fixture.count(&before).await, 503 - expected.len() as u64);
}

#[tokio::test]
async fn each_kind_of_change_has_its_effect() {
    let fixture = SupplierFixture::stones(100).await;
    let before = fixture.page(&default_query(), 0, 50).await;
    let names = ids(&before);
    let change = |what, at: usize| {
        let change = Change::of_ids(what, vec![names[at].clone()]);
        fixture.supplier.handle.change(&change).unwrap();
    };
    change(ChangeKind::Payload, 0);
    change(ChangeKind::Price, 1);
    change(ChangeKind::Media, 2);
    let change_price =
        json!({"what": "price", "ids": [names[3]], "price_cents": 4_999, "at": "2026-02-02T00:00:00Z"});
    fixture.admin("change", change_price).await;
    let after = fixture.page(&default_query(), 0, 50).await;
    assert_eq!(ids(&after), names, "the order of creation changed");
    assert_ne!(after[0], before[0]);
    assert_eq!(after[0]["price"], before[0]["price"]);
    assert_eq!(after[0]["diamond"]["image"], before[0]["diamond"]["image"]);
    assert_ne!(after[1]["price"], before[1]["price"]);
    assert_ne!(after[2]["diamond"]["image"], before[2]["diamond"]["image"]);
    assert_eq!(after[2]["price"], before[2]["price"]);
    assert_eq!(after[3]["price"], 4_999);
    assert_eq!(after[4..], before[4..]);
    let truth = fixture.supplier.handle.truth();
    let third = truth.iter().find(|line| line.id == names[3]).unwrap();
    assert_eq!(third.updated_at.to_rfc3339(), "2026-02-02T00:00:00+00:00");
}

#[tokio::test]
async fn stones_vanish_and_return() {
    let fixture = SupplierFixture::stones(100).await;
    assert_eq!(fixture.count(&default_query()).await, 100);
    let gone = fixture.admin("change", json!({"what": "vanish", "count": 10, "seed": 5})).await;
    assert_eq!(fixture.count(&default_query()).await, 90);
    let found = ids(&fixture.all(&default_query()).await);
    let names: Vec<&str> = gone["ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    assert!(names.iter().all(|name| !found.iter().any(|id| id == name)));
    assert_eq!(fixture.supplier.handle.truth().iter().filter(|line| line.available).count(), 90);
    let start = fixture.supplier.handle.now();
    let back = fixture.admin("change", json!({"what": "return", "count": 4, "seed": 6})).await;
    assert_eq!(fixture.count(&default_query()).await, 94);
    assert!(back["ids"].as_array().unwrap().iter().all(|id| names.contains(&id.as_str().unwrap())));
    assert_eq!(fixture.count(&since(start)).await, 4);
    fixture.admin("change", json!({"what": "return", "count": 99})).await;
    assert_eq!(fixture.count(&default_query()).await, 100);
}

/// Stones change with every served page. A second query by update time brings the reader up to date.
#[tokio::test]
async fn incremental_query_finds_changes_during_paging() {
    let fixture = SupplierFixture::stones(600).await;
    let start = fixture.supplier.handle.now();
    fixture.admin("churn", json!({"per_page": 5, "seed": 3})).await;
    let mut seen = HashSet::new();
    for offset in (0..600).step_by(30) {
        seen.extend(ids(&fixture.page(&default_query(), offset, 30).await));
    }
    fixture.admin("churn", json!({})).await;
    let changed = fixture.supplier.handle.stats().changed;
    assert!((90..=100).contains(&changed), "{changed} changes; a return is skipped if no stone is absent");
    seen.extend(ids(&fixture.all(&since(start)).await));
    let truth = fixture.supplier.handle.truth();
    let missing = truth.iter().filter(|line| line.available && !seen.contains(&line.id)).count();
    assert!(truth.iter().any(|line| !line.available), "no stone vanished");
    assert!(truth.len() > 600, "no new stones: {}", truth.len());
    // Each vanished stone moved at most one other stone past the reader.
    assert!(missing <= truth.iter().filter(|line| line.updated_at >= start).count(), "{missing}");
    assert_eq!(fixture.supplier.handle.stats().changed, changed, "the churn did not stop");
}

#[tokio::test]
async fn same_seed_gives_the_same_changes() {
    let run = async || {
        let fixture = SupplierFixture::stones(300).await;
        fixture.admin("clock", json!({"now": "2026-05-05T00:00:00Z"})).await;
        fixture.supplier.handle.churn(Churn { per_page: 20, seed: 11, ..Churn::default() });
        let texts: Vec<Value> = fixture.all(&default_query()).await;
        (texts, fixture.supplier.handle.truth())
    };
    assert_eq!(run().await, run().await);
}

#[tokio::test]
async fn churn_changes_stones_until_it_is_stopped() {
    let fixture = SupplierFixture::stones(300).await;
    let start = fixture.supplier.handle.now();
    let mix = ChangeMix { payload: 1, price: 0, media: 0, vanish: 0, sell: 0, comes_back: 0, add: 0 };
    fixture.supplier.handle.churn(Churn { per_second: 500, mix, ..Churn::default() });
    let deadline = std::time::Instant::now() + std::time::Duration::from_mins(1);
    while fixture.supplier.handle.stats().changed < 50 {
        assert!(std::time::Instant::now() < deadline, "no stone changed in time");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    fixture.supplier.handle.churn(Churn::default());
    let stopped = fixture.supplier.handle.stats().changed;
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert_eq!(fixture.supplier.handle.stats().changed, stopped);
    assert!(fixture.count(&since(start)).await > 0);
    assert_eq!(fixture.count(&default_query()).await, 300, "the number of stones changed");
}

#[tokio::test]
async fn supplier_starts_with_configured_churn_and_behaviour() {
    let mix = ChangeMix { payload: 1, price: 0, media: 0, vanish: 0, sell: 0, comes_back: 0, add: 0 };
    let churn = Churn { per_page: 1, mix, ..Churn::default() };
    let config = Config { stones: 50, churn, ..Config::default() };
    let behaviour = tidemill_supplier::Behaviour { count_lies_by: 1, ..config.behaviour.clone() };
    let fixture = SupplierFixture::new(Config { behaviour, ..config }).await;
    assert_eq!(fixture.count(&default_query()).await, 51);
    fixture.page(&default_query(), 0, 10).await;
    assert_eq!(fixture.supplier.handle.stats().changed, 1);
}
