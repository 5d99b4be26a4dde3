//! A client that reads a list of each kind until it ends.

use crate::fixture::{HttpResponse, SupplierFixture};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tidemill_supplier::RestKind;

/// Maximum number of pages of a list, so that an endless list fails the test.
const PAGES_MAX: usize = 200;

pub(crate) const COUNT: &str = "query($priceFrom: Float, $priceTo: Float, $updatedSince: String, $ids: [ID!]) { \
    itemsCount(priceFrom: $priceFrom, priceTo: $priceTo, updatedSince: $updatedSince, ids: $ids) }";

/// Filters of a list.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filters {
    pub(crate) price_from: Option<f64>,
    pub(crate) price_to: Option<f64>,
    pub(crate) updated_since: Option<String>,
    pub(crate) ids: Vec<String>,
}

impl Filters {
    pub(crate) fn since(time: chrono::DateTime<chrono::Utc>) -> Self {
        Self { updated_since: Some(time.to_rfc3339()), ..Self::default() }
    }

    fn variables(&self) -> Value {
        let ids = if self.ids.is_empty() { Value::Null } else { json!(self.ids) };
        json!({"priceFrom": self.price_from, "priceTo": self.price_to, "updatedSince": self.updated_since,
            "ids": ids})
    }

    fn query(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        let prices = [("price_from", self.price_from), ("price_to", self.price_to)];
        for (name, price) in prices {
            query.extend_pairs(price.map(|price| (name, price.to_string())));
        }
        query.extend_pairs(self.updated_since.as_ref().map(|since| ("updated_since", since)));
        if !self.ids.is_empty() {
            query.append_pair("ids", &self.ids.join(","));
        }
        query.finish()
    }
}

/// Pointer to the list in a GraphQL response.
fn graphql_list(kind: RestKind) -> &'static str {
    if kind == RestKind::GraphqlOffset { "/data/items" } else { "/data/itemsConnection" }
}

/// A page of a list.
pub(crate) struct Page {
    pub(crate) kind: RestKind,
    pub(crate) response: HttpResponse,
    pub(crate) items: Vec<Value>,
}

impl Page {
    fn header(&self, name: &str) -> Option<String> {
        self.response.headers.get(name).map(|value| value.to_str().unwrap().to_owned())
    }

    fn body(&self, pointer: &str) -> Value {
        self.response.json().pointer(pointer).cloned().unwrap_or_default()
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        self.items.iter().map(|item| item["id"].as_str().unwrap_or_default().to_owned()).collect()
    }

    pub(crate) fn total(&self) -> u64 {
        if self.kind.is_graphql() {
            return self.body(&format!("{}/totalCount", graphql_list(self.kind))).as_u64().unwrap();
        }
        let total = self.header("x-total-count").unwrap().parse().unwrap();
        assert!(!self.kind.has_envelope() || self.body("/meta/total") == json!(total));
        total
    }

    /// Flag for more items; `None` if pages of the kind have none.
    pub(crate) fn has_more(&self) -> Option<bool> {
        let list = graphql_list(self.kind);
        let pointers =
            ["/meta/has_more".to_owned(), format!("{list}/hasMore"), format!("{list}/pageInfo/hasNextPage")];
        pointers.iter().find_map(|pointer| self.body(pointer).as_bool())
    }

    /// Cursor or URL of the next page.
    pub(crate) fn token(&self) -> Option<String> {
        let text = |value: Value| value.as_str().map(str::to_owned);
        match self.kind {
            RestKind::Cursor => text(self.body("/meta/next_cursor")),
            RestKind::JsonLink => text(self.body("/links/next")),
            RestKind::HeaderCursor => self.header("x-next-cursor"),
            RestKind::HeaderUrl => self.header("x-next-page"),
            RestKind::HeaderLink => {
                let link = self.header("link")?;
                Some(link.strip_prefix('<').unwrap().strip_suffix(">; rel=\"next\"").unwrap().to_owned())
            }
            RestKind::GraphqlConnection => text(self.body("/data/itemsConnection/pageInfo/endCursor")),
            RestKind::SinglePage
            | RestKind::PageNumber
            | RestKind::Offset
            | RestKind::Keyset
            | RestKind::GraphqlOffset => None,
        }
    }
}

/// The place of a page.
#[derive(Debug, Clone, Default)]
pub(crate) struct Place {
    /// Number of items before the page.
    pub(crate) offset: usize,
    /// Cursor, URL or id of the last item.
    pub(crate) token: Option<String>,
}

impl SupplierFixture {
    /// Requests a page. It must succeed.
    pub(crate) async fn rest_page(
        &self,
        kind: RestKind,
        filters: &Filters,
        place: &Place,
        limit: usize,
    ) -> Page {
        let response = self.rest_response(kind, filters, place, limit).await;
        assert_eq!(response.status, 200, "{kind}: {}", response.text);
        let body = response.json();
        let items = if kind.is_graphql() {
            &body.pointer(graphql_list(kind)).unwrap_or(&Value::Null)["nodes"]
        } else if kind.has_envelope() {
            &body["data"]
        } else {
            &body
        };
        let items = items.as_array().unwrap_or_else(|| panic!("{kind}: {}", response.text)).clone();
        Page { kind, response, items }
    }

    async fn rest_response(
        &self,
        kind: RestKind,
        filters: &Filters,
        place: &Place,
        limit: usize,
    ) -> HttpResponse {
        let paging = match kind {
            RestKind::SinglePage => String::new(),
            RestKind::PageNumber => format!("&page={}&per_page={limit}", place.offset / limit + 1),
            RestKind::Offset => format!("&offset={}&limit={limit}", place.offset),
            RestKind::Cursor | RestKind::HeaderCursor => {
                let mut query = form_urlencoded::Serializer::new(format!("&limit={limit}"));
                query.extend_pairs(place.token.as_ref().map(|token| ("cursor", token)));
                query.finish()
            }
            RestKind::Keyset => {
                let after = place.token.as_ref().map(|id| format!("&after_id={}", id.replace(' ', "+")));
                format!("&limit={limit}{}", after.unwrap_or_default())
            }
            RestKind::JsonLink | RestKind::HeaderUrl if place.token.is_none() => format!("&limit={limit}"),
            RestKind::HeaderLink if place.token.is_none() => format!("&per_page={limit}"),
            RestKind::JsonLink | RestKind::HeaderUrl | RestKind::HeaderLink => {
                let token = place.token.as_deref().unwrap();
                let base = format!("http://{}", self.supplier.local_addr);
                assert_eq!(token.starts_with(&base), kind != RestKind::JsonLink, "{token}");
                return self.get(token.strip_prefix(&base).unwrap_or(token)).await;
            }
            RestKind::GraphqlOffset | RestKind::GraphqlConnection => {
                return self.rest_graphql(kind, filters, place, limit).await;
            }
        };
        self.get(&format!("/rest/{kind}/items?{}{paging}", filters.query())).await
    }

    async fn rest_graphql(
        &self,
        kind: RestKind,
        filters: &Filters,
        place: &Place,
        limit: usize,
    ) -> HttpResponse {
        let selection = "{ id sku name status price currency brand quantity weight_kg is_fragile tags \
            dimensions { width_mm height_mm depth_mm } warehouse { code city country } \
            variants { colour barcode stock } image_url notes released_on created_at updated_at }";
        let arguments = "priceFrom: $priceFrom, priceTo: $priceTo, updatedSince: $updatedSince, ids: $ids";
        let field = if kind == RestKind::GraphqlOffset {
            format!(
                "items(offset: $offset, limit: $limit, {arguments}) {{ totalCount hasMore nodes {selection} }}"
            )
        } else {
            format!(
                "itemsConnection(after: $after, first: $limit, {arguments}) {{ totalCount \
                 edges {{ cursor node {{ id }} }} pageInfo {{ hasNextPage endCursor }} nodes {selection} }}"
            )
        };
        let document = format!(
            "query List($offset: Int, $after: String, $limit: Int, $priceFrom: Float, $priceTo: Float, \
             $updatedSince: String, $ids: [ID!]) {{ {field} }}"
        );
        let mut variables = filters.variables();
        variables["limit"] = json!(limit);
        variables["offset"] = json!(place.offset);
        variables["after"] = json!(place.token);
        self.rest_query(&document, variables).await
    }

    pub(crate) async fn rest_query(&self, document: &str, variables: Value) -> HttpResponse {
        let body = json!({"query": document, "variables": variables});
        self.post("/rest/graphql", body.to_string()).await.unwrap()
    }

    /// Reads all pages of a list.
    pub(crate) async fn rest_pages(&self, kind: RestKind, filters: &Filters, limit: usize) -> Vec<Page> {
        let (mut place, mut pages) = (Place::default(), Vec::new());
        while pages.len() < PAGES_MAX {
            let page = self.rest_page(kind, filters, &place, limit).await;
            place.offset += page.items.len();
            place.token = page.token();
            let is_last = match kind {
                RestKind::SinglePage => true,
                RestKind::PageNumber => {
                    // Page numbers count full pages.
                    place.offset = (pages.len() + 1) * limit;
                    !page.has_more().unwrap()
                }
                RestKind::Offset | RestKind::GraphqlOffset | RestKind::GraphqlConnection => {
                    !page.has_more().unwrap()
                }
                RestKind::Keyset => {
                    place.token = page.ids().pop();
                    !page.has_more().unwrap()
                }
                RestKind::Cursor
                | RestKind::JsonLink
                | RestKind::HeaderCursor
                | RestKind::HeaderUrl
                | RestKind::HeaderLink => place.token.is_none(),
            };
            pages.push(page);
            if is_last {
                return pages;
            }
        }
        panic!("{kind}: the list does not end");
    }

    /// Returns the items of all pages.
    pub(crate) async fn rest_items(&self, kind: RestKind, filters: &Filters) -> Vec<Value> {
        self.rest_pages(kind, filters, 30).await.into_iter().flat_map(|page| page.items).collect()
    }

    pub(crate) async fn rest_count(&self, kind: RestKind, filters: &Filters) -> u64 {
        let (response, pointer) = if kind.is_graphql() {
            (self.rest_query(COUNT, filters.variables()).await, "/data/itemsCount")
        } else {
            (self.get(&format!("/rest/{kind}/items/count?{}", filters.query())).await, "/total")
        };
        let count = response.json().pointer(pointer).and_then(Value::as_u64);
        count.unwrap_or_else(|| panic!("{kind}: {}", response.text))
    }
}

/// Items by id. No id may be listed twice.
pub(crate) fn by_id(items: Vec<Value>) -> BTreeMap<String, Value> {
    let length = items.len();
    let items = items.into_iter().map(|item| (item["id"].as_str().unwrap().to_owned(), item));
    let items: BTreeMap<String, Value> = items.collect();
    assert_eq!(items.len(), length, "an item is listed twice");
    items
}

/// The active items by id.
pub(crate) fn truth(fixture: &SupplierFixture) -> BTreeMap<String, Value> {
    let items = fixture.supplier.handle.rest_truth().into_iter();
    items.map(|(id, item)| (id, serde_json::from_str(&item).unwrap())).collect()
}
