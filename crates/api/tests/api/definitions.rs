//! Feeds with a definition: errors with positions, plans, and tables.

use crate::fixture::{ApiFixture, fields, refused};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tidemill_testkit::interface::Kind;
use tidemill_wire::feeds::PutFeed;
use tidemill_wire::rules::Reprice;

/// A definition that leaves nothing open, so that no request is sent.
const DEFINITION: &str = "version: 1
feed: orders
client: {base_url: 'http://127.0.0.1:9', rate: 7}
resource: {path: /orders, primary_key: id, data_selector: items}
paginator: {type: single_page}
into: {table: public.orders, columns: {id: {path: id, type: text, nullable: false}}}
";

fn put(text: &str) -> PutFeed {
    PutFeed::of_definition("default".to_owned(), text.to_owned())
}

async fn answer(api: &ApiFixture, feed: &str, body: &Value) -> (StatusCode, Value) {
    api.raw(Method::PUT, &format!("/v1/feeds/{feed}"), &body.to_string()).await
}

pub(crate) async fn definition_is_stored_and_its_table_is_created(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let admin = &api.admin;
    let plan = admin.plan_feed("orders", &put(DEFINITION)).await.expect("a plan");
    assert_eq!((plan.table.as_str(), plan.exists, plan.problems.len()), ("public.orders", false, 0));
    assert!(plan.statements.len() == 1 && plan.statements[0].contains("CREATE TABLE"), "{plan:?}");
    assert!(admin.feeds().await.expect("feeds are listed").items.is_empty(), "a plan changes nothing");

    let stored = admin.put_feed("orders", &put(DEFINITION)).await.expect("the feed is stored");
    let feed = &stored.feed;
    assert_eq!((feed.kind.as_str(), feed.endpoint.as_str(), feed.rate), ("rest", "http://127.0.0.1:9", 7));
    assert_eq!(feed.definition_text(), Some(DEFINITION));
    assert_eq!(admin.feed_table("orders").await.expect("the table is compared"), plan);
    let created = admin.create_feed_table("orders").await.expect("the table is created");
    assert_eq!((created.exists, created.statements.len(), created.problems.len()), (true, 0, 0));
    assert_eq!(admin.create_feed_table("orders").await.expect("it exists"), created);

    // A longer definition needs another column, and a table with rows is extended.
    let longer =
        DEFINITION.replace("nullable: false}}", "nullable: false}, amount: {path: a, type: decimal}}");
    let plan = admin.plan_feed("orders", &put(&longer)).await.expect("a plan");
    assert!(plan.exists && plan.statements.len() == 1, "{plan:?}");
    assert!(plan.statements[0].contains("ALTER TABLE") && plan.statements[0].contains("amount"), "{plan:?}");
    assert_eq!(admin.feed_table("orders").await.expect("the table is compared"), created);
    let built = admin.reprice("orders", &Reprice::default()).await.expect("rows are built again");
    assert_eq!((built.stones, built.rejected, built.next), (0, 0, None));
}

pub(crate) async fn errors_of_a_definition_have_positions(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let faulty = DEFINITION.replace("rate: 7", "rte: 7").replace("single_page", "pages");
    for (method, path) in [(Method::PUT, "/v1/feeds/orders"), (Method::POST, "/v1/feeds/orders/plan")] {
        let body = json!({"project_id": "default", "kind": "rest", "definition": faulty}).to_string();
        let (status, problem) = api.raw(method, path, &body).await;
        assert_eq!((status.as_u16(), &problem["code"]), (422, &json!("bad_feed")), "{problem}");
        let places = problem["places"].as_array().expect("positions");
        let lines: Vec<_> = places.iter().filter_map(|place| place["line"].as_u64()).collect();
        assert_eq!(lines, [3, 5], "{problem}");
        assert!(places[0]["hint"].as_str().is_some_and(|hint| hint.contains("rate")), "{problem}");
    }
    let (status, problem) =
        answer(&api, "other", &json!({"project_id": "default", "kind": "rest", "definition": DEFINITION}))
            .await;
    assert_eq!((status.as_u16(), fields(&problem)), (422, vec!["definition".to_owned()]), "{problem}");
    assert!(problem["message"].as_str().is_some_and(|message| message.contains("is of feed `orders`")));
    assert!(api.admin.feeds().await.expect("feeds are listed").items.is_empty());
}

pub(crate) async fn feed_has_a_definition_or_settings_of_its_own(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let definition = json!({"project_id": "default", "definition": DEFINITION});
    let with = |key: &str, value: Value| {
        let mut body = definition.clone();
        body[key] = value;
        body
    };
    for (field, body) in [
        ("endpoint", json!({"project_id": "default"})),
        ("definition", json!({"project_id": "default", "kind": "rest", "endpoint": "http://127.0.0.1:9"})),
        ("endpoint", with("endpoint", json!("http://127.0.0.1:9"))),
        ("username", with("username", json!("ann"))),
        ("password_env", with("password_env", json!("HOME"))),
        ("settings", with("settings", json!({"a": 1}))),
    ] {
        let (status, problem) = answer(&api, "orders", &body).await;
        assert_eq!((status.as_u16(), fields(&problem)), (422, vec![field.to_owned()]), "{body} {problem}");
    }
    let (status, stored) = answer(&api, "orders", &definition).await;
    assert_eq!((status.as_u16(), &stored["kind"]), (200, &json!("rest")), "{stored}");

    // A preset has no table of its own, and a feed with a definition has no prices.
    let admin = &api.admin;
    let preset = json!({"project_id": "default", "endpoint": "http://127.0.0.1:9/graphql", "username": "u",
        "password_env": "FEED_PASSWORD"});
    assert_eq!(answer(&api, "gems", &preset).await.0, StatusCode::OK);
    assert_eq!(refused(admin.feed_table("gems").await), (422, "bad_value".to_owned()));
    assert_eq!(refused(admin.feed_table("none").await), (404, "unknown_feed".to_owned()));
    let rule = serde_json::from_value(json!({"markup": 20_000, "feed": "orders"})).expect("a rule");
    assert_eq!(refused(admin.add_rule(&rule, None).await), (422, "invalid".to_owned()));
    let stone = serde_json::from_value(json!({"feed": "orders", "price": 1, "points": 1})).expect("a stone");
    assert_eq!(refused(admin.test_rules(&stone).await), (422, "invalid".to_owned()));
}
