//! How stones change, and what a client that pages meanwhile sees of it.

use crate::stage::{Stage, ids, usual};
use serde_json::{Value, json};
use std::collections::HashSet;
use tidemill_supplier::{Change, Churn, Config, Mix, What};

fn since(time: chrono::DateTime<chrono::Utc>) -> Value {
    let mut query = usual();
    query["updated"] = json!({"from": time.to_rfc3339()});
    query
}

#[tokio::test]
async fn changes_are_found_by_the_time_of_the_update() {
    let stage = Stage::stones(500).await;
    let start = stage.supplier.handle.now();
    assert_eq!(stage.count(&since(start)).await, 0);
    let changed = stage.admin("change", json!({"what": "payload", "count": 7, "seed": 1})).await;
    let priced = stage.admin("change", json!({"what": "price", "count": 5, "seed": 2})).await;
    let media = stage.admin("change", json!({"what": "media", "count": 4, "seed": 3})).await;
    let added = stage.admin("change", json!({"what": "add", "count": 3})).await;
    let mut expected = HashSet::new();
    for answer in [&changed, &priced, &media, &added] {
        expected.extend(answer["ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()));
    }
    let found = ids(&stage.all(&since(start)).await);
    assert_eq!(found.len(), expected.len());
    assert_eq!(found.into_iter().collect::<HashSet<_>>(), expected);
    assert_eq!(stage.count(&since(start)).await, expected.len() as u64);
    let mut before = usual();
    before["updated"] = json!({"to": start.to_rfc3339()});
    assert_eq!(stage.count(&before).await, 503 - expected.len() as u64);
}

#[tokio::test]
async fn each_kind_of_change_changes_what_it_says() {
    let stage = Stage::stones(100).await;
    let before = stage.page(&usual(), 0, 50).await;
    let names = ids(&before);
    let change = |what, at: usize| {
        let order = Change::these(what, vec![names[at].clone()]);
        stage.supplier.handle.change(&order).unwrap();
    };
    change(What::Payload, 0);
    change(What::Price, 1);
    change(What::Media, 2);
    let order =
        json!({"what": "price", "ids": [names[3]], "price_cents": 4_999, "at": "2026-02-02T00:00:00Z"});
    stage.admin("change", order).await;
    let after = stage.page(&usual(), 0, 50).await;
    assert_eq!(ids(&after), names, "the order of creation stays");
    assert_ne!(after[0], before[0]);
    assert_eq!(after[0]["price"], before[0]["price"]);
    assert_eq!(after[0]["diamond"]["image"], before[0]["diamond"]["image"]);
    assert_ne!(after[1]["price"], before[1]["price"]);
    assert_ne!(after[2]["diamond"]["image"], before[2]["diamond"]["image"]);
    assert_eq!(after[2]["price"], before[2]["price"]);
    assert_eq!(after[3]["price"], 4_999);
    assert_eq!(after[4..], before[4..]);
    let truth = stage.supplier.handle.truth();
    let third = truth.iter().find(|line| line.id == names[3]).unwrap();
    assert_eq!(third.updated_at.to_rfc3339(), "2026-02-02T00:00:00+00:00");
}

#[tokio::test]
async fn stones_vanish_and_return() {
    let stage = Stage::stones(100).await;
    assert_eq!(stage.count(&usual()).await, 100);
    let gone = stage.admin("change", json!({"what": "vanish", "count": 10, "seed": 5})).await;
    assert_eq!(stage.count(&usual()).await, 90);
    let found = ids(&stage.all(&usual()).await);
    let names: Vec<&str> = gone["ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    assert!(names.iter().all(|name| !found.iter().any(|id| id == name)));
    assert_eq!(stage.supplier.handle.truth().iter().filter(|line| line.available).count(), 90);
    let start = stage.supplier.handle.now();
    let back = stage.admin("change", json!({"what": "return", "count": 4, "seed": 6})).await;
    assert_eq!(stage.count(&usual()).await, 94);
    assert!(back["ids"].as_array().unwrap().iter().all(|id| names.contains(&id.as_str().unwrap())));
    assert_eq!(stage.count(&since(start)).await, 4);
    stage.admin("change", json!({"what": "return", "count": 99})).await;
    assert_eq!(stage.count(&usual()).await, 100);
}

/// Stones change with every page that is read; a second look at what was updated since brings the reader up
/// to date.
#[tokio::test]
async fn stones_change_while_somebody_pages() {
    let stage = Stage::stones(600).await;
    let start = stage.supplier.handle.now();
    stage.admin("churn", json!({"per_page": 5, "seed": 3})).await;
    let mut seen = HashSet::new();
    for offset in (0..600).step_by(30) {
        seen.extend(ids(&stage.page(&usual(), offset, 30).await));
    }
    stage.admin("churn", json!({})).await;
    let changed = stage.supplier.handle.stats().changed;
    assert!((90..=100).contains(&changed), "{changed}: now and then there is no stone that could return");
    seen.extend(ids(&stage.all(&since(start)).await));
    let truth = stage.supplier.handle.truth();
    let missing = truth.iter().filter(|line| line.available && !seen.contains(&line.id)).count();
    assert!(truth.iter().any(|line| !line.available), "some vanished");
    assert!(truth.len() > 600, "{} stones: some are new", truth.len());
    // Each of the stones that vanished pushed at most one other past the reader, unseen.
    assert!(missing <= truth.iter().filter(|line| line.updated_at >= start).count(), "{missing}");
    assert_eq!(stage.supplier.handle.stats().changed, changed, "it has stopped");
}

#[tokio::test]
async fn the_same_seed_changes_the_same_stones_in_the_same_way() {
    let lives = async || {
        let stage = Stage::stones(300).await;
        stage.admin("clock", json!({"now": "2026-05-05T00:00:00Z"})).await;
        stage.supplier.handle.churn(Churn { per_page: 20, seed: 11, ..Churn::default() });
        let texts: Vec<Value> = stage.all(&usual()).await;
        (texts, stage.supplier.handle.truth())
    };
    assert_eq!(lives().await, lives().await);
}

#[tokio::test]
async fn stones_change_by_themselves_until_told_to_stop() {
    let stage = Stage::stones(300).await;
    let start = stage.supplier.handle.now();
    let mix = Mix { payload: 1, price: 0, media: 0, vanish: 0, sell: 0, comes_back: 0, add: 0 };
    stage.supplier.handle.churn(Churn { per_second: 500, mix, ..Churn::default() });
    let deadline = std::time::Instant::now() + std::time::Duration::from_mins(1);
    while stage.supplier.handle.stats().changed < 50 {
        assert!(std::time::Instant::now() < deadline, "nothing changes");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    stage.supplier.handle.churn(Churn::default());
    let stopped = stage.supplier.handle.stats().changed;
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert_eq!(stage.supplier.handle.stats().changed, stopped);
    assert!(stage.count(&since(start)).await > 0);
    assert_eq!(stage.count(&usual()).await, 300, "only payloads changed");
}

#[tokio::test]
async fn a_catalogue_can_start_with_churn_and_misbehaviour() {
    let mix = Mix { payload: 1, price: 0, media: 0, vanish: 0, sell: 0, comes_back: 0, add: 0 };
    let churn = Churn { per_page: 1, mix, ..Churn::default() };
    let config = Config { stones: 50, churn, ..Config::default() };
    let behaviour = tidemill_supplier::Behaviour { count_lies_by: 1, ..config.behaviour.clone() };
    let stage = Stage::new(Config { behaviour, ..config }).await;
    assert_eq!(stage.count(&usual()).await, 51);
    stage.page(&usual(), 0, 10).await;
    assert_eq!(stage.supplier.handle.stats().changed, 1);
}
