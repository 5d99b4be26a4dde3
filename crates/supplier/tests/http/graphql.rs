//! Documents that the GraphQL executor rejects, and the selection of operations.

use crate::fixture::SupplierFixture;
use serde_json::json;

const TOO_DEEP: &str = "the query is nested too deeply";

#[tokio::test]
async fn unsupported_documents_are_rejected_with_a_reason() {
    let fixture = SupplierFixture::stones(1).await;
    let below_as = |fields: &str| format!("{{ as(token: \"x\") {{ {fields} }} }}");
    let lookup = |fields: &str| below_as(&format!("get_diamond_by_id(diamond_id: \"x\") {{ {fields} }}"));
    let cases = [
        ("{ everything }".to_owned(), "type `Query` has no field `everything`"),
        ("{ __schema { types { name } } }".to_owned(), "type `Query` has no field `__schema`"),
        (below_as("stones"), "type `Session` has no field `stones`"),
        (below_as("c: diamonds_by_query_count(x: 1)"), "field `diamonds_by_query_count` has no argument `x`"),
        (
            below_as("c: diamonds_by_query_count { id }"),
            "field `diamonds_by_query_count` of type `Session` has no fields",
        ),
        ("{ as(token: \"x\") }".to_owned(), "field `as` of type `Query` needs a selection of fields"),
        ("mutation { authenticate { a } }".to_owned(), "only queries are supported"),
        ("query @x { authenticate { a } }".to_owned(), "directives are not supported"),
        (lookup("id @x"), "directives are not supported"),
        (lookup("id price"), "type `Diamond` has no field `price`"),
        (lookup("id id"), "`id` is selected twice in type `Diamond`; use an alias"),
        (lookup("...B"), "unknown fragment `B`"),
        (
            lookup("...A") + " fragment A on Supplier { id }",
            "fragment `A` is for type `Supplier`, not `Diamond`",
        ),
        (lookup("... on Supplier { id }"), "an inline fragment is for type `Supplier`, not `Diamond`"),
        (
            "query($t: String!) { as(token: $t) { diamonds_by_query_count } }".to_owned(),
            "variable `$t` is required",
        ),
        ("{ as(token: $t) { diamonds_by_query_count } }".to_owned(), "variable `$t` is not defined"),
        ("{ ...A } fragment A on Query { ...B } fragment B on Query { ...A }".to_owned(), TOO_DEEP),
        ("{a".repeat(1_000), TOO_DEEP),
    ];
    for (document, reason) in cases {
        let response = fixture.query(&document, json!({})).await;
        assert_eq!(response.status, 200, "{document}");
        assert_eq!(
            response.json(),
            json!({"data": null, "errors": [{"message": reason, "extensions": {"code": "BAD_USER_INPUT"}}]}),
            "{document}"
        );
    }
}

#[tokio::test]
async fn document_with_too_many_fields_is_rejected() {
    let fixture = SupplierFixture::stones(1).await;
    let fields: Vec<String> =
        (0..3_000).map(|number| format!("c{number}: diamonds_by_query_count")).collect();
    let fields = fields.join(" ");
    let response = fixture.query(&format!("{{ as(token: \"x\") {{ {fields} }} }}"), json!({})).await;
    assert_eq!(response.error(), "the query has more than 2000 fields");
}

#[tokio::test]
async fn several_operations_need_an_operation_name() {
    let fixture = SupplierFixture::stones(7).await;
    let document = "query A($t: String!) { as(token: $t) { a: diamonds_by_query_count } } \
        query B($t: String!) { me: as(token: $t) { ... on Session { b: diamonds_by_query_count } } }";
    let send = async |name: Option<&str>| {
        let body = json!({"query": document, "variables": {"t": fixture.token}, "operationName": name});
        fixture.post("/api/diamonds", body.to_string()).await.unwrap()
    };
    assert_eq!(send(Some("A")).await.text, r#"{"data":{"as":{"a":7}}}"#);
    assert_eq!(send(Some("B")).await.text, r#"{"data":{"me":{"b":7}}}"#);
    assert_eq!(send(Some("C")).await.error(), "unknown operation `C`");
    assert!(send(None).await.error().contains("operationName is required"));
}
