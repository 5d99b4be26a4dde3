//! The API as the real one has it, its quirks included.

use crate::stage::{COUNT, Stage, ids, page_document, usual};
use serde_json::{Value, json};
use std::collections::HashSet;
use tidemill_core::digest::sha256_hex;
use tidemill_supplier::{Account, Change, Config, Distribution, STANDARD_SELECTION, Supplier, What};

#[tokio::test]
async fn paging_through_everything_gives_each_stone_once() {
    let stage = Stage::stones(731).await;
    let items = stage.all(&usual()).await;
    assert_eq!(items.len(), 731);
    assert_eq!(ids(&items).into_iter().collect::<HashSet<_>>().len(), 731);
    assert_eq!(stage.count(&usual()).await, 731);
}

#[tokio::test]
async fn partitions_by_whole_dollars_have_every_stone_in_exactly_one() {
    let stage = Stage::stones(2_000).await;
    let mut seen = HashSet::new();
    for (from, to) in [(0, 499), (500, 999), (1_000, 4_999), (5_000, 19_999), (20_000, 99_999_999)] {
        let mut query = usual();
        query["dollar_value"] = json!({"from": from, "to": to});
        let items = stage.all(&query).await;
        assert_eq!(stage.count(&query).await, items.len() as u64);
        for item in &items {
            let dollars = item["price"].as_u64().unwrap() / 100;
            assert!((from..=to).contains(&dollars), "{dollars} is not from {from} to {to}");
        }
        seen.extend(ids(&items));
    }
    assert_eq!(seen.len(), 2_000);
}

#[tokio::test]
async fn the_truth_is_what_the_pages_serve() {
    let config = Config { stones: 300, nul_stones: 2, uncertified_stones: 2, ..Config::default() };
    let stage = Stage::new(config).await;
    stage.supplier.handle.change(&Change::some(What::Vanish, 20, 1)).unwrap();
    stage.supplier.handle.change(&Change::some(What::Media, 50, 2)).unwrap();
    let truth = stage.supplier.handle.truth();
    let mut served = 0;
    for offset in (0..300).step_by(30) {
        let text = stage.raw_page(&usual(), offset, 30).await.text;
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
    let url = format!("http://{}/admin/truth", stage.supplier.local_addr);
    let lines = stage.http.get(url).send().await.unwrap().text().await.unwrap();
    let lines: Vec<tidemill_supplier::Truth> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines, truth);
    let listed = stage.post("/admin/truth", usual().to_string()).await.unwrap();
    assert_eq!(listed.text.lines().count(), 280, "the truth can be asked for by a query");
}

/// The texts of the items in an answer, cut out by counting brackets: not parsed, so not written anew.
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

/// The first request with a document goes the general way, the second the fast one: stats tell.
#[tokio::test]
async fn the_fast_way_and_the_general_way_give_the_same_text() {
    let config = Config { stones: 400, nul_stones: 5, uncertified_stones: 5, ..Config::default() };
    let stage = Stage::new(Config { off_query_per_mille: 300, ..config }).await;
    stage.supplier.handle.change(&Change::some(What::Hold, 30, 1)).unwrap();
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
        for query in
            [Value::Null, usual(), json!({"availability": ["ON_HOLD"]}), json!({"shapes": ["BAGUETTE"]})]
        {
            for offset in [0, 40] {
                let variables = json!({"token": stage.token, "query": query, "offset": offset, "limit": 50});
                // A comment makes it another document, which has to go the general way first.
                let other = format!("{document} # {query} {offset}");
                let before = stage.supplier.handle.stats();
                let general = stage.ask(&other, variables.clone()).await.text;
                let fast = stage.ask(&other, variables).await.text;
                let after = stage.supplier.handle.stats();
                assert_eq!((after.general - before.general, after.fast - before.fast), (1, 1), "{selection}");
                assert!(general.contains("\"data\":{\"as\""), "{general}");
                assert_eq!(general, fast);
            }
        }
    }
}

#[tokio::test]
async fn aliases_fragments_literals_and_several_questions_work() {
    let stage = Stage::stones(120).await;
    let both = "query($t: String!, $dear: Int = 3000) { as(token: $t) { \
        cheap: diamonds_by_query_count(query: {dollar_value: {from: 0, to: 2999}}) \
        dear: diamonds_by_query_count(query: {dollar_value: {from: $dear}}) \
        first: diamonds_by_query(limit: 2) { items { id } } } }";
    for _ in 0..2 {
        let answer = stage.ask(both, json!({"t": stage.token})).await.json()["data"]["as"].clone();
        assert_eq!(answer["cheap"].as_u64().unwrap() + answer["dear"].as_u64().unwrap(), 120);
        assert_eq!(answer["first"]["items"].as_array().unwrap().len(), 2);
    }
    let fragment = "query($t: String!) { me: as(token: $t) { diamonds_by_query(limit: 1) { \
        items { ...Few } } } } fragment Few on DiamondOffer { id price }";
    let literal = format!(
        "{{ as(token: \"{}\") {{ diamonds_by_query(offset: 0, limit: 1) {{ items {{ id price }} }} }} }}",
        stage.token
    );
    let fragment = stage.ask(fragment, json!({"t": stage.token})).await.json();
    let literal = stage.ask(&literal, json!({})).await.json();
    let item = &fragment["data"]["me"]["diamonds_by_query"]["items"][0];
    assert_eq!(item, &literal["data"]["as"]["diamonds_by_query"]["items"][0]);
    assert!(item["price"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn what_the_schema_does_not_know_is_refused() {
    let stage = Stage::stones(10).await;
    let ask = async |query: Value, limit: u64| stage.raw_page(&query, 0, limit).await.error();
    assert_eq!(ask(usual(), 50).await, "", "this one is right, so that the next go by the fast way first");
    assert!(ask(json!({"updatedAt": {"from": "2026-01-01T00:00:00Z"}}), 50).await.contains("updatedAt"));
    assert!(ask(usual(), 51).await.contains("at most 50"));
    assert!(!ask(json!({"updated": {"from": "yesterday"}}), 50).await.is_empty());
    assert!(!ask(json!({"availability": ["BROKEN"]}), 50).await.is_empty());
    let document = page_document("id").replace("createdAt", "price");
    let answer = stage.ask(&document, json!({"token": stage.token})).await;
    assert!(answer.error().contains("does not order by price"), "{}", answer.text);
    let unknown = stage.ask("{ everything }", json!({})).await;
    assert!(unknown.error().contains("everything"), "{}", unknown.text);
}

#[tokio::test]
async fn an_inverted_range_answers_with_about_thirty_arbitrary_stones() {
    let stage = Stage::stones(500).await;
    let query = json!({"dollar_value": {"from": 1_000, "to": 999}});
    assert_eq!(stage.count(&query).await, 30);
    let items = stage.page(&query, 0, 50).await;
    assert_eq!(items.len(), 30);
    assert!(items.iter().any(|item| item["price"].as_u64().unwrap() / 100 != 1_000));
}

#[tokio::test]
async fn stones_are_found_by_id_while_they_exist() {
    let stage = Stage::stones(50).await;
    let items = stage.page(&usual(), 0, 5).await;
    let names = ids(&items);
    let asked = json!({"ids": [names[3], "no-such-stone", items[1]["id"], names[3]]});
    let found = ids(&stage.page(&asked, 0, 50).await);
    assert_eq!(found, [names[1].clone(), names[3].clone()]);
    assert_eq!(stage.count(&asked).await, 2);
    let change =
        |what, name: &String| stage.supplier.handle.change(&Change::these(what, vec![name.clone()])).unwrap();
    change(What::Sell, &names[1]);
    change(What::Remove, &names[3]);
    let found = stage.page(&asked, 0, 50).await;
    assert_eq!(ids(&found), [names[1].clone()], "what is sold is found by its id, what is removed is not");
    assert_eq!(found[0]["diamond"]["availability"], "SOLD");
    let mut available = asked.clone();
    available["availability"] = json!(["AVAILABLE"]);
    assert!(stage.page(&available, 0, 50).await.is_empty());
    let one = "query($t: String!, $id: ID!) { as(token: $t) { \
        get_diamond_by_id(diamond_id: $id) { availability } } }";
    for (name, expected) in
        [(&names[0], json!("AVAILABLE")), (&names[1], json!("SOLD")), (&names[3], Value::Null)]
    {
        let answer = stage.ask(one, json!({"t": stage.token, "id": name})).await.json();
        assert_eq!(answer["data"]["as"]["get_diamond_by_id"]["availability"], expected);
    }
}

#[tokio::test]
async fn filters_leave_out_what_they_say() {
    let config = Config { stones: 1_500, off_query_per_mille: 300, ..Config::default() };
    let stage = Stage::new(config).await;
    let all = stage.all(&Value::Null).await;
    let shapes: Vec<&str> =
        all.iter().filter_map(|one| one["diamond"]["certificate"]["shape"].as_str()).collect();
    let has = |name: &str| shapes.iter().filter(|shape| **shape == name).count() as u64;
    assert_eq!(stage.count(&json!({"shapes": ["ROUND"]})).await, has("ROUND"));
    assert_eq!(stage.count(&json!({"shapes": ["BAGUETTE", "PEAR"]})).await, has("BAGUETTE") + has("PEAR"));
    let grown = all.iter().filter(|one| one["diamond"]["certificate"]["labgrown"] == true).count() as u64;
    assert_eq!(stage.count(&json!({"labgrown": true})).await, grown);
    assert!(grown > 40 && grown < 130, "{grown} of 1,500");
    let bare = all.iter().filter(|one| one["diamond"]["image"].is_null()).count() as u64;
    assert_eq!(stage.count(&json!({"has_image": true})).await, 1_500 - bare);
    let still = all.iter().filter(|one| one["diamond"]["video"].is_null()).count() as u64;
    assert_eq!(stage.count(&json!({"has_v360": true})).await, 1_500 - still);
    let fair = |one: &&Value| matches!(one["diamond"]["certificate"]["cut"].as_str(), Some("F" | "P"));
    let fair = all.iter().filter(fair).count() as u64;
    assert_eq!(stage.count(&json!({"excludeFairPoorCuts": true})).await, 1_500 - fair);
    let small = all.iter().filter(|one| one["diamond"]["certificate"]["carats"].as_f64().unwrap() < 0.4);
    assert_eq!(stage.count(&json!({"sizes": {"from": 0.4}})).await, 1_500 - small.count() as u64);
    assert!(bare > 0 && still > 0 && fair > 0 && stage.count(&json!({"hide_memo": true})).await < 1_500);
}

#[tokio::test]
async fn the_newest_come_first_when_asked_for() {
    let stage = Stage::stones(60).await;
    let document = page_document("diamond { id }").replace("ASC", "DESC");
    let variables = json!({"token": stage.token, "offset": 5, "limit": 50});
    for _ in 0..2 {
        let answer = stage.ask(&document, variables.clone()).await.json();
        let mut found = ids(answer["data"]["as"]["diamonds_by_query"]["items"].as_array().unwrap());
        found.reverse();
        assert_eq!(found, ids(&stage.all(&Value::Null).await)[5..55]);
    }
}

#[tokio::test]
async fn the_same_seed_serves_the_same_texts_and_another_seed_others() {
    let text = async |seed| {
        let stage = Stage::new(Config { seed, stones: 100, ..Config::default() }).await;
        stage.raw_page(&usual(), 50, 50).await.text
    };
    assert_eq!(text(7).await, text(7).await);
    assert_ne!(text(7).await, text(8).await);
}

#[tokio::test]
async fn an_item_is_as_large_as_a_real_one() {
    let stage = Stage::stones(500).await;
    let mut bytes = 0;
    for offset in (0..500).step_by(50) {
        bytes += raw_items(&stage.raw_page(&usual(), offset, 50).await.text)
            .iter()
            .map(|one| one.len())
            .sum::<usize>();
    }
    let mean = bytes / 500;
    assert!((1_200..=1_600).contains(&mean), "{mean} bytes");
}

#[tokio::test]
async fn prices_can_be_spread_in_other_ways() {
    let one_price =
        Config { distribution: Distribution::OnePrice, one_price_cents: 50_050, ..Config::default() };
    let stage = Stage::new(Config { stones: 90, ..one_price }).await;
    assert_eq!(stage.count(&json!({"dollar_value": {"from": 500, "to": 500}})).await, 90);
    assert!(stage.all(&usual()).await.iter().all(|item| item["price"] == 50_050));
    let uniform = Config { stones: 900, distribution: Distribution::Uniform, ..Config::default() };
    let stage = Stage::new(uniform).await;
    let lower = stage.count(&json!({"dollar_value": {"to": 10_049}})).await;
    assert!((380..520).contains(&lower), "{lower} of 900 in the lower half");
    assert_eq!(stage.count(&json!({"dollar_value": {"from": 100, "to": 20_000}})).await, 900);
}

#[tokio::test]
async fn no_stones_and_one_stone_are_catalogues_too() {
    let none = Stage::stones(0).await;
    assert_eq!(none.count(&usual()).await, 0);
    assert!(none.page(&usual(), 0, 30).await.is_empty());
    assert_eq!(none.count(&json!({"dollar_value": {"from": 2, "to": 1}})).await, 0);
    let one = Stage::stones(1).await;
    assert_eq!(one.all(&usual()).await.len(), 1);
    assert!(one.page(&usual(), 1, 30).await.is_empty());
    assert!(one.page(&usual(), u64::from(u32::MAX >> 1), 30).await.is_empty());
    let many = Supplier::bind(Config { stones: 2_000_001, ..Config::default() }).await;
    assert!(many.is_err_and(|fault| fault.to_string().contains("2000000")));
}

#[tokio::test]
async fn only_the_configured_account_gets_a_token() {
    let account = Account { username: "shop".to_owned(), password: "secret".to_owned() };
    assert!(!format!("{account:?}").contains("secret"));
    let supplier =
        Supplier::bind(Config { account: Some(account), ..Config::default() }).await.unwrap().spawn();
    let stage = Stage { supplier, http: crate::stage::http(), token: "made up".to_owned() };
    assert!(stage.login("shop", "wrong").await.unwrap_err().contains("password"));
    assert!(stage.login("other", "secret").await.is_err());
    let token = stage.login("shop", "secret").await.unwrap();
    let refused = stage.ask(COUNT, json!({"token": "made up"})).await;
    assert!(refused.error().to_lowercase().contains("token"), "{}", refused.text);
    assert_eq!(refused.json()["errors"][0]["extensions"]["code"], "UNAUTHENTICATED");
    assert_eq!(stage.ask(COUNT, json!({"token": token})).await.error(), "");
    let forged = token.replacen('.', ".9", 1);
    assert!(!stage.ask(COUNT, json!({"token": forged})).await.error().is_empty());
}
