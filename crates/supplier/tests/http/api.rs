//! The API, including the quirks of the real one.

use crate::fixture::{COUNT, SupplierFixture, default_query, ids, page_document};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashSet};
use std::iter;
use tidemill_core::digest::sha256_hex;
use tidemill_supplier::{Account, Change, ChangeKind, Config, Distribution, STANDARD_SELECTION, Supplier};

#[tokio::test]
async fn paging_returns_each_stone_once() {
    let fixture = SupplierFixture::stones(731).await;
    let items = fixture.all(&default_query()).await;
    assert_eq!(items.len(), 731);
    assert_eq!(ids(&items).into_iter().collect::<HashSet<_>>().len(), 731);
    assert_eq!(fixture.count(&default_query()).await, 731);
}

#[tokio::test]
async fn each_stone_is_in_exactly_one_price_partition() {
    let fixture = SupplierFixture::stones(2_000).await;
    let mut seen = HashSet::new();
    for (from, to) in [(0, 499), (500, 999), (1_000, 4_999), (5_000, 19_999), (20_000, 99_999_999)] {
        let mut query = default_query();
        query["dollar_value"] = json!({"from": from, "to": to});
        let items = fixture.all(&query).await;
        assert_eq!(fixture.count(&query).await, items.len() as u64);
        for item in &items {
            let dollars = item["price"].as_u64().unwrap() / 100;
            assert!((from..=to).contains(&dollars), "{dollars} is not from {from} to {to}");
        }
        seen.extend(ids(&items));
    }
    assert_eq!(seen.len(), 2_000);
}

#[tokio::test]
async fn truth_matches_the_served_pages() {
    let config = Config { stones: 300, nul_stones: 2, uncertified_stones: 2, ..Config::default() };
    let fixture = SupplierFixture::new(config).await;
    fixture.supplier.handle.change(&Change::random(ChangeKind::Vanish, 20, 1)).unwrap();
    fixture.supplier.handle.change(&Change::random(ChangeKind::Media, 50, 2)).unwrap();
    let truth = fixture.supplier.handle.truth();
    let mut served = 0;
    for offset in (0..300).step_by(30) {
        let text = fixture.raw_page(&default_query(), offset, 30).await.text;
        for item in raw_items(&text) {
            let parsed: Value = serde_json::from_str(item).unwrap();
            let id = parsed["diamond"]["id"].as_str().unwrap();
            let line = truth.iter().find(|line| line.id == id).unwrap();
            assert_eq!(line.sha256, sha256_hex(item.as_bytes()), "{item}");
            assert_eq!(parsed["price"], line.price);
            assert!(line.available);
            served += 1;
        }
    }
    assert_eq!(served, 280);
    assert_eq!(truth.iter().filter(|line| line.available).count(), 280);
    let url = format!("http://{}/admin/truth", fixture.supplier.local_addr);
    let lines = fixture.http.get(url).send().await.unwrap().text().await.unwrap();
    let lines: Vec<tidemill_supplier::Truth> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines, truth);
    let listed = fixture.post("/admin/truth", default_query().to_string()).await.unwrap();
    assert_eq!(listed.text.lines().count(), 280, "the truth of a query has the wrong length");
}

/// Extracts the original texts of the items by counting brackets, because parsing would change the text.
fn raw_items(text: &str) -> Vec<&str> {
    let start = text.find("\"items\":[").unwrap() + "\"items\":[".len();
    let (mut depth, mut from, mut found) = (0, 0, Vec::new());
    for (at, byte) in text.bytes().enumerate().skip(start) {
        match byte {
            b'{' | b'[' => {
                if depth == 0 {
                    from = at;
                }
                depth += 1;
            }
            b'}' | b']' if depth == 0 => break,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    found.push(&text[from..=at]);
                }
            }
            _ => {}
        }
    }
    found
}

/// Collects all keys of objects in a value.
fn keys(value: &Value) -> BTreeSet<String> {
    match value {
        Value::Array(list) => list.iter().flat_map(keys).collect(),
        Value::Object(fields) => {
            fields.iter().flat_map(|(key, value)| iter::once(key.clone()).chain(keys(value))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => BTreeSet::new(),
    }
}

/// Collects the response keys of a selection: aliases, or names of fields without an alias.
fn selected_keys(selection: &str) -> BTreeSet<String> {
    let mut words = selection.split_whitespace();
    let mut found = BTreeSet::new();
    while let Some(word) = words.next() {
        match word.strip_suffix(':') {
            Some(alias) => {
                found.insert(alias.to_owned());
                words.next();
            }
            None if word == "{" || word == "}" => {}
            None => {
                found.insert(word.to_owned());
            }
        }
    }
    found
}

/// The first request compiles the document, the second uses the cache.
#[tokio::test]
async fn cached_document_gives_the_same_text() {
    let config = Config { stones: 400, nul_stones: 5, uncertified_stones: 5, ..Config::default() };
    let fixture = SupplierFixture::new(Config { off_query_per_mille: 300, ..config }).await;
    fixture.supplier.handle.change(&Change::random(ChangeKind::Hold, 30, 1)).unwrap();
    let everything = "id price discount diamond_price markup_price markup_discount diamond { id availability \
        HoldId NivodaStockId supplierStockId image video eyeClean brown green blue gray milky bowtie \
        mine_of_origin supplier_video_link final_price return_window delivery_time { min_business_days \
        max_business_days express_timeline_applicable } v360 { id url } certificate { fullShape pavHeight \
        labgrown_type verified image video product_images { id url } product_videos { id } carats floCol } \
        supplier { id } }";
    let renamed =
        "stone: diamond { supplier { legal_name } number: id c: certificate { carats lab } } price offer: id";
    for selection in
        [STANDARD_SELECTION, everything, renamed, "id", "diamond { certificate { product_images { url } } }"]
    {
        let document = page_document(selection);
        for query in [
            Value::Null,
            default_query(),
            json!({"availability": ["ON_HOLD"]}),
            json!({"shapes": ["BAGUETTE"]}),
        ] {
            for offset in [0, 40] {
                let variables =
                    json!({"token": fixture.token, "query": query, "offset": offset, "limit": 50});
                // A comment makes it another document, which has to be compiled.
                let other = format!("{document} # {query} {offset}");
                let before = fixture.supplier.handle.stats();
                let compiled = fixture.query(&other, variables.clone()).await.text;
                let cached = fixture.query(&other, variables).await.text;
                let after = fixture.supplier.handle.stats();
                assert_eq!(
                    (after.compiled - before.compiled, after.cached - before.cached),
                    (1, 1),
                    "{selection}"
                );
                assert!(compiled.contains("\"data\":{\"as\""), "{compiled}");
                assert_eq!(compiled, cached);
                let parsed: Value = serde_json::from_str(&compiled).unwrap();
                let found = keys(&parsed["data"]["as"]["diamonds_by_query"]["items"]);
                // A filtered page may be empty, or lack optional objects.
                let is_complete = found == selected_keys(selection) || !query.is_null();
                assert!(is_complete && found.is_subset(&selected_keys(selection)), "{selection}: {found:?}");
            }
        }
    }
}

#[tokio::test]
async fn aliases_fragments_literals_and_several_fields_work() {
    let fixture = SupplierFixture::stones(120).await;
    let both = "query($t: String!, $dear: Int = 3000) { as(token: $t) { \
        cheap: diamonds_by_query_count(query: {dollar_value: {from: 0, to: 2999}}) \
        dear: diamonds_by_query_count(query: {dollar_value: {from: $dear}}) \
        first: diamonds_by_query(limit: 2) { items { id } } } }";
    for _ in 0..2 {
        let response = fixture.query(both, json!({"t": fixture.token})).await.json()["data"]["as"].clone();
        assert_eq!(response["cheap"].as_u64().unwrap() + response["dear"].as_u64().unwrap(), 120);
        assert_eq!(response["first"]["items"].as_array().unwrap().len(), 2);
    }
    let fragment = "query($t: String!) { me: as(token: $t) { diamonds_by_query(limit: 1) { \
        items { ...Few } } } } fragment Few on DiamondOffer { id price }";
    let literal = format!(
        "{{ as(token: \"{}\") {{ diamonds_by_query(offset: 0, limit: 1) {{ items {{ id price }} }} }} }}",
        fixture.token
    );
    let fragment = fixture.query(fragment, json!({"t": fixture.token})).await.json();
    let literal = fixture.query(&literal, json!({})).await.json();
    let item = &fragment["data"]["me"]["diamonds_by_query"]["items"][0];
    assert_eq!(item, &literal["data"]["as"]["diamonds_by_query"]["items"][0]);
    assert!(item["price"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn unknown_fields_and_values_are_rejected() {
    let fixture = SupplierFixture::stones(10).await;
    let error_of = async |query: Value, limit: u64| fixture.raw_page(&query, 0, limit).await.error();
    assert_eq!(error_of(default_query(), 50).await, "", "a valid query is rejected");
    assert!(error_of(json!({"updatedAt": {"from": "2026-01-01T00:00:00Z"}}), 50).await.contains("updatedAt"));
    assert!(error_of(default_query(), 51).await.contains("at most 50"));
    assert!(!error_of(json!({"updated": {"from": "yesterday"}}), 50).await.is_empty());
    assert!(!error_of(json!({"availability": ["BROKEN"]}), 50).await.is_empty());
    let document = page_document("id").replace("createdAt", "price");
    let response = fixture.query(&document, json!({"token": fixture.token})).await;
    assert!(response.error().contains("does not order by price"), "{}", response.text);
    let unknown = fixture.query("{ everything }", json!({})).await;
    assert!(unknown.error().contains("everything"), "{}", unknown.text);
}

#[tokio::test]
async fn inverted_range_returns_thirty_arbitrary_stones() {
    let fixture = SupplierFixture::stones(500).await;
    let query = json!({"dollar_value": {"from": 1_000, "to": 999}});
    assert_eq!(fixture.count(&query).await, 30);
    let items = fixture.page(&query, 0, 50).await;
    assert_eq!(items.len(), 30);
    assert!(items.iter().any(|item| item["price"].as_u64().unwrap() / 100 != 1_000));
}

#[tokio::test]
async fn stones_are_found_by_id_until_they_are_removed() {
    let fixture = SupplierFixture::stones(50).await;
    let items = fixture.page(&default_query(), 0, 5).await;
    let names = ids(&items);
    let by_ids = json!({"ids": [names[3], "no-such-stone", items[1]["id"], names[3]]});
    let found = ids(&fixture.page(&by_ids, 0, 50).await);
    assert_eq!(found, [names[1].clone(), names[3].clone()]);
    assert_eq!(fixture.count(&by_ids).await, 2);
    let change = |what, name: &String| {
        fixture.supplier.handle.change(&Change::of_ids(what, vec![name.clone()])).unwrap()
    };
    change(ChangeKind::Sell, &names[1]);
    change(ChangeKind::Remove, &names[3]);
    let found = fixture.page(&by_ids, 0, 50).await;
    assert_eq!(ids(&found), [names[1].clone()], "a query by id must find sold stones, but not removed ones");
    assert_eq!(found[0]["diamond"]["availability"], "SOLD");
    let mut available = by_ids.clone();
    available["availability"] = json!(["AVAILABLE"]);
    assert!(fixture.page(&available, 0, 50).await.is_empty());
    let one = "query($t: String!, $id: ID!) { as(token: $t) { \
        get_diamond_by_id(diamond_id: $id) { availability } } }";
    for (name, expected) in
        [(&names[0], json!("AVAILABLE")), (&names[1], json!("SOLD")), (&names[3], Value::Null)]
    {
        let response = fixture.query(one, json!({"t": fixture.token, "id": name})).await.json();
        assert_eq!(response["data"]["as"]["get_diamond_by_id"]["availability"], expected);
    }
}

#[tokio::test]
async fn filters_exclude_stones() {
    let config = Config { stones: 1_500, off_query_per_mille: 300, ..Config::default() };
    let fixture = SupplierFixture::new(config).await;
    let all = fixture.all(&Value::Null).await;
    let shapes: Vec<&str> =
        all.iter().filter_map(|one| one["diamond"]["certificate"]["shape"].as_str()).collect();
    let has = |name: &str| shapes.iter().filter(|shape| **shape == name).count() as u64;
    assert_eq!(fixture.count(&json!({"shapes": ["ROUND"]})).await, has("ROUND"));
    assert_eq!(fixture.count(&json!({"shapes": ["BAGUETTE", "PEAR"]})).await, has("BAGUETTE") + has("PEAR"));
    let grown = all.iter().filter(|one| one["diamond"]["certificate"]["labgrown"] == true).count() as u64;
    assert_eq!(fixture.count(&json!({"labgrown": true})).await, grown);
    assert!(grown > 40 && grown < 130, "{grown} of 1,500");
    let bare = all.iter().filter(|one| one["diamond"]["image"].is_null()).count() as u64;
    assert_eq!(fixture.count(&json!({"has_image": true})).await, 1_500 - bare);
    let still = all.iter().filter(|one| one["diamond"]["video"].is_null()).count() as u64;
    assert_eq!(fixture.count(&json!({"has_v360": true})).await, 1_500 - still);
    let fair = |one: &&Value| matches!(one["diamond"]["certificate"]["cut"].as_str(), Some("F" | "P"));
    let fair = all.iter().filter(fair).count() as u64;
    assert_eq!(fixture.count(&json!({"excludeFairPoorCuts": true})).await, 1_500 - fair);
    let small = all.iter().filter(|one| one["diamond"]["certificate"]["carats"].as_f64().unwrap() < 0.4);
    assert_eq!(fixture.count(&json!({"sizes": {"from": 0.4}})).await, 1_500 - small.count() as u64);
    assert!(bare > 0 && still > 0 && fair > 0 && fixture.count(&json!({"hide_memo": true})).await < 1_500);
}

#[tokio::test]
async fn descending_order_lists_the_newest_first() {
    let fixture = SupplierFixture::stones(60).await;
    let document = page_document("diamond { id }").replace("ASC", "DESC");
    let variables = json!({"token": fixture.token, "offset": 5, "limit": 50});
    for _ in 0..2 {
        let response = fixture.query(&document, variables.clone()).await.json();
        let mut found = ids(response["data"]["as"]["diamonds_by_query"]["items"].as_array().unwrap());
        found.reverse();
        assert_eq!(found, ids(&fixture.all(&Value::Null).await)[5..55]);
    }
}

#[tokio::test]
async fn items_depend_on_the_seed_only() {
    let text = async |seed| {
        let fixture = SupplierFixture::new(Config { seed, stones: 100, ..Config::default() }).await;
        fixture.raw_page(&default_query(), 50, 50).await.text
    };
    assert_eq!(text(7).await, text(7).await);
    assert_ne!(text(7).await, text(8).await);
}

#[tokio::test]
async fn item_has_a_realistic_size() {
    let fixture = SupplierFixture::stones(500).await;
    let mut bytes = 0;
    for offset in (0..500).step_by(50) {
        bytes += raw_items(&fixture.raw_page(&default_query(), offset, 50).await.text)
            .iter()
            .map(|one| one.len())
            .sum::<usize>();
    }
    let mean = bytes / 500;
    assert!((1_200..=1_600).contains(&mean), "{mean} bytes");
}

#[tokio::test]
async fn other_price_distributions_are_available() {
    let one_price =
        Config { distribution: Distribution::OnePrice, one_price_cents: 50_050, ..Config::default() };
    let fixture = SupplierFixture::new(Config { stones: 90, ..one_price }).await;
    assert_eq!(fixture.count(&json!({"dollar_value": {"from": 500, "to": 500}})).await, 90);
    assert!(fixture.all(&default_query()).await.iter().all(|item| item["price"] == 50_050));
    let uniform = Config { stones: 900, distribution: Distribution::Uniform, ..Config::default() };
    let fixture = SupplierFixture::new(uniform).await;
    let lower = fixture.count(&json!({"dollar_value": {"to": 10_049}})).await;
    assert!((380..520).contains(&lower), "{lower} of 900 in the lower half");
    assert_eq!(fixture.count(&json!({"dollar_value": {"from": 100, "to": 20_000}})).await, 900);
}

#[tokio::test]
async fn catalogues_with_zero_and_one_stone_work() {
    let none = SupplierFixture::stones(0).await;
    assert_eq!(none.count(&default_query()).await, 0);
    assert!(none.page(&default_query(), 0, 30).await.is_empty());
    assert_eq!(none.count(&json!({"dollar_value": {"from": 2, "to": 1}})).await, 0);
    let one = SupplierFixture::stones(1).await;
    assert_eq!(one.all(&default_query()).await.len(), 1);
    assert!(one.page(&default_query(), 1, 30).await.is_empty());
    assert!(one.page(&default_query(), u64::from(u32::MAX >> 1), 30).await.is_empty());
    let many = Supplier::bind(Config { stones: 2_000_001, ..Config::default() }).await;
    assert!(many.is_err_and(|error| error.to_string().contains("2000000")));
}

#[tokio::test]
async fn only_the_configured_account_gets_a_token() {
    let account = Account { username: "shop".to_owned(), password: "secret".to_owned() };
    assert!(!format!("{account:?}").contains("secret"));
    let supplier =
        Supplier::bind(Config { account: Some(account), ..Config::default() }).await.unwrap().spawn();
    let fixture = SupplierFixture { supplier, http: crate::fixture::http(), token: "made up".to_owned() };
    assert!(fixture.login("shop", "wrong").await.unwrap_err().contains("password"));
    assert!(fixture.login("other", "secret").await.is_err());
    let token = fixture.login("shop", "secret").await.unwrap();
    let refused = fixture.query(COUNT, json!({"token": "made up"})).await;
    assert!(refused.error().to_lowercase().contains("token"), "{}", refused.text);
    assert_eq!(refused.json()["errors"][0]["extensions"]["code"], "UNAUTHENTICATED");
    assert_eq!(fixture.query(COUNT, json!({"token": token})).await.error(), "");
    let forged = token.replacen('.', ".9", 1);
    assert!(!fixture.query(COUNT, json!({"token": forged})).await.error().is_empty());
}
