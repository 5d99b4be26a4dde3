//! Every kind of pagination lists every item once.

use super::client::{Filters, Place, by_id, truth};
use crate::fixture::SupplierFixture;
use serde_json::{Value, json};
use tidemill_supplier::{Change, ChangeKind, Churn, RestKind};

#[tokio::test]
async fn every_kind_lists_the_active_items() {
    let fixture = SupplierFixture::stones(205).await;
    fixture.supplier.handle.change(&Change::random(ChangeKind::Sell, 5, 1)).unwrap();
    fixture.supplier.handle.change(&Change::random(ChangeKind::Remove, 5, 2)).unwrap();
    fixture.supplier.handle.change(&Change::random(ChangeKind::Hold, 5, 3)).unwrap();
    let truth = truth(&fixture);
    assert_eq!(truth.len(), 190);
    for kind in RestKind::ALL {
        let all = Filters::default();
        for limit in [30, 95, 1_000] {
            let pages = fixture.rest_pages(kind, &all, limit).await;
            let expected = if kind == RestKind::SinglePage { 1 } else { 190_usize.div_ceil(limit) };
            assert_eq!(pages.len(), expected, "{kind}, {limit} per page");
            assert!(pages.iter().all(|page| page.total() == 190), "{kind}");
            let items: Vec<Value> = pages.into_iter().flat_map(|page| page.items).collect();
            assert!(items.is_sorted_by_key(|item| item["id"].as_str().unwrap().to_owned()), "{kind}");
            assert_eq!(by_id(items), truth, "{kind}, {limit} per page");
        }
        assert_eq!(fixture.rest_count(kind, &all).await, 190, "{kind}");
    }
}

#[tokio::test]
async fn items_have_the_same_bytes_in_every_kind() {
    let fixture = SupplierFixture::stones(40).await;
    let truth = fixture.supplier.handle.rest_truth();
    let place = Place::default();
    for kind in RestKind::ALL {
        let page = fixture.rest_page(kind, &Filters::default(), &place, 50).await;
        for (id, item) in &truth {
            assert!(
                page.response.text.contains(item.as_str()),
                "{kind}: {id}\n{item}\n{}",
                page.response.text
            );
            assert!((300..1_500).contains(&item.len()), "{} bytes: {item}", item.len());
        }
    }
    let lines = fixture.get("/admin/rest-truth").await.text;
    assert_eq!(lines.lines().collect::<Vec<_>>(), truth.values().collect::<Vec<_>>());
}

#[tokio::test]
async fn item_has_values_of_every_type() {
    let fixture = SupplierFixture::stones(3).await;
    let change = Change {
        price_cents: Some(123_450),
        ..Change::of_ids(ChangeKind::Price, vec!["itm_0000000001".into()])
    };
    let changed = fixture.supplier.handle.change(&change).unwrap();
    let id = fixture.supplier.handle.rest_id(&changed.ids[0]).unwrap();
    assert_eq!(id, "itm_0000000001");
    let text = fixture.supplier.handle.rest_truth()[&id].clone();
    assert!(text.contains(r#""price":1234.50,"#), "{text}");
    let item: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&item["status"], &item["currency"]), (&json!("active"), &json!("USD")));
    assert!(item["tags"].is_array() && item["variants"][0]["barcode"].is_string());
    assert!(item["dimensions"]["width_mm"].is_u64() && item["warehouse"]["country"].is_string());
    assert!(item["is_fragile"].is_boolean() && item["weight_kg"].is_f64() && item["notes"].is_null());
    let updated: chrono::DateTime<chrono::Utc> = item["updated_at"].as_str().unwrap().parse().unwrap();
    assert_eq!(updated, changed.at);
    assert!(item["released_on"].as_str().unwrap().parse::<chrono::NaiveDate>().is_ok());
}

/// A list with keys does not shift when items before the page are removed.
#[tokio::test]
async fn removals_do_not_shift_lists_with_keys() {
    let keys = [
        RestKind::Cursor,
        RestKind::JsonLink,
        RestKind::HeaderLink,
        RestKind::Keyset,
        RestKind::GraphqlConnection,
    ];
    for kind in keys {
        let fixture = SupplierFixture::stones(100).await;
        let first = fixture.rest_page(kind, &Filters::default(), &Place::default(), 30).await;
        let ids = first.ids();
        let remove = Change::of_ids(ChangeKind::Remove, ids[..10].to_vec());
        fixture.supplier.handle.change(&remove).unwrap();
        let token = first.token().or_else(|| ids.last().cloned());
        let place = Place { offset: 30, token };
        let second = fixture.rest_page(kind, &Filters::default(), &place, 30).await;
        assert_eq!(second.ids()[0], "itm_0000000030", "{kind}");
        assert_eq!(second.total(), 90, "{kind}");
    }
}

#[tokio::test]
async fn pages_cause_the_churn_per_page() {
    let fixture = SupplierFixture::stones(100).await;
    fixture.supplier.handle.churn(Churn { per_page: 2, seed: 5, ..Churn::default() });
    fixture.rest_pages(RestKind::Keyset, &Filters::default(), 10).await;
    let stats = fixture.supplier.handle.stats();
    assert!(stats.pages >= 9 && stats.changed >= stats.pages, "{stats:?}");
    assert_eq!(stats.counts, 0);
}

#[tokio::test]
async fn default_path_lists_by_offset() {
    let fixture = SupplierFixture::stones(7).await;
    let page = fixture.get("/rest/items?offset=5").await;
    assert_eq!(page.json()["data"].as_array().unwrap().len(), 2);
    assert_eq!(page.json()["meta"], json!({"total": 7, "has_more": false}));
    assert_eq!(fixture.get("/rest/items/count").await.text, r#"{"total":7}"#);
    assert_eq!(fixture.get("/rest/items/itm_0000000003").await.json()["id"], "itm_0000000003");
}

#[tokio::test]
async fn empty_list_has_one_empty_page() {
    let fixture = SupplierFixture::stones(0).await;
    for kind in RestKind::ALL {
        let pages = fixture.rest_pages(kind, &Filters::default(), 30).await;
        assert_eq!((pages.len(), pages[0].items.len(), pages[0].total()), (1, 0, 0), "{kind}");
        assert_eq!(pages[0].token(), None, "{kind}");
    }
}
